# SPDX-License-Identifier: Apache-2.0
"""What automatic instrumentation makes of a job, on a stand-in for PyTorch and a clock by hand."""

from __future__ import annotations

import gc
import inspect
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from roofline_job import auto, degraded, loops, process, torch_hooks, watch
from roofline_job.degraded import REASONS
from roofline_job.loader import leading_dimension, ready_batches
from roofline_job.process import PROCESS
from roofline_job.thread_accounts import NEVER, ThreadAccount
from tests.training.conftest import PARTS, Clock
from tests.training.fake_torch import FakeTorch, Tensor, with_workers
from tests.training.measured import Measured, measured

pytestmark = pytest.mark.usefixtures("clock", "unheard")

SECOND = 1_000_000_000
BATCH = Tensor(2, 3)


class Data(list[Any]):
    """A dataset."""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return fake


@pytest.fixture
def started(clock: Clock, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    """A job that runs with automatic instrumentation, in which nothing may fail."""
    start(monkeypatch)
    yield torch
    gc.collect()
    assert not degraded.FOUND
    assert all(part.on for part in PARTS)


def start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    auto.start()


def seconds(found: Measured) -> dict[str, float]:
    return {phase: time_ns / SECOND for phase, time_ns in found.phase_ns.items()}


def wall() -> float:
    return measured().wall_ns / SECOND


def slow(clock: Clock, batch: Any, wait_seconds: float) -> Callable[[], Any]:
    def arrive() -> Any:
        clock.wait(wait_seconds)
        return batch

    return arrive


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_every_module_has_its_hook() -> None:
    """The tables name functions and reasons that exist."""
    assert set(auto.HOOKED.values()) == set(torch_hooks._HOOKS) == set(auto.LOST)
    assert {auto.LOST[hook] for hook in torch_hooks._HOOKS} <= set(REASONS)
    assert set(torch_hooks.SAVERS) == {
        name for name, hook in auto.HOOKED.items() if hook == "hook_saving"
    }


def test_a_loop_is_measured_from_its_first_next_to_its_end(
    started: FakeTorch, clock: Clock
) -> None:
    """W is the time in `next()`, the wall time is the loop's; before and after do not count."""
    optimizer = object()
    clock.wait(100)
    for batch in started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 2)]):
        assert batch is BATCH
        clock.wait(4)
        started.step(optimizer)
    clock.wait(100)

    assert seconds(measured()) == {"data": 3}
    assert wall() == 11
    assert measured().counts == (2, 2, 4)
    assert [account.instrumentation for account in PROCESS.accounts] == ["auto"]


def test_hooking_twice_counts_once(started: FakeTorch) -> None:
    """`watch` installs its hooks again at each loop."""
    torch_hooks.install()
    for module in started.modules.values():
        if module.__name__ in auto.HOOKED:
            torch_hooks.automatic(auto.HOOKED[module.__name__], module)

    for _ in started.loader([BATCH]):
        started.step(started)

    assert measured().counts == (1, 1, 2)
    assert len(started.hooks) == 1


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_next_raises_is_the_jobs(
    started: FakeTorch, clock: Clock, error: BaseException
) -> None:
    """It arrives as it was raised, with one line of ours; the loop is over, the wait counts."""
    loader = iter(started.loader([BATCH, slow(clock, error, 2)]))
    next(loader)
    with pytest.raises(type(error)) as caught:
        next(loader)
    frames = traceback.extract_tb(caught.value.__traceback__)
    clock.wait(100)

    assert caught.value is error
    assert [frame.name for frame in frames][1:] == ["__next__", "__next__"]
    assert sum("roofline_job" in frame.filename for frame in frames) == 1
    assert seconds(measured()) == {"data": 2}
    assert wall() == 2


def test_next_may_be_looked_up_and_called_in_a_loop(started: FakeTorch, clock: Clock) -> None:
    """Each call is one wait, and gives one batch."""
    ask = iter(started.loader([slow(clock, BATCH, 1)] * 10)).__next__
    found = []
    while True:
        clock.wait(1)
        try:
            found.append(ask())
        except StopIteration:
            break

    assert found == [BATCH] * 10
    assert seconds(measured()) == {"data": 10}
    assert measured().counts == (10, 10, 20)


