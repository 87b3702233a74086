# SPDX-License-Identifier: Apache-2.0
"""Bytes become heads, however they arrive."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.server.heads import Heads, HeadTooLong

LINES = st.lists(
    st.binary(min_size=1, max_size=8).filter(lambda b: not {10, 13} & {*b}), min_size=1
)
ENDS = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    return b"".join(line + draw(ENDS) for line in draw(LINES)) + draw(ENDS)


@given(st.lists(heads(), min_size=1, max_size=4), st.data())
def test_every_split_gives_the_same_heads(whole: list[bytes], data: st.DataObject) -> None:
    """One at a time, without what stands between them."""
    stream = b"\r\n".join(whole)
    found, cutter, at = [], Heads(1000), 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        cutter.put(stream[at : at + step])
        at += step
        while (head := cutter.take()) is not None:
            found.append(head)

    assert found == whole
    assert not cutter


@given(st.integers(1, 64), st.booleans())
def test_the_longest_head(step: int, fits: bool) -> None:
    """It has exactly as many bytes as it may have."""
    cutter, head = Heads(100), b"x" * (96 if fits else 97) + b"\r\n\r\n"
    found = None
    with pytest.raises(HeadTooLong) if not fits else nullcontext():
        for at in range(0, len(head), step):
            cutter.put(head[at : at + step])
            found = cutter.take()
        assert found == head


def test_it_is_too_long_before_it_ends() -> None:
    """Nobody waits for the rest."""
    cutter = Heads(100)
    cutter.put(b"x" * 101)
    with pytest.raises(HeadTooLong):
        cutter.take()
