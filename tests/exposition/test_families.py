# SPDX-License-Identifier: Apache-2.0
"""What is known appears under its contract name and labels, and nothing else does.

The golden page holds the value of each series.
"""

from __future__ import annotations

from dataclasses import replace

from exporter.exposition.parts import Node
from exporter.exposition.processes import CAPPED, ProcessRows, dropped_series
from exporter.model.reading import Process, Vitals
from exporter.model.snapshot import BoardTotals, Gpu, Snapshot
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


def test_info_carries_the_identity() -> None:
    """gpu_info has every descriptive label, as text."""
    [labels] = series(rows_of(snapshots.h100_training()), "gpu_info")
    assert dict(labels) == {
        "name": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
        "compute_capability": "9.0",
        "pci_bus_id": "00000000:19:00.0",
        "serial": "1654922006536",
        "board_part_number": "692-2G520-0200-000",
        "minor_number": "0",
        "numa_node": "0",
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "vbios_version": "96.00.A5.00.01",
        "spec": "h100-sxm5-80gb",
        "source": "nvml",
    }


def test_info_of_a_silent_driver_has_empty_labels() -> None:
    """What is not known of the identity is an empty label, never the word None."""
    [labels] = series(rows_of(snapshots.bare()), "gpu_info")
    known = {key: value for key, value in labels if value}
    assert known == {"name": "GPU", "source": "nvml"}


def test_mode_info() -> None:
    """Modes are labels of one series."""
    [labels] = series(rows_of(snapshots.h100_training()), "gpu_mode_info")
    assert dict(labels)["persistence"] == "enabled"
    assert dict(labels)["confidential"] == "off"


IDENTITY = {"gpu_info", "gpu_up", "gpu_last_read_timestamp_seconds"}


def test_what_is_not_known_is_absent() -> None:
    """A GPU of which nothing is known has its identity and no reading at all."""
    names = {name for name, labels, _ in rows_of(snapshots.bare()) if dict(labels).get("gpu")}
    assert names == IDENTITY | {"gpu_xid_errors_total"}


def test_estimate_publishes_bounds_and_no_point() -> None:
    """Without hardware counters there are bounds, and nothing that looks measured."""
    rows = rows_of(snapshots.t4_estimate())
    names = {name for name, _, _ in rows}
    assert one(rows, "gpu_saturation_source_info", source="estimate", complete="no") == 1
    assert one(rows, "gpu_saturation_upper_ratio") == 0.43
    assert one(rows, "gpu_resource_saturation_upper_ratio", resource="dram") == 0.43
    assert one(rows, "gpu_resource_saturation_lower_ratio", resource="sm") == 0
    assert one(rows, "gpu_flops_upper_per_second") == 28e12
    assert (
        not {
            "gpu_saturation_ratio",
            "gpu_saturation_seconds_total",
            "gpu_time_seconds_total",
            "gpu_sm_active_ratio",
            "gpu_flops_per_second",
            "gpu_flops_total",
            "gpu_memory_reserved_bytes",
        }
        & names
    )


