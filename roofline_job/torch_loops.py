# SPDX-License-Identifier: Apache-2.0
"""The loops over PyTorch data loaders of a job that is not told what its loops are.

A loop opens at the first ``next()`` and closes when the data ends, when ``next()`` raises, when the
iterator is dropped, or when a persistent one is reset. It evaluates where gradients are off then.
Many evaluations turn them off only inside: a loop over data of which nothing is known yet, while
other data was trained on, keeps its batches back until an optimizer steps. If none does, and no
gradient of what was stepped last was added to, it was an evaluation, and the next loop over the
same data is one from its beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary, ref

from . import lanes
from .failures import failed
from .loader import Loader


class Loop:
    """One loop over a data loader, or what is known of the loader between two of them."""

    __slots__ = (
        "_batches",
        "_begin_ns",
        "_claimed_ns",
        "_gradient",
        "_iterator",
        "_lane",
        "_loops",
        "_samples",
        "asked",
        "data",
        "evaluates",
        "exhausted",
        "loader",
        "turns",
        "undecided",
    )

    def __init__(self, loops: Loops, lane: lanes.Lane, iterator: Any) -> None:
        self._loops = loops
        self._lane = lane
        self._iterator = ref(iterator, self._dropped)
        self.data = loops.remember(iterator)
        """What the iterator's data is known by, while it is there."""
        self.loader = Loader(iterator)
        self.evaluates = False
        self.undecided = False
        self.asked = False
        """Whether a batch was asked for since an optimizer stepped."""
        self.exhausted = False
        """The data has ended while the body of the last batch is still to come."""
        self.turns: list[Any] = []
        """What measured a next() before, to be used again."""
        self._batches = 0
        self._samples: int | None = None
        self._begin_ns = self._claimed_ns = 0
        self._gradient: tuple[int, int] | None = None

    def begin(self, *, evaluates: bool, undecided: bool) -> None:
        """Let wall time run."""
        lane = self._lane
        self.evaluates, self.undecided, self.exhausted = evaluates, undecided, False
        self._batches, self._samples = 0, None
        self._gradient = self._loops.gradient() if undecided else None
        lane.open_loop(self._iterator(), evaluating=evaluates)
        self._begin_ns, self._claimed_ns = lane.seen_ns, lane.claimed_ns
        self._loops.going.append(self)

    def batch(self, batch: Any) -> None:
        """Count a batch that came back."""
        samples = self.loader.samples(batch)
        if not self.undecided:
            self._lane.batch(samples)
            return
        self._batches += 1
        self._lane.counts.hold_back()
        if samples is not None:
            self._samples = (self._samples or 0) + samples

    def trains(self) -> None:
        """An optimizer stepped on its batch."""
        self.asked = False
        self._train()
        if self.evaluates:
            self.end()
            self.begin(evaluates=False, undecided=False)

    def _train(self) -> None:
        """Count the batches that were kept back."""
        self._loops.note(self.data, trained=True)
        if self.undecided:
            self.undecided = False
            for number in range(self._batches):
                self._lane.batch(None if number else self._samples)

    def end(self) -> None:
        """Stop the wall time; say what the loop was if that is still open."""
        if self not in self._loops.going:
            return
        self._loops.going.remove(self)
        if self.undecided and self._batches and self._lane.thread == get_ident():
            gradient = self._loops.gradient()
            if gradient is not None and gradient != self._gradient:
                self._train()
        iterator = self._iterator()
        if iterator is not None:
            self._lane.close_loop(iterator)
        if self.undecided:
            self.undecided = False
            if self._batches:
                self._loops.note(self.data, trained=False)
            self._evaluated()

    def _evaluated(self) -> None:
        """Count its body as evaluation after all, up to the last that is accounted."""
        lane = self._lane
        if lane.thread != get_ident():
            return
        own_ns = lane.seen_ns - self._begin_ns - lane.claimed_ns + self._claimed_ns
        if own_ns > 0:
            lane.claimed_ns += own_ns
            lane.phase_ns["eval"] = lane.phase_ns.get("eval", 0) + own_ns

    def _dropped(self, _: object) -> None:
        try:
            self.end()
        except Exception as error:
            failed(error)


