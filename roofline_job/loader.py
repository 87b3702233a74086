# SPDX-License-Identifier: Apache-2.0
"""What can be read from a PyTorch data loader: its set-up, ready batches, samples.

Loops outlive their loaders, so nothing here holds one: functions hold what was read from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any
from weakref import ref

from .degraded import DETAILS

DEEPEST, WIDEST = 4, 8
"""Levels of containers, and items of each, in which the first tensor of a batch is looked for."""


def numbers(loader: Any, iterator: Any) -> Callable[[], dict[str, int | bool | None]]:
    """Return a function that reads a loader's numbers, by the keys of the protocol."""
    known: dict[str, int | bool | None] = {
        "workers": int(loader.num_workers),
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
    }
    asked = ref(iterator)
    has_workers = bool(loader.num_workers)

    def look() -> dict[str, int | bool | None]:
        return {**known, "ready_batches": ready_batches(asked()) if has_workers else None}

    return look


def ready_batches(iterator: Any) -> int | None:
    """Return how many finished batches wait to be taken; None if that is not known.

    Those that came out of order are kept by the iterator, the others wait in its queue.
    """
    if not DETAILS.on or iterator is None:
        return None
    try:
        kept = sum(len(task) > 1 for task in iterator._task_info.values())
        queue, under_way = iterator._data_queue, int(iterator._tasks_outstanding)
    except (AttributeError, TypeError) as error:
        DETAILS.miss(str(error))
        return None
    try:
        waiting = int(queue.qsize())
    except (AttributeError, NotImplementedError, OSError):  # macOS; pinned memory; closed
        return kept
    return kept + min(waiting, under_way)


def samples_of(loader: Any) -> Callable[[Any], int | None] | None:
    """Return a function that counts the samples of a batch; None where no dimension shows them.

    A job's own collate function may put any dimension first. It is believed for all batches if the
    first one is as long as the loader's batch size.
    """
    if loader.batch_sampler is None:
        return None
    if loader.collate_fn is sys.modules["torch.utils.data"].default_collate:
        return leading_dimension
    expected = loader.batch_size
    believed: list[bool] = []

    def looked_at(batch: Any) -> int | None:
        if believed == [False]:
            return None
        length = leading_dimension(batch)
        if not believed:
            believed.append(length is not None and expected in (None, length))
        return length if believed[0] else None

    return looked_at


def leading_dimension(batch: Any, depth: int = 0) -> int | None:
    """Return the first dimension of the first tensor that has one.

    Only exact types are looked into: a container or a tensor of another class may run the job's
    own code when it is asked.
    """
    kind, torch = type(batch), sys.modules["torch"]
    if kind is torch.Tensor:
        # Modes of the job see what is called of any tensor.
        with torch._C.DisableTorchFunction():
            return int(batch.size(0)) if batch.dim() else None
    if depth == DEEPEST:
        return None
    items: Iterable[Any] = ()
    if kind is dict:
        items = batch.values()
    elif kind is list or kind is tuple:
        items = batch
    for item in islice(items, WIDEST):
        length = leading_dimension(item, depth + 1)
        if length is not None:
            return length
    return None