def test_down_gpu_keeps_identity_only() -> None:
    """A lost GPU says that it is down, when it was last read, and its Xids; all else is gone."""
    rows = rows_of(snapshots.lost())
    mine = {name: value for name, labels, value in rows if "gpu" in dict(labels)}
    xids = {"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}
    assert {name: value for name, value in mine.items() if name not in xids} == {
        "gpu_info": 1,
        "gpu_up": 0,
        "gpu_last_read_timestamp_seconds": snapshots.NOW - 61,
    }
    assert one(rows, "gpu_xid_errors_total", xid="79") == 1
    assert one(rows, "gpu_xid_errors_total", xid="31") == 1
    assert one(rows, "gpu_xid_errors_total", xid="48") == 0
    assert one(rows, "gpu_xid_last_timestamp_seconds", xid="79") == snapshots.NOW - 62.5
    assert one(rows, "gpu_xid_last_timestamp_seconds", xid="48") is None


def test_down_gpu_hides_readings_that_are_still_there() -> None:
    """Even if a snapshot held readings of a GPU that is down, they are not published."""
    gpu = replace(snapshots.h100_training(), up=False, down_reason="hung")
    names = {name for name, _, _ in rows_of(gpu) if name.startswith("gpu_")}
    assert names == IDENTITY | {"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}
    assert not series(rows_of(gpu), "roofline_exporter_reading_state")


def test_mig_publishes_instances_and_not_their_parent() -> None:
    """No family has both rows with and rows without gpu_instance while MIG is on."""
    rows = rows_of(snapshots.h100_mig())
    with_instance = {name for name, labels, _ in rows if "gpu_instance" in dict(labels)}
    without = {name for name, labels, _ in rows if "gpu_instance" not in dict(labels)}
    assert with_instance & without == {"roofline_exporter_reading_state"}  # absent, not counted
    assert {"gpu_sm_active_ratio", "gpu_memory_used_bytes", "gpu_peak_flops_per_second"} <= (
        with_instance
    )
    assert {"gpu_info", "gpu_up", "gpu_power_watts", "gpu_temperature_celsius"} <= without
    assert "gpu_utilization_ratio" not in with_instance | without


def test_mig_instance_without_readings_has_none() -> None:
    """An instance that nothing is known of does not get its sibling's values."""
    rows = rows_of(snapshots.h100_mig())
    assert one(rows, "gpu_sm_active_ratio", gpu_instance="1") == 0.942
    assert one(rows, "gpu_sm_active_ratio", gpu_instance="2") is None
    assert one(rows, "gpu_held", gpu_instance="2") == 0


def test_mig_info_has_one_row_for_each_compute_instance() -> None:
    """gpu_mig_info lists compute instances with their profile and UUID."""
    rows = [dict(labels) for labels in series(rows_of(snapshots.h100_mig()), "gpu_mig_info")]
    found = sorted((row["gpu_instance"], row["compute_instance"], row["profile"]) for row in rows)
    assert found == [
        ("1", "0", "1c.3g.40gb"),
        ("1", "1", "2c.3g.40gb"),
        ("2", "0", "3g.40gb"),
    ]


def test_uuid_is_always_that_of_the_physical_gpu() -> None:
    """MIG series carry the parent's uuid."""
    uuids = {dict(labels).get("uuid") for _, labels, _ in rows_of(snapshots.h100_mig())}
    assert uuids == {H100, None}


def test_exporters_own_state() -> None:
    """Sources, snapshot time and absent groups of readings are visible."""
    rows = rows_of(snapshots.h100_training())
    assert one(rows, "roofline_exporter_source_up", source="gpm") == 1
    assert one(rows, "roofline_exporter_source_read_seconds", source="nvml") == 0.0042
    assert one(rows, "roofline_exporter_source_failures_total", source="gpm") == 2
    assert one(rows, "roofline_exporter_snapshot_timestamp_seconds") == snapshots.NOW
    assert one(rows, "roofline_exporter_reading_state", group="ecc", state="unsupported") == 1
    [build] = series(rows, "roofline_exporter_build_info")
    assert dict(build)["revision"] == "abc123"


def test_states_say_which_gpu_and_which_instance() -> None:
    """By index, UUID and, for what is absent of one instance only, its number."""
    rows = rows_of(snapshots.h100_mig(3))
    found = [dict(labels) for name, labels, _ in rows if name == "roofline_exporter_reading_state"]
    assert {(each["gpu"], each["uuid"]) for each in found} == {
        ("3", "GPU-11111111-2222-3333-4444-000000000003")
    }
    assert {(each["group"], each.get("gpu_instance"), each["state"]) for each in found} == {
        ("ecc", None, "unsupported"),
        ("fabric", None, "no_permission"),
        ("utilization", None, "mig"),
        ("memory", "2", "no_permission"),
    }


def test_no_driver_invents_no_gpu() -> None:
    """Without a driver there is source_up 0 and no series of a GPU."""
    rows = expected_rows(Node(snapshots.NO_DRIVER))
    assert one(rows, "roofline_exporter_source_up", source="nvml") == 0
    assert not [name for name, _, _ in rows if name.startswith("gpu_")]


def test_before_the_first_snapshot_only_the_build_is_known() -> None:
    """Nothing is made up before anything was read."""
    names = {name for name, _, _ in expected_rows(Node(None))}
    assert names == {"roofline_exporter_build_info"}


def with_processes(*processes: Process) -> Gpu:
    gpu = snapshots.h100_training()
    return replace(gpu, shares=(replace(gpu.shares[0], processes=processes),))


def test_process_memory_is_opt_in() -> None:
    """Memory per process appears only if it is enabled."""
    gpu = with_processes(Process(1, "compute", 5, "python3", "ada"))
    labels = {"pid": "1", "command": "python3", "owner": "ada"}
    assert one(rows_of(gpu), "gpu_process_memory_bytes", **labels) is None
    rows = rows_of(gpu, processes=ProcessRows(memory=True))
    assert one(rows, "gpu_process_memory_bytes", **labels) == 5


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


def test_process_utilization_keeps_the_largest() -> None:
    """The cap cuts those that had least, and counts them apart from those of the memory."""
    gpu = with_utilization({1: 0.1, 2: 0.3, 3: 0.2}, {})
    cap = ProcessRows(utilization=True, rows_per_share=2)
    kept = series(rows_of(gpu, processes=cap), "gpu_process_sm_utilization_ratio")
    assert {dict(labels)["pid"] for labels in kept} == {"2", "3"}
    assert dropped_series(Snapshot(0.0, (gpu,)), cap) == {
        "gpu_process_memory_bytes": 0,
        "gpu_process_sm_utilization_ratio": 1,
        "gpu_workload_info": 0,
    }


def test_workloads_that_were_left_out_are_counted() -> None:
    """A share has a bounded number of them."""
    gpu = with_processes()
    share = replace(gpu.shares[0], work=ShareWork((POD,), None, {}, left_out=7))
    snapshot = Snapshot(0.0, (replace(gpu, shares=(share, share)),))
    assert dropped_series(snapshot, ProcessRows())["gpu_workload_info"] == 14


def test_process_in_two_lists_is_one_row() -> None:
    """A process with CUDA and graphics contexts has one memory row and counts as both types."""
    gpu = with_processes(
        Process(1, "compute", 10, "blender"), Process(1, "graphics", 10, "blender")
    )
    rows = rows_of(gpu, processes=ProcessRows(memory=True))
    assert len(series(rows, "gpu_process_memory_bytes")) == 1
    assert one(rows, "gpu_processes", type="compute") == 1
    assert one(rows, "gpu_processes", type="graphics") == 1


def test_fans_are_numbered() -> None:
    """Each fan has its own row."""
    gpu = snapshots.t4_estimate()
    assert gpu.board is not None
    gpu = replace(gpu, board=replace(gpu.board, fan_speed_ratios=(0.3, 0.35)))
    assert one(rows_of(gpu), "gpu_fan_speed_ratio", fan="1") == 0.35


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


def test_health_before_ampere() -> None:
    """A GPU that retires pages has no rows to remap, no NVLink and no fabric."""
    rows = rows_of(snapshots.t4_estimate())
    assert one(rows, "gpu_retired_pages", cause="double_bit") == 1
    assert one(rows, "gpu_retired_pages_pending") == 1
    absent = ("gpu_row_remap", "gpu_remapped", "gpu_nvlink", "gpu_fabric", "gpu_recovery_action")
    assert not [name for name, _, _ in rows if name.startswith(absent)]


def test_fabric_info_names_the_domain() -> None:
    """GPUs of one NVLink domain have the same labels."""
    [labels] = series(rows_of(snapshots.h100_training()), "gpu_fabric_info")
    assert dict(labels) == {"cluster_uuid": "00000000-0000-0000-0000-000000000000", "clique": "0"}


def test_health_of_a_mig_gpu_is_the_boards() -> None:
    """Instances have no health of their own."""
    rows = rows_of(snapshots.h100_mig())
    assert one(rows, "gpu_row_remap_pending") == 0
    assert one(rows, "gpu_xid_errors_total", xid="94") == 2


def test_devices_are_listed_by_who_counts() -> None:
    """Where nothing counts there is no row."""
    rows = rows_of(snapshots.lost())
    assert one(rows, "roofline_exporter_devices", where="nvml") == 1
    partly = Node(replace(snapshots.NO_DRIVER, devices={"pci": 8}))
    assert series(expected_rows(partly), "roofline_exporter_devices") == {(("where", "pci"),): 8}
