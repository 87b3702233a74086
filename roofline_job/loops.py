# SPDX-License-Identifier: Apache-2.0
"""Loops: how long each waits for its batches, how many came, and whether it trains.

A loop is open from its first batch until the data ends, next() raises, or nothing but a persistent
loader refers to its iterator. Its waits count from the first next() on.

It evaluates where gradients are off, or phase eval is under way, at its first next(). Once an
optimizer has stepped in this process, the batches of any other loop are pending until it is seen to
train: an optimizer steps, or the gradients have changed when it ends. Else it was an evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any, TypeVar
from weakref import ref

from . import identity
from .captures import CAPTURES
from .counts import FLOPS, SAMPLES, amount
from .cuda_idle import IdlePair
from .degraded import CHECKPOINTS, STATED, Part
from .exact_types import attribute, without_torch_function
from .process import PROCESS
from .reporter import SECOND
from .thread_accounts import ThreadAccount

Value = TypeVar("Value")

NO_BATCH: Any = object()
"""What `end_wait` gets where next() raised or had nothing left."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The arguments of `watch`."""

    job: str | None = None
    rank: int | None = None
    samples_per_batch: float | Callable[[Any], float | None] | None = None
    flops_per_step: float | None = None
    flops_per_sample: float | None = None
    precision: str | None = None

    def checked(self) -> Stated:
        """Return the values that can be reported."""
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
    """A next() that has not returned yet."""

    __slots__ = ("account", "begin_ns", "claimed_ns", "outermost", "pair")

    account: ThreadAccount
    begin_ns: int
    claimed_ns: int
    outermost: bool
    pair: IdlePair | None


