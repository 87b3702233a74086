# SPDX-License-Identifier: Apache-2.0
"""The work that training jobs state: what of it is believed, and what is certain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.model.reading import Device, Process, Utilization
from exporter.model.snapshot import Share, Snapshot
from exporter.model.training import TrainingTotals
from exporter.publisher.ranks import WorkClaim
from exporter.publisher.work import StatedWork
from tests.derive.readings import known
from tests.publisher.test_tick import BUSY, H100, QUIET, T4, gpu
from tests.publisher.test_training import Bench as Job

LISTED = Process(4242, "compute")


class Bench(Job):
    """A T4 without counters, and a job on it that states its FLOPs once a second."""

    def __init__(
        self, device: Device = T4, listed: Process = LISTED, precision: str = "fp16"
    ) -> None:
        super().__init__(device, precision=precision)
        self.listed = (listed,)
        self.flops = 0.0

    def works(self, flops: float, *, launched: bool = False, **reading: Any) -> Snapshot:
        """Let a second pass in which the job did so much work."""
        self.flops += flops
        self.report["flops_launched"] = launched
        return self.told(TrainingTotals(model_flops=self.flops), **reading)

    def share(self, snapshot: Snapshot) -> Share:
        (share,) = gpu(snapshot, self.device.uuid).shares
        return share


def test_what_a_job_states_was_done() -> None:
    """Half of the time at 20 TFLOP/s, which an estimate alone bounds by 0 from below."""
    bench = Bench()
    for _ in range(40):
        snapshot = bench.works(20e12)
    share = bench.share(snapshot)
    lower, upper = known(share.totals.flops_lower), known(share.totals.flops_upper)
    assert 34 * 20e12 <= lower <= 40 * 20e12
    assert lower <= upper
    recent = known(share.recent)
    assert recent.stated_flops_per_second == pytest.approx(20e12)
    assert 15e12 <= known(recent.flops_bounds_per_second).lower <= 20e12
    # 65 TFLOP/s of the tensor pipe, and the FP16 and FP32 of the vector pipes beside it.
    assert 0.15 <= known(recent.saturation_bounds).lower <= 20 / 65
    assert known(share.roofline).stated_flops_per_second == pytest.approx(20e12)


@pytest.mark.parametrize("unsteady", [{}, {"power": 100.0}, {"utilization": 0.2}])
def test_gauges_have_what_was_done_in_ten_steady_seconds(unsteady: dict[str, float]) -> None:
    """An unsteady GPU's last interval may differ from the others."""
    bench, joules = Bench(), 0.0
    for second in range(30):
        other = second % 2 * 1.0
        joules += 60.0 + other * unsteady.get("power", 0.0)
        ratio = 0.5 + other * unsteady.get("utilization", 0.0)
        snapshot = bench.works(
            20e12,
            energy_joules=joules,
            utilization=Utilization(ratio, ratio + 0.1, 1.0, 0.1, 0.2),
        )
    share = bench.share(snapshot)
    assert share.saturation is not None
    assert share.recent is not None
    sm, tensor = (share.saturation.unmeasured[unit].lower for unit in ("sm", "tensor"))
    if unsteady:
        assert (share.saturation.bounds.lower, sm, tensor) == (0.0, 0.0, 0.0)
        assert known(share.recent.saturation_bounds).lower > 0.1
    else:
        assert share.saturation.bounds.lower >= sm == known(share.recent.saturation_bounds).lower
        assert tensor > 0.01


def test_what_was_done_before_is_not_counted() -> None:
    """The exporter starts beside a job that has run for a day; a process that restarts is new."""
    bench = Bench()
    bench.flops = 86_400 * 20e12
    bench.works(20e12)
    assert (bench.share(bench.works(20e12)).totals.flops_lower or 0.0) <= 20e12
    before = bench.share(bench.works(20e12)).totals.flops_lower
    bench.flops = 0.0
    bench.report["report_id"] = "b" * 32
    after = known(bench.share(bench.works(20e12)).totals.flops_lower)
    assert before is not None
    assert before <= after <= before + 40e12


def test_more_than_the_gpu_can_do_is_cut_and_counted() -> None:
    bench = Bench()
    for _ in range(140):
        snapshot = bench.works(500e12)
    share = bench.share(snapshot)
    assert known(share.totals.flops_lower) <= known(share.totals.flops_upper)
    assert share.recent is not None
    most = known(share.recent.flops_bounds_per_second).upper
    assert known(share.recent.stated_flops_per_second) <= most < 500e12
    assert known(snapshot.training).rejected_total["flops_exceed_peak"] >= 1


def test_what_was_only_launched_is_not_certain() -> None:
    """The host may be ahead of the GPU: such FLOPs are shown, and bound nothing."""
    bench, silent = Bench(), Bench(listed=Process(8, "compute"))
    for _ in range(20):
        share = bench.share(bench.works(20e12, launched=True))
        unstated = silent.share(silent.works(20e12))
    assert share.totals == unstated.totals
    assert share.recent is not None
    assert share.recent.stated_flops_per_second == pytest.approx(20e12)
    assert share.recent.saturation_bounds == known(unstated.recent).saturation_bounds
    assert share.recent.flops_bounds_per_second == known(unstated.recent).flops_bounds_per_second


def test_counters_are_not_bent_by_what_is_stated() -> None:
    """Measured values stay as they are."""
    measured = Bench(H100, precision="bf16")
    silent = Bench(H100, listed=Process(8, "compute"), precision="bf16")
    for _ in range(15):
        stated = measured.share(measured.works(200e12, activity=BUSY))
        unstated = silent.share(silent.works(200e12, activity=BUSY))
    assert stated.totals == unstated.totals
    assert stated.saturation == unstated.saturation
    assert known(stated.roofline).stated_flops_per_second == pytest.approx(200e12)
    assert known(unstated.roofline).stated_flops_per_second is None