def test_looking_next_up_is_no_wait(started: FakeTorch, clock: Clock) -> None:
    """As ``hasattr`` does, and prefetchers that hand it to a pool."""
    loader = iter(started.loader([slow(clock, BATCH, 1)] * 3))
    assert hasattr(loader, "__next__")
    ask = loader.__next__
    clock.wait(100)
    assert not PROCESS.accounts or wall() == 0

    assert next(loader) is ask() is BATCH
    assert seconds(measured()) == {"data": 2}
    assert wall() == 2


def test_a_bare_thread_may_ask(started: FakeTorch, clock: Clock) -> None:
    """Its stack holds nothing but the call itself."""
    import _thread

    loader = iter(started.loader([BATCH, BATCH]))
    asked = threading.Event()
    found: list[Any] = []

    class Asking:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            found.append(next(loader))
            asked.set()
            raise StopIteration

    _thread.start_new_thread(next, (Asking(), None))
    assert asked.wait(10)
    found += loader

    assert found == [BATCH, BATCH]


def test_a_loop_that_is_left_early_ends(started: FakeTorch, clock: Clock) -> None:
    """What follows is not the loop's."""
    for _ in started.loader([BATCH, BATCH]):
        break
    clock.wait(100)
    for _ in started.loader([BATCH]):
        clock.wait(1)

    assert wall() == 1
    assert measured().counts == (2, 2, 4)


def test_a_persistent_loader_begins_a_new_loop(started: FakeTorch, clock: Clock) -> None:
    """Its iterator lives on; the loop that was left early is over when it begins anew."""
    loader = started.loader([BATCH, BATCH], persistent_workers=True)
    for _ in loader:
        break
    started.step(loader)
    clock.wait(2)
    assert iter(loader) is iter(loader)
    before = wall()
    clock.wait(100)
    for _ in loader:
        clock.wait(1)
        started.step(loader)

    assert wall() - before == 2
    assert measured().counts == (3, 3, 6)


def test_the_start_of_workers_is_data(started: FakeTorch, clock: Clock) -> None:
    """It is a wait of each epoch, before the first batch; a stall like any other."""
    loader = started.loader([slow(clock, BATCH, 1)] * 2, starting=lambda: clock.wait(3))
    for _ in range(2):
        for _ in loader:
            clock.wait(1)
        clock.wait(100)

    assert seconds(measured()) == {"data": 2 * (3 + 2)}
    assert wall() == 2 * (3 + 2 + 2)


def test_a_loader_that_cannot_start_says_so(started: FakeTorch, clock: Clock) -> None:
    """The time up to then counts, and no loop is open."""

    def refuse() -> None:
        clock.wait(3)
        raise OSError("no workers")

    with pytest.raises(OSError, match="no workers"):
        iter(started.loader([BATCH], starting=refuse))
    clock.wait(100)

    assert seconds(measured()) == {"data": 3}
    assert wall() == 3


def test_with_gradients_off_it_is_evaluation(started: FakeTorch, clock: Clock) -> None:
    """Its body is phase eval and its wait phase data; its batches are not training's."""
    optimizer = object()
    for _ in started.loader([slow(clock, BATCH, 1)]):
        clock.wait(1)
        started.grad = False
        for _ in started.loader([slow(clock, BATCH, 2), slow(clock, BATCH, 2)]):
            clock.wait(4)
        started.grad = True
        started.step(optimizer)

    assert seconds(measured()) == {"data": 5, "eval": 8}
    assert wall() == 14
    assert measured().counts == (1, 1, 2)


def test_an_evaluation_on_the_training_loader_is_one(started: FakeTorch, clock: Clock) -> None:
    """What the loop does decides, not the data: in the body, and after an epoch."""
    loader, optimizer = started.loader([BATCH] * 3), object()

    def evaluate() -> None:
        started.grad = False
        for _ in loader:
            clock.wait(1)
        started.grad = True

    for _ in range(2):
        for number, _ in enumerate(loader):
            clock.wait(1)
            started.step(optimizer)
            if number == 1:
                evaluate()
        evaluate()

    assert seconds(measured()) == {"eval": 2 * 6}
    assert wall() == 2 * 9
    assert measured().counts == (6, 6, 12)


