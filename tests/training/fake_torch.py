# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the parts of PyTorch that the client hooks into: the same names, no tensors."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any


class Tensor:
    """A shape."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dimension: int) -> int:
        return self.shape[dimension]


def default_collate(samples: Any) -> Any:
    return samples


class FakeTorch:
    """The modules, new for each test, and what they answer."""

    def __init__(self) -> None:
        self.grad = True
        self.compiling = False
        self.hooks: dict[int, Callable[..., object]] = {}
        self.saved: list[Any] = []
        torch, self.dataloader = ModuleType("torch"), ModuleType("torch.utils.data.dataloader")
        torch.Tensor = Tensor  # type: ignore[attr-defined]
        torch.is_grad_enabled = lambda: self.grad  # type: ignore[attr-defined]
        torch.compiler = SimpleNamespace(  # type: ignore[attr-defined]
            is_compiling=lambda: self.compiling
        )
        torch.version = SimpleNamespace(cuda=None, hip=None)  # type: ignore[attr-defined]
        self.dataloader._BaseDataLoaderIter = self._iterator()  # type: ignore[attr-defined]
        self.optimizer = ModuleType("torch.optim.optimizer")
        self.optimizer._global_optimizer_post_hooks = self.hooks  # type: ignore[attr-defined]
        self.optimizer.register_optimizer_step_post_hook = (  # type: ignore[attr-defined]
            lambda hook: self.hooks.setdefault(len(self.hooks), hook)
        )
        self.autocast_mode = ModuleType("torch.amp.autocast_mode")
        self.autocast_mode.autocast = self._autocast()  # type: ignore[attr-defined]
        self.serialization = ModuleType("torch.serialization")
        self.serialization.save = torch.save = self._save()  # type: ignore[attr-defined]
        collate = ModuleType("torch.utils.data._utils.collate")
        collate.default_collate = default_collate  # type: ignore[attr-defined]
        self.torch = torch
        hooked = (self.dataloader, self.optimizer, self.autocast_mode, self.serialization)
        self.modules = {module.__name__: module for module in (torch, collate, *hooked)}

    def loader(
        self, batches: Sequence[Any], *, batch_size: int | None = 2, collate: Any = default_collate
    ) -> Any:
        """Return an iterator over these batches; one that is an exception is raised."""
        return self.dataloader._BaseDataLoaderIter(batches, batch_size, collate)

    def step(self, optimizer: object) -> None:
        """Step an optimizer."""
        for hook in self.hooks.values():
            hook(optimizer, (), {})

    @staticmethod
    def _iterator() -> type:
        class _BaseDataLoaderIter:
            def __init__(
                self, batches: Sequence[Any], batch_size: int | None, collate: Any
            ) -> None:
                self._batches = self._dataset = batches
                self._collate_fn = collate
                self._auto_collation = batch_size is not None
                self._index_sampler = SimpleNamespace(batch_size=batch_size)
                self._num_workers = 0
                self._pin_memory = False
                self._persistent_workers = False
                self._reset(None, True)

            def _reset(self, loader: Any, first_iter: bool = False) -> None:
                self._left = iter(self._batches)

            def __iter__(self) -> Iterator[Any]:
                return self

            def __next__(self) -> Any:
                batch = next(self._left)
                if callable(batch):
                    batch = batch()
                if isinstance(batch, BaseException):
                    raise batch
                return batch

        return _BaseDataLoaderIter

    @staticmethod
    def _autocast() -> type:
        class autocast:
            def __init__(self, dtype: str, enabled: bool = True) -> None:
                self.fast_dtype = dtype
                self._enabled = enabled

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                return None

        return autocast

    def _save(self) -> Callable[[Any], None]:
        def save(value: Any) -> None:
            if isinstance(value, BaseException):
                raise value
            self.saved.append(value() if callable(value) else value)

        save.__module__, save.__qualname__ = "torch.serialization", "save"
        return save


def with_workers(iterator: Any, *, finished: int, out_of_order: int, under_way: int) -> Any:
    """Give an iterator the inner state of one with two workers."""
    tasks = dict.fromkeys(range(out_of_order), (0, "batch"))
    waiting = {100 + number: (1,) for number in range(finished + under_way)}
    iterator._num_workers, iterator._prefetch_factor = 2, 2
    iterator._task_info = {**tasks, **waiting}
    iterator._tasks_outstanding = finished + under_way
    iterator._data_queue = queue.Queue()
    for _ in range(finished):
        iterator._data_queue.put("batch")
    return iterator
