# SPDX-License-Identifier: Apache-2.0
"""The order of the GPUs in ``status``, and which of them have no line of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from exporter.web.wording.facts import Facts
from exporter.web.wording.state import state
from exporter.web.wording.summary import STATE_ORDER, TROUBLES
from exporter.web.wording.whose import owner


def _trouble(one: Facts) -> int:
    word = state(one)
    return STATE_ORDER.index(word) if word in STATE_ORDER else len(STATE_ORDER)


ORDERS: Mapping[str, Callable[[Facts], Any]] = {
    "trouble": _trouble,
    "gpu": lambda one: 0,
    "owner": lambda one: (owner(one) is None, owner(one) or ""),
    "utilization": lambda one: -(one.busy_ratio or 0.0),
    "saturation": lambda one: -one.saturation.ratio.lower if one.saturation else 0.0,
    "mfu": lambda one: -(one.mfu_ratio or 0.0),
    "idle": lambda one: (-(one.idle_seconds or 0.0), -(one.idle_ratio or 0.0)),
}
"""By name: what is compared, the least first; of equal ones, the first index."""


def _groups(found: Sequence[Facts]) -> list[list[Facts]]:
    """Return the GPUs; of one with MIG on, its board and then its instances."""
    groups: list[list[Facts]] = []
    for each in found:
        if each.instance is None or not groups:
            groups.append([])
        groups[-1].append(each)
    return groups


def ordered(found: Sequence[Facts], name: str) -> tuple[Facts, ...]:
    """Return the GPUs in an order of `ORDERS`, one with MIG on by the first of its instances."""
    key = ORDERS[name]
    groups = sorted(_groups(found), key=lambda group: min(map(key, group)))
    return tuple(chain.from_iterable(groups))


def fitted(found: Sequence[Facts], most: int) -> tuple[Sequence[Facts], Sequence[Facts]]:
    """Return the GPUs that get one of `most` lines, and those that one more line sums up.

    The calmest are summed up, and no GPU in trouble is, even if that takes more lines.
    """
    shown, summed = _groups(found), list[Facts]()
    calm = [group for group in shown if not {*map(state, group)} & {*TROUBLES}]
    calm.sort(key=lambda group: min(map(_trouble, group)))
    while calm and len(found) - len(summed) > most - bool(summed):
        shown.remove(calm[-1])
        summed += calm.pop()
    return (found, ()) if len(summed) < 2 else (tuple(chain.from_iterable(shown)), summed)
