# SPDX-License-Identifier: Apache-2.0
"""`phase` and `step`: the job marks phases, and steps of loops without an iterator."""

from __future__ import annotations

from .counts import FLOPS, SAMPLES, STEPS, amount
from .degraded import MARKS, STATED
from .process import PROCESS
from .thread_accounts import Begun, begin_span, end_span
from .wrapping import compiling


class phase:
    """Time a part of the job: ``with phase("checkpoint"): save(model)``.

    Phases exclude each other: what an inner one takes is taken off the outer one. Names are data,
    h2d, forward, backward, optimizer, checkpoint, eval, logging; any other counts as other. Loops
    that begin inside phase eval train nothing, and their batches are not counted.
    """

    __slots__ = ("_name", "_under_way")

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: list[Begun] = []

    def __enter__(self) -> None:
        """Begin the phase."""
        if MARKS.on and not compiling():
            self._under_way.append(begin_span(PROCESS.account, self._name, MARKS))

    def __exit__(self, *_: object) -> None:
        """End the phase; what was raised in it goes on."""
        if not self._under_way or compiling():
            return
        end_span(self._under_way.pop(), MARKS)


def step(
    n: int = 1,
    *,
    job: str | None = None,
    samples: float | None = None,
    flops: float | None = None,
) -> None:
    """Count n steps of a loop without an iterator.

    Args:
        n: steps since the last call.
        job: as for `watch`.
        samples: how many samples those n steps took together.
        flops: how many FLOPs they took together.

    Time runs from the first call to the last, so call it once per iteration; what passes before
    the first is not known. Inside a watched loop these are the steps, instead of those of the
    optimizer or the batches.
    """
    if not MARKS.on or compiling():
        return
    try:
        steps = int(amount(n, STEPS))
        taken = None if samples is None else amount(samples, SAMPLES)
        done = None if flops is None else amount(flops, FLOPS)
    except (TypeError, ValueError) as error:
        STATED.fail(error)
        return
    try:
        account = PROCESS.account(job)
        if account is not None:
            account.trains = True
            account.step(steps, taken, done)
    except Exception as error:
        MARKS.fail(error)
