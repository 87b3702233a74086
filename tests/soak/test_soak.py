# SPDX-License-Identifier: Apache-2.0
"""The soak itself, for a few simulated minutes: it finds nothing left over, and would see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.run import Sample, Soak, Verdict, summary

HOURS = 0.2


@pytest.fixture(name="soak")
def _soak(tmp_path: Path) -> Iterator[Soak]:
    soak = Soak(tmp_path, HOURS, pace=200.0, every=300.0)
    yield soak
    soak.daemon.kill()


@pytest.mark.slow
def test_twelve_minutes_leave_nothing(soak: Soak, capsys: pytest.CaptureFixture[str]) -> None:
    """With a hang, a lost GPU and a driver reload; too short to judge memory."""
    verdict = soak.run()
    assert verdict.complaints == []
    assert verdict.ticks >= HOURS * 3600
    assert verdict.answered > 100
    assert verdict.warm == []
    assert "rss_mb=" in capsys.readouterr().out


def test_growth_after_the_warm_up_counts() -> None:
    samples = [Sample(float(hour), 70.0 + hour / 2, 8, 9, 400) for hour in range(1, 13)]
    warm = samples[3:]
    verdict = Verdict(samples, warm, 43_200, 0, [])
    assert verdict.drift_mb == 2.0
    assert verdict.growth_mb == 3.5
    short = replace(verdict, warm=[])
    assert (short.drift_mb, short.growth_mb) == (0.0, 0.0)
    assert summary(verdict, most_rows=4).count("\n") == 5
