# SPDX-License-Identifier: Apache-2.0
"""How long a watched loop waits, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from roofline_job import degraded, phase, step, watch
from roofline_job.process import PROCESS
from tests.training.conftest import Clock
from tests.training.measured import Optimizer, is_at_rest, measured

pytestmark = pytest.mark.usefixtures("clock", "unheard")


def loader(clock: Clock, waits_ns: Iterable[int]) -> Iterator[int]:
    for wait_ns in waits_ns:
        clock.spend(wait_ns)
        yield wait_ns


def test_asking_again_after_the_end_is_no_loop(clock: Clock) -> None:
    """Wall time does not run, and what the job said of the loop before stays."""
    iterator: Any = iter(watch(loader(clock, [1, 1]), flops_per_step=10))
    for _ in range(4):
        next(iterator, None)
        clock.spend(10)

    found = measured()
    assert (found.wall_ns, found.phase_ns) == (22, {"data": 2})
    assert (found.steps, found.batches, found.flops) == (2, 2, 20)


def test_a_loop_that_ends_inside_the_wait_of_another_is_closed(clock: Clock) -> None:
    """Although the job still refers to its iterator."""
    inner = iter(watch(loader(clock, [1, 1])))
    next(inner)

    def rest() -> Iterator[int]:
        yield from inner

    for _ in watch(rest()):
        clock.spend(10)
    clock.spend(1_000)
    with phase("logging"):
        pass

    assert PROCESS.accounts[0].open == {}
    assert measured().wall_ns == 12


def test_one_batch_of_an_iterator_that_is_not_kept(clock: Clock) -> None:
    """``next(iter(loader))`` for each step: the time up to the step is the loop's, not only the
    wait."""
    optimizers = Optimizer(), Optimizer()
    for _ in range(5):
        next(iter(watch(loader(clock, [3]), samples_per_batch=4)))
        clock.spend(7)
        for optimizer in optimizers:
            optimizer.step()

    found = measured()
    assert found.counts == (5, 5, 20)
    assert (found.wall_ns, found.phase_ns) == (50, {"data": 15})
    assert PROCESS.trained


def test_many_steps_on_one_batch_are_one(clock: Clock) -> None:
    """What else the job may wait for between them cannot be seen."""
    optimizer = Optimizer()
    next(iter(watch(loader(clock, [3]))))
    for _ in range(100):
        clock.spend(7)
        optimizer.step()

    found = measured()
    assert (found.steps, found.batches, found.wall_ns) == (1, 1, 10)


def test_several_batches_that_are_read_before_any_step(clock: Clock) -> None:
    """No optimizer steps in the loops of this job: its batches are its steps."""
    optimizer = Optimizer()
    for _ in range(3):
        for batch in watch(loader(clock, [3, 3, 3])):
            if batch:
                break
        for _ in zip(range(2), watch(loader(clock, [3, 3, 3])), strict=False):
            pass
        clock.spend(7)
        optimizer.step()

    assert not PROCESS.trained
    assert measured().steps == measured().batches == 9


def test_a_loop_that_is_no_longer_measured_is_closed(clock: Clock) -> None:
    """Its end would not be seen."""
    iterator = iter(watch(loader(clock, [1, 1])))
    next(iterator)
    degraded.WATCH.on = False
    list(iterator)
    clock.spend(1_000)
    with phase("logging"):
        pass

    assert PROCESS.accounts[0].open == {}
    assert measured().wall_ns == 1


def test_a_loader_may_be_asked_again_after_it_raised(clock: Clock) -> None:
    """The loop is open again from that next() on."""

    class Flaky:
        def __init__(self) -> None:
            self.asked = 0

        def __iter__(self) -> Flaky:
            return self

        def __next__(self) -> int:
            self.asked += 1
            clock.spend(1)
            if self.asked == 2:
                raise TimeoutError
            return self.asked

    iterator: Any = iter(watch(Flaky()))
    assert next(iterator) == 1
    with pytest.raises(TimeoutError):
        next(iterator)
    clock.spend(1_000)
    assert next(iterator) == 3

    assert measured().phase_ns == {"data": 3}
    assert measured().wall_ns == 3


def test_samples_and_flops_are_counted_as_stated() -> None:
    """A number per batch, or a function of the batch; FLOPs by sample or by step."""
    for _ in watch([1, 2], samples_per_batch=32, flops_per_step=10):
        pass
    for _ in watch([[1, 2], [3]], samples_per_batch=len, flops_per_sample=100):
        pass

    assert measured().samples == 64 + 3
    assert measured().flops == 20 + 300


@pytest.mark.parametrize("samples", [float("nan"), -1, "many", 10**40, object()])
def test_what_cannot_be_counted_is_left_out(
    samples: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether stated or computed: the loop goes on, and it is said once."""
    assert list(watch([1, 2], samples_per_batch=samples)) == [1, 2]
    assert list(watch([3, 4], samples_per_batch=lambda _: samples)) == [3, 4]

    assert measured().samples is None
    assert measured().batches == 4
    assert list(degraded.FOUND) == ["stated"]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_watched_iterable_inside_a_watched_one_counts_once(clock: Clock) -> None:
    """A generator over a watched loader: its time is data once, its batches are counted once."""

    def prefetched() -> Iterator[int]:
        for batch in watch(loader(clock, [4, 4]), samples_per_batch=2):
            clock.spend(1)
            yield batch

    for _ in watch(prefetched(), samples_per_batch=2):
        clock.spend(10)

    found = measured()
    assert (found.phase_ns, found.wall_ns) == ({"data": 10}, 30)
    assert found.counts == (2, 2, 4)


