# SPDX-License-Identifier: Apache-2.0
"""Loops: how long each waits for its batches, how many came, and whether it trains.

A loop is open from its first batch until the data ends, next() raises, or nothing but a persistent
loader refers to its iterator. Its waits count from the first next() on.

It evaluates where gradients are off, or phase eval is under way, at its first next(). Many
evaluations turn gradients off only inside the body. So once an optimizer has stepped on a batch in
this process, a loop's batches are held until it is seen to train: an optimizer steps while it is
open, or its last gradients have changed by the time it ends. A loop that shows neither was an
evaluation: its batches do not count, and the time of its body is phase eval after all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any, TypeVar
from weakref import ref

from . import identity
from .amounts import FLOPS, SAMPLES, amount
from .captures import CAPTURES
from .counts import Tally
from .cuda_idle import IdlePair
from .degraded import CHECKPOINTS, STATED, Part
from .exact_types import own, unseen
from .process import PROCESS
from .thread_accounts import Lane

Value = TypeVar("Value")

NO_BATCH: Any = object()
"""What `answered` gets where next() raised or had nothing left."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What the job states about a loop."""

    job: str | None = None
    rank: int | None = None
    samples_per_batch: float | Callable[[Any], float | None] | None = None
    flops_per_step: float | None = None
    flops_per_sample: float | None = None
    precision: str | None = None

    @property
    def states_flops(self) -> bool:
        """Whether the job says how many FLOPs its work takes."""
        return self.flops_per_step is not None or self.flops_per_sample is not None

    def checked(self) -> Stated:
        """Return what of it can be reported; the loop goes on without the rest."""
        samples = self.samples_per_batch
        return replace(
            self,
            rank=_checked(lambda rank: int(amount(rank, identity.MOST_RANK)), self.rank),
            samples_per_batch=(
                samples if callable(samples) else _checked(lambda n: amount(n, SAMPLES), samples)
            ),
            flops_per_step=_checked(lambda n: amount(n, FLOPS), self.flops_per_step),
            flops_per_sample=_checked(lambda n: amount(n, FLOPS), self.flops_per_sample),
            precision=_checked(str, self.precision),
        )


NOTHING_STATED = Stated()


def _checked(check: Callable[[Any], Value], value: object) -> Value | None:
    try:
        return None if value is None else check(value)
    except Exception as error:
        STATED.fail(error)
        return None


class Wait:
    """One next() under way."""

    __slots__ = ("begin_ns", "claimed_ns", "lane", "outermost", "pair")

    lane: Lane
    begin_ns: int
    claimed_ns: int
    outermost: bool
    pair: IdlePair | None


