# SPDX-License-Identifier: Apache-2.0
"""The simulated training jobs report what the simulated GPUs do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.snapshot import Rank, Snapshot
from exporter.model.training import TrainingReport
from tests.sources.simulate.played import Played


class Demo(Played):
    """The bundled demo; the snapshot of each tick is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Snapshot] = []

    def after(self, seconds: int) -> Snapshot:
        """The snapshot so long after the start."""
        while len(self.seen) < seconds:
            self.seen.append(self.tick())
        return self.seen[seconds - 1]

    def rank(self, seconds: int, job: str) -> Rank:
        return by_job(self.after(seconds).ranks)[job]


@pytest.fixture(scope="module", name="demo")
def _demo() -> Demo:
    return Demo()


def by_job(ranks: Sequence[Rank]) -> dict[str, Rank]:
    return {rank.job: rank for rank in ranks}


def test_the_demo_shows_who_waits_for_data(demo: Demo) -> None:
    """The starved GPU's job says so, the steady ones do not, and the stall fits the idle time."""
    snapshot = demo.after(150)
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


def test_the_models_work_is_less_than_the_gpus(demo: Demo) -> None:
    """Also on a GPU whose clock is held down: no job does more than its tensor cores did."""
    before, after = demo.after(5), demo.after(105)
    for index, job in ((0, "alice-training"), (6, "erin-training")):
        done = [snap.gpus[index].shares[0].totals.flops["bf16_tensor"] for snap in (before, after)]
        reported = [by_job(snap.ranks)[job].totals.model_flops or 0.0 for snap in (before, after)]
        assert (reported[1] - reported[0]) / (done[1] - done[0]) == pytest.approx(0.9, rel=0.02)


@pytest.mark.parametrize(("since", "works"), [(5, True), (605, False), (845, False)])
def test_a_job_that_waits_in_a_collective_gets_nowhere(
    demo: Demo, since: int, *, works: bool
) -> None:
    """Steps, samples and the phases of work stand while its tensor cores do; its time goes on."""
    before, after = (demo.rank(at, "erin-training").totals for at in (since, since + 55))
    assert after.step_seconds - before.step_seconds == pytest.approx(55, abs=1)
    for phase in ("forward", "backward", "optimizer"):
        assert (after.phase_seconds[phase] > before.phase_seconds[phase]) == works
    assert (after.steps > before.steps) == works
    assert (after.samples or 0) - (before.samples or 0) == 256 * (after.steps - before.steps)
    waited = after.phase_seconds["other"] - before.phase_seconds["other"]
    assert waited == pytest.approx(0.04 * 55 if works else 55, abs=1)


def test_the_peak_of_memory_is_the_highest_of_the_run(demo: Demo) -> None:
    """It does not fall when a job comes to need less."""
    found = [demo.rank(at, "erin-training").memory_bytes for at in range(30, 901, 30)]
    peaks = [memory["peak"] for memory in found]
    assert all(memory["peak"] >= memory["reserved"] for memory in found)
    assert peaks == sorted(peaks)
    assert len(set(peaks)) == 2


def test_a_job_is_gone_while_its_gpu_is_lost(demo: Demo) -> None:
    """And continues when it is back, without a fall."""
    before, after = (demo.rank(at, "frank-training") for at in (350, 710))
    assert "frank-training" not in by_job(demo.after(410).ranks)
    assert after.totals.steps > before.totals.steps


@settings(max_examples=settings().max_examples // 3)
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
