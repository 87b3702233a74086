# SPDX-License-Identifier: Apache-2.0
"""How long a watched loop waits, and what it counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from roofline_job import lanes, phase, step, watch
from roofline_job.failures import FAILURES
from roofline_job.lanes import Lane
from roofline_job.runs import PROCESS
from roofline_job.totals import Totals

pytestmark = pytest.mark.usefixtures("client")


class Time:
    """A clock that moves when the job does something."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, time_ns: int) -> None:
        self.now_ns += time_ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Put every lane on one scripted clock, and send nothing."""
    clock = Time()

    def lane(run: Any, **kwargs: Any) -> Lane:
        run.tell = lambda *_, **__: None
        return real(run, clock, **kwargs)

    real = Lane
    monkeypatch.setattr(lanes, "Lane", lane)
    return clock


def totals(job: str | None = None) -> Totals:
    return PROCESS.run(job, None).totals()


def loader(time: Time, waits_ns: Iterable[int]) -> Iterator[int]:
    for wait_ns in waits_ns:
        time.spend(wait_ns)
        yield wait_ns


def test_waits_are_data_and_the_rest_is_not(time: Time) -> None:
    """W is the time in next(), the last one included; wall time is that of the loop."""
    for _ in watch(loader(time, [5, 7, 11])):
        time.spend(100)
    time.spend(1_000)

    found = totals()
    assert found.phase_ns == {"data": 23}
    assert found.wall_ns == 323
    assert (found.steps, found.batches, found.samples, found.flops) == (3, 3, None, None)


def test_asking_again_after_the_end_is_no_loop(time: Time) -> None:
    """Wall time does not run, and what the job said of the loop before stays."""
    iterator: Any = iter(watch(loader(time, [1, 1]), flops_per_step=10))
    for _ in range(4):
        next(iterator, None)
        time.spend(10)

    found = totals()
    assert (found.wall_ns, found.phase_ns) == (22, {"data": 2})
    assert (found.steps, found.batches, found.flops) == (2, 2, 20)


def test_time_before_and_between_epochs_does_not_count(time: Time) -> None:
    """A loop is open from its first next() to its last."""
    for _ in range(2):
        watched = watch(loader(time, [1, 1]))
        time.spend(500)
        for _ in watched:
            time.spend(10)

    assert totals().wall_ns == 2 * 22


def test_a_loop_that_is_left_early_is_closed(time: Time) -> None:
    """Its last body counts; what comes after it does not."""
    watched = watch([1, 2, 3])
    for _ in watched:
        time.spend(10)
        break
    time.spend(1_000)
    for _ in watched:
        time.spend(1)

    assert totals().wall_ns == 10 + 3
    assert totals().batches == 4


def test_a_loader_that_raises_ends_the_loop(time: Time) -> None:
    """The wait before it raised is a wait; if the job goes on, so do the totals."""

    def broken() -> Iterator[int]:
        yield 1
        time.spend(7)
        raise ValueError

    def epoch() -> None:
        for _ in watch(broken()):
            time.spend(10)

    for _ in range(2):
        with pytest.raises(ValueError):
            epoch()
        time.spend(1_000)

    found = totals()
    assert (found.phase_ns, found.wall_ns, found.batches) == ({"data": 14}, 34, 2)


def test_a_loader_may_be_asked_again_after_it_raised(time: Time) -> None:
    """The loop is open again from that next() on."""

    class Flaky:
        def __init__(self) -> None:
            self.asked = 0

        def __iter__(self) -> Flaky:
            return self

        def __next__(self) -> int:
            self.asked += 1
            time.spend(1)
            if self.asked == 2:
                raise TimeoutError
            return self.asked

    iterator: Any = iter(watch(Flaky()))
    assert next(iterator) == 1
    with pytest.raises(TimeoutError):
        next(iterator)
    time.spend(1_000)
    assert next(iterator) == 3

    assert totals().phase_ns == {"data": 3}
    assert totals().wall_ns == 3


def test_samples_and_flops_are_counted_as_stated(time: Time) -> None:
    """A number per batch, or a function of the batch; FLOPs by sample or by step."""
    for _ in watch([1, 2], samples_per_batch=32, flops_per_step=10):
        pass
    for _ in watch([[1, 2], [3]], samples_per_batch=len, flops_per_sample=100):
        pass

    assert totals().samples == 64 + 3
    assert totals().flops == 20 + 300


@pytest.mark.parametrize("samples", [float("nan"), -1, "many", 10**40, object()])
def test_what_cannot_be_counted_is_a_failure_and_the_loop_goes_on(time: Time, samples: Any) -> None:
    """Whether stated or computed, a number that makes no sense is left out."""
    assert list(watch([1, 2], samples_per_batch=samples)) == [1, 2]
    assert list(watch([3], samples_per_batch=lambda _: samples)) == [3]

    assert totals().samples is None
    assert totals().batches == 3
    assert FAILURES.count == 2


def test_a_function_of_the_batch_that_raises_harms_nobody(time: Time) -> None:
    """It is the job's mistake, and yet it does not end the job."""
    assert list(watch([1, 2], samples_per_batch=len)) == [1, 2]  # type: ignore[arg-type]

    assert (totals().batches, FAILURES.count) == (2, 2)
    assert FAILURES.first == "TypeError: object of type 'int' has no len()"