class Loops:
    """Those of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew in a forked child."""
        self.going: list[Loop] = []
        self._optimizer: Callable[[], object] | None = None
        """The one that stepped last, while it is there."""
        self._trained = False
        """Whether an optimizer ever stepped on a batch of a loop."""
        self._trained_on: dict[int, bool] = {}
        """By the id of what stands for the data: an optimizer stepped, or a loop evaluated it."""
        self._data: dict[int, ref[Any]] = {}
        """What stands for the data, by its id, which another object may have once it is gone."""
        self._known: WeakKeyDictionary[Any, Loop] = WeakKeyDictionary()

    def remember(self, iterator: Any) -> int:
        """Return what the data of this iterator is known by; it is forgotten when the data is gone.

        A list and the like cannot be noticed to go: what stands for it is the sampler, which is
        there as long as its loader. Where neither can, nothing is known from loop to loop.
        """
        for name in ("_dataset", "_index_sampler"):
            data = getattr(iterator, name, None)
            key = id(data)
            known = self._data.get(key)
            if known is not None and known() is data:
                return key
            try:
                self._data[key] = ref(data, partial(self._forget, key))
            except TypeError:
                continue
            return key
        return 0

    def gradient(self) -> tuple[int, int] | None:
        """Return what is another after a backward pass; None where there is no gradient.

        It is the identity and version of the first one of the optimizer that stepped last.
        """
        optimizer = None if self._optimizer is None else self._optimizer()
        groups = getattr(optimizer, "param_groups", ())
        try:
            found = (one for group in groups for one in group["params"] if one.requires_grad)
            gradient = getattr(next(found, None), "grad", None)
            return None if gradient is None else (id(gradient), gradient._version)
        except Exception as error:
            failed(error)
            return None

    def _forget(self, key: int, _: object) -> None:
        self._data.pop(key, None)
        self._trained_on.pop(key, None)

    def note(self, key: int, *, trained: bool) -> None:
        """Remember whether data is trained on."""
        self._trained = self._trained or trained
        if key in self._data:
            self._trained_on[key] = trained

    def of(self, lane: lanes.Lane, iterator: Any) -> Loop:
        """Return the loop over this iterator in this thread."""
        loop = self._known.get(iterator)
        if loop is None or loop._lane is not lane:
            if loop is not None:
                loop.end()
            loop = self._known[iterator] = Loop(self, lane, iterator)
        return loop

    def ask(self, lane: lanes.Lane, iterator: Any) -> Loop:
        """Return the open loop over this iterator, of which a batch is asked now.

        Others that must have ended by then are closed: those whose data has ended, and evaluations
        that were left early but whose iterator a persistent loader keeps.
        """
        loop = self.of(lane, iterator)
        loop.asked = True
        if self.going == [loop]:
            return loop
        is_new = loop not in self.going
        evaluates, undecided = self._kind(loop) if is_new else (loop.evaluates, loop.undecided)
        for other in tuple(self.going):
            is_over = other.exhausted or (other.evaluates and not evaluates and not undecided)
            if is_over and other is not loop and other._lane is lane:
                other.end()
        if is_new:
            loop.begin(evaluates=evaluates, undecided=undecided and not lane.evaluating)
        return loop

    def _kind(self, loop: Loop) -> tuple[bool, bool]:
        """Return whether a loop that begins evaluates, and whether that is still to be seen."""
        torch: Any = sys.modules["torch"]
        if not torch.is_grad_enabled():
            return True, False
        known = self._trained_on.get(loop.data)
        if known is not None:
            return not known, False
        return False, self._trained

    def reset(self, iterator: Any) -> None:
        """End the loop over an iterator that begins anew."""
        loop = self._known.get(iterator)
        if loop is not None:
            loop.end()

    def stepped(self, lane: lanes.Lane, optimizer: object) -> None:
        """An optimizer stepped: the loops that were asked for a batch since the last time train."""
        if self._optimizer is None or self._optimizer() is not optimizer:
            self._optimizer = ref(optimizer) if hasattr(optimizer, "param_groups") else None
        for loop in tuple(self.going):
            if loop.asked and loop._lane is lane:
                loop.trains()
