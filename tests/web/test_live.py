# SPDX-License-Identifier: Apache-2.0
"""The live view says in short what the snapshot says, and nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from exporter.reading import SUSPENDED
from exporter.snapshot import Bounds, Gpu, Rank, Snapshot
from exporter.web.live import NodeView, node_view
from exporter.web.rows import SHOWN_RANKS
from tests import snapshots
from tests.web.test_api import nulls

H100 = snapshots.h100_training().device.uuid
MIG = snapshots.h100_mig(2).device.uuid


def view(snapshot: Snapshot | None, earlier: tuple[Rank, ...] = (), **other: Any) -> NodeView:
    return node_view(snapshot, sequence=7, interval_seconds=1.0, earlier_ranks=earlier, **other)


def row(gpu: Gpu, *ranks: Rank, earlier: tuple[Rank, ...] = ()) -> dict[str, Any]:
    """The first row of a node with this GPU."""
    node = snapshots.with_training(snapshots.snapshot(gpu), *ranks)
    rows: dict[str, Any] = view(node, earlier)["rows"]
    return dict(next(iter(rows.values())))


def test_a_measured_gpu() -> None:
    """Every reading is there: ratios to tenths of a percent, the rest to 4 digits."""
    found = row(snapshots.h100_training(), snapshots.rank_on_gpu())
    assert found == {
        "gpu": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "spec": "h100-sxm5-80gb",
        "xid": {"code": 94, "at": 1789999699.75, "count": 2},
        "state": "up",
        "word": "starved",
        "utilization": 0.993,
        "saturation": 0.561,
        "source": "gpm",
        "unit": "tensor",
        "limiter": "compute",
        "stall": 0.24,
        "wait": 0.31,
        "memory": [61_200_000_000, 85_520_000_000],
        "held": True,
        "holder": {"owner": "ada", "command": "python3", "class": "training"},
        "parts": {
            "idle": 0.009,
            "narrow": 0.049,
            "unsaturated": 0.381,
            "clock": 0.027,
            "saturated": 0.534,
        },
        "pipes": {"tensor": 0.561, "fp64": 0, "fp32": 0.113, "fp16": 0.021, "int": 0.204},
        "sm": 0.942,
        "dram": 0.38,
        "engine": 0.991,
        "roof": {"spec": 0.538, "clock": 0.561, "achievable": 0.672},
        "point": {"flops": 541_200_000_000_000, "intensity": 426.1},
        "point_bounds": found["point_bounds"],
        "ceilings": "h100-sxm5-80gb/bf16_tensor",
        "jobs": [{"job": "resnet", "rank": 0, "wait": 0.31, "stall": 0.24}],
        "power": [641.4, 700],
        "celsius": 61,
        "clock": [1_755_000_000, 1_980_000_000],
        "throttle": ["sw_power_cap"],
    }
    assert set(found["point_bounds"]) == {"flops"}


def test_an_estimated_gpu() -> None:
    """Bounds stand where a point would be an invention."""
    found = row(snapshots.t4_estimate())
    assert found["saturation_bounds"] == [0, 0.43]
    assert found["stall_bounds"] == [0.125, 0.312]
    assert found["point_bounds"] == {"flops": [0, 28e12], "bytes": [0, 137.6e9]}
    assert not {"saturation", "stall", "wait", "point", "parts", "pipes", "jobs"} & set(found)


def test_idle_and_lost_gpus() -> None:
    """Since when a GPU is idle, or when a lost one was last read, and why."""
    idle = row(snapshots.h100_idle())
    assert (idle["word"], idle["held"]) == ("free", False)
    assert idle["idle_since"] == pytest.approx(snapshots.NOW - 3720, abs=1)
    assert "point" not in idle
    lost = row(snapshots.lost())
    assert lost == {
        "gpu": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "spec": "h100-sxm5-80gb",
        "xid": {"code": 79, "at": snapshots.NOW - 62.5, "count": 1},
        "state": "lost",
        "word": "lost",
        "reason": "lost",
        "since": snapshots.NOW - 61,
    }
    assert "idle_since" not in row(snapshots.h100_training())
    asleep = row(replace(snapshots.lost(), down_reason=SUSPENDED))
    assert (asleep["state"], asleep["word"]) == ("suspended", "suspended")


def test_mig() -> None:
    """The board has a row of its own; what is the board's is not said of instances again."""
    node = snapshots.with_training(
        snapshots.snapshot(snapshots.h100_mig(2)), snapshots.rank_on_instance(2)
    )
    rows = view(node)["rows"]
    assert list(rows) == [MIG, f"{MIG}/1", f"{MIG}/2"]
    board, first, second = rows.values()
    assert board["mig"] is True
    assert board["power"] == [641.4, 700]
    assert not {"word", "utilization", "memory"} & set(board)
    assert (first["instance"], first["profile"]) == (1, "3g.40gb")
    assert first["utilization"] == first["engine"] == 0.991
    assert first["jobs"][0]["job"] == snapshots.rank_on_instance().job
    assert not {"power", "clock", "celsius", "throttle"} & set(first)
    assert second["word"] == "unknown"
    assert first["ceilings"] == "h100-sxm5-80gb/60sm/4of8/bf16_tensor"
    empty = replace(snapshots.h100_mig(2), shares=())
    assert view(snapshots.snapshot(empty))["totals"] == "1 GPU: 1 free"