@pytest.mark.parametrize("job", [b"bytes", 7, "\n", "x" * 10_000, ["list"]])
def test_a_job_may_be_called_anything(time: Time, job: Any) -> None:
    """A name that is none does not end the job."""
    assert list(watch([1, 2], job=job, rank="first")) == [1, 2]  # type: ignore[arg-type]


def test_a_loop_inside_a_loop(time: Time) -> None:
    """Validation in phase eval: waits of both are data, steps are those of the training."""
    for _ in watch(loader(time, [1, 1])):
        time.spend(10)
        with phase("eval"):
            for _ in watch(loader(time, [2, 2, 2])):
                time.spend(5)

    found = totals()
    assert found.phase_ns == {"data": 2 + 12, "eval": 30}
    assert found.wall_ns == 2 + 20 + 12 + 30
    assert (found.steps, found.batches) == (2, 2)


def test_two_loops_that_are_zipped_make_one_step_together(time: Time) -> None:
    """Both waits count, at their own time; both batches, but the step only once."""
    for _ in zip(watch(loader(time, [1] * 4)), watch(loader(time, [10] * 4)), strict=True):
        time.spend(100)

    found = totals()
    assert (found.phase_ns, found.wall_ns) == ({"data": 44}, 444)
    assert (found.steps, found.batches) == (4, 8)


def test_two_loaders_one_after_the_other(time: Time) -> None:
    """Steps of the second add to those of the first."""
    for waits in ([1, 1], [2, 2, 2]):
        for _ in watch(loader(time, waits)):
            pass

    assert (totals().steps, totals().phase_ns) == (5, {"data": 8})


def test_a_watched_iterable_inside_a_watched_one_counts_once(time: Time) -> None:
    """A generator over a watched loader: its time is data once, its batches are counted once."""

    def prefetched() -> Iterator[int]:
        for batch in watch(loader(time, [4, 4])):
            time.spend(1)
            yield batch

    for _ in watch(prefetched()):
        time.spend(10)

    found = totals()
    assert (found.phase_ns, found.wall_ns) == ({"data": 10}, 30)
    assert (found.batches, found.steps) == (2, 2)


def test_a_phase_inside_the_loader_is_its_own(time: Time) -> None:
    """What a next() spends in a phase of the job's is not waiting for data."""

    def logging() -> Iterator[int]:
        time.spend(3)
        with phase("logging"):
            time.spend(4)
        yield 1

    assert list(watch(logging())) == [1]
    assert totals().phase_ns == {"data": 3, "logging": 4}


