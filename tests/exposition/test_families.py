# SPDX-License-Identifier: Apache-2.0
"""What is known appears under its contract name and labels, and nothing else does.

The golden page holds the value of each series.
"""

from __future__ import annotations

from dataclasses import replace

from exporter.exposition.parts import Node
from exporter.exposition.processes import CAPPED, ProcessRows, dropped_series
from exporter.model.reading import Process, Vitals
from exporter.model.snapshot import BoardTotals, Gpu, Rank, Snapshot
from exporter.model.training import TRAINING_DEGRADATIONS
from exporter.model.workload import ShareWork, Workload
from tests import snapshots
from tests.rows import Row, expected_rows

H100 = "GPU-11111111-2222-3333-4444-000000000000"


def rows_of(*gpus: Gpu, processes: ProcessRows | None = None) -> list[Row]:
    return expected_rows(Node(snapshots.snapshot(*gpus), "abc123"), processes)


def series(rows: list[Row], name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The rows of one family, by their labels besides gpu and uuid."""
    return {
        tuple(sorted((key, value) for key, value in labels if key not in ("gpu", "uuid"))): value
        for family, labels, value in rows
        if family == name
    }


def one(rows: list[Row], name: str, **labels: str) -> float | None:
    return series(rows, name).get(tuple(sorted(labels.items())))


IDENTITY = {"gpu_info", "gpu_up", "gpu_last_read_timestamp_seconds"}


def test_what_is_not_known_is_absent() -> None:
    """A GPU of which nothing is known has its identity and no reading at all."""
    names = {name for name, labels, _ in rows_of(snapshots.bare()) if dict(labels).get("gpu")}
    assert names == IDENTITY | {"gpu_xid_errors_total"}


def test_down_gpu_hides_readings_that_are_still_there() -> None:
    """Even if a snapshot held readings of a GPU that is down, they are not published."""
    gpu = replace(snapshots.h100_training(), up=False, down_reason="hung")
    names = {name for name, _, _ in rows_of(gpu) if name.startswith("gpu_")}
    assert names == IDENTITY | {"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}
    assert not series(rows_of(gpu), "roofline_exporter_reading_state")


def with_processes(*processes: Process) -> Gpu:
    gpu = snapshots.h100_training()
    return replace(gpu, shares=(replace(gpu.shares[0], processes=processes),))


def test_process_memory_keeps_the_largest() -> None:
    """The cap cuts the smallest processes, and counts them; unknown sizes are not rows."""
    gpu = with_processes(
        Process(1, "compute", 10),
        Process(2, "compute", 30),
        Process(3, "mps", 20),
        Process(4, "compute", None),
    )
    memory = ProcessRows(memory=True, rows_per_share=2)
    kept = series(rows_of(gpu, processes=memory), "gpu_process_memory_bytes")
    assert {dict(labels)["pid"] for labels in kept} == {"2", "3"}
    assert dropped_series(Snapshot(0.0, (gpu,)), memory) == {
        "gpu_process_memory_bytes": 1,
        "gpu_process_sm_utilization_ratio": 0,
        "gpu_workload_info": 0,
    }
    disabled = ProcessRows(memory=False, rows_per_share=2)
    assert dropped_series(Snapshot(0.0, (gpu,)), disabled) == dict.fromkeys(CAPPED, 0)


POD = Workload("kubernetes", "team-a", "notebook-7", "main", id="8f9ba0f5")
JOB = Workload("slurm", job="5", user="ada", step="0")


def with_utilization(ratios: dict[int, float | None], work: dict[int, Workload]) -> Gpu:
    gpu = with_processes(
        *(Process(pid, "compute", 1, "python3", sm_utilization_ratio=ratio)
          for pid, ratio in ratios.items()),
        Process(1, "graphics", 1, "python3", sm_utilization_ratio=ratios[1]),
    )  # fmt: skip
    share = replace(gpu.shares[0], work=ShareWork(tuple(work.values()), None, work))
    return replace(gpu, shares=(share,))


def test_process_utilization_adds_up_by_workload() -> None:
    """Opt-in; labelled with whose the process is; one row though it is in two lists."""
    gpu = with_utilization({1: 0.5, 2: 0.25, 3: 0.0, 4: None}, {1: POD, 2: JOB})
    name = "gpu_process_sm_utilization_ratio"
    assert series(rows_of(gpu), name) == {}
    rows = rows_of(gpu, processes=ProcessRows(utilization=True))
    nobody = {
        "command": "python3", "scheduler": "", "workload_namespace": "", "workload_pod": "",
        "workload_container": "", "workload_job": "", "workload_user": "", "workload_id": "",
    }  # fmt: skip
    pod = {
        "scheduler": "kubernetes", "workload_namespace": "team-a", "workload_pod": "notebook-7",
        "workload_container": "main", "workload_id": "8f9ba0f5",
    }  # fmt: skip
    job = {"scheduler": "slurm", "workload_job": "5", "workload_user": "ada"}
    assert one(rows, name, **nobody | pod | {"pid": "1"}) == 0.5
    assert one(rows, name, **nobody | job | {"pid": "2"}) == 0.25
    assert one(rows, name, **nobody, pid="3") == 0.0
    assert len(series(rows, name)) == 3
    assert series(rows, "gpu_process_memory_bytes") == {}


def test_workloads_that_were_left_out_are_counted() -> None:
    """A share has a bounded number of them."""
    gpu = with_processes()
    share = replace(gpu.shares[0], work=ShareWork((POD,), None, {}, left_out=7))
    snapshot = Snapshot(0.0, (replace(gpu, shares=(share, share)),))
    assert dropped_series(snapshot, ProcessRows())["gpu_workload_info"] == 14


def test_other_board_readings() -> None:
    """Readings that few boards have are served where they are known."""
    gpu = replace(
        snapshots.bare(),
        vitals=Vitals(module_power_watts=900.0, jpeg_ratio=0.2, ofa_ratio=0.1, decoder_ratio=0.3),
        totals=BoardTotals(c2c_transmit_bytes=7.0, c2c_receive_bytes=8.0),
    )
    rows = rows_of(gpu)
    assert one(rows, "gpu_module_power_watts") == 900
    assert one(rows, "gpu_jpeg_utilization_ratio") == 0.2
    assert one(rows, "gpu_ofa_utilization_ratio") == 0.1
    assert one(rows, "gpu_decoder_utilization_ratio") == 0.3
    assert one(rows, "gpu_c2c_transmit_bytes_total") == 7
    assert one(rows, "gpu_c2c_receive_bytes_total") == 8


def rows_of_ranks(*ranks: Rank, node: Snapshot = snapshots.NO_DRIVER) -> list[Row]:
    return expected_rows(Node(snapshots.with_training(node, *ranks)))


def test_a_rank_says_whether_the_driver_lists_it() -> None:
    """Not of one without a GPU: there is nothing to be listed on."""
    name = "gpu_training_verified"
    rank = snapshots.rank_on_gpu()
    assert list(series(rows_of_ranks(rank), name).values()) == [1]
    assert list(series(rows_of_ranks(replace(rank, verified=False)), name).values()) == [0]
    assert not series(rows_of_ranks(snapshots.rank_on_cpu()), name)


def test_a_rank_outlives_the_readings_of_its_gpu() -> None:
    """A job goes on reporting while its GPU does not answer, or is not watched at all."""
    node = snapshots.snapshot(snapshots.lost(0))
    rank = replace(snapshots.rank_on_gpu(), gpu_uuid=node.gpus[0].device.uuid)
    rows = rows_of_ranks(rank, snapshots.rank_on_gpu(7), node=node)
    assert len(series(rows, "gpu_training_steps_total")) == 2


def test_degraded_ranks_are_counted_by_reason() -> None:
    """Those with a live process; every reason is there while reports are taken, else none is."""
    rank = replace(snapshots.rank_on_gpu(), degraded=("helper_thread", "unverified"))
    rows = rows_of_ranks(
        rank,
        replace(rank, rank=1, degraded=("unverified",)),
        replace(rank, rank=2, processes=0),
        replace(rank, rank=3, degraded=()),
    )
    counts = {
        dict(labels)["reason"]: value
        for labels, value in series(rows, "roofline_exporter_training_degraded").items()
    }
    expected = dict.fromkeys(TRAINING_DEGRADATIONS, 0) | {"helper_thread": 1, "unverified": 2}
    assert counts == expected
    off = expected_rows(Node(snapshots.EXAMPLES["training"]))
    assert not series(off, "roofline_exporter_training_degraded")
