# SPDX-License-Identifier: Apache-2.0
"""Estimates the FLOPs of a thread's batches from measured steps of each iterable.

One whole step after the first two is measured, from the first batch after an optimizer's step to
the end of the batch in which it steps again; later ones now and then, where a batch has shapes that
were not measured. A training batch adds what one of its shapes takes; of other shapes, with n
elements, the most that follows from those measured, of n0 elements and F FLOPs:

    F n / n0  where n >= n0,        F (n / n0)^2  where n < n0

A batch's FLOPs grow linearly with its samples and at most with the square of their length, so this
is a lower bound. A batch that ``break`` leaves is not counted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from .exact_types import PLAIN, shapes
from .flop_counter import PART, FlopCounter, unfit
from .precision import prevailing

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
MOST_AGAIN = 16
"""Steps of one thread that are measured for their shapes alone: each is slower than the others."""
SECONDS_BETWEEN = 60
"""Before the next of these."""
PREFETCHED = 2
"""Batches that a prefetcher may hold while the job trains on an earlier one."""
_NS_PER_SECOND = 1_000_000_000

Shapes = tuple[tuple[int, ...], ...]


class Unit(NamedTuple):
    """The FLOPs of one batch."""

    flops: float
    elements: int | None
    """None if its size is unknown."""

    def of(self, elements: int | None) -> float:
        """Return a lower bound of the FLOPs of a batch of this size."""
        if not self.elements or not elements:
            return self.flops if elements == self.elements else 0.0
        ratio = elements / self.elements
        return self.flops * min(ratio, ratio * ratio)


@dataclass(slots=True)
class Source:
    """The measurement of one iterable."""

    batches: int = 0
    attempts: int = 0
    units: dict[Shapes, Unit] = field(default_factory=dict)
    """By the shapes of a batch."""

    def of(self, batch: Shapes) -> float:
        """Return a lower bound of the FLOPs of a batch, exact where its shapes were measured."""
        if batch in self.units:
            return self.units[batch].flops
        elements = size_of(batch)
        return max(unit.of(elements) for unit in self.units.values())


class Body(NamedTuple):
    """The FLOPs and backward passes of one batch."""

    batch: Shapes
    flops: float
    backwards: int


@dataclass(slots=True)
class Attempt:
    """A step that is being measured."""

    loop: OpenLoop
    source: Source
    counter: FlopCounter
    begin_wall_ns: int
    bodies: list[Body] = field(default_factory=list)

    def batch_done(self, latest: Sequence[Shapes]) -> None:
        """Note the work since the last call, on the last of the `latest` batches that the
        model got, newest first: a prefetcher has asked for later ones."""
        counter = self.counter
        trained_on = max(latest, key=lambda batch: len(counter.inputs & {*batch}))
        counter.inputs.clear()
        flops = counter.flops - sum(body.flops for body in self.bodies)
        backwards = counter.backwards - sum(body.backwards for body in self.bodies)
        self.bodies.append(Body(trained_on, flops, backwards))

    def units(self) -> dict[Shapes, Unit]:
        """Return the FLOPs by shapes; where batches share a backward pass, their mean,
        for the largest of them."""
        largest = max(self.bodies, key=lambda body: size_of(body.batch) or 0).batch
        each = len({body.backwards for body in self.bodies}) == 1
        flops: dict[Shapes, list[float]] = {}
        for body in self.bodies:
            flops.setdefault(body.batch if each else largest, []).append(body.flops)
        return {
            batch: Unit(sum(found) / len(found), size_of(batch)) for batch, found in flops.items()
        }


class BatchFlops:
    """Counts for one thread, which alone calls it; raises nothing into the job."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._stated = False
        self._steps = 0
        self._stepped = False
        """Whether an optimizer stepped since the last batch came."""
        self._in_hand: tuple[OpenLoop, Source, Shapes] | None = None
        """The batch that is being trained on."""
        self._before: deque[Shapes] = deque(maxlen=PREFETCHED)
        """The batches of the loop before that one, the last first."""
        self._sources: dict[int, Source] = {}
        """By the key of the iterable."""
        self._attempt: Attempt | None = None
        self._again, self._again_due_ns = 0, 0
        """Steps that were measured for their shapes alone, and when the next one may be."""

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
            attempt.counter.problem = "another loop runs inside the step"

    def loop_closed(self, loop: OpenLoop) -> None:
        """Note that a loop is over."""
        self._before.clear()
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
            found = tuple(shapes(batch))
            if not found and type(batch) not in PLAIN:
                PART.miss("the size of batches of a class of the job's own is not known")
                return
            self._in_hand = (loop, source, found)
            if self._attempt is None:
                source.batches += 1
                if self._is_wanted(source, found) and self._at_beginning(source):
                    self._begin(loop, source)
            self._stepped = False
        except Exception as error:
            PART.fail(error)

    def batch_done(self, loop: OpenLoop) -> None:
        """Note that a loop has done with its batch, and asks for the next."""
        if self._in_hand is None or self._in_hand[0] is not loop:
            return
        _, source, batch = self._in_hand
        self._in_hand = None
        try:
            is_known, attempt = bool(source.units), self._attempt
            if attempt is not None and attempt.loop is loop:
                attempt.batch_done([batch, *self._before])
                if self._stepped or not self._account.counts.optimizer_seen:
                    self._end(attempt)
            if is_known:
                self._add(loop, source.of(batch))
            self._before.appendleft(batch)
        except Exception as error:
            PART.fail(error)

    def _source(self, loop: OpenLoop) -> Source | None:
        if loop.key not in self._sources and len(self._sources) < MOST_SOURCES:
            self._sources[loop.key] = Source()
        return self._sources.get(loop.key)

    def _is_wanted(self, source: Source, batch: Shapes) -> bool:
        """Return whether a step that begins with this batch is to be measured.

        Not the first batch of a loop for its shapes alone: a prefetcher asks for the next at once.
        """
        if not source.units:
            return source.batches > WARM_UP
        is_new = batch not in source.units and bool(self._before)
        is_due = self._again < MOST_AGAIN and self._account.clock() >= self._again_due_ns
        return is_new and is_due

    def _at_beginning(self, source: Source) -> bool:
        """Return whether this batch is the first of a step."""
        if self._account.counts.optimizer_seen:
            return self._stepped and self._steps >= WARM_UP
        return source.batches > PATIENCE

    def _begin(self, loop: OpenLoop, source: Source) -> None:
        torch = sys.modules.get("torch")
        if torch is None or FlopCounter.running is not None:
            return
        problem = unfit(torch)
        clock = self._account.clock
        begin_ns = clock()
        self._again += bool(source.units)
        self._again_due_ns = begin_ns + SECONDS_BETWEEN * _NS_PER_SECOND
        if problem is not None:
            if not source.units:
                PART.miss(problem)
            return
        until_ns = begin_ns + MOST_SECONDS * _NS_PER_SECOND
        counter = FlopCounter(torch, lambda: not loop.is_over() and clock() < until_ns)
        self._attempt = Attempt(loop, source, counter, self._account.wall_ns)
        self._attempt.counter.start()

    def _end(self, attempt: Attempt) -> None:
        """Finish a measurement, or note why it failed."""
        counter = attempt.counter
        counter.stop()
        self._attempt = None
        problem = counter.problem
        if problem is None and not (counter.flops and counter.backwards):
            problem = "no module with a backward pass is seen"
        if problem is not None:
            self._retry(attempt.source, problem)
            return
        account, source = self._account, attempt.source
        precision = prevailing(counter.by_precision)
        if precision is not None and not attempt.loop.states_precision:
            account.precision = precision
        if not any(each.units for each in self._sources.values()):
            account.flops_since_ns = attempt.begin_wall_ns
        if not source.units:
            self._add(attempt.loop, counter.flops)
        source.units.update(attempt.units())

    def _cancel(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.counter.stop()
            self._retry(attempt.source, "no step came to its end")

    def _retry(self, source: Source, problem: str) -> None:
        source.attempts += 1
        if source.attempts >= MOST_ATTEMPTS and not source.units:
            PART.miss(problem)

    def _add(self, loop: OpenLoop, flops: float) -> None:
        if loop.is_pending:
            loop.pending_flops += flops
        else:
            self._account.counts.add_flops(flops)


def size_of(batch: Shapes) -> int | None:
    """Return the number of elements of the tensors and arrays in a batch; None without any."""
    return sum(map(prod, batch)) or None
