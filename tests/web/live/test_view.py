# SPDX-License-Identifier: Apache-2.0
"""The live view says in short what the snapshot says, and nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from exporter.cli.status import render
from exporter.model.reading import XidRecord
from exporter.model.snapshot import Bounds, Gpu, Rank, Recent, Snapshot, SourceState
from exporter.web.columns import likely_range, readings
from exporter.web.live.rows import values_of
from exporter.web.live.view import NodeView, node_view
from exporter.web.wording.facts import WIDEST_BAND_RATIO
from tests import snapshots


def view(snapshot: Snapshot | None) -> NodeView:
    return node_view(snapshot, sequence=7, interval_seconds=1.0)


def row(gpu: Gpu, *ranks: Rank) -> dict[str, Any]:
    """The first row of a node with this GPU, its numbers by column."""
    node = snapshots.with_training(snapshots.snapshot(gpu), *ranks)
    [first, *_] = view(node)["rows"].values()
    return {**first, "values": values_of(first)}


def shared(gpu: Gpu, **changes: Any) -> Gpu:
    """The GPU with another share."""
    return replace(gpu, shares=(replace(gpu.shares[0], **changes),))


def test_a_lost_gpu_keeps_its_roof() -> None:
    """It keeps its own ceilings; a GPU with MIG on has none."""
    t4 = snapshots.t4_estimate(1)
    gone = replace(t4, up=False, down_reason="lost", shares=())
    found = view(snapshots.snapshot(snapshots.h100_training(0), gone))
    assert found["rows"][t4.device.uuid]["ceilings"] == "t4/fp16_tensor"
    assert set(found["roofs"]) == {"h100-sxm5-80gb/bf16_tensor", "t4/fp16_tensor"}
    divided = replace(snapshots.h100_mig(0), up=False, shares=())
    assert "ceilings" not in row(divided)


def test_the_line_of_the_assumed_precision_has_its_figures() -> None:
    """Where several nearly equal peaks are one line, it lies where tensor work is counted."""
    share = snapshots.h100_training().shares[0]
    assert share.ceilings is not None
    peaks = {"fp16_tensor": 100e12, "bf16_tensor": 99.5e12, "fp32": 98e12}
    ceilings = replace(share.ceilings, peak_flops_per_second=peaks, achievable_ratio={})
    gpu = replace(snapshots.h100_training(), shares=(replace(share, ceilings=ceilings),))
    [roof] = view(snapshots.snapshot(gpu))["roofs"].values()
    assert [(line["name"], line["peak"]) for line in roof["lines"]] == [
        ("FP16/BF16 tensor", [99.5e12]),
        ("FP32", [98e12]),
    ]


def test_derived_roofs_differ() -> None:
    """Two unlisted GPU models do not share one set of ceilings."""
    gpus = []
    for index, peak in enumerate((1e12, 2e12)):
        gpu = snapshots.t4_estimate(index)
        ceilings = gpu.shares[0].ceilings
        assert ceilings is not None
        ceilings = replace(ceilings, spec="derived", peak_flops_per_second={"fp32": peak})
        gpus.append(replace(gpu, shares=(replace(gpu.shares[0], ceilings=ceilings),)))
    assert len(view(snapshots.snapshot(*gpus))["roofs"]) == 2


def test_measured_stall_wins_over_inferred_bounds() -> None:
    """The measured stall of the worst rank is shown."""
    gpu = snapshots.h100_starved()
    gpu = replace(gpu, shares=(replace(gpu.shares[0], data_stall={"client": Bounds(0.25, 0.35)}),))
    rank = snapshots.rank_on_gpu()
    found = row(gpu, rank, replace(rank, rank=1, data_stall_ratio=0.31))
    assert found["values"]["stall"] == 0.31
    assert not {"stall_lower", "stall_upper"} & set(found["values"])
    assert found["words"]["stall"] == "31 %"
    assert row(gpu)["words"]["stall"] == "25 to 35 %"


def test_text_from_outside_is_cut() -> None:
    """A name of 4 kB is not sent to every viewer."""
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
    assert found["words"]["name"] == "x" * 59 + "…"
    assert len(json.dumps(found)) < 2000
    lost = row(replace(snapshots.lost(), down_reason=long))
    assert len(lost["words"]["reason"]) == 120
    problem = view(replace(snapshots.NO_DRIVER, problem=long))["problem"]
    assert len(problem) == 120


def waiting(idle_seconds: float, since: float, **changes: Any) -> dict[str, Any]:
    """Return the row of a held GPU whose job reported long ago that it waits for data."""
    idle = shared(
        snapshots.h100_idle(),
        held=True,
        totals=replace(snapshots.h100_idle().shares[0].totals, idle_for_seconds=idle_seconds),
    )
    rank = replace(
        snapshots.rank_on_gpu(),
        phase="data",
        last_report_timestamp_seconds=snapshots.NOW - since,
        **changes,
    )
    return row(idle, rank)


def test_a_gpu_in_its_data_wait_is_starved() -> None:
    """Also while its job says nothing, because the wait goes on; and never called held idle."""
    silent = waiting(45.0, 45.2, data_stall_ratio=None, data_wait_ratio=None)
    assert (silent["words"]["word"], silent["words"]["level"]) == ("starved", "high")
    assert silent["words"]["stall"] == "100 %"
    begun = waiting(4.0, 4.5, data_stall_ratio=0.0)
    assert (begun["words"]["word"], begun["words"]["stall"]) == ("starved", "40 %")
    assert begun["values"]["stall"] == 0.4
    # The loader keeps up: the wait has only just begun, or another one is not believed.
    assert waiting(0.2, 0.1, data_stall_ratio=0.01)["words"]["word"] != "starved"
    assert waiting(45.0, 45.2, verified=False)["words"]["word"] == "held idle"
    assert waiting(45.0, 45.2, processes=0)["words"]["word"] == "held idle"


@pytest.mark.parametrize("up", [True, False])
def test_a_critical_xid_is_explained_for_an_hour(up: bool) -> None:
    """Whatever the GPU does, and whatever harmless Xid follows."""
    for age, explained in ((3599.0, True), (3601.0, False)):
        xids = {95: XidRecord(1, snapshots.NOW - age), 31: XidRecord(1, snapshots.NOW - 5)}
        gpu = replace(snapshots.h100_training(), xids=xids)
        if not up:
            gpu = replace(snapshots.lost(), xids=xids)
        note = row(gpu)["words"]["note"]
        if explained:
            assert note.startswith(
                "Xid 95, 59 min ago: uncorrectable memory error, not contained; end all work on "
                "the GPU and reset it"
            )
        else:
            assert note.startswith("Xid 31, 5 s ago")
            assert "not contained" not in note


def test_the_order_of_trouble() -> None:
    """Lost, then starved or with a critical Xid of the last hour, then the other states."""
    critical = {95: XidRecord(1, snapshots.NOW - 5)}
    busy, idle = snapshots.h100_training(), snapshots.h100_idle()
    stall = {"client": Bounds(0.4, 0.4)}
    places = [
        row(each)["trouble"]
        for each in (
            replace(snapshots.lost(), xids=critical),
            replace(busy, xids=critical),
            shared(snapshots.h100_starved(), data_stall=stall),
            shared(idle, held=True),
            busy,
        )
    ]
    assert places == [0, 1, 1, 2, 6]
    assert row(idle)["trouble"] == 6


@pytest.mark.parametrize("lost", [1, 11])
def test_the_row_that_the_headline_is_about(lost: int) -> None:
    """GPU 11 is not GPU 1; a sentence about several that names none is about no row."""
    gpus = [snapshots.h100_training(index) for index in range(12)]
    gpus[lost] = replace(snapshots.lost(lost), device=gpus[lost].device)
    found = view(snapshots.snapshot(*gpus))
    assert found["headline"] == f"GPU {lost} is lost"
    assert found["about"] == gpus[lost].device.uuid
    assert "about" not in view(snapshots.snapshot(snapshots.bare(0), snapshots.bare(1)))


@pytest.mark.parametrize(
    ("device", "instance", "also", "said"),
    [
        (
            {"mig": True},
            1,
            {},
            "Not measured: run dcgm-exporter on this node, which measures MIG instances and is "
            "read by itself.",
        ),
        (
            {"virtualized": True, "modes": {"virtualization": "vgpu_guest"}},
            None,
            {"dcgm": "unreachable"},
            "Not measured: nothing that runs all the time measures a vGPU from its guest.",
        ),
    ],
)
def test_what_nothing_counts_or_bounds(
    device: dict[str, Any], instance: int | None, also: dict[str, str], said: str
) -> None:
    """Instances and vGPUs have no bounds either, once it is known that they lack counters."""
    gpu = snapshots.t4_estimate()
    (share,) = gpu.shares
    bare = replace(share, gpu_instance=instance, saturation=None, roofline=None, recent=None)
    gpu = replace(
        gpu,
        device=replace(gpu.device, **device),
        shares=(bare,),
        states={"gpm": "unsupported", "utilization": "mig"} | also,
    )
    found = view(snapshots.snapshot(gpu))["rows"]
    assert [said] == [
        one["words"]["measure"] for one in found.values() if "measure" in one["words"]
    ]
    unread = view(snapshots.snapshot(replace(gpu, states={})))["rows"]
    assert all("measure" not in one["words"] for one in unread.values())


def test_the_saturation_by_old_counters_is_shown() -> None:
    """The means of the last 10 s are without counters then."""
    gpu = snapshots.h100_training()
    share = gpu.shares[0]
    assert share.activity is not None
    assert share.recent is not None
    assert share.saturation is not None
    old = replace(share.activity, age_seconds=20.0)
    recent = replace(share.recent, saturation_ratio=None, saturation_bounds=Bounds(0.0, 0.51))

    one = shared(gpu, activity=old, recent=recent)
    found = readings(one, one.shares[0], (), 0.0)

    assert found["saturation_lower"] == found["saturation_upper"] == share.saturation.ratio


@pytest.mark.usefixtures("installed_by_pip")
def test_the_node_says_once_what_would_measure_several_gpus() -> None:
    """Equal sentences are merged; measured, divided and lost GPUs have none."""
    gpus = [snapshots.t4_estimate(index) for index in range(6)]
    found = view(snapshots.snapshot(*gpus, snapshots.h100_training(6), snapshots.lost(7)))
    said = found["measure"]
    assert said.startswith("GPU 0, GPU 1, GPU 2, GPU 3 and 2 more: not measured: ")
    assert said.count("pip install") == 1
    assert "GPU 6" not in said
    assert "GPU 7" not in said
    assert "measure" not in view(snapshots.snapshot(snapshots.h100_training()))


def test_a_scheduler_that_cannot_be_read_is_named() -> None:
    """The workloads may be old then. Each thing that is said has a line of its own."""
    node = snapshots.snapshot(snapshots.t4_estimate())
    assert "cannot be read" not in view(node)["measure"]
    kubelet = SourceState(up=False, failures_total=9, age_seconds=720.0)
    said = view(replace(node, sources={**node.sources, "kubernetes": kubelet}))["measure"]
    assert said.splitlines()[1:] == ["Kubernetes cannot be read: what was known 12 min ago stays."]


# A GPU whose compute units nothing measures: what is certain comes first


def bounded(lower: float, upper: float, dram: float | None = 0.3) -> Gpu:
    """A T4 whose saturation is between these bounds."""
    gpu = snapshots.t4_estimate()
    (share,) = gpu.shares
    assert share.saturation is not None
    bounds = Bounds(lower, upper)
    recent = Recent(
        seconds=10.0,
        utilization_ratio=0.97,
        saturation_bounds=bounds,
        estimates={} if dram is None else {"dram": dram},
    )
    saturation = replace(share.saturation, bounds=bounds)
    return shared(gpu, recent=recent, saturation=saturation)


@pytest.mark.parametrize(
    ("lower", "upper", "known"),
    [
        (0.0, 0.99, False),
        (0.05, 0.951, False),
        (0.0, WIDEST_BAND_RATIO, True),
        (0.1, 1.0, True),
        (0.3, 0.99, True),
    ],
)
def test_a_band_wider_than_nine_tenths_is_not_known(
    lower: float, upper: float, known: bool
) -> None:
    """In the columns of page and history, in the row's words and bar, and in `status`."""
    gpu = bounded(lower, upper)
    snapshot = snapshots.snapshot(gpu)
    found = readings(gpu, gpu.shares[0], (), snapshot.timestamp_seconds)
    (saturation,) = (each for each in render.COLUMNS if each.header == "SAT")
    cell = saturation.cell(render.view(snapshot).gpus[0]).text
    shown = row(gpu)

    assert ("saturation_lower" in found, "saturation_upper" in found) == (known, known)
    assert ("saturation_upper" in shown["values"]) is known
    assert ("saturation not known" in shown["words"]["saturated"]) is not known
    assert (cell == "not known") is not known
    assert ("to 99 %" in json.dumps(view(snapshot))) is (known and upper == 0.99)


@pytest.mark.parametrize("dram", [0.375, None])
def test_the_headline_and_the_row_have_one_range_of_memory(dram: float | None) -> None:
    """The likely range around its estimate; nothing of memory without an estimate."""
    gpu = bounded(0.0, 0.99, dram)
    headline = view(snapshots.snapshot(gpu))["headline"]
    range_ = likely_range(dram or 0.0)
    said = f", memory {100 * range_.lower:.0f} to {100 * range_.upper:.0f} % busy" if dram else ""

    assert f"97 % used{said}, " in headline
    assert headline.endswith("; what its compute units do is not measured")
    assert row(gpu)["words"]["saturated"] == f"saturation not known{said}"
