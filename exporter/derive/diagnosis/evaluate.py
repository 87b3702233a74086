# SPDX-License-Identifier: Apache-2.0
"""Which causes the evidence shows, and which evidence is missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter.model.causes import CAUSES, THRESHOLDS, WAITS_FOR_DATA, Cause

_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}

Evidence = Mapping[str, float]
"""By name, each with its unit; what is not known is absent."""


class Condition(NamedTuple):
    """One condition of a cause."""

    evidence: str
    holds: Callable[[float, float], bool]
    limit: float


def condition(text: str) -> Condition:
    """Read ``workers_count == 0``: evidence, relation, and a number or a threshold's name.

    Raises:
        KeyError: there is no such relation or threshold.
        ValueError: these are not three words.
    """
    name, relation, limit = text.split(" ")
    number = THRESHOLDS[limit] if limit[0].isalpha() else float(limit)
    return Condition(name, _RELATIONS[relation], number)


CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    cause.slug: tuple(map(condition, cause.when)) for cause in CAUSES
}
"""By slug."""


def shown(evidence: Evidence) -> list[Cause]:
    """Return the causes that the evidence shows, in the order of the table."""
    return [cause for cause in CAUSES if _verdict(cause, evidence) is True]


def missing(evidence: Evidence) -> tuple[str, ...]:
    """Return what would have to be known to tell why a share waits for data.

    A cause that is excluded by what is known needs no more evidence.
    """
    names: dict[str, None] = {}
    for cause in CAUSES:
        conditions = CONDITIONS[cause.slug]
        waits = cause.when[0] == WAITS_FOR_DATA and _holds(conditions[0], evidence)
        if waits and _verdict(cause, evidence) is None:
            names |= dict.fromkeys(each.evidence for each in conditions)
    return tuple(name for name in names if name not in evidence)


def numbers_of(cause: Cause, evidence: Evidence) -> dict[str, float]:
    """Return the numbers that decided, and those that its texts name."""
    texts = cause.finding + cause.advice
    named = [each.evidence for each in CONDITIONS[cause.slug]]
    named += [name for name in evidence if f"{{{name}}}" in texts]
    return {name: evidence[name] for name in dict.fromkeys(named) if name in evidence}


def _verdict(cause: Cause, evidence: Evidence) -> bool | None:
    """Return whether all conditions hold; None if none fails, but one is not known."""
    verdict: bool | None = True
    for each in CONDITIONS[cause.slug]:
        held = _holds(each, evidence)
        if held is False:
            return False
        if held is None:
            verdict = None
    return verdict


def _holds(condition: Condition, evidence: Evidence) -> bool | None:
    value = evidence.get(condition.evidence)
    return None if value is None else condition.holds(value, condition.limit)
