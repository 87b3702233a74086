# SPDX-License-Identifier: Apache-2.0
"""Reads a PyTorch data loader: its settings, ready batches, samples.

Loops outlive their loaders, so the functions here hold no reference to one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

from .degraded import DETAILS
from .exact_types import attribute, required_attribute, shapes

_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")


def settings(loader: Any, iterator: Any) -> Callable[[], dict[str, int | bool | None]]:
    """Return a function that reads a loader's settings, by the keys of the protocol."""
    known: dict[str, int | bool | None] = {
        name.removeprefix("num_"): value if type(value) in (int, bool) else None
        for name in _SETTINGS
        for value in (required_attribute(loader, name),)
    }
    reference = ref(iterator)
    has_workers = bool(known["workers"])

    def peek() -> dict[str, int | bool | None]:
        return {**known, "ready_batches": ready_batches(reference()) if has_workers else None}

    return peek


def worker_ids(iterator: Any) -> Callable[[], list[int]]:
    """Return a function that lists the processes of an iterator's workers."""
    reference = ref(iterator)

    def ids() -> list[int]:
        workers = attribute(reference(), "_workers") or ()
        found = [attribute(attribute(worker, "_popen"), "pid") for worker in workers]
        return [process for process in found if process is not None]

    return ids


def is_left(iterator: ref[Any]) -> bool:
    """Return whether no loop refers to an iterator that its persistent loader may still keep."""
    return _references(iterator) <= _REFERENCES_OF_ONE


def _references(target: ref[Any]) -> int:
    found = target()
    return 0 if found is None else sys.getrefcount(found)


_one = type("_Kept", (), {})()
_REFERENCES_OF_ONE = _references(ref(_one))
"""Of an object that is referenced once; how many this takes itself depends on the interpreter."""


def ready_batches(iterator: Any) -> int | None:
    """Return how many finished batches wait in an iterator's queue or, out of order, in itself;
    None if that is not known."""
    if not DETAILS.on or iterator is None:
        return None
    try:
        kept = sum(len(task) > 1 for task in required_attribute(iterator, "_task_info").values())
        queue = required_attribute(iterator, "_data_queue")
        under_way = required_attribute(iterator, "_tasks_outstanding")
    except (AttributeError, KeyError, TypeError) as error:
        DETAILS.miss(f"{type(error).__name__}: {error}")
        return None
    try:
        waiting = int(queue.qsize())
    except (AttributeError, NotImplementedError, OSError):  # macOS; pinned memory; closed
        return kept
    return kept + min(waiting, int(under_way))


def samples_of(loader: Any) -> Callable[[Any], int | None] | None:
    """Return a function that counts the samples of a batch; None where no dimension shows them.

    A job's own collate function may put any dimension first. It is believed for all batches if the
    first one is as long as the loader's batch size.
    """
    if required_attribute(loader, "batch_sampler") is None:
        return None
    if required_attribute(loader, "collate_fn") is sys.modules["torch.utils.data"].default_collate:
        return leading_dimension
    expected = required_attribute(loader, "batch_size")
    expected = expected if type(expected) is int else None
    believed: list[bool] = []

    def count(batch: Any) -> int | None:
        if believed == [False]:
            return None
        length = leading_dimension(batch)
        if not believed:
            believed.append(length is not None and expected in (None, length))
        return length if believed[0] else None

    return count


def leading_dimension(batch: Any) -> int | None:
    """Return the first dimension of the first tensor that has one."""
    return next((shape[0] for shape in shapes(batch) if shape), None)
