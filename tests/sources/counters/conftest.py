# SPDX-License-Identifier: Apache-2.0
"""Benches that leave no process behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter.sources.counters import supervisor
from tests.sources.counters.bench import Bench


@pytest.fixture(name="bench")
def _bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Return what makes a bench around one of the programs."""
    # A killed child is waited for until it is gone, however busy the machine is.
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 60.0)
    benches: list[Bench] = []

    def make(name: str, options: dict[str, Any] | None = None, **others: Any) -> Bench:
        benches.append(Bench(name, options, **others))
        return benches[-1]

    yield make
    for each in benches:
        each.close()