def test_an_evaluation_that_is_left_early_does_not_go_on(started: FakeTorch) -> None:
    """A persistent loader keeps its iterator; its batches are never training's."""
    persistent = started.loader([BATCH, BATCH], persistent_workers=True)
    optimizer = object()
    for _ in range(2):
        for _ in started.loader([BATCH, BATCH]):
            started.grad = False
            for _ in persistent:
                break
            started.grad = True
            started.step(optimizer)

    assert measured().counts == (4, 4, 8)


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


def test_a_loop_without_steps_was_an_evaluation(started: FakeTorch, clock: Clock) -> None:
    """Its batches were kept back; its body is phase eval, which is found out at its end."""
    run_epochs(started, clock, evaluate=True)

    assert seconds(measured()) == {"data": 4, "eval": 8}
    assert wall() == 16
    assert measured().counts == (4, 4, 8)


def test_loops_over_new_data_train_once_an_optimizer_steps(
    started: FakeTorch, clock: Clock
) -> None:
    """Batches that were kept back count then, also those of loaders that are zipped."""
    optimizer = object()
    run_epochs(started, clock, evaluate=False)
    before = measured()
    first, second = started.loader([BATCH] * 4), started.loader([BATCH] * 4)
    for index, _ in enumerate(zip(first, second, strict=True)):
        clock.wait(1)
        if index % 2:
            started.step(optimizer)

    assert "eval" not in seconds(measured())
    assert measured().batches - before.batches == 8
    assert measured().steps - before.steps == 2


def test_samples_of_loaders_that_are_zipped_count_once(started: FakeTorch) -> None:
    """They make one step together; batches are those of both."""
    optimizer = object()
    for _ in range(2):
        for _ in zip(started.loader([BATCH] * 4), started.loader([BATCH] * 4), strict=True):
            started.step(optimizer)

    assert measured().counts == (8, 16, 16)


def test_data_that_was_evaluated_may_be_trained_on_later(started: FakeTorch, clock: Clock) -> None:
    """Folds change their roles: the first step says so."""
    optimizer, fold = object(), Data([BATCH, BATCH])
    run_epochs(started, clock, evaluate=False)
    list(started.loader(fold))
    for _ in range(2):
        for _ in started.loader(fold):
            started.step(optimizer)

    assert measured().counts == (8, 8, 16)


def test_asking_again_after_the_end_is_no_loop(started: FakeTorch, clock: Clock) -> None:
    """Batches that wait for their steps go on to."""
    optimizer, data = object(), Data([BATCH] * 8)
    for _ in range(2):
        loader = iter(started.loader(data))
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

    assert measured().counts == (8, 16, 32)
    assert wall() == 16


class Optimizer:
    """One parameter of it is frozen."""

    def __init__(self, dtype: str = "torch.float32") -> None:
        gradient = SimpleNamespace(_version=0)
        self.parameter = SimpleNamespace(requires_grad=True, grad=gradient)
        frozen = SimpleNamespace(requires_grad=False, grad=None, dtype=dtype)
        self.param_groups = [{"params": [frozen, self.parameter]}]


@pytest.mark.parametrize(("backward", "batches"), [(True, 3), (False, 1)])
def test_a_loop_that_adds_to_gradients_trains_without_a_step(
    started: FakeTorch, clock: Clock, backward: bool, batches: int
) -> None:
    """An epoch over new data may be shorter than the batches of a step."""
    optimizer = Optimizer()
    for _ in started.loader(Data([BATCH])):
        started.step(optimizer)
    for _ in started.loader(Data([BATCH, BATCH])):
        clock.wait(1)
        if backward:
            optimizer.parameter.grad._version += 1

    assert measured().counts == (1, batches, 2 * batches)
    assert seconds(measured()) == ({} if backward else {"eval": 2})


