# SPDX-License-Identifier: Apache-2.0
"""Which profiling fields are watched where a GPU cannot count all of them at once.

DCGM lists them in groups; of the groups with one major id only one can be counted at a time
(dcgmProfGetSupportedMetricGroups, dcgm_agent.h).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.model.dcgm import FIELDS

IMPORTANCE = (
    *("tensor", "dram", "sm", "engine", "fp64", "fp32", "fp16", "integer", "occupancy"),
    *("hmma", "imma", "dmma", "dfma"),
    *("nvlink_transmit_bytes", "nvlink_receive_bytes"),
    *("pcie_transmit_bytes", "pcie_receive_bytes"),
)
"""The fields of `Activity`, the most important one first: a field outweighs all that follow."""

_WEIGHTS: Mapping[int, int] = {
    field.number: 1 << (len(IMPORTANCE) - IMPORTANCE.index(field.activity)) for field in FIELDS
}
MOST_CHOICES = 4096


class MetricGroup(NamedTuple):
    """Fields that are counted together."""

    major: int
    fields: tuple[int, ...]


def one_pass(groups: Iterable[MetricGroup]) -> tuple[int, ...]:
    """Return the numbers of the most important fields that can be counted at once, sorted."""
    by_major: dict[int, list[frozenset[int]]] = {}
    for group in groups:
        known = frozenset(group.fields).intersection(_WEIGHTS)
        by_major.setdefault(group.major, []).append(known)
    choices = itertools.islice(itertools.product(*by_major.values()), MOST_CHOICES)
    unions = [frozenset[int]().union(*choice) for choice in choices]
    return tuple(sorted(max(unions, key=_weight)))


def _weight(fields: Iterable[int]) -> int:
    return sum(_WEIGHTS[number] for number in fields)
