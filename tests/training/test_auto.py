# SPDX-License-Identifier: Apache-2.0
"""What automatic instrumentation makes of a job, on a stand-in for PyTorch and a clock by hand."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roofline_job import auto, degraded, loops, phase, step, torch_hooks, watch, watching
from roofline_job.degraded import REASONS
from roofline_job.loader import leading_dimension, ready_batches
from roofline_job.process import PROCESS
from roofline_job.reporter import Report
from roofline_job.thread_accounts import NEVER, ThreadAccount
from tests.training.conftest import PARTS, Clock
from tests.training.fake_torch import FakeTorch, Tensor, with_workers
from tests.training.measured import Measured, measured

pytestmark = pytest.mark.usefixtures("clock", "unheard")

SECOND = 1_000_000_000
BATCH = Tensor(2, 3)


@pytest.fixture
def torch(no_torch: None, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
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


def test_every_module_has_its_hook() -> None:
    """The tables name functions and reasons that exist."""
    assert set(auto.HOOKED.values()) == set(torch_hooks._HOOKS) <= set(REASONS)
    assert set(torch_hooks.SAVERS) == {
        name for name, hook in auto.HOOKED.items() if hook == "checkpoints"
    }


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


# With `watch`


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


def test_without_automatic_instrumentation_loaders_are_left_alone(
    torch: FakeTorch, clock: Clock
) -> None:
    """`watch` on one loop says nothing about others, nor about how they start."""
    torch_hooks.install()
    for _ in torch.loader([slow(clock, BATCH, 1)], starting=lambda: clock.wait(1)):
        pass

    assert measured().counts == (0, 0, None)
    assert wall() == 0


# Failures inside, and other shapes of torch


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ThreadAccount, "begin"),
        (ThreadAccount, "end"),
        (ThreadAccount, "open_loop"),
        (ThreadAccount, "close_loop"),
        (ThreadAccount, "optimizer_step"),
        (ThreadAccount, "report"),
        (ThreadAccount, "step"),
        (type(PROCESS), "account"),
        (type(PROCESS), "account_here"),
        (type(PROCESS), "account_of_step"),
        (Report, "write"),
        (loops, "get_ident"),
        (loops.Loop, "_open"),
        (torch_hooks, "Loop"),
        (torch_hooks, "install"),
        (watching, "_wrapped"),
    ],
)
def test_a_failure_of_ours_never_reaches_the_job(
    owner: object,
    name: str,
    clock: Clock,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Batches, phases, checkpoints and steps are the job's; each part that is off says so once."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    start(monkeypatch)
    watched = watch([1, 2])
    list(torch.loader([BATCH]))
    monkeypatch.setattr(owner, name, fail)
    for _ in range(2):
        clock.wait(1)
        assert list(torch.loader([BATCH, BATCH])) == [BATCH, BATCH]
        assert list(watched) == list(watch([1, 2])) == [1, 2]
        with phase("eval"):
            step()
        torch.torch.save(1)
        torch.step(object())
        with torch.autocast_mode.autocast("torch.float16"):
            pass

    assert len(torch.saved) == 2
    assert set(degraded.FOUND.values()) == {"RuntimeError: ours"}
    assert not all(part.on for part in PARTS)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) == len(degraded.FOUND)


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [("dataloader", "DataLoader", "loaders"), ("autocast_mode", "autocast", "autocast")],
)
def test_a_torch_without_a_name_is_left_alone(
    torch: FakeTorch, module: str, name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that no real PyTorch can do without; `test_next_release` takes away the others."""
    loader_class = torch.dataloader.DataLoader
    delattr(getattr(torch, module), name)
    start(monkeypatch)
    for loader in (loader_class([BATCH]), watch(loader_class([BATCH]))):
        assert list(loader) == [BATCH]

    assert list(degraded.FOUND) == [reason]


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
    torch: FakeTorch, attribute: str, monkeypatch: pytest.MonkeyPatch
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
        "batch_size": 2,
        "ready_batches": 3,
    }

    def unknown() -> int:
        raise NotImplementedError

    monkeypatch.setattr(iterator._data_queue, "qsize", unknown)
    assert ready_batches(iterator) == 1
    assert ready_batches(None) is None