@pytest.mark.parametrize("groups", [[], [{}], [{"params": [object()]}]])
def test_an_optimizer_of_a_kind_of_its_own_has_no_gradients(
    started: FakeTorch, groups: Any
) -> None:
    """Then a loop trains if it steps."""
    optimizer = Optimizer()
    optimizer.param_groups = groups
    for _ in range(2):
        for _ in started.loader([BATCH]):
            started.step(optimizer)
    list(started.loader([BATCH]))

    assert measured().counts == (2, 2, 4)


def test_an_optimizer_is_not_kept(started: FakeTorch) -> None:
    """Its parameters are most of the memory there is."""
    kept = Optimizer()
    before = sys.getrefcount(kept)
    for _ in range(2):
        for _ in started.loader([BATCH]):
            started.step(kept)

    assert sys.getrefcount(kept) == before


def ahead(loader: Any) -> Iterator[Any]:
    """Ask for each batch before the one before it is used, as Accelerate does."""
    iterator = iter(loader)
    batch = next(iterator)
    for following in iterator:
        yield batch
        batch = following
    yield batch


def test_a_generator_may_ask_one_batch_ahead(started: FakeTorch) -> None:
    """The step of the last batch comes after the data ended, and counts."""
    optimizer = object()
    for _ in range(2):
        for _ in ahead(started.loader([BATCH, BATCH, BATCH])):
            started.step(optimizer)

    assert measured().counts == (6, 6, 12)


def test_a_loader_inside_another_is_part_of_its_wait(started: FakeTorch, clock: Clock) -> None:
    """A dataset that reads from a loader of its own adds no batches and no loop."""
    inner = iter(started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 1)]))
    for _ in started.loader([lambda: next(inner), lambda: next(inner)]):
        clock.wait(1)

    assert seconds(measured()) == {"data": 2}
    assert measured().counts == (2, 2, 4)
    assert wall() == 4


# With `watch`


def test_a_watched_loader_is_the_loader(torch: FakeTorch, clock: Clock) -> None:
    """Marked, so that every loop over it is measured, also those inside of a library."""
    loader = torch.loader([slow(clock, BATCH, 1)] * 2)
    assert watch(loader, job="own", precision="bf16") is loader
    for _ in loader:
        clock.wait(1)
    list(loader)

    assert seconds(measured(job="own")) == {"data": 4}
    assert wall() == 6
    assert measured().counts == (4, 4, 8)
    (account,) = PROCESS.accounts
    assert (account.precision, account.instrumentation) == ("bf16", "client")
    assert account.loader["workers"] == 0


def test_what_watch_says_of_a_loader_counts(torch: FakeTorch) -> None:
    """The last call does; what it says goes before what the loader shows."""
    loader = torch.loader([BATCH] * 2)
    watch(loader, samples_per_batch=7)
    watch(loader, samples_per_batch=5, flops_per_sample=10)
    list(loader)

    assert measured().samples == 10
    assert measured().flops == 100


def test_a_loader_that_iterates_in_its_own_way_is_wrapped(torch: FakeTorch) -> None:
    """As one of a library that yields what it makes of the batches."""

    class Twice(torch.dataloader.DataLoader):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                yield batch
                yield batch

    loader = Twice([BATCH] * 2)
    watched = watch(loader)

    assert watched is not loader
    assert len(list(watched)) == 4
    assert measured().batches == 4


def test_a_loader_may_be_compared_and_not_hashed(torch: FakeTorch) -> None:
    """What `watch` says of it is kept apart from what the loader is."""

    class Equal(torch.dataloader.DataLoader):  # type: ignore[misc, name-defined]
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    first, second = Equal([BATCH] * 2), Equal([BATCH] * 3)
    watch(first, samples_per_batch=10)
    watch(second, samples_per_batch=100)
    assert len(list(first)) == 2
    assert measured().samples == 20
    assert len(list(second)) == 3
    assert measured().samples == 320
    assert not degraded.FOUND


def test_inside_watch_a_loader_only_marks(started: FakeTorch, clock: Clock) -> None:
    """The outermost loop counts."""
    loader = started.loader([slow(clock, BATCH, 1), slow(clock, BATCH, 1)])
    for _ in watch(batch for batch in loader):
        clock.wait(1)

    assert seconds(measured()) == {"data": 2}
    assert measured().batches == 2