def test_a_phase_inside_the_loader_is_its_own(clock: Clock) -> None:
    """What a next() spends in a phase of the job's is not waiting for data."""

    def logging() -> Iterator[int]:
        clock.spend(3)
        with phase("logging"):
            clock.spend(4)
        yield 1

    assert list(watch(logging())) == [1]
    assert measured().phase_ns == {"data": 3, "logging": 4}


def test_what_comes_before_the_name_belongs_to_it(clock: Clock) -> None:
    """A checkpoint that is loaded before the loop gives its job a name."""
    with phase("checkpoint"):
        clock.spend(5)
    list(watch([1], job="resnet"))

    assert measured(job="resnet").phase_ns["checkpoint"] == 5
    assert [account.job for account in PROCESS.accounts] == ["resnet"]


def test_a_step_inside_a_watched_loop_says_what_a_step_is() -> None:
    """Gradient accumulation without an optimizer that can be seen."""
    for index, _ in enumerate(watch(range(8))):
        if index % 4 == 3:
            step(samples=128, flops=1e6)

    assert measured().counts == (2, 8, 256)
    assert measured().flops == 2e6


@pytest.mark.parametrize("n", [-1, "two", None, 1e300])
def test_a_step_that_is_none_harms_nobody(n: Any) -> None:
    """It is left out."""
    step(n)

    assert measured().steps == 0
    assert list(degraded.FOUND) == ["stated"]


def test_the_work_of_a_prefetcher_is_h2d_where_cuda_is_initialised(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a next() does besides waiting for the data loader inside it is work on the batch."""

    def prefetcher() -> Iterator[int]:
        inner = iter(watch(loader(clock, [6])))
        batch = next(inner)
        clock.spend(2)
        yield batch

    cuda: Callable[[], object] = object
    monkeypatch.setattr("roofline_job.identity.cuda", cuda)
    list(watch(prefetcher()))

    assert measured().phase_ns == {"data": 6, "h2d": 2}


def test_an_iterator_that_asks_itself_gives_one_batch(clock: Clock) -> None:
    """As one that skips what it cannot read, and knows itself as what the job has."""

    class Skipping:
        def __init__(self) -> None:
            self.left = 6
            self.known: Any = self

        def __iter__(self) -> Skipping:
            return self

        def __next__(self) -> int:
            clock.spend(1)
            if not self.left:
                raise StopIteration
            self.left -= 1
            return next(self.known) if self.left % 2 else self.left

    data = Skipping()
    data.known = iter(watch(data))
    assert list(data.known) == [4, 2, 0]
    clock.spend(100)

    assert measured().batches == 3
    assert measured().wall_ns <= 7
    assert is_at_rest()


# What the job marks itself


def test_what_is_raised_in_a_phase_goes_on(clock: Clock) -> None:
    """The phase ends, and the exception is the job's."""

    def fail() -> None:
        clock.spend(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), phase("checkpoint"):
        fail()

    assert measured().phase_ns == {"checkpoint": 1}


def test_one_phase_object_may_be_used_again_and_inside_itself(clock: Clock) -> None:
    """A job may keep one at hand."""
    kept = phase("logging")
    for _ in range(2):
        with kept, kept:
            clock.spend(1)

    assert measured().phase_ns == {"logging": 2}
    assert not degraded.FOUND


def test_an_end_without_a_beginning_does_nothing() -> None:
    """``__exit__`` may be called by whoever cleans up."""
    phase("logging").__exit__(None, None, None)

    assert not degraded.FOUND


@pytest.mark.parametrize("name", [None, 5, ["data"], "x" * 100_000])
def test_a_phase_may_be_called_anything(clock: Clock, name: Any) -> None:
    """What is no name of a phase counts as other, or as a failure, and never ends the job."""
    with phase(name):
        clock.spend(1)

    assert measured().phase_ns in ({}, {"other": 1})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_may_contain_phases_and_steps() -> None:
    """With fullgraph, where a break would be an error; traced, they do nothing."""
    torch = pytest.importorskip("torch")

    def work(x: Any) -> Any:
        with phase("forward"):
            y = x * 2
        step()
        return y + 1

    compiled = torch.compile(work, fullgraph=True, backend="eager")
    x = torch.arange(3)
    for _ in watch(range(3)):
        assert compiled(x).equal(work(x))

    assert measured().steps == 3  # those of the calls that were not compiled
    assert not degraded.FOUND
