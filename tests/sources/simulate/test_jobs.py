# SPDX-License-Identifier: Apache-2.0
"""The simulated training jobs report what the simulated GPUs do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.snapshot import Rank, Snapshot
from exporter.model.training import TrainingReport
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import load_specs
from tests.clocks import ManualClock

BOOK = load_specs()


class Demo:
    """The bundled demo, ticked by hand."""

    def __init__(self, scenario: str = "demo") -> None:
        self.clock = ManualClock()
        self.simulation = Simulation(
            load_scenario(scenario, BOOK), BOOK, "host:19400", 0, self.clock
        )
        self.publisher = Publisher(
            self.simulation, BOOK, Rules(), self.clock, training=[self.simulation.jobs]
        )

    def ticks(self, count: int) -> Snapshot:
        for _ in range(count):
            self.clock.advance(1.0)
            snapshot = self.publisher.tick()
        return snapshot


def by_job(ranks: Sequence[Rank]) -> dict[str, Rank]:
    return {rank.job: rank for rank in ranks}


def test_the_demo_shows_who_waits_for_data() -> None:
    """The starved GPU's job says so, the steady ones do not, and the stall fits the idle time."""
    snapshot = Demo().ticks(150)
    ranks = by_job(snapshot.ranks)
    assert set(ranks) == {"alice-training", "bob-training", "erin-training", "frank-training"}
    starved, steady = ranks["bob-training"].totals, ranks["alice-training"].totals
    assert starved.phase_gpu_idle_seconds["data"] / starved.step_seconds == pytest.approx(
        0.6, abs=0.05
    )
    assert steady.phase_gpu_idle_seconds["data"] == 0.0
    assert steady.phase_seconds["data"] == pytest.approx(0.01 * steady.step_seconds)
    assert snapshot.gpus[2].shares[0].totals.limited_seconds["input"] > 60
    assert snapshot.gpus[0].shares[0].totals.limited_seconds["input"] == 0
    assert snapshot.training is not None
    assert snapshot.training.rejected_total["stall_exceeds_idle"] == 0


def test_the_models_work_is_less_than_the_gpus() -> None:
    """Also on a GPU whose clock is held down: no job does more than its tensor cores did."""
    demo = Demo()
    before, after = demo.ticks(5), demo.ticks(100)
    for index, job in ((0, "alice-training"), (6, "erin-training")):
        done = [snap.gpus[index].shares[0].totals.flops["bf16_tensor"] for snap in (before, after)]
        reported = [by_job(snap.ranks)[job].totals.model_flops or 0.0 for snap in (before, after)]
        assert (reported[1] - reported[0]) / (done[1] - done[0]) == pytest.approx(0.9, rel=0.02)


def test_a_job_that_waits_in_a_collective_gets_nowhere() -> None:
    """Steps, samples and the phases of work stand while its tensor cores do; its time goes on."""
    demo = Demo()
    moved = []
    for seconds in (60, 540, 60, 180, 60):
        before = by_job(demo.ticks(5).ranks)["erin-training"].totals
        after = by_job(demo.ticks(seconds - 5).ranks)["erin-training"].totals
        moved.append((before, after))
    for (before, after), works in ((moved[0], True), (moved[2], False), (moved[4], False)):
        assert after.step_seconds - before.step_seconds == pytest.approx(55, abs=1)
        for phase in ("forward", "backward", "optimizer"):
            assert (after.phase_seconds[phase] > before.phase_seconds[phase]) == works
        assert (after.steps > before.steps) == works
        assert (after.samples or 0) - (before.samples or 0) == 256 * (after.steps - before.steps)
        waited = after.phase_seconds["other"] - before.phase_seconds["other"]
        assert waited == pytest.approx(0.04 * 55 if works else 55, abs=1)


def test_the_peak_of_memory_is_the_highest_of_the_run() -> None:
    """It does not fall when a job comes to need less."""
    demo = Demo()
    peaks = []
    for _ in range(32):
        rank = by_job(demo.ticks(30).ranks)["erin-training"]
        assert rank.memory_bytes["peak"] >= rank.memory_bytes["reserved"]
        peaks.append(rank.memory_bytes["peak"])
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == 2


def test_a_job_is_gone_while_its_gpu_is_lost() -> None:
    """And continues when it is back, without a fall."""
    demo = Demo()
    before = by_job(demo.ticks(350).ranks)["frank-training"]
    assert "frank-training" not in by_job(demo.ticks(60).ranks)
    after = by_job(demo.ticks(300).ranks)["frank-training"]
    assert after.totals.steps > before.totals.steps


@settings(max_examples=30)
@given(st.lists(st.floats(0.05, 400.0), min_size=1, max_size=20))
def test_the_totals_never_fall_and_fit_each_other(steps: list[float]) -> None:
    """Phases within the step time, stall within the wait, whenever it is read."""
    demo = Demo()
    last: dict[str, TrainingReport] = {}
    for length in steps:
        demo.clock.advance(length)
        demo.simulation.round(0.5)
        for report in demo.simulation.jobs.reports():
            now = report.totals
            assert sum(now.phase_seconds.values()) <= now.step_seconds * (1 + 1e-9)
            assert now.phase_gpu_idle_seconds["data"] <= now.phase_seconds["data"]
            before = last.get(report.report_id)
            if before is not None:
                assert now.steps >= before.totals.steps
                assert now.step_seconds >= before.totals.step_seconds
                assert (now.model_flops or 0) >= (before.totals.model_flops or 0)
            last[report.report_id] = report
