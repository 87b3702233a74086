# SPDX-License-Identifier: Apache-2.0
"""What a child may say: every line is one of the messages, or is refused."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import ACTIVITY_BYTES, ACTIVITY_RATIOS, Activity
from exporter.sources.counters.wire import (
    HIGHEST_RATIO,
    Beat,
    Hello,
    Lines,
    MalformedLine,
    Measured,
    Noted,
    encoded,
    parsed,
)

ACTIVITY = {"gpu": "GPU-a", "gpu_instance": None, "seconds": 1.0, "ratios": {"sm": 0.5}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def line(**changes: Any) -> bytes:
    return json.dumps({**ACTIVITY, **changes}).encode()


def test_every_message_is_understood() -> None:
    assert parsed(b'{"beat": 7}', "cupti") == Beat()
    assert parsed(b'{"hello": {"chip": "GA100"}}', "cupti") == Hello({"chip": "GA100"})
    assert parsed(
        b'{"gpu": null, "gpu_instance": null, "state": "busy", "message": "by Nsight"}', "cupti"
    ) == Noted(None, None, "busy", "by Nsight")
    assert parsed(b'{"gpu": "GPU-a", "state": "ok"}', "cupti") == Noted("GPU-a", None, "ok", "")
    assert parsed(
        line(gpu_instance=3, bytes={"pcie_receive_bytes": 5}, age_seconds=0.5), "cupti"
    ) == Measured(
        "GPU-a", 3, Activity("cupti", 1.0, sm=0.5, pcie_receive_bytes=5.0, age_seconds=0.5)
    )


def test_the_names_of_values_are_those_of_an_activity() -> None:
    """Every field is one of the two kinds, or is not the child's to say as a value."""
    own = {"source", "seconds", "elapsed_cycles", "age_seconds", "unseen_seconds", "lag_seconds"}

    assert ACTIVITY_RATIOS | ACTIVITY_BYTES | own == {field.name for field in fields(Activity)}
    assert not ACTIVITY_RATIOS & ACTIVITY_BYTES


@pytest.mark.parametrize(
    "bad",
    [
        *(b"", b"\xff", b"nonsense", b"[]", b"[" * 60_000, b'{"hello": 1}', b"{}"),
        line(seconds=0),
        line(seconds=None),
        line(ratios={"sm": math.nan}),
        line(ratios={"sm": -0.1}),
        line(ratios={"sm": HIGHEST_RATIO + 0.1}),
        line(ratios={"seconds": 0.5}),
        line(bytes={"pcie_receive_bytes": 1e19}),
        line(bytes={"sm": 0.5}),
    ],
)
def test_a_line_that_is_none_is_refused(bad: bytes) -> None:
    """Broken output, and numbers of the library that cannot be."""
    with pytest.raises(MalformedLine):
        parsed(bad, "cupti")


def test_a_message_stays_on_one_line_of_the_log() -> None:
    """It is cut, and what would move a terminal's cursor is escaped."""
    found = parsed(
        encoded({"gpu": None, "state": "busy", "message": "a\n\x1b[2J" + "b" * 900}), "x"
    )

    assert isinstance(found, Noted)
    assert found.message.startswith("a\\n\\x1b[2Jbbb")
    assert len(found.message) < 520


@given(st.binary() | JSON.map(lambda found: json.dumps(found).encode()))
def test_no_line_raises_anything_else(data: bytes) -> None:
    with contextlib.suppress(MalformedLine):
        parsed(data, "cupti")


@given(st.lists(st.binary()), st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_how_they_arrive(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(pieces) + b"\n"
    whole, cut = Lines(), Lines()
    found = []
    rest = data
    for length in cuts:
        found += cut.feed(rest[:length])
        rest = rest[length:]
    found += cut.feed(rest)

    assert found == whole.feed(data) == data.split(b"\n")[:-1]


@given(st.lists(st.integers(0, 30), max_size=20))
def test_a_line_that_is_too_long_is_dropped_alone(lengths: list[int]) -> None:
    """However it is cut; none of it is kept."""
    lines = Lines(longest_bytes=10)
    data = b"".join(b"x" * length + b"\n" for length in lengths)

    found = [each for position in range(len(data)) for each in lines.feed(data[position:][:1])]

    assert [len(each) for each in found] == [length for length in lengths if length <= 10]
    assert lines.dropped_total == sum(length > 10 for length in lengths)