def test_without_automatic_instrumentation_loaders_are_left_alone(
    torch: FakeTorch, clock: Clock
) -> None:
    """`watch` on one loop says nothing about others, nor about how they start."""
    torch_hooks.install()
    for _ in torch.loader([slow(clock, BATCH, 1)], starting=lambda: clock.wait(1)):
        pass

    assert measured().counts == (0, 0, None)
    assert wall() == 0


# Threads


@pytest.mark.parametrize("thread", ["a pool's", "one of a library in C++"])
def test_steps_in_another_thread_are_those_of_the_loop(
    started: FakeTorch, clock: Clock, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of optimizers that step in the backward pass, which runs in threads of autograd."""
    if thread != "a pool's":
        monkeypatch.setattr(process, "_is_of_python", lambda: False)
    optimizer = object()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            for _ in started.loader([slow(clock, BATCH, 1)] * 30):
                clock.wait(1)
                pool.submit(started.step, optimizer).result()

    assert measured().counts == (60, 60, 120)
    assert seconds(measured()) == {"data": 60}
    assert wall() == 120
    assert len(PROCESS.accounts) == 1


def test_a_loader_that_a_helper_reads_is_not_the_training_loops(
    clock: Clock,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The helper's waits are nobody's, the steps are counted, and the report says so."""
    start(monkeypatch)
    loader = iter(torch.loader([slow(clock, BATCH, 1)] * 10))
    for _ in range(10):
        in_a_thread(lambda: next(loader))
        clock.wait(1)
        torch.step(loader)

    assert measured().steps == 10
    assert "data" not in measured().phase_ns
    helpers = [account for account in PROCESS.accounts if account is not PROCESS.here()]
    assert {account.due_ns for account in helpers} == {NEVER}
    assert degraded.FOUND == {"helper_thread": "MainThread trains"}
    assert capsys.readouterr().err == ""


def test_a_loop_that_trains_in_a_thread_is_measured(started: FakeTorch, clock: Clock) -> None:
    """As in a job whose main thread does something else."""
    found: list[Measured] = []

    def train() -> None:
        for _ in started.loader([slow(clock, BATCH, 1)] * 3):
            started.step(started)
        found.append(measured())
        assert PROCESS.accounts[0].due_ns != NEVER

    in_a_thread(train)

    assert [each.counts for each in found] == [(3, 3, 6)]
    assert seconds(found[0]) == {"data": 3}


# Dynamo


def test_dynamo_sees_the_original(started: FakeTorch) -> None:
    """While a call is traced nothing of ours happens."""
    started.compiling = True
    assert list(started.loader([BATCH])) == [BATCH]
    assert list(watch([1, 2])) == [1, 2]
    started.step(object())
    with started.autocast_mode.autocast("torch.bfloat16"):
        started.torch.save(1)

    assert PROCESS.accounts == []


# What the hooks look like


def test_the_wrappers_are_functions_like_the_originals(torch: FakeTorch) -> None:
    """Name, documentation and signature are their own, and they are pickled by their name."""
    originals = {
        "next": torch.dataloader._BaseDataLoaderIter.__next__,
        "iter": torch.dataloader.DataLoader.__iter__,
        "enter": torch.autocast_mode.autocast.__enter__,
        "save": torch.serialization.save,
    }
    for module in torch.modules.values():
        if module.__name__ in auto.HOOKED:
            torch_hooks.automatic(auto.HOOKED[module.__name__], module)
    wrapped = {
        "next": torch.dataloader._BaseDataLoaderIter.__next__,
        "iter": torch.dataloader.DataLoader.__iter__,
        "enter": torch.autocast_mode.autocast.__enter__,
        "save": torch.serialization.save,
    }

    for name, original in originals.items():
        wrapper = wrapped[name]
        assert wrapper is not original
        assert inspect.isfunction(wrapper)
        assert inspect.unwrap(wrapper) is original
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            assert getattr(wrapper, attribute) == getattr(original, attribute)
        assert inspect.signature(wrapper) == inspect.signature(original)
    assert torch.torch.save is torch.serialization.save
    assert pickle.loads(pickle.dumps(torch.torch.save)) is torch.torch.save


def test_a_job_may_put_a_clock_around_next(started: FakeTorch) -> None:
    """What it takes from the class and calls is measured, and can be put back."""
    iterator = started.dataloader._BaseDataLoaderIter
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
    assert measured().batches == 2


# Checkpoints and precision


def test_saving_is_phase_checkpoint(started: FakeTorch, clock: Clock) -> None:
    """Also after the loop, where the wall time runs for it alone; failures end it too."""
    save = started.torch.save
    for _ in started.loader([BATCH]):
        clock.wait(1)
        save(slow(clock, "model", 2))
    clock.wait(100)
    save(slow(clock, "model", 4))
    with pytest.raises(OSError, match="full") as caught:
        save(OSError("full"))
    frames = traceback.extract_tb(caught.value.__traceback__)

    assert sum("roofline_job" in frame.filename for frame in frames) == 1
    assert seconds(measured()) == {"checkpoint": 6}
    assert wall() == 7
    assert started.saved == ["model", "model"]
    assert [account.depth for account in PROCESS.accounts] == [0]


def test_saving_before_or_beside_training_is_none(started: FakeTorch, clock: Clock) -> None:
    """A process that prepares data saves too, and so do helper threads."""
    started.torch.save(slow(clock, 1, 1))
    for _ in started.loader([BATCH]):
        in_a_thread(lambda: started.torch.save(slow(clock, 1, 1)))

    assert seconds(measured()) == {}
    assert started.saved == [1, 1]


def test_autocast_says_the_precision(started: FakeTorch) -> None:
    """The first that is on."""
    autocast = started.autocast_mode.autocast
    for _ in started.loader([BATCH]):
        (account,) = PROCESS.accounts
        with autocast("torch.float16", enabled=False):
            assert account.precision is None
        with autocast("torch.bfloat16") as entered:
            assert entered.fast_dtype == "torch.bfloat16"
        with autocast("torch.float16"):
            assert account.precision == "bf16"


def test_parameters_say_the_precision_if_they_are_short(started: FakeTorch) -> None:
    """A master copy of long ones says nothing about what is computed in."""
    for dtype, precision in (("torch.float32", None), ("torch.bfloat16", "bf16")):
        PROCESS.forget()
        optimizer = Optimizer(dtype)
        for _ in started.loader([BATCH]):
            started.step(optimizer)
        assert [account.precision for account in PROCESS.accounts] == [precision]


# Failures inside, and other shapes of torch


def test_a_part_that_fails_is_off_and_the_job_goes_on(
    clock: Clock,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever breaks: batches, checkpoints and steps are the job's; each part says so once."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    start(monkeypatch)
    broken: list[tuple[object, str]] = [
        (ThreadAccount, "begin"),
        (ThreadAccount, "end"),
        (ThreadAccount, "open_loop"),
        (ThreadAccount, "close_loop"),
        (ThreadAccount, "optimizer_step"),
        (type(PROCESS), "account"),
        (type(PROCESS), "here"),
        (type(PROCESS), "account_of_step"),
        (torch_hooks, "Loop"),
        (loops, "get_ident"),
    ]
    for owner, name in broken:
        for part in PARTS:
            part.on = True
        list(torch.loader([BATCH]))
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            for _ in range(2):
                assert list(torch.loader([BATCH, BATCH])) == [BATCH, BATCH]
                torch.torch.save(1)
                torch.step(object())
                with torch.autocast_mode.autocast("torch.float16"):
                    pass
        assert not all(part.on for part in PARTS), name
    assert len(torch.saved) == 2 * len(broken)
    assert set(degraded.FOUND.values()) == {"RuntimeError: ours"}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) == len(degraded.FOUND)


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        ("dataloader", "_BaseDataLoaderIter", "loaders"),
        ("dataloader", "DataLoader", "loaders"),
        ("optimizer", "register_optimizer_step_post_hook", "optimizers"),
        ("autocast_mode", "autocast", "autocast"),
        ("serialization", "save", "checkpoints"),
    ],
)
def test_a_torch_without_a_name_is_left_alone(
    clock: Clock,
    torch: FakeTorch,
    module: str,
    name: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Private names may move: the job runs without that part then, and the log says so."""
    loader_class = torch.dataloader.DataLoader
    save = torch.torch.save
    delattr(getattr(torch, module), name)
    start(monkeypatch)
    for _ in range(2):
        for _ in loader_class([BATCH, BATCH]):
            save(1)
            torch.step(object())
    list(watch(loader_class([BATCH])))
    list(watch([1]))

    assert list(degraded.FOUND) == [reason]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_loaders_steps_tell_that_the_job_works(
    clock: Clock, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And time from step to step; no phase is made up."""
    del torch.dataloader._BaseDataLoaderIter
    start(monkeypatch)
    for _ in range(5):
        clock.wait(1)
        torch.step(torch)

    assert measured().steps == 5
    assert wall() == 4
    assert [account.phase_ns for account in PROCESS.accounts] == [{}]
    assert [account.due_ns != NEVER for account in PROCESS.accounts] == [True]


@pytest.mark.parametrize("attribute", ["num_workers", "collate_fn", "batch_sampler", "pin_memory"])
def test_a_loader_without_an_attribute_is_left_alone(
    clock: Clock, torch: FakeTorch, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a subclass that does not call its base, or of another version."""
    start(monkeypatch)
    loader = torch.loader([BATCH, BATCH])
    delattr(loader, attribute)

    assert [batch is BATCH for batch in loader] == [True, True]
    assert list(degraded.FOUND) == ["loaders"]


# Loaders


class OwnTensor(Tensor):
    """One that shows its calls to the job's own code."""


class OwnDict(dict[str, Any]):
    """One whose values the job's own code may make as they are asked for."""


class OwnList(list[Any]):
    """One whose items the job's own code may make as they are asked for."""


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
        (OwnTensor(8), None),
        (OwnDict(x=Tensor(8)), None),
        (MappingProxyType({"x": Tensor(8)}), None),
        (OwnList([Tensor(8)]), None),
        ([OwnTensor(8), Tensor(2)], 2),
    ],
)
def test_the_leading_dimension(torch: FakeTorch, batch: Any, length: int | None) -> None:
    """Of the first tensor that has one, not too deep inside, nor within the job's own classes."""
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
    batch_size: int | None,
    collate: Any,
    batches: list[Any],
    samples: int | None,
) -> None:
    """A collate function of the job's own is believed if its first batch has the loader's size."""
    chosen = {} if collate is None else {"collate_fn": collate}
    list(started.loader(batches, batch_size=batch_size, **chosen))

    assert measured().samples == samples


