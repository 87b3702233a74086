# SPDX-License-Identifier: Apache-2.0
"""A sampling session on one GPU, with a fake library that behaves like the real one."""

from __future__ import annotations

import pytest

from exporter.sources.cupti.host import Host
from exporter.sources.cupti.library import CuptiError
from exporter.sources.cupti.session import SamplingSession
from exporter.sources.cupti.structures import ProfilerInitialize
from tests.fake_cupti import FakeCupti
from tests.sources.cupti.conftest import Fakes, loaded

SM = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"
"""Any names do: the fake does not check them."""


def session_of(fake: FakeCupti, chip: str = "AD102") -> SamplingSession:
    library = loaded(fake)
    library.call(ProfilerInitialize)
    session = SamplingSession(Host(library, chip), 0, (SM, TENSOR))
    session.start()
    return session


@pytest.mark.parametrize("first", ["zero", "stretched", "plain"])
def test_the_first_sample_is_dropped_however_it_looks(fake: Fakes, first: str) -> None:
    """It covers time before the start."""
    gpu = fake(("AD102",), f"first {first}", f"value {SM} 100 {' '.join(['50'] * 14)}")
    session = session_of(gpu)

    gpu.advance(0.1)

    measured = session.read()[0].metrics[0]
    assert measured is not None
    assert measured[0] == pytest.approx(50.0)


def test_a_read_that_came_late_covers_what_was_kept(fake: Fakes) -> None:
    gpu = fake()
    session = session_of(gpu)

    gpu.advance(2.5)
    assert session.read()[0].covered_seconds == pytest.approx(2.49)
    gpu.advance(4.0)
    assert session.read()[0].covered_seconds == pytest.approx(2.56)  # an image was full
    gpu.advance(1.0)
    assert session.read()[0].covered_seconds == pytest.approx(1.0)


@pytest.mark.parametrize("chip", ["TU102", "GA100"])
def test_chips_that_count_cycles_are_set_to_the_rate(fake: Fakes, chip: str) -> None:
    gpu = fake((chip,), "sysclk 300000000")
    session = session_of(gpu, chip)
    assert session.interval == 12_000_000

    gpu.advance(1.0)
    assert session.read()[0].sample_seconds == pytest.approx(0.04)
    gpu.advance(1.0)
    window, _ = session.read()

    assert session.interval == 3_000_000
    assert window.sample_seconds == pytest.approx(0.01)
    assert window.covered_seconds == pytest.approx(0.99)


def test_a_clock_that_moves_a_little_is_let_be(fake: Fakes) -> None:
    gpu = fake(("TU102",), "sysclk 1900000000")
    session = session_of(gpu, "TU102")

    gpu.advance(1.0)

    assert session.read()[0].covered_seconds == pytest.approx(1.0, abs=0.02)
    assert session.interval == 12_000_000
    assert gpu.calls("cuptiPmSamplingSetConfig") == ["cuptiPmSamplingSetConfig"]


@pytest.mark.parametrize("release", [24, 28, 130101])
def test_each_release_gets_the_structures_that_it_knows(fake: Fakes, release: int) -> None:
    """12.6 has no append mode: its structure ends before it."""
    gpu = fake(("AD102",), f"cupti {release}")
    session = session_of(gpu)

    gpu.advance(1.0)

    assert session.read()[0].covered_seconds == pytest.approx(0.99)


def test_counters_are_given_back_even_if_they_cannot_be_stopped(fake: Fakes) -> None:
    gpu = fake()
    session = session_of(gpu)
    gpu.play("fail cuptiPmSamplingStop 999")

    with pytest.raises(CuptiError):
        session.stop()

    assert "cuptiPmSamplingDisable" in gpu.calls()
