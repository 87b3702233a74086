# SPDX-License-Identifier: Apache-2.0
"""Benches that leave no process behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sources.counters.bench import Bench


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Return what makes a bench around one of the programs."""
    benches: list[Bench] = []

    def make(name: str, options: dict[str, Any] | None = None, **others: Any) -> Bench:
        benches.append(Bench(name, options, **others))
        return benches[-1]

    yield make
    for each in benches:
        each.close()
