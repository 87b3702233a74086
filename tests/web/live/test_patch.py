# SPDX-License-Identifier: Apache-2.0
"""A merge patch turns the view before into the view after, and is empty between equal ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.live.stream import merge_patch
from tests.web.live.merge_patch import merged

scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers()))
objects = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), scalars),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(scalars, inner)),
    max_leaves=12,
)


@given(objects, objects)
def test_patches_lead_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applied as RFC 7386 says, a patch gives the second object."""
    assert merged(before, merge_patch(before, after)) == after


@given(objects)
def test_equal_objects_have_an_empty_patch(value: dict[str, Any]) -> None:
    """Nothing is said about what did not change."""
    assert merge_patch(value, value) == {}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
        ({}, {"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 1}}}),
        ({"a": 1}, {}, {"a": None}),
    ],
)
def test_examples(before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]) -> None:
    """Members that changed, with None for those that are gone; lists whole."""
    assert merge_patch(before, after) == patch
