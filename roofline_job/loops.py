# SPDX-License-Identifier: Apache-2.0
"""How long a loop waits for each batch, and how many come.

Nothing of this file is on the stack while the job's own code runs, so that its tracebacks are what
they would be without us. What the loop iterates over is C code,

    map(end, iter(begin, None), iterator)

whose next() calls ``begin``, then the iterator's, then ``end``. In between only ``map`` holds what
``begin`` returned, the turn: where the iterator raises or has nothing left, the turn is dropped
unanswered, and that is noticed at once. Only what a signal handler of the job raises as ``end`` is
entered may hold the turn, as long as the job keeps the error: it is given up at the next ``begin``,
or when ``begin`` is gone, which nothing but that chain holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakSet, ref

from . import identity, lanes
from .amounts import FLOPS, SAMPLES, amount
from .counts import Counts
from .failures import failed
from .lanes import Lane
from .streams import IdlePair

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the job says of a loop."""

    job: str | None = None
    rank: int | None = None
    samples_per_batch: float | Callable[[Any], float | None] | None = None
    flops_per_step: float | None = None
    flops_per_sample: float | None = None
    precision: str | None = None

    def checked(self) -> Stated:
        """Return what of it can be reported; the rest is a failure, but the loop goes on."""
        samples = self.samples_per_batch
        return replace(
            self,
            rank=_checked(_rank, self.rank),
            samples_per_batch=samples if callable(samples) else _checked(_samples, samples),
            flops_per_step=_checked(_flops, self.flops_per_step),
            flops_per_sample=_checked(_flops, self.flops_per_sample),
            precision=_checked(str, self.precision),
        )


def _rank(rank: object) -> int:
    return int(amount(rank, identity.MOST_RANK))


def _samples(samples: object) -> float:
    return amount(samples, SAMPLES)


def _flops(flops: object) -> float:
    return amount(flops, FLOPS)


def _checked(check: Callable[[Any], Value], value: object) -> Value | None:
    try:
        return None if value is None else check(value)
    except Exception as error:
        failed(error)
        return None


class Loop:
    """One iteration over a watched iterable: it is open from its first next() on.

    It closes when next() raises or has nothing left, or when nobody holds the iterator any more.
    """

    __slots__ = ("__weakref__", "gone", "iterator", "key", "lane", "stated", "turns")

    def __init__(self, iterator: object, key: int, stated: Stated) -> None:
        self.iterator = iterator
        self.key = key
        """Of the iterable: loops over the same one count their batches together."""
        self.stated = stated
        self.lane: Lane | None = None
        self.turns: WeakSet[Turn] = WeakSet()
        self.gone: ref[Any] | None = None
        """Tells that nobody can ask for a batch any more."""

    def open(self) -> Lane:
        """Let wall time run in the thread that asks for the first batch; return its lane."""
        lane = self.lane
        if lane is not None and lane.is_open(self):
            return lane
        stated = self.stated
        lane = lanes.current(stated.job, stated.rank) or lanes.detached()
        self.lane = lane
        lane.open_loop(self, evaluating=_evaluates())
        if stated.flops_per_step is not None and not lane.evaluating:
            lane.counts.flops_per_step = stated.flops_per_step
        if stated.precision is not None:
            lane.run.precision = stated.precision
        lane.run.instrumentation = "client"
        lane.run.start(lane.seen_ns)
        return lane

    def turn(self) -> Turn:
        """Return a new turn; one before it that did not come back here is over."""
        lane = self.open()
        self.give_up(lane)
        turn = Turn(self, lane)
        self.turns.add(turn)
        return turn

    def give_up(self, lane: Lane) -> None:
        """End the turns of this thread that are still under way."""
        if lane.thread == get_ident():
            for turn in tuple(self.turns):
                if turn.lane is lane and turn.asking:
                    turn.over = True
                    turn.give_up()

    def end(self, _: object) -> None:
        """Close it where a turn that is held keeps it open."""
        try:
            lane = self.lane
            if lane is not None and any(turn.asking for turn in tuple(self.turns)):
                self.give_up(lane)
                lane.close_loop(self)
        except Exception as error:
            failed(error)

    def rest(self) -> str:
        """Return the phase of a next() in which another one waited for data.

        Where that was a data loader's, the rest is work on its batch, as of a prefetcher that
        copies it to the GPU, unless this is that data loader.
        """
        if identity.cuda() is None:
            return "data"
        loader: Any = sys.modules.get("torch.utils.data.dataloader")
        own = loader is not None and isinstance(self.iterator, loader._BaseDataLoaderIter)
        return "data" if own else "h2d"


