# SPDX-License-Identifier: Apache-2.0
"""Which fields are watched where a GPU cannot count all of them at once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from exporter.model.dcgm import FIELDS
from exporter.sources.dcgm.bindings import MetricGroup
from exporter.sources.dcgm.hostengine import IMPORTANCE, one_pass

NAMES = {field.number: field.activity for field in FIELDS}
GROUPS = st.lists(
    st.builds(
        MetricGroup,
        st.integers(0, 3),
        st.lists(st.integers(999, 1018), max_size=6).map(tuple),
    ),
    max_size=7,
)


def rank(fields: frozenset[int]) -> list[bool]:
    """Which of the fields in the order of importance are there: the first difference decides."""
    return [name in {NAMES[number] for number in fields} for name in IMPORTANCE]


def test_every_field_has_its_importance() -> None:
    assert {field.activity for field in FIELDS} <= set(IMPORTANCE)
    assert len(set(IMPORTANCE)) == len(IMPORTANCE)


@given(GROUPS)
def test_no_other_choice_has_a_more_important_field(groups: list[MetricGroup]) -> None:
    """One group of each major id is chosen, with known fields only."""
    chosen = frozenset(one_pass(groups))

    by_major: dict[int, list[frozenset[int]]] = {}
    for group in groups:
        by_major.setdefault(group.major, []).append(frozenset(group.fields) & NAMES.keys())
    possible = [
        frozenset(itertools.chain(*choice)) for choice in itertools.product(*by_major.values())
    ]
    assert chosen in possible
    assert rank(chosen) == max(map(rank, possible))
