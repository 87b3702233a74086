# SPDX-License-Identifier: Apache-2.0
"""Which causes the evidence shows, and which evidence is missing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

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

Condition = tuple[str, Callable[[float, float], bool], float]
"""Evidence, relation and limit."""


def condition(text: str) -> Condition:
    """Read ``workers_count == 0``: evidence, relation, and a number or a threshold's name.

    Raises:
        KeyError: there is no such relation or threshold.
        ValueError: these are not three words.
    """
    name, relation, limit = text.split(" ")
    return name, _RELATIONS[relation], THRESHOLDS[limit] if limit in THRESHOLDS else float(limit)


CONDITIONS: Mapping[Cause, tuple[Condition, ...]] = {
    cause: tuple(map(condition, cause.when)) for cause in CAUSES
}


def judged(evidence: Evidence) -> tuple[list[Cause], list[str]]:
    """Return the causes that the evidence shows, in the order of the table, and what is missing.

    Missing is, of a share that waits for data and shows no cause, what would have to be known to
    tell why. A cause that is excluded by what is known needs no more evidence.
    """
    shown, missing = [], dict[str, None]()
    for cause, conditions in CONDITIONS.items():
        unknown = []
        for name, holds, limit in conditions:
            value = evidence.get(name)
            if value is not None:
                if not holds(value, limit):
                    break
            elif cause.when[0] != WAITS_FOR_DATA or name == conditions[0][0]:
                break
            else:
                unknown.append(name)
        else:
            if not unknown:
                shown.append(cause)
            missing.update(dict.fromkeys(unknown))
    return shown, [] if shown else list(missing)


def numbers_of(cause: Cause, evidence: Evidence) -> dict[str, float]:
    """Return the numbers that decided, and those that its texts name."""
    texts = cause.finding + cause.advice
    named = [name for name, _, _ in CONDITIONS[cause]]
    named += [name for name in evidence if f"{{{name}}}" in texts]
    return {name: evidence[name] for name in named if name in evidence}