def test_the_total_does_not_jump_as_counters_come_and_go() -> None:
    """FLOPs reported while counters measured less are not added when these stop."""
    bench = Bench(H100, precision="bf16")
    last = 0.0
    for second in range(90):
        counted = 30 <= second < 60
        reading: dict[str, Any] = {"activity": QUIET, "counters": "gpm"} if counted else {}
        lower = bench.share(bench.works(200e12, **reading)).totals.flops_lower or 0.0
        assert last <= lower <= last + 400e12
        last = lower
    assert last >= 40 * 200e12


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 40.0).map(lambda seconds: round(seconds, 2)),
        st.floats(0.0, 300e12),
    ),
    min_size=1,
    max_size=25,
)
"""How long each step of a process takes, and how fast it computes meanwhile."""


class Worker:
    """A process that computes step by step, and counts each at its end or at its beginning."""

    def __init__(
        self, steps: list[tuple[float, float]], begin: float, name: str, *, early: bool
    ) -> None:
        self.steps, self.begin, self.name, self.early = steps, begin, name, early

    def done(self, now: float) -> float:
        """Return the FLOPs done until `now`."""
        total, at = 0.0, self.begin
        for seconds, rate in self.steps:
            total += rate * min(max(now - at, 0.0), seconds)
            at += seconds
        return total

    def stated(self, now: float) -> float:
        total, at = 0.0, self.begin
        for seconds, rate in self.steps:
            if (at if self.early else at + seconds) <= now:
                total += rate * seconds
            at += seconds
        return total


@settings(deadline=None)
@given(
    st.lists(st.tuples(STEPS, st.floats(-100.0, 20.0), st.booleans()), min_size=1, max_size=2),
    st.sets(st.integers(0, 90)),
    st.sets(st.integers(0, 90), max_size=3),
    st.integers(0, 3),
    st.floats(0.0, 0.5),
)
@example([([(36.5, 1.0), (1.0, 1.0)], -37.0, False)], set(), set(), 2, 0.0)
def test_the_total_holds_for_processes_that_step_at_their_own_pace(
    workers: list[tuple[list[tuple[float, float]], float, bool]],
    lost: set[int],
    gaps: set[int],
    late: int,
    other: float,
) -> None:
    """Whatever reports are late, lost or lump together, and whenever the daemon looks away.

    One allowance: a process that counts a step as it begins is ahead of its work until the
    second report, by one step; the truth is compared with what its steps come to. And nobody
    knows how old the first report is, so the truth begins as long before it.
    """
    processes = [
        Worker(steps, begin, str(number), early=early)
        for number, (steps, begin, early) in enumerate(workers)
    ]
    work = StatedWork()
    known: dict[str, WorkClaim] = {}
    lower = upper = last = 0.0
    done = sum(each.done(0) - each.done(-late) for each in processes)
    for now in range(1, 91):
        before = done
        done = sum(each.done(now) - each.done(-late) for each in processes)
        gap = now in gaps
        if not gap:
            lower += other * (done - before)
            upper += 2 * 600e12
        if now not in lost:
            for each in processes:
                at = now - late
                if at >= each.begin:
                    known[each.name] = WorkClaim(each.name, now, each.stated(at), None)
        work.take(list(known.values()), float(now), lower, upper, gap=gap, measured=False)
        assert work.lower is not None
        assert last <= work.lower
        assert lower <= work.lower * (1 + 1e-9) + 1.0
        ahead = sum(
            max((rate * seconds for seconds, rate in each.steps), default=0.0)
            for each in processes
            if each.early
        )
        assert work.lower <= done * (1 + 1e-9) + ahead
        last = work.lower


def test_counted_work_over_likely_traffic_and_the_peak_of_its_precision() -> None:
    """20 of 65 TFLOP/s in FP16 at 1.83 of 1.59 GHz, and 0.77 x 0.1 of what the memory moves."""
    bench = Bench()
    for _ in range(15):
        snapshot = bench.works(20e12)
    recent, now = known(bench.share(snapshot).recent), known(bench.share(snapshot).saturation)
    traffic = 0.077 * 2.619e9 * 2 * 256 / 8
    tensor = 20 / (65 * 1.83 / 1.59)
    assert recent.dram_estimate_bytes_per_second == pytest.approx(traffic)
    assert recent.intensity_estimate_flops_per_byte == pytest.approx(20e12 / traffic)
    assert recent.model_flops_utilization_ratio == pytest.approx(20 / 65)
    assert recent.estimates == pytest.approx({"dram": 0.077, "tensor": tensor})
    assert now.estimates == pytest.approx(recent.estimates)


def test_a_job_that_the_driver_does_not_list_estimates_nothing() -> None:
    bench = Bench(listed=Process(8, "compute"))
    for _ in range(15):
        snapshot = bench.works(20e12)
    recent = known(bench.share(snapshot).recent)
    assert recent.estimates == pytest.approx({"dram": 0.077})
    assert recent.intensity_estimate_flops_per_byte is None
    assert recent.model_flops_utilization_ratio is None


@pytest.mark.parametrize(("precision", "lines"), [("fp32", 0), ("fp16", 0), ("bf16", 1)])
def test_a_precision_that_the_tensor_cores_lack_is_logged_once(
    precision: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A T4 has no BF16. It has no TF32 either, but FP32 work needs no tensor core."""
    bench = Bench(precision=precision)
    for _ in range(3):
        bench.works(20e12)
    assert [f"precision '{precision}'" in each for each in caplog.messages] == [True] * lines