class Loop:
    """One iteration over a watched iterable or a data loader."""

    __slots__ = (
        "_body_claimed_ns",
        "_body_from_ns",
        "_body_ns",
        "_gradient",
        "_held_batches",
        "_held_samples",
        "_iterator",
        "_lane",
        "_left",
        "_part",
        "_spare",
        "_tally",
        "evaluates",
        "held_flops",
        "is_held",
        "is_loader",
        "key",
        "look",
        "measured",
        "samples",
        "stated",
    )

    def __init__(
        self,
        iterable: object,
        stated: Stated | None,
        part: Part,
        *,
        samples: Callable[[Any], float | None] | None = None,
    ) -> None:
        self.stated = stated or NOTHING_STATED
        self.measured = stated is not None or PROCESS.automatic
        """Whether it is more than a part of another loop's wait."""
        self.is_loader = False
        """Whether this is PyTorch's own data loader, which gives the GPU no work."""
        self.samples = _samples_by(self.stated, samples)
        self.look: Callable[[], dict[str, int | bool | None]] | None = None
        """Reads the numbers of the data loader, by the keys of the protocol."""
        self.evaluates = False
        self._part = part
        self.key = id(iterable)
        """Loops over one iterable count their batches together."""
        self._spare: Wait | None = None
        """To be used again."""
        self.is_held = False
        """Whether it is not known yet if its batches are trained on."""
        self.held_flops = 0.0
        self._held_batches = 0
        self._held_samples: float | None = None
        self._gradient: tuple[int, int] | None = None
        self._lane: Lane | None = None
        self._tally: Tally | None = None
        """Where batches count; None while they are held, and before the first."""
        self._body_ns = 0
        """Time in the body that no phase claimed, while it is not known what it was."""
        self._body_from_ns = self._body_claimed_ns = 0
        self._iterator: ref[Any] | None = None

    def ends_with(
        self, iterator: Any, left: Callable[[ref[Any]], bool] = lambda iterator: iterator() is None
    ) -> None:
        """Let the loop be over when this is not referenced any more, or ``left`` says so.

        Nothing is called at that moment: what a signal handler raised there would be lost.
        """
        self._iterator = ref(iterator)
        self._left = left

    def is_over(self) -> bool:
        """Return whether no batch will be asked for any more, or none that is measured."""
        return not self._part.on or (self._iterator is not None and self._left(self._iterator))

    def ask(self) -> Wait | None:
        """Begin to wait for a batch; None where this next() is not measured."""
        try:
            lane = self._lane
            if lane is None or lane.thread != get_ident():
                lane = self._enter()
                if lane is None:
                    return None
            if lane.flops is not None:
                lane.flops.asked(self)
            outermost = True
            if lane.in_body is not self:
                asking = lane.asking
                if asking is not None and (asking is self or asking.is_over()):
                    # What a signal handler raised has cut off the end of that wait.
                    lane.asking, lane.depth = None, lane.depth - 1
                    lane.inside = None
                outermost = lane.asking is None
                if outermost:
                    if not self.measured:
                        return None
                    self._go_on(lane)
            elif self.is_held:
                self._leave_body(lane)
            if self.look is not None and self._tally is not None and lane.clock() >= lane.due_ns:
                lane.loader = self.look()
            wait = self._spare or Wait()
            self._spare = None
            wait.lane = lane
            wait.outermost = outermost
            meter = lane.meter
            wait.pair = meter.start() if meter.ready else None
            now_ns = lane.clock()
            rested_ns = now_ns - lane.seen_ns
            if lane.open or lane.depth:
                lane.wall_ns += rested_ns
            lane.seen_ns = wait.begin_ns = now_ns
            if now_ns >= lane.quiet_until_ns:
                lane.announce("data", now_ns, rested_ns)
            wait.claimed_ns = lane.claimed_ns
            if outermost:
                lane.inner_data = False
                lane.in_body = None
                lane.asking = self
            lane.depth += 1
        except Exception as error:
            self._part.fail(error)
            return None
        return wait

    def answered(self, wait: Wait, batch: Any) -> None:
        """End the wait; `NO_BATCH` ends the loop."""
        try:
            lane = wait.lane
            if wait.outermost:
                if lane.asking is not self:
                    return
                lane.asking = None
            elif batch is NO_BATCH:
                self.end()
            lane.depth -= 1
            now_ns = lane.clock()
            lane.wall_ns += now_ns - lane.seen_ns
            lane.seen_ns = now_ns
            claimed_ns = lane.claimed_ns
            own_ns = now_ns - wait.begin_ns - claimed_ns + wait.claimed_ns
            phase = "data"
            if wait.outermost:
                if lane.inner_data and not self.is_loader and identity.cuda() is not None:
                    phase = "h2d"
            else:
                lane.inner_data = True
            if own_ns > 0:
                lane.claimed_ns = claimed_ns + own_ns
                lane.phase_ns[phase] = lane.phase_ns.get(phase, 0) + own_ns
            if wait.pair is not None:
                lane.meter.stop(wait.pair, phase, max(0, own_ns))
            if wait.outermost:
                if batch is NO_BATCH:
                    self.close()
                else:
                    lane.in_body = self
                    tally = self._tally
                    if tally is None:
                        self._hold(lane, batch)
                    else:
                        tally.batches += 1
                        if self.samples is not None:
                            self._add_samples(lane, self.samples(batch))
                    if lane.flops is not None:
                        lane.flops.came(self, batch)
            self._spare = wait
            if now_ns >= lane.quiet_until_ns:
                lane.leave_phase("data", now_ns, now_ns - wait.begin_ns)
        except Exception as error:
            self._part.fail(error)

    def stepped(self) -> None:
        """An optimizer stepped while this loop was open: it trains."""
        PROCESS.trained = True
        if self.is_held and self._lane is not None:
            self.evaluates = False
            self._commit(self._lane)

    def close(self) -> None:
        """Stop the wall time, which runs until now; decide whether it evaluated if that is open."""
        lane = self._lane
        if lane is not None and id(self) in lane.open:
            if lane.in_body is self and lane.thread == get_ident():
                self._leave_body(lane)
            self.end()

    def end(self) -> None:
        """Stop the wall time, which ran until something last happened."""
        lane = self._lane
        if lane is not None:
            if lane.in_body is self:
                lane.in_body = None
            if lane.thread == get_ident():
                self._decide(lane)
            lane.close_loop(self)
            self._tally = None

    def _enter(self) -> Lane | None:
        """Go on in this thread's lane."""
        self.close()
        stated = self.stated
        lane = self._lane = PROCESS.lane(stated.job, stated.rank)
        return lane

    def _go_on(self, lane: Lane) -> None:
        """Ask for a batch after another loop was, or for the first one."""
        lane.sweep()
        if id(self) not in lane.open:
            self._begin(lane)
        if lane.in_body is not None:
            lane.in_body._leave_body(lane)

    def _begin(self, lane: Lane) -> None:
        """Ask for the first batch."""
        torch: Any = sys.modules.get("torch")
        is_grad_enabled = own(torch, "is_grad_enabled")
        lane.measures("data")
        if is_grad_enabled is not None:
            lane.measures("eval")
            lane.meter.look()
            if PROCESS.automatic and CHECKPOINTS.on:
                lane.measures("checkpoint")
        self.evaluates = bool(
            lane.eval_phases or (is_grad_enabled is not None and not is_grad_enabled())
        )
        # Replays of a captured step show neither steps nor new gradients.
        self.is_held = self.evaluates or (PROCESS.trained and not CAPTURES.begun)
        if self.look is not None and not self.is_held:
            lane.loader = self.look()
        lane.make_way(self)
        if not self.is_held:
            lane.start(lane.seen_ns)

    def _open(self, lane: Lane) -> None:
        """Let wall time run in the thread that got the first batch."""
        lane.open_loop(self)
        self._held_batches, self._held_samples, self.held_flops = 0, None, 0.0
        self._body_ns = 0
        PROCESS.latest = lane
        stated = self.stated
        if stated is not NOTHING_STATED:
            lane.trains = True
            lane.instrumentation = "client"
        if stated.precision is not None:
            lane.precision = stated.precision
        if lane.flops is not None and stated.states_flops:
            lane.flops.state()
        if stated.flops_per_step is not None and not self.evaluates:
            lane.counts.episode.flops_per_step = stated.flops_per_step
        if self.is_held:
            self._gradient = _gradient()

    def _hold(self, lane: Lane, batch: Any) -> None:
        """Take the first batch, or one of which it is not known whether it is trained on."""
        if id(self) not in lane.open:
            self._open(lane)
        self._body_from_ns, self._body_claimed_ns = lane.seen_ns, lane.claimed_ns
        self._held_batches += 1
        samples = None if self.samples is None else self.samples(batch)
        if samples is not None:
            self._held_samples = (self._held_samples or 0) + samples
        if not self.is_held:
            self._commit(lane)

    def _add_samples(self, lane: Lane, samples: float | None) -> None:
        if samples is not None:
            lane.counts.add_samples(id(self), samples)
            if self.stated.flops_per_sample is not None:
                lane.counts.add_flops(samples * self.stated.flops_per_sample)

    def _commit(self, lane: Lane) -> None:
        """Count the batches that were held, and those to come."""
        self.is_held = False
        self._tally = lane.counts.tally(self.key)
        self._tally.batches += self._held_batches
        self._add_samples(lane, self._held_samples)
        if self.held_flops:
            lane.counts.add_flops(self.held_flops)
        lane.start(lane.seen_ns)

    def _leave_body(self, lane: Lane) -> None:
        """Count the time since the batch came, as far as no phase inside claimed it."""
        lane.in_body = None
        if not self.is_held:
            return
        now_ns = lane.clock()
        lane.advance(now_ns)
        own_ns = now_ns - self._body_from_ns - lane.claimed_ns + self._body_claimed_ns
        if self.evaluates:
            lane.claim("eval", own_ns)
        else:
            self._body_ns += max(0, own_ns)

    def _decide(self, lane: Lane) -> None:
        """Decide at its end what a loop was in which no optimizer stepped."""
        if not self.is_held or self.evaluates or not self._held_batches:
            return
        gradient = _gradient()
        if gradient is not None and gradient != self._gradient:
            self._commit(lane)
            return
        self.evaluates = True
        lane.claim("eval", self._body_ns)


