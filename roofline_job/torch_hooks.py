# SPDX-License-Identifier: Apache-2.0
"""The hooks into PyTorch, and into torchdata.

Each hook replaces a function by an ordinary function that calls it: one line more in a traceback.
docs/stalls.md ("What it touches in the job") lists the names that are replaced, and no others are.
With `watch` alone only loaders and optimizers are hooked, and only loaders given to it measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from weakref import ref

from . import loader as loaders
from .degraded import AUTOCAST, CHECKPOINTS, DETAILS, LOADERS, OPTIMIZERS, Part, degrade
from .exact_types import attribute, required_attribute, without_torch_function
from .loops import NO_BATCH, Loop, Stated, remember_optimizer
from .precision import PRECISIONS
from .process import PROCESS
from .switches import debug
from .thread_accounts import NEVER, Begun, ThreadAccount, begin_span, end_span
from .wrapping import HOOKED, compiling, replace

SHORT_PRECISIONS = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
"""Of parameters: those of a long type do not show what precision is computed in."""

SAVERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "torch.serialization": ("torch", ("save",)),
    "torch.distributed.checkpoint.state_dict_saver": (
        "torch.distributed.checkpoint",
        ("save", "async_save"),
    ),
    "safetensors.torch": ("", ("save_file",)),
}
"""By module: the package that re-exports what it defines, and the functions that write checkpoints.

The job may have imported that package before the hook.
"""

_LOOP = "_roofline_loop"
"""The attribute of a data loader's iterator that holds its loop."""

_stated: dict[int, tuple[ref[Any], Stated]] = {}
"""What the job states about data loaders, by id: a loader may not be hashable."""


_started: dict[int, ref[Any]] = {}
"""Data loaders that have started workers, by id."""


def automatic(reason: str, module: ModuleType) -> None:
    """Hook into a module of a job that asked for automatic instrumentation."""
    PROCESS.automatic = True
    function, part = _HOOKS[reason]
    try:
        function(module)
    except Exception as error:
        part.fail(error)


def install() -> None:
    """Install the hooks that `watch` needs into the job's torch; cheap if they are there."""
    for name, hook in (
        ("torch.utils.data.dataloader", hook_loaders),
        ("torchdata.stateful_dataloader.stateful_dataloader", hook_stateful_loaders),
        ("torch.optim.optimizer", hook_optimizers),
    ):
        module = sys.modules.get(name)
        if module is not None:
            hook(module)


def mark(iterable: Any, stated: Stated) -> bool:
    """Measure every loop over a data loader; False if it is not one, or iterates in its own way."""
    module = sys.modules.get("torch.utils.data.dataloader")
    loader_class = getattr(module, "DataLoader", None)
    if loader_class is None or not issubclass(type(iterable), loader_class):
        return False
    install()
    if not LOADERS.on or not hasattr(type(iterable).__iter__, HOOKED):
        return False
    for key in [key for key, (marked, _) in _stated.items() if marked() is None]:
        del _stated[key]
    _stated[id(iterable)] = ref(iterable), stated
    return True


def _stated_of(loader: Any) -> Stated | None:
    marked, stated = _stated.get(id(loader), (None, None))
    return stated if marked is not None and marked() is loader else None


def hook_loaders(module: Any) -> None:
    """Measure every next() of data loaders: both kinds of iterator inherit it from one class."""
    loader = getattr(module, "DataLoader", None)
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    if loader is None or not hasattr(iterator, "__next__"):
        LOADERS.miss(f"{module.__name__} has no _BaseDataLoaderIter.__next__")
    elif LOADERS.on:
        replace(loader, "__iter__", _measured_iter)
        replace(iterator, "__next__", _measured_next)


def hook_stateful_loaders(module: Any) -> None:
    """Measure the start of torchdata's data loader, whose iterators inherit next() from PyTorch's,
    and read its settings."""
    loader = getattr(module, "StatefulDataLoader", None)
    if loader is None:
        degrade("loader_details", f"{module.__name__} has no StatefulDataLoader")
    elif LOADERS.on:
        replace(loader, "__iter__", _measured_iter)


