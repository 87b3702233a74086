# SPDX-License-Identifier: Apache-2.0
"""Counts the FLOPs that the modules of one thread compute, forward and backward.

The formulas are those of ``torch.utils.flop_counter``. The outermost call of a module and each
``backward`` run under a dispatch mode, which is entered and left in the same call: wherever the
loop breaks and whatever is raised in it, no mode stays. Left out is what runs without gradients,
what has no formula (kernels of other libraries), and half of causal attention: so it is never more
than what is computed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import get_ident
from typing import Any

from .captures import CAPTURES, GRAPH_CLASSES
from .degraded import Part
from .exact_types import shapes, without_torch_function
from .precision import computed_in
from .wrapping import compiling

PART = Part("flops")
REPLAYED = "CUDA graphs are replayed"
CAUSAL_ARGUMENTS = ("is_causal", "custom_mask_type")
"""What tells attention to leave out the upper triangle, by the schemas of its operators."""


def unfit(torch: Any) -> str | None:
    """Return why FLOPs cannot be counted in this process; None if they can.

    Dynamo skips what it has compiled while a dispatch mode is active, and replays of a captured
    graph show no operators.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    # Dynamo notes functions that it is told to leave alone as well, without a backend.
    backends = getattr(frames, "cached_backends", {}).values()
    if any(backend is not None for backend in backends):
        return "torch.compile is in use"
    if torch.backends.cuda.is_built():
        CAPTURES.watch(torch)
    return "CUDA graphs are captured" if CAPTURES.begun else None


class FlopCounter:
    """Counts in the thread that makes it, from `start` to `stop`; one at a time in a process."""

    running: FlopCounter | None = None

    def __init__(self, torch: Any, wanted: Callable[[], bool]) -> None:
        """`wanted` is asked before each call whether to go on."""
        self.by_precision: dict[str | None, float] = {}
        """FLOPs by the precision that they were computed in."""
        self.backwards = 0
        self.inputs: set[tuple[int, ...]] = set()
        """The shapes of what outermost modules were called with."""
        self.problem: str | None = None
        """Why the count has to be discarded."""
        self._torch = torch
        self._wanted = wanted
        self._thread = get_ident()
        self._mode: Any = None
        """The dispatch mode that is entered."""
        self._make_mode, self._formulas = _modes_and_formulas()
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    @property
    def flops(self) -> float:
        """The FLOPs so far."""
        return sum(self.by_precision.values())

    def start(self) -> None:
        """Wrap the two functions, and the replays of CUDA graphs, whose operators are not seen."""
        FlopCounter.running = self
        self._put(self._torch.nn.Module, "__call__", partial(self._counting, backward=False))
        self._put(self._torch.autograd, "backward", partial(self._counting, backward=True))
        for module, name in GRAPH_CLASSES:
            graph = getattr(getattr(self._torch, module, None), name, None)
            if hasattr(graph, "replay"):
                self._put(graph, "replay", self._refusing)

    def stop(self) -> None:
        """Restore the originals; a wrapper that others have wrapped stays, and does nothing."""
        for owner, name, original, wrapper in self._replaced:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        self._replaced.clear()
        if FlopCounter.running is self:
            FlopCounter.running = None
        if self._thread == get_ident():
            self._leave()

    def _put(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        wrapper = functools.wraps(original)(wrap(original))
        self._replaced.append((owner, name, original, wrapper))
        setattr(owner, name, wrapper)

    def _counting(self, original: Any, *, backward: bool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if compiling() or not self._enter([args, kwargs], backward=backward):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        return call

    def _refusing(self, original: Any) -> Any:
        def replay(*args: Any, **kwargs: Any) -> Any:
            self.problem = REPLAYED
            return original(*args, **kwargs)

        return replay

    def _enter(self, inputs: Any, *, backward: bool) -> bool:
        """Enter the mode; False inside another call, and where nothing is to be counted."""
        try:
            if FlopCounter.running is not self or self._thread != get_ident():
                return False
            if self._mode is not None:
                self.backwards += backward
                return False
            if self.problem is not None or not (backward or self._torch.is_grad_enabled()):
                return False
            if not self._wanted():
                self.stop()
                return False
            if self._torch._C._len_torch_dispatch_stack():
                self.problem = "a dispatch mode of the job is active"
                return False
            self.backwards += backward
            if not backward:
                self.inputs.update(shapes(inputs))
            mode = self._make_mode(self)
            mode.__enter__()
            self._mode = mode
        except Exception as error:
            PART.fail(error)
            return False
        return True

    def _leave(self) -> None:
        """Leave the mode, if it is entered."""
        mode, self._mode = self._mode, None
        try:
            if mode is None:
                return
            depth = self._torch._C._len_torch_dispatch_stack()
            if depth and self._torch._C._get_dispatch_stack_at(depth - 1) is mode:
                mode.__exit__(None, None, None)
            else:
                PART.miss("a dispatch mode was left in another order than entered")
        except Exception as error:
            PART.fail(error)

    def note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Count an operator that was called."""
        if self.problem is not None:
            return
        try:
            packet = getattr(function, "_overloadpacket", None)
            formula = self._formulas.get(packet)
            if formula is None:
                return
            if CAPTURES.begun:
                self.problem = "CUDA graphs are captured"
                return
            flops = formula(*args, **kwargs, out_val=out) * _computed_ratio(function, args, kwargs)
            factor = next(each for each in args if hasattr(each, "dtype"))
            precision = computed_in(self._torch, str(packet), factor)
            self.by_precision[precision] = self.by_precision.get(precision, 0.0) + flops
        except Exception as error:
            # A formula that does not know these shapes; the job's operator went well.
            self.problem = f"{function}: {type(error).__name__}"


def _computed_ratio(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the share of a formula's FLOPs that is computed: causal attention does half.

    The formulas count the whole square. With fewer queries than keys the triangle is smaller.
    """
    for number, argument in enumerate(function._schema.arguments):
        if argument.name in CAUSAL_ARGUMENTS:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            if value:
                tensors = [each for each in args if hasattr(each, "shape") and len(each.shape) > 2]
                forward = tensors[1:3] if "backward" in function.name() else tensors[:2]
                queries, keys = (int(each.shape[-2]) for each in forward)
                return 0.5 * min(1.0, queries / keys)
    return 1.0


def _has_own_dispatch(kind: Any) -> bool:
    """Return whether a class of tensors wraps others, as a distributed tensor its own part."""
    plain = sys.modules["torch"].Tensor.__torch_dispatch__
    return bool(getattr(kind, "__torch_dispatch__", plain) != plain)


@functools.cache
def _modes_and_formulas() -> tuple[Any, Any]:
    """Return the class of the mode, whose base is PyTorch's, and PyTorch's formulas."""
    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

    class CountingMode(base):  # type: ignore[misc]
        """Calls every operator as it is."""

        supports_higher_order_operators = True

        def __init__(self, counter: FlopCounter) -> None:
            super().__init__()
            self._counter = counter

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if any(_has_own_dispatch(kind) for kind in types):
                # Operators on the tensors inside such a class are counted here, too.
                return NotImplemented
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            with without_torch_function():
                self._counter.note(func, args, kwargs, out)
            return out

    return CountingMode, import_module("torch.utils.flop_counter").flop_registry
