# SPDX-License-Identifier: Apache-2.0
"""What is evidence of a share, by name, and what a cause has cost it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.diagnosis.evidence import are_orphans, recoverable, share_evidence
from exporter.model.host import WORKER, HostActivity
from exporter.model.reading import Activity, Device, Memory, Process, Vitals
from exporter.model.snapshot import (
    Bounds,
    Ceilings,
    Gpu,
    Holder,
    Rank,
    Recent,
    Share,
    ShareTotals,
)
from exporter.model.training import Loader, TrainingTotals
from tests.derive.ranks import NOW, rank_of

CEILINGS = Ceilings(
    "h100",
    {},
    {},
    assumed_precision="bf16_tensor",
    link_bandwidth_bytes_per_second={"pcie": 64e9},
)
RECENT = Recent(
    seconds=10.0,
    busy_ratio=0.6,
    utilization_ratio=0.9,
    idle_ratio=0.1,
    time_parts={"idle": 0.25, "narrow": 0.2, "clock": 0.05},
    limited_ratio={"communication": 0.15, "clock": 0.3},
    active_ratio={"sm": 0.5, "tensor_fp16": 0.4, "fp32": 0.2},
)
SHARE = Share(
    None,
    CEILINGS,
    ShareTotals(),
    recent=RECENT,
    memory=Memory(80, 20, 60),
    activity=Activity("gpm", 2.0, pcie_receive_bytes=32e9, pcie_transmit_bytes=1e9),
)
VITALS = Vitals(decoder_ratio=0.1, jpeg_ratio=0.7, throttle_reasons=frozenset({"sw_thermal"}))
DEVICE = Device(0, "GPU-0", "H100", cpu_affinity="0-7")


def gpu_of(share: Share, device: Device = DEVICE, vitals: Vitals | None = VITALS) -> Gpu:
    return Gpu(device, up=True, ceilings=share.ceilings, vitals=vitals, shares=(share,))


def evidence_of(share: Share = SHARE, *ranks: Rank, gpu: Gpu | None = None) -> dict[str, float]:
    return share_evidence(gpu or gpu_of(share), share, ranks, NOW, {"ranks_count": 4.0})


def test_use_of_a_share() -> None:
    found = evidence_of()
    expected = {
        "busy_ratio": 0.9,
        "idle_ratio": 0.25,
        "idle_intervals_ratio": 0.1,
        "clock_time_ratio": 0.05,
        "narrow_time_ratio": 0.2,
        "communication_time_ratio": 0.15,
        "sm_active_ratio": 0.5,
        "tensor_active_ratio": 0.4,
        "fma_active_ratio": 0.2,
        "memory_used_ratio": 0.25,
        "has_tensor_cores": 1.0,
        "ranks_count": 4.0,
        "trains": None,
        "data_wait_loss_ratio": None,
        "process_cores": None,
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("share", "name", "value"),
    [
        (replace(SHARE, recent=replace(RECENT, utilization_ratio=None)), "busy_ratio", 0.6),
        (replace(SHARE, recent=replace(RECENT, time_parts={})), "clock_time_ratio", 0.3),
        (replace(SHARE, recent=None), "busy_ratio", None),
        (replace(SHARE, memory=Memory(80, 20, 60, unified=True)), "memory_used_ratio", None),
        (replace(SHARE, memory=None), "memory_used_ratio", None),
        (
            replace(SHARE, ceilings=replace(CEILINGS, assumed_precision=None)),
            "has_tensor_cores",
            0.0,
        ),
        (replace(SHARE, ceilings=None), "has_tensor_cores", None),
        (replace(SHARE, holder=Holder(work_class="training")), "trains", 1.0),
        (replace(SHARE, holder=Holder(work_class="notebook")), "trains", 0.0),
        (replace(SHARE, orphaned_seconds=7.0), "orphaned_seconds", 7.0),
        (replace(SHARE, orphaned_seconds=7.0), "orphan_workers_count", 0.0),
    ],
)
def test_evidence_that_depends_on_one_fact(share: Share, name: str, value: float | None) -> None:
    assert evidence_of(share).get(name) == value


def test_of_the_board_and_not_of_an_instance() -> None:
    found = evidence_of()
    assert found["media_engine_ratio"] == 0.7
    assert (found["power_capped"], found["thermal_throttled"]) == (0.0, 1.0)
    assert found["pcie_traffic_ratio"] == pytest.approx(16e9 / 64e9)
    instance = gpu_of(SHARE, replace(DEVICE, mig=True))
    names = {"media_engine_ratio", "power_capped", "thermal_throttled", "pcie_traffic_ratio"}
    assert names & evidence_of(gpu=instance).keys() == set()
    assert names & evidence_of(gpu=gpu_of(SHARE, vitals=None)).keys() == set()


def test_of_processes_that_compute() -> None:
    processes = (
        Process(1, "compute", cpu_cores=0.5, cpu_list="0-3"),
        Process(2, "compute", cpu_cores=1.5, cpu_list="4-11"),
        Process(3, "compute"),
        Process(4, "graphics", cpu_cores=9.0, cpu_list="8-11"),
    )
    found = evidence_of(replace(SHARE, processes=processes, orphaned_seconds=1.0))
    assert found["process_cores"] == 1.5
    assert found["numa_misaligned_ratio"] == 0.0
    assert found["orphan_workers_count"] == 3.0
    off = evidence_of(replace(SHARE, processes=processes[1:]))
    assert off["numa_misaligned_ratio"] == 0.5


def test_orphans_are_nothing_but_workers() -> None:
    worker, loop = Process(1, "compute", command=WORKER), Process(2, "compute", command="python")
    assert are_orphans([worker, Process(3, "graphics", command="Xorg")])
    assert not are_orphans([worker, loop])
    assert not are_orphans([])
    assert not are_orphans(None)


def test_of_the_job_with_the_worst_rank() -> None:
    totals = TrainingTotals(
        batches=50,
        step_seconds=100.0,
        checkpoints=3,
        loader_start_seconds=5.0,
        phase_seconds={"data": 20.0, "checkpoint": 10.0, "h2d": 2.0},
    )
    host = HostActivity(method="client", seconds=10.0, workers=9, cores=8.0, cores_busy=6.0)
    loader = Loader(workers=4, pin_memory=False, persistent_workers=True)
    rank = rank_of(0, totals=totals, loader=loader, host=host, data_stall_ratio=0.2)
    found = evidence_of(SHARE, rank, rank_of(1, data_stall_ratio=0.1))
    expected = {
        "data_wait_loss_ratio": 0.2,
        "data_stall_upper_ratio": 0.2,
        "trains": 1.0,
        "checkpoints_count": 3.0,
        "workers_count": 4.0,
        "pinned_memory": 0.0,
        "persistent_workers": 1.0,
        "data_wait_per_batch_seconds": 0.4,
        "checkpoint_of_loop_ratio": 0.1,
        "h2d_of_loop_ratio": 0.02,
        "logging_of_loop_ratio": None,
        "loader_start_of_loop_ratio": 0.05,
        "free_cores": 2.0,
        "workers_per_core_ratio": 0.5,
        "workers_to_try_count": 6.0,
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("method", "stated", "seen", "count"),
    [
        ("client", None, 0, 0.0),
        ("procfs", None, 0, None),
        ("procfs", None, 3, 3.0),
        ("procfs", 0, 3, 0.0),
        ("client", 5, 3, 5.0),
    ],
)
def test_the_number_of_workers_is_stated_else_seen(
    method: str, stated: int | None, seen: int, count: float | None
) -> None:
    host = HostActivity(method=method, seconds=10.0, workers=seen)
    rank = rank_of(0, loader=Loader(workers=stated), host=host)
    assert evidence_of(SHARE, rank).get("workers_count") == count


def test_the_host_is_that_of_the_job_else_of_the_share() -> None:
    outside = HostActivity(method="procfs", seconds=10.0, cores=16.0)
    share = replace(SHARE, host=outside)
    assert evidence_of(share)["cores_count"] == 16.0
    inside = rank_of(0, host=HostActivity(method="client", seconds=10.0, cores=8.0))
    assert evidence_of(share, inside)["cores_count"] == 8.0
    assert evidence_of(share, rank_of(0))["cores_count"] == 16.0


def test_costs_of_clocks_and_of_communication() -> None:
    totals = ShareTotals(time_seconds={"clock": 30.0}, limited_seconds={"communication": 40.0})
    share = replace(SHARE, totals=totals)
    assert recoverable("clock", share, []) == Bounds(30.0, 30.0)
    assert recoverable("communication", share, []) == Bounds(0.0, 40.0)
    for kind in ("clock", "communication", "data", "checkpoint", None):
        assert recoverable(kind, SHARE, []) is None


SECONDS = st.floats(0.0, 1e6)


@given(
    waits=st.lists(st.tuples(SECONDS, SECONDS), max_size=3),
    inferred=st.none() | st.tuples(SECONDS, SECONDS),
    phase=st.sampled_from(("data", "checkpoint")),
)
def test_a_loss_costs_the_largest_stall_and_at_most_all_waits(
    waits: list[tuple[float, float]], inferred: tuple[float, float] | None, phase: str
) -> None:
    ranks = [
        rank_of(
            number,
            totals=TrainingTotals(
                phase_seconds={phase: max(each)}, phase_gpu_idle_seconds={phase: min(each)}
            ),
        )
        for number, each in enumerate(waits)
    ]
    totals = ShareTotals()
    if inferred is not None:
        lower, upper = {"client": min(inferred)}, {"client": max(inferred)}
        totals = ShareTotals(data_stall_lower_seconds=lower, data_stall_upper_seconds=upper)
    cost = recoverable(phase, replace(SHARE, totals=totals), ranks)
    stalls, most = [min(each) for each in waits], sum(max(each) for each in waits)
    if phase == "data" and inferred is not None:
        stalls.append(min(inferred))
        most = most or max(inferred)
    if not most:
        assert cost is None
    else:
        assert cost == Bounds(min(max(stalls), most), most)