def hook_optimizers(module: Any) -> None:
    """Count the steps of every optimizer."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        OPTIMIZERS.miss(f"{module.__name__} has no register_optimizer_step_post_hook")
    elif OPTIMIZERS.on and not hasattr(module, HOOKED):
        register(_count_step)
        setattr(module, HOOKED, True)
        debug(f"hooked {module.__name__}.register_optimizer_step_post_hook")


def hook_autocast(module: Any) -> None:
    """Take the precision from autocast."""
    autocast = getattr(module, "autocast", None)
    if autocast is None or not hasattr(autocast, "__enter__"):
        AUTOCAST.miss(f"{module.__name__} has no autocast.__enter__")
    else:
        replace(autocast, "__enter__", _noticed_enter)


def hook_saving(module: Any) -> None:
    """Time the functions of this module that save as phase checkpoint."""
    package, names = SAVERS[module.__name__]
    shown = sys.modules.get(package)
    for name in names:
        function = getattr(module, name, None)
        if function is None:
            degrade("checkpoints", f"{module.__name__} has no {name}")
            continue
        replace(module, name, _timed_save)
        if shown is not None and getattr(shown, name, None) is function:
            setattr(shown, name, getattr(module, name))


_HOOKS: Mapping[str, tuple[Callable[[Any], None], Part]] = {
    "loaders": (hook_loaders, LOADERS),
    "loader_details": (hook_stateful_loaders, DETAILS),
    "optimizers": (hook_optimizers, OPTIMIZERS),
    "autocast": (hook_autocast, AUTOCAST),
    "checkpoints": (hook_saving, CHECKPOINTS),
}


def _measured_iter(original: Callable[[Any], Any]) -> Any:
    def __iter__(self: Any) -> Any:
        if compiling() or not LOADERS.on:
            return original(self)
        start = begin_span(lambda: _account_of_start(self), "data", LOADERS)
        iterator = None
        try:
            iterator = original(self)
            return iterator
        finally:
            _end_start(start, self, iterator)

    return __iter__


def _measured_next(original: Callable[[Any], Any]) -> Any:
    def __next__(self: Any) -> Any:
        if compiling() or not LOADERS.on:
            return original(self)
        loop = _loop_of(self)
        wait = None if loop is None else loop.begin_wait()
        if loop is None or wait is None:
            return original(self)
        batch = NO_BATCH
        try:
            batch = original(self)
            return batch
        finally:
            loop.end_wait(wait, batch)

    return __next__


def _noticed_enter(original: Callable[[Any], Any]) -> Any:
    def __enter__(self: Any) -> Any:
        if AUTOCAST.on and not compiling():
            _note_precision(self)
        return original(self)

    return __enter__


def _timed_save(original: Callable[..., Any]) -> Any:
    def save(*args: Any, **kwargs: Any) -> Any:
        if compiling() or not CHECKPOINTS.on:
            return original(*args, **kwargs)
        begun = begin_span(_account_of_checkpoint, "checkpoint", CHECKPOINTS)
        try:
            return original(*args, **kwargs)
        finally:
            end_span(begun, CHECKPOINTS)

    return save


def _loop_of(iterator: Any) -> Loop | None:
    try:
        loop: Loop | None = attribute(iterator, _LOOP)
        return loop or _loop(None, iterator)
    except Exception as error:
        LOADERS.fail(error)
        return None


def _loop(loader: Any, iterator: Any) -> Loop:
    """Create the loop of an iterator; `loader` is None where an unusual one made the iterator."""
    if loader is None:
        loop = Loop(iterator, None, LOADERS)
    else:
        samples = loaders.samples_of(loader)
        loop = Loop(loader, _stated_of(loader), LOADERS, samples=samples)
        loop.peek = loaders.settings(loader, iterator)
        loop.workers = loaders.worker_ids(iterator)
    loop.is_loader = True
    if attribute(loader, "_iterator") is iterator:
        loop.ends_with(iterator, loaders.is_left)
    else:
        loop.ends_with(iterator)
    if type.__getattribute__(type(iterator), "__setattr__") is not object.__setattr__:
        raise TypeError(f"{type(iterator).__name__} sees what is set")
    setattr(iterator, _LOOP, loop)
    return loop


def _account_of_start(loader: Any) -> ThreadAccount | None:
    """Return the account in which the start of a loader's workers is measured."""
    stated = _stated_of(loader)
    if stated is None and not PROCESS.automatic:
        return None
    account = PROCESS.account() if stated is None else PROCESS.account(stated.job, stated.rank)
    is_measured = account is not None and account.asking is None and not account.by_steps
    return account if is_measured else None


def _end_start(begun: Begun, loader: Any, iterator: Any) -> None:
    end_span(begun, LOADERS)
    try:
        if any(attribute(vars(kind).get("__next__"), HOOKED) for kind in type(iterator).__mro__):
            before = attribute(iterator, _LOOP)
            if before is not None:  # a persistent iterator starts over
                before.close()
            loop = _loop(loader, iterator)
            if begun is not None and before is None and _starts_again(loader):
                account, span = begun
                account.activity.restart_ns += account.seen_ns - span.begin_ns
                loop.restarts = required_attribute(loader, "num_workers")
    except Exception as error:
        LOADERS.fail(error)


def _starts_again(loader: Any) -> bool:
    """Return whether a loader had workers before."""
    if not required_attribute(loader, "num_workers"):
        return False
    started = _started.get(id(loader))
    is_known = started is not None and started() is loader
    if not is_known:
        for key in [key for key, each in _started.items() if each() is None]:
            del _started[key]
        _started[id(loader)] = ref(loader)
    return is_known


def _count_step(optimizer: Any = None, *_: Any, **__: Any) -> None:
    if compiling() or not OPTIMIZERS.on:
        return
    try:
        account = PROCESS.account_of_step()
        if account is not None:
            if account.precision is None and not account.counts.optimizer_seen:
                _note_parameters(account, optimizer)
            remember_optimizer(optimizer)
            account.optimizer_step(optimizer)
    except Exception as error:
        OPTIMIZERS.fail(error)


def _note_parameters(account: ThreadAccount, optimizer: Any) -> None:
    try:
        first = attribute(optimizer, "param_groups")[0]["params"][0]
        with without_torch_function():
            account.precision = SHORT_PRECISIONS.get(str(first.dtype))
    except (AttributeError, LookupError, TypeError):  # an unusual optimizer
        return


def _note_precision(autocast: Any) -> None:
    try:
        account = PROCESS.account_here()
        if (
            account is not None
            and account.precision is None
            and required_attribute(autocast, "_enabled")
        ):
            name = str(required_attribute(autocast, "fast_dtype"))
            account.precision = PRECISIONS.get(name, name.removeprefix("torch."))
    except Exception as error:
        AUTOCAST.fail(error)


def _account_of_checkpoint() -> ThreadAccount | None:
    """Return the account of a thread that trains, once its run has begun: those that prepare data,
    or help asynchronous saving, save as well."""
    account = PROCESS.account_here()
    return None if account is None or account.due_ns == NEVER else account
