# SPDX-License-Identifier: Apache-2.0
"""Where the client hooks into PyTorch: data loaders, optimizers, checkpoints, autocast.

With ``watch`` alone, data loaders only mark the data phase inside a watched ``next()``. With
automatic instrumentation they are the loops themselves; see ``torch_loops``.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping
from operator import methodcaller
from types import MethodType, ModuleType
from typing import Any

from . import lanes
from .dynamo import compiling, leave_alone
from .failures import failed
from .frameless import Lookalike, StandIn
from .runs import NEVER, PROCESS, Run
from .torch_loops import Loop, Loops

AUTOCAST_PRECISION = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}

PARAMETER_PRECISION = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}

SAVERS: Mapping[str, tuple[str, ...]] = {
    "torch.serialization": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file",),
}
"""Functions that write checkpoints, by the module that defines them."""

REEXPORTS: Mapping[str, str] = {
    "torch.serialization": "torch",
    "torch.distributed.checkpoint.state_dict_saver": "torch.distributed.checkpoint",
}
"""Where the job gets them from; it may have done so before they were hooked."""


_NEXT = "_roofline_next"
"""The attribute of the iterators' class by which a watched ``next()`` is found again."""


class Hooks:
    """What this process has hooked into."""

    def __init__(self) -> None:
        self.automatic = False
        self.forget()

    def forget(self) -> None:
        """Begin anew in a forked child, whose only thread is its main one."""
        self.stepping: set[int] = set()
        """Threads in which an optimizer stepped: those train, whatever the main one does."""
        self.loops = Loops()

    def training_here(self) -> bool:
        """Return whether this thread is one that trains; until one is known, the main one is."""
        here = threading.get_ident()
        return here in self.stepping or (
            not self.stepping and here == threading.main_thread().ident
        )


HOOKS = Hooks()
os.register_at_fork(after_in_child=HOOKS.forget)


def install() -> None:
    """Hook into what ``watch`` needs of a torch that the job has imported; cheap when done."""
    for name, hook in (
        ("torch.utils.data.dataloader", hook_loaders),
        ("torch.optim.optimizer", hook_optimizers),
    ):
        module = sys.modules.get(name)
        if module is not None:
            hook(module)
    leave_alone()


def automatic(hook: str, module: ModuleType) -> None:
    """Hook into a module of a job that asked for automatic instrumentation."""
    HOOKS.automatic = True
    PROCESS.instrumentation = "auto"
    try:
        leave_alone()
        _HOOKS[hook](module)
    except Exception as error:
        failed(error)


def hook_loaders(module: Any) -> None:
    """Watch every ``next()`` of data loaders: both kinds of iterator inherit it from one class."""
    iterator = module._BaseDataLoaderIter
    if not hasattr(iterator, _NEXT):
        watched = _Next(iterator.__next__)
        setattr(iterator, _NEXT, watched)
        iterator.__next__ = watched
        iterator._reset = _Reset(iterator._reset)


def hook_optimizers(module: Any) -> None:
    """Count the steps of every optimizer."""
    if _stepped not in module._global_optimizer_post_hooks.values():
        module.register_optimizer_step_post_hook(_stepped)


def hook_autocast(module: Any) -> None:
    """Take the precision from autocast."""
    autocast = module.autocast
    if not isinstance(autocast.__dict__["__enter__"], _Enter):
        autocast.__enter__ = _Enter(autocast.__enter__)


def hook_saving(module: Any) -> None:
    """Time the functions of this module that save as phase checkpoint."""
    shown = sys.modules.get(REEXPORTS.get(module.__name__, ""))
    for name in SAVERS[module.__name__]:
        function = getattr(module, name, None)
        if function is None or type(function) is StandIn:
            continue
        stand_in = StandIn(function, _begin_checkpoint)
        setattr(module, name, stand_in)
        if shown is not None and getattr(shown, name, None) is function:
            setattr(shown, name, stand_in)


_HOOKS: Mapping[str, Callable[[Any], None]] = {
    hook.__name__: hook for hook in (hook_loaders, hook_optimizers, hook_autocast, hook_saving)
}


def _by_generator() -> bool:
    """Return whether it is a generator that looks up the attribute whose descriptor calls this."""
    return bool(sys._getframe(2).f_code.co_flags & inspect.CO_GENERATOR)


class _Unbound:
    """The ``__call__`` of what a job gets that takes ``__next__`` from the class and calls it."""

    def __get__(self, function: _Next, owner: type[_Next]) -> Callable[[Any], Any]:
        return methodcaller(_NEXT)


class _Next(Lookalike):
    """The ``__next__`` of data loaders' iterators; see ``frameless`` for how it is unseen."""

    __call__ = _Unbound()

    def __get__(self, iterator: Any, owner: type | None = None) -> Callable[..., Any]:
        if iterator is None:
            return self
        turn = None if compiling() else _begin_turn(iterator, ahead=_by_generator())
        if turn is None:
            return MethodType(self.__wrapped__, iterator)
        return map(turn.received, map(self.__wrapped__, (iterator,))).__next__


