# SPDX-License-Identifier: Apache-2.0
"""What the iterator of a PyTorch data loader tells: its set-up, ready batches, samples."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

DEEPEST, WIDEST = 4, 8
"""Levels of containers, and items of each, in which the first tensor of a batch is looked for."""


class Loader:
    """One iterator's loader."""

    __slots__ = ("_batch_size", "_counted", "numbers")

    def __init__(self, iterator: Any) -> None:
        self.numbers: dict[str, int | bool | None] = {
            "workers": int(iterator._num_workers),
            "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
            "pin_memory": bool(iterator._pin_memory),
            "persistent_workers": bool(iterator._persistent_workers),
            "ready_batches": None,
        }
        """What is reported of it, by the keys of the protocol."""
        self._batch_size = getattr(iterator._index_sampler, "batch_size", None)
        self._counted = _counts_samples(iterator)

    def look(self, iterator: Any) -> None:
        """Bring the numbers up to date."""
        self.numbers["ready_batches"] = ready_batches(iterator)

    def samples(self, batch: Any) -> int | None:
        """Return how many samples a batch has; None where its first dimension may not say so.

        A job's own collate function may put any dimension first. It is believed for all batches
        if the first one is as long as the loader's batch size.
        """
        if self._counted is False:
            return None
        length = leading_dimension(batch)
        if self._counted is None:
            self._counted = length is not None and self._batch_size in (None, length)
        return length if self._counted else None


def ready_batches(iterator: Any) -> int | None:
    """Return how many batches the workers have finished and nobody took; None without workers.

    Those that came out of order are kept by the iterator, the others wait in its queue.
    """
    tasks = getattr(iterator, "_task_info", None)
    if tasks is None:
        return None
    kept = sum(len(task) > 1 for task in tasks.values())
    try:
        waiting = int(iterator._data_queue.qsize())
    except (NotImplementedError, OSError):  # macOS cannot tell; a queue may be closed
        return kept
    return kept + min(waiting, int(iterator._tasks_outstanding))


def leading_dimension(batch: Any, depth: int = 0) -> int | None:
    """Return the first dimension of the first tensor that has one."""
    torch: Any = sys.modules["torch"]
    if isinstance(batch, torch.Tensor):
        return int(batch.size(0)) if batch.dim() else None
    if depth == DEEPEST:
        return None
    items: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        items = batch.values()
    elif isinstance(batch, (list, tuple)):
        items = batch
    for item in islice(items, WIDEST):
        length = leading_dimension(item, depth + 1)
        if length is not None:
            return length
    return None


def _counts_samples(iterator: Any) -> bool | None:
    """Return whether the leading dimension counts samples; None: the first batch will tell."""
    if not iterator._auto_collation:
        return False
    collate: Any = sys.modules["torch.utils.data._utils.collate"]
    return True if iterator._collate_fn is collate.default_collate else None
