# SPDX-License-Identifier: Apache-2.0
"""The order of the GPUs in ``status``, and which of them have no line of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from exporter.web.wording.facts import Facts
from exporter.web.wording.state import state, tone
from exporter.web.wording.summary import TROUBLE
from exporter.web.wording.whose import owner

Group = Sequence[Facts]
"""A GPU; with MIG on, its board and then its instances."""


def _trouble(one: Facts) -> int:
    word = state(one)
    return TROUBLE.index(word) if word in TROUBLE else len(TROUBLE)


def _owner(one: Facts) -> tuple[bool, str]:
    whose = owner(one)
    return whose is None, whose or ""


def _saturation(one: Facts) -> float:
    return 0.0 if one.saturation is None else -one.saturation.ratio.lower


def _idle(one: Facts) -> tuple[float, float]:
    return -(one.idle_seconds or 0.0), -(one.idle_ratio or 0.0)


ORDERS: Mapping[str, Callable[[Facts], Any]] = {
    "trouble": _trouble,
    "gpu": lambda one: 0,
    "owner": _owner,
    "utilization": lambda one: -(one.busy_ratio or 0.0),
    "saturation": _saturation,
    "mfu": lambda one: -(one.mfu_ratio or 0.0),
    "idle": _idle,
}
"""By name: what is compared, the least first; of equal ones, the first index."""


def _groups(found: Sequence[Facts]) -> list[Group]:
    groups: list[list[Facts]] = []
    for each in found:
        if each.instance is None or not groups:
            groups.append([])
        groups[-1].append(each)
    return list(groups)


def ordered(found: Sequence[Facts], name: str) -> tuple[Facts, ...]:
    """Return the GPUs in an order of `ORDERS`, one with MIG on by the first of its instances."""
    key = ORDERS[name]
    groups = sorted(_groups(found), key=lambda group: min(map(key, group)))
    return tuple(chain.from_iterable(groups))


def fitted(found: Sequence[Facts], most: int) -> tuple[Sequence[Facts], Sequence[Facts]]:
    """Return the GPUs that get one of `most` lines, and those that one more line sums up.

    The calmest are summed up, and no GPU in trouble is, even if that takes more lines.
    """
    groups = _groups(found)
    calm = sorted(
        (at for at, group in enumerate(groups) if _is_calm(group)),
        key=lambda at: min(map(_trouble, groups[at])),
    )
    summed: list[int] = []
    lines = len(found)
    while calm and lines > most - bool(summed):
        summed.append(calm.pop())
        lines -= len(groups[summed[-1]])
    if len(found) - lines < 2:
        return found, ()
    shown = [each for at, group in enumerate(groups) if at not in summed for each in group]
    return shown, [each for at in summed for each in groups[at]]


def _is_calm(group: Group) -> bool:
    return not any(tone(state(each)) in ("warn", "bad") for each in group)