def test_the_node() -> None:
    """Totals and headline are of all rows, in the order of the GPUs."""
    found = view(snapshots.EXAMPLES["mixed"])
    assert (found["sequence"], found["timestamp"], found["interval"]) == (7, snapshots.NOW, 1)
    assert found["totals"].startswith("5 GPUs, 2 instances: ")
    assert found["headline"] == "GPU 3 is lost"
    assert [each["gpu"] for each in found["rows"].values()] == [0, 1, 2, 2, 2, 3, 4]
    assert "problem" not in found
    assert "simulated" not in found


@pytest.mark.parametrize("name", snapshots.EXAMPLES)
def test_every_view_is_json_without_nulls(name: str) -> None:
    """What is not known is left out; every row's ceilings are in the view."""
    found = view(snapshots.EXAMPLES[name])
    assert nulls(json.loads(json.dumps(found, allow_nan=False))) == []
    for each in found["rows"].values():
        assert each.get("ceilings") in {None, *found["roofs"]}


def test_roofs() -> None:
    """Ceilings are the datasheet's, with what kernels reach beside them; equal ones are one."""
    node = snapshots.snapshot(
        snapshots.h100_training(0), snapshots.h100_idle(1), snapshots.t4_estimate(2)
    )
    roofs = view(node)["roofs"]
    assert set(roofs) == {"h100-sxm5-80gb/bf16_tensor", "t4/fp16_tensor"}
    roof = roofs["h100-sxm5-80gb/bf16_tensor"]
    assert roof["flops"]["bf16_tensor"] == [989.4e12, 791.5e12]
    assert roof["flops"]["fp32"] == [66.9e12]
    assert roof["bandwidth"] == [3350e9, 3015e9]
    assert roof["clock"]["tensor"] == 1830e6
    assert (roof["assumed"], roof["sms"]) == ("bf16_tensor", 132)


def test_derived_roofs_are_told_apart() -> None:
    """Two unlisted products do not share one set of ceilings."""
    gpus = []
    for index, peak in enumerate((1e12, 2e12)):
        gpu = snapshots.t4_estimate(index)
        ceilings = gpu.shares[0].ceilings
        assert ceilings is not None
        ceilings = replace(ceilings, spec="derived", peak_flops_per_second={"fp32": peak})
        gpus.append(replace(gpu, shares=(replace(gpu.shares[0], ceilings=ceilings),)))
    assert len(view(snapshots.snapshot(*gpus))["roofs"]) == 2


def test_simulated_data_is_marked() -> None:
    """Where readings are not of real GPUs, the view says where they come from."""
    for source in ("simulate", "replay"):
        gpu = snapshots.h100_training()
        gpu = replace(gpu, device=replace(gpu.device, source=source))
        assert view(snapshots.snapshot(gpu))["simulated"] == source