def test_two_jobs_in_one_process(time: Time) -> None:
    """Each has its own totals; what names none belongs to the first."""
    list(watch([1], job="first"))
    list(watch([1, 2], job="second"))
    list(watch([1, 2, 3]))

    assert (totals("first").batches, totals("second").batches) == (4, 2)


def test_what_comes_before_the_name_belongs_to_it(time: Time) -> None:
    """A checkpoint that is loaded before the loop gives its job a name."""
    with phase("checkpoint"):
        time.spend(5)
    list(watch([1], job="resnet"))

    assert totals("resnet").phase_ns["checkpoint"] == 5
    assert len(set(PROCESS.runs.values())) == 1


def test_a_step_inside_a_watched_loop_says_what_a_step_is(time: Time) -> None:
    """Gradient accumulation without an optimizer that can be seen."""
    for index, _ in enumerate(watch(range(8))):
        if index % 4 == 3:
            step(samples=128, flops=1e6)

    assert (totals().steps, totals().batches) == (2, 8)
    assert (totals().samples, totals().flops) == (256, 2e6)


@pytest.mark.parametrize("n", [-1, "two", None, 1e300])
def test_a_step_that_is_none_harms_nobody(time: Time, n: Any) -> None:
    """It is counted as a failure."""
    step(n)

    assert (totals().steps, FAILURES.count) == (0, 1)


def test_an_iterator_may_be_asked_from_several_threads(time: Time) -> None:
    """As the loader itself allows it; every batch arrives once."""

    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.left = 2_000

        def __iter__(self) -> Locked:
            return self

        def __next__(self) -> int:
            with self.lock:
                if not self.left:
                    raise StopIteration
                self.left -= 1
                return self.left

    watched = watch(Locked())
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(watched)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(2_000))
    assert FAILURES.count == 0


def test_a_loop_that_is_forked_is_the_parents(time: Time) -> None:
    """The child may go on with it; only a loop of its own would be reported."""
    parent = PROCESS.run("job", None)
    read, write = os.pipe()
    batches = []
    for batch in watch([1, 2, 3], job="job"):
        batches.append(batch)
        if batch == 1:
            pid = os.fork()
            if pid == 0:
                continue
    if pid == 0:
        mine = PROCESS.run("job", None)
        same = mine is parent or mine.id == parent.id or mine.totals().batches > 0
        os.write(write, b"same" if same else b"%d" % len(batches))
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(read, 16) == b"3"
    assert parent.totals().batches == 3


def _torch(grad: bool) -> Any:
    torch = pytest.importorskip("torch")
    return nullcontext() if grad else torch.no_grad()


@pytest.mark.parametrize(("grad", "batches"), [(True, 2), (False, 0)])
def test_a_loop_without_gradients_evaluates(time: Time, grad: bool, batches: int) -> None:
    """What torch.no_grad() surrounds trains nothing."""
    with _torch(grad):
        for _ in watch(loader(time, [1, 1])):
            time.spend(10)

    assert totals().batches == batches
    assert totals().phase_ns == ({"data": 2} if grad else {"data": 2, "eval": 20})


def test_a_failure_inside_never_reaches_the_loop(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks in the client, batches come as they are."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ours")

    for owner, name in ((lanes, "current"), (Lane, "open_loop"), (Lane, "settle")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            with phase("eval"):
                assert list(watch([1, 2, 3])) == [1, 2, 3]
                step()
    assert FAILURES.first == "RuntimeError: ours"


def test_the_work_of_a_prefetcher_is_h2d_where_cuda_is_initialised(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a next() does besides waiting for the data loader inside it is work on the batch."""

    def prefetcher() -> Iterator[int]:
        lane = lanes.current()
        assert lane is not None
        span = lane.begin("data")
        time.spend(6)
        lane.end(span)
        time.spend(2)
        yield 1

    cuda: Callable[[], object] = object
    monkeypatch.setattr("roofline_job.identity.cuda", cuda)
    list(watch(prefetcher()))

    assert totals().phase_ns == {"data": 6, "h2d": 2}
