# SPDX-License-Identifier: Apache-2.0
"""Estimates the FLOPs of a thread's batches from one measured step of each iterable.

One whole step after the first two is measured, from the first batch after an optimizer's step to
the end of the batch in which it steps again. From then on each training batch of size n adds, with
n0 the largest size of a batch of that step and F the mean FLOPs of its batches:

    F n / n0  where n >= n0,        F (n / n0)^2  where n < n0

A batch's FLOPs grow linearly with its samples and at most with the square of their length, so this
is a lower bound. A batch that ``break`` leaves is not counted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from .exact_types import PLAIN, shapes
from .flop_counter import PART, FlopCounter, unfit

if TYPE_CHECKING:
    from .account import Account, OpenLoop

WARM_UP = 2
"""Steps, and batches of the iterable, before the step that is measured."""
PATIENCE = 32
"""After so many batches without an optimizer's step, each batch counts as a step."""
MOST_ATTEMPTS = 8
MOST_SECONDS = 120
"""The measurement of a step that takes longer is abandoned."""
MOST_SOURCES = 16
"""Iterables of one thread for which a step is measured."""
_NS_PER_SECOND = 1_000_000_000


class Unit(NamedTuple):
    """The FLOPs of one batch."""

    flops: float
    elements: int | None
    """Of the largest measured batch; None if its size is unknown."""

    def of(self, elements: int | None) -> float:
        """Return a lower bound of the FLOPs of a batch of this size."""
        if not self.elements or not elements:
            return self.flops if elements == self.elements else 0.0
        ratio = elements / self.elements
        return self.flops * (ratio if ratio >= 1.0 else ratio * ratio)


@dataclass(slots=True)
class Source:
    """The measurement of one iterable."""

    batches: int = 0
    attempts: int = 0
    unit: Unit | None = None


@dataclass(slots=True)
class Attempt:
    """A step that is being measured."""

    loop: OpenLoop
    source: Source
    counter: FlopCounter
    sizes: list[int | None] = field(default_factory=list)
    void: str | None = None
    """Why it has to be discarded; None if it is good."""


class BatchFlops:
    """Counts for one thread, which alone calls it; raises nothing into the job."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._stated = False
        self._steps = 0
        self._stepped = False
        """Whether an optimizer stepped since the last batch came."""
        self._in_hand: tuple[OpenLoop, Source, int | None] | None = None
        """The batch that is being trained on."""
        self._sources: dict[int, Source] = {}
        """By the key of the iterable."""
        self._attempt: Attempt | None = None

    def disable(self) -> None:
        """Stop: the job states its FLOPs itself."""
        self._stated = True
        self._cancel()

    def optimizer_stepped(self) -> None:
        """Note a step of an optimizer, or one that the job states."""
        self._steps += 1
        self._stepped = True

    def loop_opened(self, loop: OpenLoop) -> None:
        """Note a new loop: its FLOPs are not part of every step."""
        attempt = self._attempt
        if attempt is not None and attempt.loop is not loop:
            attempt.void = "another loop runs inside the step"

    def loop_closed(self, loop: OpenLoop) -> None:
        """Note that a loop is over."""
        if self._in_hand is not None and self._in_hand[0] is loop:
            self._in_hand = None
        if self._attempt is not None and self._attempt.loop is loop:
            self._cancel()

    def batch_came(self, loop: OpenLoop, batch: Any) -> None:
        """Note a batch of a loop. Of nested loops only the outer one counts."""
        if self._stated or not PART.on:
            return
        try:
            training = (each for each in self._account.open.values() if not each.evaluates)
            source = self._source(loop)
            if next(training, None) is not loop or source is None:
                return
            elements = size_of(batch)
            if elements is None and type(batch) not in PLAIN:
                PART.miss("the size of batches of a class of the job's own is not known")
                return
            self._in_hand = (loop, source, elements)
            if source.unit is not None:
                return
            if self._attempt is None:
                source.batches += 1
                if source.batches > WARM_UP and self._at_beginning(source):
                    self._begin(loop, source)
            if self._attempt is not None:
                self._attempt.sizes.append(elements)
            self._stepped = False
        except Exception as error:
            PART.fail(error)

    def batch_done(self, loop: OpenLoop) -> None:
        """Note that a loop has done with its batch, and asks for the next."""
        if self._in_hand is None or self._in_hand[0] is not loop:
            return
        _, source, elements = self._in_hand
        self._in_hand = None
        try:
            if source.unit is not None:
                self._add(loop, source.unit.of(elements))
            elif self._attempt is not None and (
                self._stepped or not self._account.counts.optimizer_seen
            ):
                self._end(self._attempt)
        except Exception as error:
            PART.fail(error)

    def _source(self, loop: OpenLoop) -> Source | None:
        source = self._sources.get(loop.key)
        if source is None and len(self._sources) < MOST_SOURCES:
            source = self._sources[loop.key] = Source()
        return source

    def _at_beginning(self, source: Source) -> bool:
        """Return whether this batch is the first of a step."""
        if self._account.counts.optimizer_seen:
            return self._stepped and self._steps >= WARM_UP
        return source.batches > PATIENCE

    def _begin(self, loop: OpenLoop, source: Source) -> None:
        torch = sys.modules.get("torch")
        if torch is None or not FlopCounter.is_free():
            return
        problem = unfit(torch)
        if problem is not None:
            PART.miss(problem)
            return
        clock = self._account.clock
        until_ns = clock() + MOST_SECONDS * _NS_PER_SECOND
        counter = FlopCounter(torch, lambda: not loop.is_over() and clock() < until_ns)
        self._attempt = Attempt(loop, source, counter)
        self._attempt.counter.start()

    def _end(self, attempt: Attempt) -> None:
        """Finish a measurement, or note why it failed."""
        counter = attempt.counter
        counter.stop()
        self._attempt = None
        problem = attempt.void or counter.problem
        if problem is None and not (counter.flops and counter.backwards):
            problem = "no module with a backward pass is seen"
        if problem is not None:
            self._retry(attempt.source, problem)
            return
        if counter.eight_bits and not attempt.loop.states_precision:
            self._account.precision = "fp8"
        sizes = attempt.sizes
        known = [elements for elements in sizes if elements]
        largest = max(known) if len(known) == len(sizes) else None
        attempt.source.unit = Unit(counter.flops / len(sizes), largest)
        self._add(attempt.loop, counter.flops)

    def _cancel(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.counter.stop()
            self._retry(attempt.source, "no step came to its end")

    def _retry(self, source: Source, problem: str) -> None:
        source.attempts += 1
        if source.attempts >= MOST_ATTEMPTS:
            PART.miss(problem)

    def _add(self, loop: OpenLoop, flops: float) -> None:
        if loop.is_pending:
            loop.pending_flops += flops
        else:
            self._account.counts.add_flops(flops)


def size_of(batch: Any) -> int | None:
    """Return the number of elements of the tensors and arrays in a batch; None without any."""
    return sum(map(prod, shapes(batch))) or None
