# SPDX-License-Identifier: Apache-2.0
"""Bytes become heads of requests, however they arrive."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.server.limits import Limits
from exporter.web.server.request_framing import RequestRefused, take_head

LINES = st.lists(
    st.binary(min_size=1, max_size=8).filter(lambda b: not {10, 13, 22} & {*b}), min_size=1
)
ENDS = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    return b"".join(line + draw(ENDS) for line in draw(LINES)) + draw(ENDS)


@given(st.lists(heads(), min_size=1, max_size=4), st.data())
def test_every_split_gives_the_same_heads(whole: list[bytes], data: st.DataObject) -> None:
    """One at a time, without the line breaks between them."""
    stream = b"\r\n".join(whole)
    found, received, at = [], bytearray(), 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        received += stream[at : at + step]
        at += step
        while (head := take_head(received, Limits())) is not None:
            found.append(head)

    assert found == whole
    assert not received


@given(st.integers(1, 64), st.booleans())
def test_the_longest_head(step: int, fits: bool) -> None:
    """It has exactly as many bytes as it may have, and is refused before its end is there."""
    limits, received, found = Limits(head_bytes=100), bytearray(), None
    head = b"x" * 96 + b"\r\n\r\n" if fits else b"x" * 101
    with nullcontext() if fits else pytest.raises(RequestRefused):
        for at in range(0, len(head), step):
            received += head[at : at + step]
            found = take_head(received, limits)
        assert found == head
