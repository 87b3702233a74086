# SPDX-License-Identifier: Apache-2.0
"""The fake libraries, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.sources.cupti.library import CuptiLibrary
from tests.fake_cupti import FakeCupti

Fakes = Callable[..., FakeCupti]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Makes the fake play a scenario in this process: ``fake(chips, *lines)``."""

    def make(chips: tuple[str, ...] = ("AD102",), *lines: str) -> FakeCupti:
        fake = FakeCupti(tmp_path, chips, *lines)
        monkeypatch.setenv("FAKE_CUPTI", str(fake.scenario))
        fake.reset()
        return fake

    return make


def loaded(fake: FakeCupti) -> CuptiLibrary:
    """Return the fake as CUPTI, loaded into this process."""
    return CuptiLibrary(fake.cupti())