def _evaluates() -> bool:
    """Return whether nothing is trained in what begins now; hook into torch on the way."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "is_grad_enabled"):
        return False
    from . import torch_hooks

    torch_hooks.install()
    return not torch.is_grad_enabled()


class Turn:
    """The calls of next() of a loop, one at a time: the span of its data phase."""

    __slots__ = (
        *("__weakref__", "asking", "begin_ns", "claimed_ns", "lane", "loop", "outer", "over"),
        *("pair", "tally"),
    )

    def __init__(self, loop: Loop, lane: Lane) -> None:
        self.loop = loop
        self.lane = lane
        self.tally = lane.counts.tally(loop.key)
        self.asking = False
        """Whether next() is under way."""
        self.outer: object | None = None
        self.begin_ns = 0
        self.claimed_ns = 0
        self.pair: IdlePair | None = None
        self.over = False
        """Whether the loop goes on without it."""

    def __del__(self) -> None:
        """Close the loop: next() did not return, or nobody can call it any more."""
        try:
            # A signal handler of the job may have raised in __init__.
            if not getattr(self, "over", True):
                self.give_up()
                self.lane.close_loop(self.loop)
        except Exception as error:
            failed(error)

    def give_up(self) -> None:
        """Account a wait that ended without a batch."""
        lane = self.lane
        if self.asking and lane.thread == get_ident():
            now_ns = lane.clock()
            self.asking = False
            lane.asking = self.outer
            lane.depth -= 1
            lane.seen_ns = now_ns
            self.account(now_ns)

    def account(self, now_ns: int) -> None:
        """Account a wait that ends now."""
        lane = self.lane
        phase = self.loop.rest() if lane.inner_data else "data"
        own_ns = max(0, now_ns - self.begin_ns - lane.claimed_ns + self.claimed_ns)
        lane.claimed_ns += own_ns
        lane.phase_ns[phase] = lane.phase_ns.get(phase, 0) + own_ns
        if lane.bodies:
            lane.settle(now_ns)
        if self.outer is not None:
            lane.inner_data = True
        if self.pair is not None:
            lane.meter.stop(self.pair, phase, own_ns)
            self.pair = None


def hooks(
    iterator: object, key: int, stated: Stated
) -> tuple[Callable[[], Turn | None], Callable[[Turn | None, Any], Any]]:
    """Return what is called before and after each next(); neither raises.

    What makes a turn may fail, and then there is none and the batch passes by.
    """
    loop = Loop(iterator, key, stated)
    count_more = _more(stated, iterator)
    ready: list[Turn] = []
    take, give_back = ready.pop, ready.append

    def begin() -> Turn | None:
        try:
            try:
                turn = take()
            except IndexError:  # the first, or another thread is asking as well
                turn = loop.turn()
            lane = turn.lane
            if lane.evaluating_loops:
                now_ns = lane.clock()
                lane.settle(now_ns)
                lane.turn_to(loop, now_ns)
            if lane.start_pair is not None:
                turn.pair = lane.start_pair()
            # A signal handler of the job may raise at a call: there is none from here on.
            turn.begin_ns = lane.clock()
            turn.claimed_ns = lane.claimed_ns
            turn.outer = outer = lane.asking
            if outer is None:
                lane.asking = iterator
            lane.inner_data = False
            lane.depth += 1
            turn.asking = True
        except Exception as error:
            failed(error)
            return None
        return turn

    def end(turn: Turn | None, batch: Any) -> Any:
        if turn is None:
            return batch
        try:
            lane = turn.lane
            lane.depth -= turn.asking
            turn.asking = False
            lane.asking = outer = turn.outer
            now_ns = lane.clock()
            lane.seen_ns = now_ns
            claimed_ns = lane.claimed_ns
            if (
                claimed_ns == turn.claimed_ns
                and outer is None
                and turn.pair is None
                and not lane.bodies
            ):
                # What account() does in the usual case, in a third of the time.
                own_ns = now_ns - turn.begin_ns
                lane.claimed_ns = claimed_ns + own_ns
                lane.data_ns += own_ns
            else:
                turn.account(now_ns)
            if outer is None and not lane.evaluating:
                turn.tally.batches += 1
                if count_more is not None:
                    count_more(lane.counts, batch)
            if now_ns >= lane.run.due_ns:
                lane.tell(now_ns)
            give_back(turn)
        except Exception as error:
            failed(error)
        return batch

    loop.gone = ref(begin, loop.end)
    return begin, end


def _more(stated: Stated, iterator: object) -> Callable[[Counts, Any], None] | None:
    """Return what counts the samples and FLOPs of a batch; None where they are not known."""
    per_batch, flops = stated.samples_per_batch, stated.flops_per_sample
    if per_batch is None:
        per_batch = _samples_of_torch(iterator)
        if per_batch is None:
            return None
    said = per_batch if callable(per_batch) else None
    fixed = 0.0 if callable(per_batch) else per_batch

    def more(counts: Counts, batch: Any) -> None:
        found = fixed if said is None else said(batch)
        if found is None:
            return
        samples = _samples(found)
        counts.add_samples(samples)
        if flops is not None:
            counts.add_flops(samples * flops)

    return more


def _samples_of_torch(iterator: object) -> Callable[[Any], float | None] | None:
    """Return what tells the samples of a batch of a torch data loader; None for any other."""
    module: Any = sys.modules.get("torch.utils.data.dataloader")
    if module is None or not isinstance(iterator, module._BaseDataLoaderIter):
        return None
    from .loader import Loader

    return Loader(iterator).samples