def test_what_ranks_did_lately() -> None:
    """Phases are shares of the step time since an earlier picture, steps are per second."""
    now = snapshots.rank_on_gpu()
    before = replace(
        now,
        totals=replace(
            now.totals,
            steps=now.totals.steps - 41,
            step_seconds=now.totals.step_seconds - 10,
            phase_seconds={"data": 152.0, "checkpoint": 12.5, "logging": 2.5, "h2d": 4.0},
        ),
        last_report_timestamp_seconds=now.last_report_timestamp_seconds - 10,
    )
    [job] = row(snapshots.h100_training(), now, earlier=(now, before))["jobs"]
    assert job["phases"] == {"data": 0.3, "h2d": 0.1}
    assert job["steps_per_second"] == 4.1
    [job] = row(snapshots.h100_training(), now, earlier=(now,))["jobs"]
    assert not {"phases", "steps_per_second"} & set(job)


def test_many_ranks_on_one_gpu_are_counted() -> None:
    """Four are shown; those without a live process are not there."""
    rank = snapshots.rank_on_gpu()
    ranks = [replace(rank, rank=number) for number in range(7)]
    found = row(snapshots.h100_training(), *ranks, replace(rank, job="ended", processes=0))
    assert [job["rank"] for job in found["jobs"]] == list(range(SHOWN_RANKS))
    assert found["more_jobs"] == 3


def test_measured_stall_wins_over_inferred_bounds() -> None:
    """What the job measures is told, by the rank that loses most."""
    gpu = snapshots.h100_training()
    gpu = replace(gpu, shares=(replace(gpu.shares[0], data_stall={"client": Bounds(0.5, 0.9)}),))
    rank = snapshots.rank_on_gpu()
    found = row(gpu, rank, replace(rank, rank=1, data_stall_ratio=0.31))
    assert found["stall"] == 0.31
    assert "stall_bounds" not in found
    assert row(gpu)["stall_bounds"] == [0.5, 0.9]


def test_text_from_outside_is_cut() -> None:
    """Four kilobytes of name are not sent to every viewer."""
    long = "x" * 4096
    gpu = snapshots.h100_training()
    holder = gpu.shares[0].holder
    assert holder is not None
    gpu = replace(
        gpu,
        device=replace(gpu.device, name=long),
        shares=(replace(gpu.shares[0], holder=replace(holder, owner=long, command=long)),),
    )
    found = row(gpu, replace(snapshots.rank_on_gpu(), job=long))
    assert len(found["name"]) == 120
    assert found["name"].endswith("…")
    assert len(json.dumps(found)) < 3000
    lost = row(replace(snapshots.lost(), down_reason=long))
    assert len(lost["reason"]) == 120


def test_without_a_gpu_there_is_help() -> None:
    """What is wrong, where GPUs were looked for, and what to do."""
    found = view(snapshots.NO_DRIVER, tried=("driver library: libnvidia-ml.so.1",))
    problem = found["problem"]
    assert "cannot be loaded" in problem["what"]
    assert problem["tried"] == ["driver library: libnvidia-ml.so.1"]
    text = " ".join(problem["do"])
    for word in ("nvidia-smi", "--gpus all", "--nvml.library", "--demo"):
        assert word in text
    assert (found["headline"], found["totals"]) == ("No GPU can be read", "No GPUs")
    assert found["rows"] == {}


def test_without_a_gpu_that_is_up_there_is_other_help() -> None:
    """Rows of lost GPUs stay; what the bus counts is told."""
    found = view(snapshots.EXAMPLES["lost"])
    assert found["problem"]["tried"] == [
        "GPUs counted: 1 on the PCI bus, 1 known to the kernel driver, "
        "1 listed by the driver library (NVML)"
    ]
    assert "Xid" in " ".join(found["problem"]["do"])
    assert found["headline"] == "GPU 0 is lost"


def test_before_the_first_snapshot() -> None:
    """There is a view, without time, rows or a made-up problem."""
    found = view(None)
    assert found["rows"] == {}
    assert not {"timestamp", "problem", "simulated"} & set(found)


def test_a_gpu_that_answers_hardly_anything() -> None:
    """It has a row, and no reading."""
    assert row(snapshots.bare()) == {"gpu": 0, "name": "GPU", "state": "up", "word": "unknown"}
    assert row(replace(snapshots.bare(), shares=()))["word"] == "unknown"
