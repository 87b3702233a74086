# SPDX-License-Identifier: Apache-2.0
"""What training jobs report meets the readings of the GPUs that they run on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from exporter.model.reading import Activity, Device, Instance, Process, ShareReading
from exporter.model.snapshot import LIMITERS, Snapshot, TrainingState
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.publisher import Publisher, Rules
from tests.clocks import ManualClock
from tests.publisher.test_tick import BUSY, H100, QUIET, SPECS, Script, gpu

MIXED = dataclasses.replace(BUSY, engine=0.4, sm=0.4, tensor=0.3, dram=0.1)


class Jobs:
    """Training reports under control of the test."""

    name = "training"

    def __init__(self) -> None:
        self.sent: tuple[TrainingReport, ...] = ()
        self.received_total = 0
        self.rejected_total: Mapping[str, int] = {"schema": 2}
        self.quota_hits_total: Mapping[str, int] = {"user": 0}
        self.up = True

    def reports(self) -> tuple[TrainingReport, ...]:
        return self.sent


class Bench:
    """A publisher over a scripted GPU and one scripted job that reports once a second."""

    def __init__(self, device: Device = H100, **report: Any) -> None:
        self.clock = ManualClock()
        self.script = Script(self.clock)
        self.jobs = Jobs()
        self.device = device
        self.listed: tuple[Process, ...] | None = (Process(4242, "compute"),)
        """The processes that the driver lists on the GPU."""
        self.report = {"device": device.uuid, "host_pids": (4242,), "report_id": "a" * 32, **report}
        self.wait = self.stall = 0.0
        self.publisher = Publisher(self.script, SPECS, Rules(), self.clock, training=[self.jobs])

    def tick(self, wait: float = 0.0, stall: float | None = None, **reading: Any) -> Snapshot:
        """Let a second pass in which the job waited so long and the GPU did as it read."""
        self.wait += wait
        self.stall += stall or 0.0
        totals = TrainingTotals(
            phase_seconds={"data": self.wait},
            phase_gpu_idle_seconds={} if stall is None else {"data": self.stall},
        )
        return self.told(totals, **reading)

    def told(self, totals: TrainingTotals, **reading: Any) -> Snapshot:
        """Let a second pass at whose end the job reports these totals."""
        self.clock.advance(1.0)
        now = self.clock.monotonic()
        device = reading.pop("device", self.device)
        self.script.read(device, processes=self.listed, **reading)
        report = TrainingReport(
            job="resnet",
            rank=0,
            received_monotonic_seconds=now,
            received_timestamp_seconds=self.clock.time(),
            totals=dataclasses.replace(totals, step_seconds=now),
            **self.report,
        )
        self.jobs.sent = (report,)
        return self.publisher.tick()


def limited(snapshot: Snapshot) -> dict[str, float]:
    """Return the limited seconds that are not 0."""
    totals = gpu(snapshot).shares[0].totals.limited_seconds
    assert set(totals) == set(LIMITERS)
    return {name: seconds for name, seconds in totals.items() if seconds}


def test_an_idle_gpu_whose_job_waits_for_data_is_limited_by_input() -> None:
    """The exposed stall turns idle into input, from the second report on."""
    bench = Bench()
    for _ in range(12):
        snapshot = bench.tick(wait=0.6, stall=0.55, activity=MIXED)
    assert gpu(snapshot).shares[0].limiter == "input"
    assert limited(snapshot)["input"] >= 9.0
    (rank,) = snapshot.ranks
    assert (rank.gpu_uuid, rank.gpu_instance, rank.processes) == (H100.uuid, None, 1)
    assert rank.data_stall_ratio == pytest.approx(0.55)
    assert rank.totals.phase_gpu_idle_seconds["data"] == pytest.approx(0.55 * 12)
    assert gpu(snapshot).shares[0].data_stall == {}


def test_without_events_the_wait_bounds_the_stall() -> None:
    """Share gauges and counters carry the bounds under method client; input needs the lower one."""
    bench = Bench()
    for _ in range(32):
        snapshot = bench.tick(wait=0.8, activity=MIXED)
    share = gpu(snapshot).shares[0]
    assert share.data_stall["client"].lower == pytest.approx(0.4, abs=0.003)
    assert share.data_stall["client"].upper == pytest.approx(0.6, abs=0.003)
    assert share.totals.data_stall_lower_seconds["client"] == pytest.approx(0.4 * 30, rel=0.01)
    assert share.totals.data_stall_upper_seconds["client"] == pytest.approx(0.6 * 32, rel=0.01)
    assert share.limiter == "input"


def test_a_rank_under_mig_belongs_to_its_instance() -> None:
    """By the MIG UUID; the other instance is not touched."""
    device = dataclasses.replace(
        H100,
        mig=True,
        instances=(
            Instance(1, 0, "3g.40gb", "MIG-11111111-89ab-cdef-0123-456789abcdef", sm_count=60),
            Instance(2, 0, "3g.40gb", "MIG-22222222-89ab-cdef-0123-456789abcdef", sm_count=60),
        ),
    )
    bench = Bench()
    bench.report["device"] = "MIG-22222222-89ab-cdef-0123-456789abcdef"
    activity: Activity = MIXED
    for _ in range(5):
        shares = tuple(
            ShareReading(gpu_instance=number, processes=listed, activity=activity, counters="gpm")
            for number, listed in ((1, ()), (2, bench.listed))
        )
        snapshot = bench.tick(wait=0.6, stall=0.6, device=device, shares=shares)
    (rank,) = snapshot.ranks
    assert (rank.gpu_uuid, rank.gpu_instance) == (H100.uuid, 2)
    assert [share.limiter for share in gpu(snapshot).shares] == ["idle", "input"]


def test_accepted_and_refused_reports_are_counted() -> None:
    """Accepted and refused reports, with the check of stalls among the reasons."""
    bench = Bench()
    bench.jobs.received_total = 7
    snapshot = bench.tick(activity=QUIET)
    assert snapshot.training == TrainingState(
        7, {"schema": 2, "stall_exceeds_idle": 0, "flops_exceed_peak": 0}, {"user": 0}
    )
    assert snapshot.sources["training"].up
    assert snapshot.sources["training"].failures_total == 2
    bench.jobs.up = False
    assert not bench.tick(activity=QUIET).sources["training"].up


def test_several_sources_of_reports_are_one_to_the_reader() -> None:
    """Ranks are joined, counts are added, and one source that is up is enough."""
    bench = Bench()
    other = Jobs()
    bench.tick()
    (report,) = bench.jobs.sent
    other.sent = (dataclasses.replace(report, report_id="b" * 32, rank=1),)
    bench.jobs.received_total, other.received_total = 7, 5
    other.rejected_total, other.up = {"schema": 1, "rate": 3}, False
    other.quota_hits_total = {"user": 3, "root": 0}
    publisher = Publisher(bench.script, SPECS, Rules(), bench.clock, training=(bench.jobs, other))
    publisher.tick()
    snapshot = publisher.tick()

    assert [rank.rank for rank in snapshot.ranks] == [0, 1]
    assert snapshot.training == TrainingState(
        12,
        {"schema": 3, "rate": 3, "stall_exceeds_idle": 0, "flops_exceed_peak": 0},
        {"user": 3, "root": 0},
    )
    assert snapshot.sources["training"].up
    assert snapshot.sources["training"].failures_total == 6


def test_a_job_that_is_not_on_the_gpu_changes_nothing_of_it() -> None:
    """No input time, precision or bounds: only its own series are published."""
    bench = Bench(precision="fp16")
    bench.listed = (Process(77, "compute"),)
    for _ in range(32):
        snapshot = bench.tick(wait=0.6, stall=0.55, activity=MIXED)
    share = gpu(snapshot).shares[0]
    assert share.limiter == "idle"
    assert set(limited(snapshot)) == {"idle"}
    assert share.totals.flops.keys() & {"fp16_tensor", "bf16_tensor"} == {"bf16_tensor"}
    (rank,) = snapshot.ranks
    assert rank.verified is False
    assert rank.degraded == ("unverified",)
    assert rank.totals.phase_gpu_idle_seconds["data"] > 15

    bench = Bench()
    bench.listed = ()
    for _ in range(32):
        snapshot = bench.tick(wait=0.8, activity=MIXED)
    assert gpu(snapshot).shares[0].data_stall == {}
    assert gpu(snapshot).shares[0].totals.data_stall_upper_seconds == {}


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_a_job_counts_once_the_driver_lists_it(kind: str) -> None:
    """And no longer once its process has left the GPU."""
    bench = Bench()
    bench.listed = ()
    assert bench.tick(wait=0.6, stall=0.55, activity=MIXED).ranks == ()
    assert bench.tick(wait=0.6, stall=0.55, activity=MIXED).ranks[0].verified is False
    bench.listed = (Process(4242, kind),)
    bench.tick(wait=0.6, stall=0.55, activity=MIXED)
    snapshot = bench.tick(wait=0.6, stall=0.55, activity=MIXED)
    assert snapshot.ranks[0].verified is True
    assert gpu(snapshot).shares[0].limiter == "input"
    bench.listed = ()
    for _ in range(2):
        snapshot = bench.tick(wait=0.6, stall=0.55, activity=MIXED)
    assert gpu(snapshot).shares[0].limiter == "idle"


def test_owners_are_shown_only_where_that_is_wanted() -> None:
    """Neither as a label nor in a name."""
    for owners, owner, names in (
        (True, "alice", ["resnet", "resnet (alice)"]),
        (False, None, ["resnet", "resnet (2)"]),
    ):
        bench = Bench(uid=1, owner="alice")
        bench.publisher.reconfigure(SPECS, Rules(owners=owners))
        bench.tick()
        (report,) = bench.jobs.sent
        other = dataclasses.replace(report, report_id="b" * 32, uid=2)
        bench.jobs.sent = (other, report)
        ranks = bench.publisher.tick().ranks
        assert [rank.owner for rank in ranks] == [owner, owner]
        assert [rank.job for rank in ranks] == names
