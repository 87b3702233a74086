# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the parts of PyTorch that the client hooks into: the same names, no tensors."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any


class Tensor:
    """A shape."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


def default_collate(samples: Any) -> Any:
    return samples


def _module(name: str) -> Any:
    return ModuleType(name)


class FakeTorch:
    """The modules, new for each test, and what they answer."""

    def __init__(self) -> None:
        self.grad = True
        self.compiling = False
        self.hooks: list[Callable[..., object]] = []
        self.saved: list[Any] = []
        self.torch = _module("torch")
        self.torch.Tensor = Tensor
        self.torch._C = SimpleNamespace(DisableTorchFunction=nullcontext)
        self.torch.is_grad_enabled = lambda: self.grad
        self.torch.version = SimpleNamespace(cuda=None, hip=None)
        self.torch.__version__ = "2.13.0+fake"
        compiler = _module("torch.compiler")
        compiler.is_compiling = lambda: self.compiling
        self.torch.compiler = compiler
        data = _module("torch.utils.data")
        data.default_collate = default_collate
        data.get_worker_info = lambda: None
        self.dataloader = _module("torch.utils.data.dataloader")
        self.dataloader._BaseDataLoaderIter = _iterator_class()
        self.dataloader.DataLoader = _loader_class(self.dataloader._BaseDataLoaderIter)
        self.optimizer = _module("torch.optim.optimizer")
        self.optimizer.register_optimizer_step_post_hook = self.hooks.append
        self.autocast_mode = _module("torch.amp.autocast_mode")
        self.autocast_mode.autocast = _autocast_class()
        self.serialization = _module("torch.serialization")
        self.serialization.save = self.torch.save = self._save()
        hooked = (self.dataloader, self.optimizer, self.autocast_mode, self.serialization)
        self.modules = {module.__name__: module for module in (self.torch, compiler, data, *hooked)}

    def loader(self, batches: Any, **options: Any) -> Any:
        """Return a data loader over these batches.

        A batch that is an exception is raised; one that is a function says what the batch is.
        """
        return self.dataloader.DataLoader(batches, **options)

    def step(self, optimizer: object) -> None:
        """Step an optimizer."""
        for hook in self.hooks:
            hook(optimizer, (), {})

    def _save(self) -> Callable[[Any], None]:
        def save(value: Any) -> None:
            """Save."""
            if isinstance(value, BaseException):
                raise value
            self.saved.append(value() if callable(value) else value)

        save.__module__, save.__qualname__ = "torch.serialization", "save"
        return save


def _loader_class(iterator_class: Any) -> type:
    class DataLoader:
        def __init__(
            self,
            dataset: Any,
            *,
            batch_size: int | None = 2,
            collate_fn: Any = default_collate,
            persistent_workers: bool = False,
            starting: Callable[[], object] = object,
        ) -> None:
            self.dataset = dataset
            self.batch_size = batch_size
            self.batch_sampler = None if batch_size is None else object()
            self.collate_fn = collate_fn
            self.num_workers = 0
            self.prefetch_factor: int | None = None
            self.pin_memory = False
            self.persistent_workers = persistent_workers
            self.starting = starting
            self._kept: Any = None

        def __len__(self) -> int:
            return len(self.dataset)

        def __iter__(self) -> Iterator[Any]:
            self.starting()
            if self._kept is None:
                iterator: Iterator[Any] = iterator_class(self)
                if not self.persistent_workers:
                    return iterator
                self._kept = iterator
            self._kept._reset(self)
            kept: Iterator[Any] = self._kept
            return kept

    return DataLoader


def _iterator_class() -> type:
    class _BaseDataLoaderIter:
        def __init__(self, loader: Any) -> None:
            self._reset(loader)

        def _reset(self, loader: Any) -> None:
            self._left = iter(loader.dataset)

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            """Return the next batch."""
            batch = next(self._left)
            if callable(batch):
                batch = batch()
            if isinstance(batch, BaseException):
                raise batch
            return batch

    return _BaseDataLoaderIter


def _autocast_class() -> type:
    class autocast:
        def __init__(self, dtype: str, enabled: bool = True) -> None:
            self.fast_dtype = dtype
            self._enabled = enabled

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    return autocast


def with_workers(iterator: Any, *, finished: int, out_of_order: int, under_way: int) -> Any:
    """Give an iterator the inner state of one with workers."""
    tasks = dict.fromkeys(range(out_of_order), (0, "batch"))
    waiting = {100 + number: (1,) for number in range(finished + under_way)}
    iterator._task_info = {**tasks, **waiting}
    iterator._tasks_outstanding = finished + under_way
    iterator._data_queue = queue.Queue()
    for _ in range(finished):
        iterator._data_queue.put("batch")
    return iterator
