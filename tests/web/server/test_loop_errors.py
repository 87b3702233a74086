# SPDX-License-Identifier: Apache-2.0
"""Whatever happens again and again in the event loop is one line a minute."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from exporter.web.server.counts import Counts
from exporter.web.server.server import MOST_KINDS, LoopErrors


class _Loop:
    """An event loop's errors, and the lines that they made."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self._handler = LoopErrors(Counts(), lambda: self.now)
        self._caplog = caplog

    def fail(self, message: str, error: Exception | None = None) -> None:
        loop: Any = asyncio.AbstractEventLoop
        self._handler(loop, {"message": message} | ({"exception": error} if error else {}))

    @property
    def lines(self) -> list[tuple[str, Any]]:
        return [
            (record.getMessage(), record.__dict__["fields"]["left_out"])
            for record in self._caplog.records
            if record.levelno == logging.ERROR
        ]


@pytest.fixture(name="loop")
def _loop(caplog: pytest.LogCaptureFixture) -> _Loop:
    return _Loop(caplog)


def test_one_line_a_minute_for_each_kind(loop: _Loop) -> None:
    """The next one says how many were left out."""
    for _ in range(1000):
        loop.fail("accept failed", OSError(24, "too many"))
        loop.fail("accept failed", ValueError("what"))
    assert loop.lines == [("event loop: accept failed", None)] * 2
    loop.now = 59.9
    loop.fail("accept failed", OSError())
    loop.now = 60.0
    loop.fail("accept failed", OSError())
    assert loop.lines[2:] == [("event loop: accept failed", 1000)]


def test_kinds_are_bounded(loop: _Loop) -> None:
    """What is different each time is one kind."""
    for number in range(1000):
        loop.fail(f"error {number}")
    assert len(loop.lines) == MOST_KINDS + 1
    assert loop.lines[-1] == ("event loop: other errors", None)