class _Reset:
    """The ``_reset`` of data loaders' iterators: a persistent one begins a new epoch with it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, iterator: Any, owner: type | None = None) -> Callable[..., Any]:
        if iterator is not None and HOOKS.automatic:
            try:
                HOOKS.loops.reset(iterator)
            except Exception as error:
                failed(error)
        bound: Callable[..., Any] = self.function.__get__(iterator, owner)
        return bound


class _Enter:
    """The ``__enter__`` of autocast."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, autocast: Any, owner: type | None = None) -> Callable[..., Any]:
        if autocast is not None and not compiling():
            _note_precision(autocast)
        bound: Callable[..., Any] = self.function.__get__(autocast, owner)
        return bound


class _Turn:
    """The calls of ``next()`` of a data loader, one at a time.

    It is kept for the next call: what a signal handler of the job raises in ``__del__`` is lost,
    so that must not run for every batch.
    """

    __slots__ = ("ahead", "lane", "loop", "outermost", "span")

    def __init__(self, lane: lanes.Lane) -> None:
        self.lane = lane
        self.loop: Loop | None = None
        self.outermost = False
        self.ahead = False
        """A generator asks, as Accelerate's loaders do: one batch before the body needs it."""
        self.span: lanes.Span | None = None

    def begin(self, loop: Loop, iterator: Any, *, outermost: bool, ahead: bool) -> None:
        """Begin to wait for a batch."""
        lane = self.lane
        self.loop, self.outermost, self.ahead = loop, outermost, ahead
        _look(lane, iterator, loop)
        if outermost:
            lane.asking = iterator
        try:
            self.span = lane.begin("data")
        except BaseException:
            if outermost:
                lane.asking = None
            raise

    def received(self, batch: Any) -> Any:
        """Account the wait for a batch, and hand the batch on."""
        try:
            self._end()
            loop, self.loop = self.loop, None
            if loop is not None:
                if self.outermost:
                    loop.batch(batch)
                loop.turns.append(self)
        except Exception as error:
            failed(error)
        return batch

    def __del__(self) -> None:
        """Nothing was received: the data ended or ``next()`` raised."""
        try:
            # A signal handler of the job may have raised in __init__.
            if getattr(self, "span", None) is not None:
                self._end()
                if self.outermost and self.loop is not None:
                    if self.ahead:
                        self.loop.exhausted = True
                    else:
                        self.loop.end()
        except Exception as error:
            failed(error)

    def _end(self) -> None:
        span, self.span = self.span, None
        if self.outermost:
            self.lane.asking = None
        if span is not None:
            self.lane.end(span)


def _look(lane: lanes.Lane, iterator: Any, loop: Loop) -> None:
    """Read the loader's numbers where the next report should have them anew."""
    run, loader = lane.run, loop.loader
    if not (lane.evaluating or loop.undecided) and (
        run.loader is not loader.numbers or lane.clock() >= run.due_ns
    ):
        loader.look(iterator)
        run.loader = loader.numbers


def _begin_turn(iterator: Any, *, ahead: bool) -> _Turn | None:
    """Begin to wait for a batch; None where this ``next()`` is not to be measured here."""
    try:
        lane = lanes.current()
        if lane is None:
            return None
        outermost = lane.asking is None
        if lane.asking is iterator:  # a watched loop measures this very call
            _look(lane, iterator, HOOKS.loops.of(lane, iterator))
            return None
        if not outermost:
            loop = HOOKS.loops.of(lane, iterator)
        elif HOOKS.automatic and HOOKS.training_here():
            loop = HOOKS.loops.ask(lane, iterator)
        else:
            return None
        turn: _Turn = loop.turns.pop() if loop.turns else _Turn(lane)
        turn.begin(loop, iterator, outermost=outermost, ahead=ahead)
    except Exception as error:
        failed(error)
        return None
    else:
        return turn


def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    if compiling():
        return
    try:
        HOOKS.stepping.add(threading.get_ident())
        lane = lanes.current()
        if lane is not None:
            if not lane.run.optimizer_seen:
                _note_parameters(lane.run, optimizer)
            HOOKS.loops.stepped(lane, optimizer)
            lane.optimizer_step(optimizer)
    except Exception as error:
        failed(error)


def _note_parameters(run: Run, optimizer: Any) -> None:
    """Take the precision from parameters that are of a short type; long ones tell nothing."""
    if run.precision is None:
        first: dict[str, Any] = next(iter(getattr(optimizer, "param_groups", ())), {})
        kind = getattr(next(iter(first.get("params", ())), None), "dtype", None)
        run.precision = PARAMETER_PRECISION.get(str(kind))


def _note_precision(autocast: Any) -> None:
    try:
        if autocast._enabled and HOOKS.training_here():
            lane = lanes.current()
            if lane is not None and lane.run.precision is None:
                name = str(autocast.fast_dtype)
                lane.run.precision = AUTOCAST_PRECISION.get(name, name.removeprefix("torch."))
    except Exception as error:
        failed(error)


def _begin_checkpoint() -> Callable[[], None] | None:
    """Begin phase checkpoint in a thread that trains, once its run has begun.

    A process that only prepares data saves as well, and so do the helpers of asynchronous saving.
    """
    try:
        if compiling() or not HOOKS.training_here():
            return None
        lane = lanes.current()
        if lane is None or lane.run.due_ns == NEVER:
            return None
        span = lane.begin("checkpoint")
    except Exception as error:
        failed(error)
        return None

    def end() -> None:
        try:
            lane.end(span)
        except Exception as error:
            failed(error)

    return end
