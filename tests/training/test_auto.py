# SPDX-License-Identifier: Apache-2.0
"""What automatic instrumentation makes of a job, on a stand-in for PyTorch and a clock by hand."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from roofline_job import auto, imports, lanes, reporter, torch_hooks
from roofline_job.failures import FAILURES
from roofline_job.lanes import Lane
from roofline_job.loader import leading_dimension, ready_batches
from roofline_job.runs import Process, Run
from roofline_job.watching import watch
from tests.training.fake_torch import FakeTorch, Tensor, with_workers

SECOND = 1_000_000_000
BATCH = Tensor(2, 3)


class Data(list[Any]):
    """A dataset: it may be noticed to go, as a list may not."""


class Clock:
    """Goes on only when told."""

    def __init__(self) -> None:
        self.now_ns = SECOND

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


@pytest.fixture
def lane(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    """The lane of this thread; others have lanes of the same run."""
    monkeypatch.setattr(reporter, "deliver", lambda datagram, environ=None: True)
    monkeypatch.setattr(torch_hooks, "HOOKS", torch_hooks.Hooks())
    monkeypatch.setattr(torch_hooks, "PROCESS", Process())
    run = Run("job", 0, "auto")
    known: dict[int, Lane] = {}

    def current(job: str | None = None, rank: int | None = None) -> Lane:
        here = threading.get_ident()
        if here not in known:
            known[here] = Lane(run, clock)
            run.join(known[here])
        return known[here]

    monkeypatch.setattr(lanes, "current", current)
    FAILURES.reset()
    yield current()
    gc.collect()
    assert FAILURES.first == ""


@pytest.fixture
def started(torch: FakeTorch, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """A job that runs with automatic instrumentation."""
    monkeypatch.setattr(imports, "_finder", imports.Finder())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    auto.start()
    return torch


def seconds(lane: Lane) -> dict[str, float]:
    return {phase: wait / SECOND for phase, wait in lane.run.totals().phase_ns.items() if wait}


def wall(lane: Lane) -> float:
    return lane.run.totals().wall_ns / SECOND


def counts(lane: Lane) -> tuple[int, int, float | None]:
    totals = lane.run.totals()
    return totals.steps, totals.batches, totals.samples


def slow(clock: Clock, batch: Any, wait_seconds: float) -> Callable[[], Any]:
    def arrive() -> Any:
        clock.wait(wait_seconds)
        return batch

    return arrive


def test_every_module_has_its_hook() -> None:
    """The table names functions that exist."""
    assert set(auto.HOOKED.values()) == set(torch_hooks._HOOKS)
    assert set(torch_hooks.SAVERS) == {
        name for name, hook in auto.HOOKED.items() if hook == "hook_saving"
    }


def test_a_loop_is_measured_from_its_first_next_to_its_end(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """W is the time in `next()`, the wall time is the loop's; before and after do not count."""
    loader = started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 2)])
    optimizer = object()
    clock.wait(100)
    for batch in loader:
        assert batch is BATCH
        clock.wait(4)
        started.step(optimizer)
    clock.wait(100)

    assert seconds(lane) == {"data": 3}
    assert wall(lane) == 11
    assert counts(lane) == (2, 2, 4)
    assert lane.run.instrumentation == "auto"
    assert vars(torch_hooks)["PROCESS"].instrumentation == "auto"


def test_hooking_twice_counts_once(started: FakeTorch, lane: Lane) -> None:
    """`watch` installs its hooks again at each loop."""
    torch_hooks.install()
    for module in started.modules.values():
        if module.__name__ in auto.HOOKED:
            torch_hooks.automatic(auto.HOOKED[module.__name__], module)

    for _ in started.loader([BATCH]):
        started.step(started)

    assert counts(lane) == (1, 1, 2)
    assert len(started.hooks) == 1


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_next_raises_is_the_jobs(
    started: FakeTorch, lane: Lane, clock: Clock, error: BaseException
) -> None:
    """It arrives as it was raised; the loop is over, and the wait counts."""
    loader = started.loader([BATCH, slow(clock, error, 2)])
    next(loader)
    with pytest.raises(type(error)) as caught:
        next(loader)

    assert caught.value is error
    assert [entry.name for entry in caught.traceback][-1] == "__next__"
    assert not any("exporter/training" in str(entry.path) for entry in caught.traceback)
    assert seconds(lane) == {"data": 2}
    assert not lane.is_open(loader)
    assert lane.asking is None