class Loop:
    """One iteration over a watched iterable or a data loader."""

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
        """Whether it counts by itself, not only as a part of another loop's wait."""
        self.is_loader = False
        """Whether this is PyTorch's own data loader, which gives the GPU no work."""
        self.samples = _samples_by(self.stated, samples)
        self.peek: Callable[[], dict[str, int | bool | None]] | None = None
        """Reads the settings of the data loader, by the keys of the protocol."""
        self.workers: Callable[[], list[int]] = list
        """Lists its worker processes."""
        self.restarts = 0
        """The number of workers that were started again for it."""
        self.evaluates = False
        self._part = part
        self.key = id(iterable)
        """Loops over one iterable count their batches together."""
        self._spare: Wait | None = None
        """A `Wait` to reuse."""
        self.is_pending = False
        """Whether it is not known yet if it trains."""
        self.pending_flops = 0.0
        self._pending_batches = 0
        self._pending_samples: float | None = None
        self._gradient: tuple[int, int] | None = None
        self._account: ThreadAccount | None = None
        self._counts = False
        """Whether its batches count; not while they are pending, nor before the first."""
        self._body_ns = 0
        """Time in the body outside phases, while `is_pending`."""
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

    @property
    def states_precision(self) -> bool:
        """Whether the job states its precision."""
        return self.stated.precision is not None

    @property
    def has_one_batch(self) -> bool:
        """Whether it gave one batch, and no other loop any since the last one was opened alone."""
        if self._account is None:
            return False
        pending = self._pending_batches if self.is_pending else 0
        return self._account.counts.episode.batches() + pending == 1

    def is_over(self) -> bool:
        """Return whether the loop was left, or is no longer measured."""
        return not self._part.on or (self._iterator is not None and self._left(self._iterator))

    def begin_wait(self) -> Wait | None:
        """Begin to wait for a batch; None where this next() is not measured."""
        try:
            account = self._account
            if account is None or account.thread != get_ident():
                self.close()
                account = self._account = PROCESS.account(self.stated.job, self.stated.rank)
                if account is None:
                    return None
            if account.flops is not None:
                account.flops.batch_done(self)
            outermost = True
            if account.in_body is not self:
                asking = account.asking
                if asking is not None and (asking is self or asking.is_over()):
                    # An exception of a signal handler has skipped the end of that wait.
                    account.asking, account.depth = None, account.depth - 1
                    account.phase_in_wait = None
                outermost = account.asking is None
                if outermost:
                    if not self.measured:
                        return None
                    self._go_on(account)
            elif self.is_pending:
                self.leave_body()
            peek = self.peek
            if peek is not None and self._counts:
                asked_ns = account.clock()
                if asked_ns >= account.due_ns:
                    account.loader = peek()
                if asked_ns >= account.look_ns:
                    account.look_ns = asked_ns + SECOND
                    account.activity.checkpoints = account.checkpoints
                    account.activity.pass_by(
                        account.phase_ns, account.wall_ns, account.counts.totals()[1], self.workers
                    )
            wait = self._spare or Wait()
            self._spare = None
            wait.account = account
            wait.outermost = outermost
            meter = account.meter
            wait.pair = meter.start() if meter.ready else None
            now_ns = account.clock()
            rested_ns = now_ns - account.seen_ns
            if account.open or account.depth:
                account.wall_ns += rested_ns
            account.seen_ns = wait.begin_ns = now_ns
            if now_ns >= account.quiet_until_ns:
                account.announce("data", now_ns, rested_ns)
            wait.claimed_ns = account.claimed_ns
            if outermost:
                account.inner_data = False
                account.in_body = None
                account.asking = self
            account.depth += 1
        except Exception as error:
            self._part.fail(error)
            return None
        return wait

    def end_wait(self, wait: Wait, batch: Any) -> None:
        """End the wait; `NO_BATCH` ends the loop."""
        try:
            account = wait.account
            if wait.outermost:
                if account.asking is not self:
                    return
                account.asking = None
            elif batch is NO_BATCH:
                self.end()
            account.depth -= 1
            now_ns = account.clock()
            account.wall_ns += now_ns - account.seen_ns
            account.seen_ns = now_ns
            claimed_ns = account.claimed_ns
            own_ns = now_ns - wait.begin_ns - claimed_ns + wait.claimed_ns
            phase = "data"
            if wait.outermost:
                if account.inner_data and not self.is_loader and identity.cuda() is not None:
                    phase = "h2d"
            else:
                account.inner_data = True
            if own_ns > 0:
                account.claimed_ns = claimed_ns + own_ns
                account.phase_ns[phase] = account.phase_ns.get(phase, 0) + own_ns
            if wait.pair is not None:
                account.meter.stop(wait.pair, phase, max(0, own_ns))
            if wait.outermost:
                if batch is NO_BATCH:
                    self.close()
                else:
                    account.in_body = self
                    if not self._counts:
                        self._add_pending(account, batch, own_ns)
                    else:
                        account.counts.add_batches(self.key, 1)
                        if self.samples is not None:
                            self._add_samples(account, self.samples(batch))
                    if account.flops is not None:
                        account.flops.batch_came(self, batch)
            self._spare = wait
            if now_ns >= account.quiet_until_ns:
                account.leave_phase("data", now_ns, now_ns - wait.begin_ns)
        except Exception as error:
            self._part.fail(error)

    def stepped(self) -> None:
        """An optimizer stepped while this loop was open: it trains."""
        PROCESS.trained = True
        if self.is_pending and self._account is not None:
            self.evaluates = False
            self._commit(self._account)

    def close(self) -> None:
        """Stop the wall time, which runs until now; decide whether it evaluated if that is open."""
        account = self._account
        if account is not None and id(self) in account.open:
            if account.in_body is self and account.thread == get_ident():
                self.leave_body()
            self.end()

    def end(self) -> None:
        """Stop the wall time, which ran until something last happened."""
        account = self._account
        if account is not None:
            if account.in_body is self:
                account.in_body = None
            if account.thread == get_ident():
                self._decide(account)
            account.close_loop(self)
            self._counts = False

    def _go_on(self, account: ThreadAccount) -> None:
        """Resume after another loop, or begin."""
        account.sweep()
        if id(self) not in account.open:
            self._begin(account)
        if account.in_body is not None:
            account.in_body.leave_body()

    def _begin(self, account: ThreadAccount) -> None:
        """Prepare for the first batch."""
        torch: Any = sys.modules.get("torch")
        is_grad_enabled = attribute(torch, "is_grad_enabled")
        account.measures("data")
        if is_grad_enabled is not None:
            account.measures("eval")
            account.meter.find_cuda()
            if PROCESS.automatic and CHECKPOINTS.on:
                account.measures("checkpoint")
        self.evaluates = bool(
            account.eval_phases or (is_grad_enabled is not None and not is_grad_enabled())
        )
        # Replays of a captured step show neither steps nor new gradients.
        self.is_pending = self.evaluates or (PROCESS.trained and not CAPTURES.begun)
        if self.peek is not None and not self.is_pending:
            account.loader = self.peek()
        account.close_stale(self)
        if not self.is_pending:
            account.start(account.seen_ns)

    def _open(self, account: ThreadAccount) -> None:
        """Open the loop in the thread that got the first batch."""
        account.open_loop(self)
        self._pending_batches, self._pending_samples, self.pending_flops = 0, None, 0.0
        self._body_ns = 0
        PROCESS.latest = account
        stated = self.stated
        if stated is not NOTHING_STATED:
            account.trains = True
            account.instrumentation = "client"
        if stated.precision is not None:
            account.precision = stated.precision
        states_flops = stated.flops_per_step is not None or stated.flops_per_sample is not None
        if account.flops is not None and states_flops:
            account.flops.disable()
        if stated.flops_per_step is not None and not self.evaluates:
            account.counts.episode.flops_per_step = stated.flops_per_step
        if self.is_pending:
            self._gradient = _gradient()

    def _add_pending(self, account: ThreadAccount, batch: Any, waited_ns: int) -> None:
        """Add the first batch, or one of a pending loop."""
        if id(self) not in account.open:
            if self.restarts:  # so many workers need at most this long for a batch, on average
                batch_ns = self.restarts * account.wall_ns // max(1, account.counts.totals()[1])
                account.activity.restart_ns += max(0, waited_ns - batch_ns)
            self._open(account)
        self._body_from_ns, self._body_claimed_ns = account.seen_ns, account.claimed_ns
        self._pending_batches += 1
        samples = None if self.samples is None else self.samples(batch)
        if samples is not None:
            self._pending_samples = (self._pending_samples or 0) + samples
        if not self.is_pending:
            self._commit(account)

    def _add_samples(self, account: ThreadAccount, samples: float | None) -> None:
        if samples is not None:
            account.counts.add_samples(id(self), samples)
            if self.stated.flops_per_sample is not None:
                account.counts.add_flops(samples * self.stated.flops_per_sample)

    def _commit(self, account: ThreadAccount) -> None:
        """Count the pending batches, and all later ones."""
        self.is_pending = False
        self._counts = True
        account.counts.add_batches(self.key, self._pending_batches)
        self._add_samples(account, self._pending_samples)
        if self.pending_flops:
            account.counts.add_flops(self.pending_flops)
        account.start(account.seen_ns)

    def leave_body(self) -> None:
        """Count the time since the last batch, less the phases inside."""
        account = self._account
        if account is None:
            return
        account.in_body = None
        if not self.is_pending:
            return
        now_ns = account.clock()
        account.advance(now_ns)
        own_ns = now_ns - self._body_from_ns - account.claimed_ns + self._body_claimed_ns
        if self.evaluates:
            account.claim("eval", own_ns)
        else:
            self._body_ns += max(0, own_ns)

    def _decide(self, account: ThreadAccount) -> None:
        """Decide at the end whether a loop without a step trained or evaluated."""
        if not self.is_pending or self.evaluates or not self._pending_batches:
            return
        gradient = _gradient()
        if gradient is not None and gradient != self._gradient:
            self._commit(account)
            return
        self.evaluates = True
        account.claim("eval", self._body_ns)


def _samples_by(
    stated: Stated, found: Callable[[Any], float | None] | None
) -> Callable[[Any], float | None] | None:
    """Return a function that counts the samples of a batch; None where they are not known."""
    said = stated.samples_per_batch
    if said is None:
        return found
    if not callable(said):
        return lambda batch: said
    function = said

    def checked(batch: Any) -> float | None:
        try:
            samples = function(batch) if STATED.on else None
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
    """Return what each backward pass changes: identity and version of the first gradient of the
    optimizer that stepped last; None without one."""
    try:
        for group in attribute(_optimizer(), "param_groups") or ():
            for parameter in group["params"]:
                with without_torch_function():
                    if parameter.requires_grad:
                        gradient = parameter.grad
                        return None if gradient is None else (id(gradient), gradient._version)
    except (AttributeError, KeyError, TypeError):  # an optimizer of a kind of its own
        return None
    return None