def test_ready_batches(started: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the queue and those that came out of order, not those under way."""
    loader = started.loader([BATCH])
    loader.num_workers, loader.prefetch_factor = 2, 2
    iterator = with_workers(iter(loader), finished=2, out_of_order=1, under_way=3)
    next(iterator)

    (account,) = PROCESS.accounts
    assert account.loader == {
        "workers": 2,
        "prefetch_factor": 2,
        "pin_memory": False,
        "persistent_workers": False,
        "ready_batches": 3,
    }

    def unknown() -> int:
        raise NotImplementedError

    monkeypatch.setattr(iterator._data_queue, "qsize", unknown)
    assert ready_batches(iterator) == 1
    assert ready_batches(None) is None


@pytest.mark.parametrize("name", ["_task_info", "_data_queue", "_tasks_outstanding"])
def test_ready_batches_of_another_torch_are_not_known(
    clock: Clock, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """That alone is lost then."""
    start(monkeypatch)
    loader = torch.loader([BATCH])
    loader.num_workers = 2
    iterator = with_workers(iter(loader), finished=2, out_of_order=1, under_way=3)
    delattr(iterator, name)
    next(iterator)

    (account,) = PROCESS.accounts
    assert account.loader["workers"] == 2
    assert account.loader["ready_batches"] is None
    assert list(degraded.FOUND) == ["loader_details"]
