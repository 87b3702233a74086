# SPDX-License-Identifier: Apache-2.0
"""Which signals stop a command that runs until it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from exporter.cli.command import on_stop


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_stops_it(number: signal.Signals) -> None:
    """A user at the terminal and a service manager both can."""
    calls: list[str] = []
    on_stop(lambda: calls.append("stop"))
    signal.raise_signal(number)
    assert calls == ["stop"]


def test_in_the_background_only_sigterm_does() -> None:
    """A script starts its background jobs with SIGINT ignored; its Ctrl-C is for another."""
    calls: list[str] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_stop(lambda: calls.append("stop"))
    signal.raise_signal(signal.SIGINT)
    assert calls == []
    signal.raise_signal(signal.SIGTERM)
    assert calls == ["stop"]