def _samples_by(
    stated: Stated, found: Callable[[Any], float | None] | None
) -> Callable[[Any], float | None] | None:
    """Return a function that counts the samples of a batch; None where they are not known."""
    said = stated.samples_per_batch
    if said is None:
        return found
    if not callable(said):
        return lambda batch: said
    asked = said

    def checked(batch: Any) -> float | None:
        try:
            samples = asked(batch) if STATED.on else None
            return None if samples is None else amount(samples, SAMPLES)
        except Exception as error:
            STATED.fail(error)
            return None

    return checked


_optimizer: Callable[[], object] = lambda: None  # noqa: E731 # as the weak reference that comes
"""The optimizer that stepped last, while it is there."""


def remember_optimizer(optimizer: object) -> None:
    """Remember whose gradients show whether a loop trains."""
    global _optimizer
    if _optimizer() is not optimizer:
        try:
            _optimizer = ref(optimizer)
        except TypeError:  # of a class that takes no weak references
            return


def _gradient() -> tuple[int, int] | None:
    """Return what changes with a backward pass; None where there is no gradient.

    It is the identity and version of the first gradient of the optimizer that stepped last.
    """
    try:
        for group in own(_optimizer(), "param_groups") or ():
            for parameter in group["params"]:
                with unseen():
                    if parameter.requires_grad:
                        gradient = parameter.grad
                        return None if gradient is None else (id(gradient), gradient._version)
    except (AttributeError, KeyError, TypeError):  # an optimizer of a kind of its own
        return None
    return None