def test_a_loop_that_is_left_early_ends(started: FakeTorch, lane: Lane, clock: Clock) -> None:
    """Nothing holds the iterator then; what follows is not the loop's."""
    for _ in started.loader([BATCH, BATCH]):
        break
    clock.wait(100)
    for _ in started.loader([BATCH]):
        clock.wait(1)

    assert wall(lane) == 1
    assert counts(lane) == (2, 2, 4)


def test_a_persistent_loader_begins_a_new_loop(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """Its iterator lives on; a reset closes the loop that was left early."""
    loader = started.loader([BATCH, BATCH])
    next(loader)
    clock.wait(1)
    loader._reset(None)
    assert not lane.is_open(loader)
    clock.wait(100)
    assert [batch is BATCH for batch in loader] == [True, True]

    assert wall(lane) == 1
    assert lane.run.totals().batches == 3


def test_with_gradients_off_it_is_evaluation(started: FakeTorch, lane: Lane, clock: Clock) -> None:
    """Its body is phase eval and its wait phase data; its batches are not training's."""
    optimizer = object()
    for _ in started.loader([slow(clock, BATCH, 1)]):
        clock.wait(1)
        started.grad = False
        for _ in started.loader([slow(clock, BATCH, 2), slow(clock, BATCH, 2)]):
            clock.wait(4)
        started.grad = True
        started.step(optimizer)

    assert seconds(lane) == {"data": 5, "eval": 8}
    assert wall(lane) == 14
    assert counts(lane) == (1, 1, 2)


def test_an_evaluation_that_is_left_early_does_not_go_on(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """A persistent loader keeps its iterator; training counts again at its next batch."""
    persistent = started.loader([BATCH, BATCH])
    for _ in started.loader([BATCH, BATCH]):
        started.grad = False
        next(persistent)
        started.grad = True
        if lane.run.totals().batches == 2:
            break
    for _ in started.loader([BATCH]):
        pass

    assert counts(lane) == (3, 3, 6)
    assert lane.evaluating == 0


def run_epochs(started: FakeTorch, clock: Clock, *, evaluate: bool) -> None:
    """Two epochs, with gradients turned off only inside the body of the evaluation."""
    training, held_out, optimizer = [BATCH, BATCH], [slow(clock, BATCH, 1)] * 2, object()
    for _ in range(2):
        for _ in started.loader(training):
            clock.wait(1)
            started.step(optimizer)
        if evaluate:
            for _ in started.loader(held_out):
                started.grad = False
                clock.wait(2)
                started.grad = True


def test_a_loop_without_steps_was_an_evaluation(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """Its batches were kept back; its body is phase eval, found out at its end the first time."""
    run_epochs(started, clock, evaluate=True)

    assert seconds(lane) == {"data": 4, "eval": 8}
    assert wall(lane) == 16
    assert counts(lane) == (4, 4, 8)


def test_loops_over_new_data_train_once_an_optimizer_steps(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """Batches that were kept back count then, also those of loaders that are zipped."""
    optimizer = object()
    run_epochs(started, clock, evaluate=False)
    first, second = [BATCH, BATCH], [BATCH, BATCH]
    for index, _ in enumerate(zip(started.loader(first), started.loader(second), strict=True)):
        clock.wait(1)
        if index:
            started.step(optimizer)
    assert "eval" not in seconds(lane)
    assert lane.run.totals().batches == 8
    assert lane.run.totals().samples == 16


def test_data_that_was_evaluated_may_be_trained_on_later(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """Folds change their roles: the first step says so."""
    optimizer, fold = object(), Data([BATCH, BATCH])
    run_epochs(started, clock, evaluate=False)
    list(started.loader(fold))
    for _ in range(2):
        for _ in started.loader(fold):
            started.step(optimizer)
    steps, batches, _ = counts(lane)

    assert steps == 8
    assert batches == 4 + 1 + 2  # the first batch of the first epoch was taken for evaluation
    assert lane.evaluating == 0


def test_data_is_forgotten_when_it_is_gone(started: FakeTorch, lane: Lane) -> None:
    """What is made later at the same place in memory is something else."""
    optimizer, places = object(), set[int]()
    for _ in range(9):
        training = Data([BATCH])
        places.add(id(training))
        for _ in started.loader(training):
            started.step(optimizer)
        del training
        held_out = Data([BATCH])
        places.add(id(held_out))
        list(started.loader(held_out))
        del held_out
    assert len(places) < 18
    assert counts(lane) == (9, 9, 18)


@pytest.mark.parametrize("data", [[BATCH], (BATCH,)])
def test_data_that_cannot_be_noticed_to_go_is_known_by_its_sampler(
    started: FakeTorch, lane: Lane, data: Any
) -> None:
    """That is there as long as the loader."""
    optimizer, sampler = object(), Data()
    for stepping in (True, False):
        loader = started.loader(data)
        loader._index_sampler = sampler
        for _ in loader:
            if stepping:
                started.step(optimizer)
    assert lane.run.totals().batches == 2
    list(started.loader(data))
    assert lane.run.totals().batches == 2


def test_asking_again_after_the_end_is_no_loop(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """Batches that wait for their steps go on to."""
    optimizer, data = object(), Data([BATCH] * 8)
    for _ in range(2):
        loader = started.loader(data)
        waiting = [next(loader), next(loader), next(loader)]
        number = 0
        while waiting:
            waiting.pop()
            waiting += [batch for batch in [next(loader, None)] if batch is not None]
            clock.wait(1)
            number += 1
            if number % 2 == 0:
                started.step(optimizer)
        clock.wait(100)
    assert counts(lane) == (8, 16, 32)
    assert wall(lane) == 16


class Optimizer:
    """One parameter of it is frozen."""

    def __init__(self) -> None:
        self.parameter = SimpleNamespace(requires_grad=True, grad=SimpleNamespace(_version=0))
        frozen = SimpleNamespace(requires_grad=False, grad=None)
        self.param_groups = [{"params": [frozen, self.parameter]}]


@pytest.mark.parametrize(("backward", "batches"), [(True, 3), (False, 1)])
def test_a_loop_that_adds_to_gradients_trains_without_a_step(
    started: FakeTorch, lane: Lane, clock: Clock, backward: bool, batches: int
) -> None:
    """An epoch over new data may be shorter than the batches of a step."""
    optimizer = Optimizer()
    for _ in started.loader(Data([BATCH])):
        started.step(optimizer)
    for _ in started.loader(Data([BATCH, BATCH])):
        clock.wait(1)
        if backward:
            optimizer.parameter.grad._version += 1

    assert counts(lane) == (1, batches, 2 * batches)
    assert seconds(lane) == ({} if backward else {"eval": 2})


def ahead(loader: Any) -> Iterator[Any]:
    """Ask for each batch before the one before it is used, as Accelerate does."""
    batch = next(loader)
    for following in loader:
        yield batch
        batch = following
    yield batch


def test_a_generator_may_ask_one_batch_ahead(started: FakeTorch, lane: Lane) -> None:
    """The step of the last batch comes after the data ended, and counts."""
    optimizer = object()
    for _ in ahead(started.loader([BATCH, BATCH, BATCH])):
        started.step(optimizer)

    assert counts(lane) == (3, 3, 6)


def test_what_a_generator_left_open_ends_with_the_next_loop(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """A persistent loader's iterator is not dropped when its generator ends."""
    kept = started.loader([BATCH])
    assert len(list(ahead(kept))) == 1
    assert lane.is_open(kept)
    for _ in started.loader([BATCH]):
        assert not lane.is_open(kept)


def test_a_loader_inside_another_is_part_of_its_wait(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """A dataset that reads from a loader of its own adds no batches and no loop."""
    inner = started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 1)])
    for _ in started.loader([lambda: next(inner), lambda: next(inner)]):
        clock.wait(1)

    assert seconds(lane) == {"data": 2}
    assert counts(lane) == (2, 2, 4)
    assert not lane.is_open(inner)


def test_inside_watch_it_only_marks(started: FakeTorch, lane: Lane, clock: Clock) -> None:
    """The outermost watch counts; the loader's numbers are read all the same."""
    loader = started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 1)])
    for _ in watch(loader):
        clock.wait(1)

    assert seconds(lane) == {"data": 2}
    assert lane.run.totals().batches == 2
    assert lane.run.loader["workers"] == 0


def test_without_automatic_instrumentation_loaders_are_left_alone(
    torch: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """`watch` on one loop says nothing about others."""
    torch_hooks.install()
    for _ in torch.loader([slow(clock, BATCH, 1)]):
        pass

    assert counts(lane) == (0, 0, None)
    assert wall(lane) == 0


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_only_the_thread_that_trains_is_measured(started: FakeTorch, lane: Lane) -> None:
    """The main one, until an optimizer steps in another: that one then, and not a prefetcher."""

    def read() -> None:
        for _ in started.loader([BATCH]):
            pass

    in_a_thread(read)
    assert lane.run.totals().batches == 0

    def train() -> None:
        started.step(object())
        read()

    in_a_thread(train)
    assert lane.run.totals().batches == 1
    read()
    assert lane.run.totals().batches == 1


def test_dynamo_sees_the_original(started: FakeTorch, lane: Lane) -> None:
    """While a call is traced nothing of ours happens."""
    started.compiling = True
    assert list(started.loader([BATCH])) == [BATCH]
    started.step(object())
    with started.autocast_mode.autocast("torch.bfloat16"):
        started.torch.save(1)

    assert counts(lane) == (0, 0, None)
    assert lane.run.precision is None


def test_a_job_may_put_a_clock_around_next(started: FakeTorch, lane: Lane) -> None:
    """What it takes from the class and calls is measured, and can be put back."""
    iterator: Any = started.dataloader._BaseDataLoaderIter
    inner = iterator.__next__
    seen: list[Any] = []

    def timed(self: Any) -> Any:
        seen.append(self)
        return inner(self)

    iterator.__next__ = timed
    assert list(started.loader([BATCH])) == [BATCH]
    iterator.__next__ = inner
    assert list(started.loader([BATCH])) == [BATCH]

    assert len(seen) == 2
    assert lane.run.totals().batches == 2
    assert inner.__name__ == "__next__"
    assert inspect.isfunction(inner)


def test_nothing_of_ours_is_finalised_while_data_comes(
    started: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a signal handler of the job raises in a finaliser is lost: they run at the end only."""
    finalised: list[object] = []
    monkeypatch.setattr(torch_hooks._Turn, "__del__", lambda turn: finalised.append(turn.span))
    loader = started.loader([BATCH] * 3)
    for _ in range(3):
        next(loader)
    assert finalised == []


# Checkpoints and precision


def test_saving_is_phase_checkpoint(started: FakeTorch, lane: Lane, clock: Clock) -> None:
    """Also after the loop, where the wall time runs for it alone; failures end it too."""
    save = started.torch.save
    assert save is started.serialization.save
    for _ in started.loader([BATCH]):
        clock.wait(1)
        save(slow(clock, "model", 2))
    clock.wait(100)
    save(slow(clock, "model", 4))
    with pytest.raises(OSError, match="full"):
        save(OSError("full"))

    assert seconds(lane) == {"checkpoint": 6}
    assert wall(lane) == 7
    assert started.saved == ["model", "model"]
    assert lane.depth == 0


def test_saving_before_or_beside_training_is_none(
    started: FakeTorch, lane: Lane, clock: Clock
) -> None:
    """A process that prepares data saves too, and so do helper threads."""
    started.torch.save(slow(clock, 1, 1))
    for _ in started.loader([BATCH]):
        in_a_thread(lambda: started.torch.save(slow(clock, 1, 1)))

    assert seconds(lane) == {}
    assert started.saved == [1, 1]


def test_autocast_says_the_precision(started: FakeTorch, lane: Lane) -> None:
    """The first that is on."""
    autocast = started.autocast_mode.autocast
    with autocast("torch.float16", enabled=False):
        assert lane.run.precision is None
    with autocast("torch.bfloat16") as entered:
        assert entered.fast_dtype == "torch.bfloat16"
    with autocast("torch.float16"):
        assert lane.run.precision == "bf16"


# Failures inside


def test_failures_inside_are_the_clients_own(
    started: FakeTorch, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted; batches, checkpoints and steps go on."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    for name in ("begin", "end", "batch", "close_loop", "optimizer_step"):
        with monkeypatch.context() as broken:
            broken.setattr(Lane, name, fail)
            assert list(started.loader([BATCH])) == [BATCH]
            started.torch.save(1)
            started.step(object())
    with monkeypatch.context() as broken:
        broken.setattr(lanes, "current", fail)
        with started.autocast_mode.autocast("torch.float16"):
            loader = started.loader([BATCH])
            loader._reset(None)
            assert list(loader) == [BATCH]
            started.step(object())
    assert FAILURES.count > 5
    assert FAILURES.first == "RuntimeError: ours"
    FAILURES.reset()


def test_a_torch_of_another_shape_is_left_alone(
    torch: FakeTorch, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Private names may move; the job runs without us then."""
    del torch.dataloader._BaseDataLoaderIter
    torch_hooks.automatic("hook_loaders", torch.dataloader)

    assert FAILURES.count == 1
    FAILURES.reset()


# Loaders


@pytest.mark.parametrize(
    ("batch", "length"),
    [
        (Tensor(8, 3), 8),
        ((Tensor(4, 1), Tensor(5)), 4),
        ({"ids": ["a"], "x": [Tensor(6)]}, 6),
        (["a", "b", Tensor(), Tensor(3)], 3),
        ("text", None),
        (Tensor(), None),
        ([[[[[Tensor(2)]]]]], None),
        (["a"] * 9 + [Tensor(2)], None),
    ],
)
def test_the_leading_dimension(torch: FakeTorch, batch: Any, length: int | None) -> None:
    """Of the first tensor that has one, not too deep inside."""
    assert leading_dimension(batch) == length


def images(samples: Any) -> Any:
    return samples


@pytest.mark.parametrize(
    ("batch_size", "collate", "batches", "samples"),
    [
        (4, None, [Tensor(4), Tensor(3)], 7),
        (None, None, [Tensor(4)], None),  # the dataset's own batches, or no batches
        (4, images, [Tensor(4), Tensor(3)], 7),
        (4, images, [Tensor(3, 9), Tensor(3, 9)], None),  # the first dimension is colours
        (4, images, ["text", Tensor(4)], None),
    ],
)
def test_samples_are_counted_where_they_are_known(
    started: FakeTorch,
    lane: Lane,
    batch_size: int | None,
    collate: Any,
    batches: list[Any],
    samples: int | None,
) -> None:
    """A collate function of the job's own is believed if its first batch has the loader's size."""
    chosen = {} if collate is None else {"collate": collate}
    list(started.loader(batches, batch_size=batch_size, **chosen))

    assert lane.run.totals().samples == samples


def test_ready_batches(started: FakeTorch, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the queue and those that came out of order, not those under way."""
    loader = with_workers(started.loader([BATCH]), finished=2, out_of_order=1, under_way=3)
    assert ready_batches(started.loader([BATCH])) is None
    next(loader)

    assert lane.run.loader == {
        "workers": 2,
        "prefetch_factor": 2,
        "pin_memory": False,
        "persistent_workers": False,
        "ready_batches": 3,
    }

    def unknown() -> int:
        raise NotImplementedError

    monkeypatch.setattr(loader._data_queue, "qsize", unknown)
    assert ready_batches(loader) == 1
