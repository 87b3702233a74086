# SPDX-License-Identifier: Apache-2.0
"""A page under DCGM's names has what dcgm-exporter has of these readings, and invents nothing."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition.dcgm import NAMES, Names
from exporter.exposition.dcgm.fields import FIELDS
from exporter.exposition.dcgm.page import DcgmPage
from exporter.model.dcgm import MADE_HERE
from exporter.model.reading import THROTTLE_REASONS, XidRecord
from exporter.model.snapshot import Gpu, Snapshot
from exporter.model.workload import ShareWork, Workload
from exporter.sources.dcgm.page import NotDcgm, parse
from tests import snapshots
from tests.conftest import require_tool

TESTS = Path(__file__).parents[2]
GOLDEN: Mapping[str, Path] = {
    names: TESTS / "golden" / f"dcgm_{names}.txt" for names in ("legacy", "current")
}
FACTS = list(
    csv.DictReader(
        (TESTS / "data" / "dcgm_exporter" / "fields.csv").read_text(encoding="utf-8").splitlines()
    )
)
BOTH = pytest.mark.parametrize("names", NAMES)
WRITTEN = {"int": re.compile(r"\d+"), "float": re.compile(r"\d+\.\d{6}")}

THROTTLED = (*THROTTLE_REASONS, "thermal", "low_utilization")


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: float


def rendered(snapshot: Snapshot | None, names: Names = "legacy", hostname: str = "node-1") -> str:
    return DcgmPage(names, hostname).render(snapshot).decode()


def samples(text: str) -> list[Sample]:
    return [
        # The parser gives every counter the end that OpenMetrics wants.
        Sample(sample.name.removesuffix("_total"), sample.labels, float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def rows(text: str, name: str) -> list[Sample]:
    return [sample for sample in samples(text) if sample.name == name]


def with_work(gpu: Gpu, *workloads: Workload) -> Gpu:
    """Give the whole GPU to these."""
    work = ShareWork(workloads, allocated=True)
    return replace(gpu, shares=tuple(replace(share, work=work) for share in gpu.shares))


NODE = snapshots.with_pods(
    snapshots.snapshot(
        with_work(snapshots.h100_training(0), snapshots.SIDE_POD, snapshots.TRAIN_POD),
        with_work(snapshots.t4_estimate(1), snapshots.BATCH_JOB, snapshots.TRAIN_POD),
        snapshots.h100_mig(2),
        snapshots.lost(3),
        replace(
            snapshots.h100_idle(4),
            vitals=replace(snapshots.H100_VITALS, throttle_seconds=dict.fromkeys(THROTTLED, 1.5)),
        ),
    )
)
"""A shared GPU, one of a pod's and a job's at once, one with MIG, a lost one, and nobody's."""


@BOTH
def test_golden_page(names: Names) -> None:
    """The page of one snapshot is, byte for byte, the one that was reviewed.

    UPDATE_GOLDEN=1 writes it anew.
    """
    text = rendered(NODE, names)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN[names].write_text(text, encoding="utf-8")
    assert text == GOLDEN[names].read_text(encoding="utf-8")


@BOTH
def test_promtool_reads_every_example(names: Names) -> None:
    """The parser of Prometheus itself; its advice on names is for whoever chose them."""
    promtool = require_tool("promtool")
    for snapshot in (NODE, *snapshots.EXAMPLES.values()):
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=rendered(snapshot, names).encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"error while linting" not in checked.stderr, checked.stderr
        assert checked.returncode in (0, 3), checked.stderr


@BOTH
def test_names_types_and_units_are_those_of_dcgm_exporter(names: Names) -> None:
    """By the facts that were written down: every metric that is served, and none that is not."""
    found = {field.form(names).name: field for field in FIELDS}
    served = [row for row in FACTS if row["served"] == "yes"]

    assert len(found) == len(FIELDS)
    assert sorted(found) == sorted(row[names] for row in served)
    for row in served:
        field = found[row[names]]
        form = field.form(names)
        assert str(field.number or "") == row["number"], row
        assert (field.listed, form.kind) == (row["list"], row["type"]), row
        assert form.unit.name == row[f"{names} unit"], row
        assert WRITTEN[row[f"{names} written"]].fullmatch(form.unit.write(1234.0625)), row


@BOTH
def test_the_page_says_so(names: Names) -> None:
    """Every metric that is served is on the page of some example, with its type, once."""
    text = "\n".join(rendered(snapshot, names) for snapshot in (NODE, *snapshots.EXAMPLES.values()))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))

    assert kinds == {row[names]: row["type"] for row in FACTS if row["served"] == "yes"}
    page = rendered(NODE, names)
    assert len(set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))) == page.count("# TYPE ")


def test_labels_that_are_not_known_are_not_there() -> None:
    """No host's name and no driver's version: no labels of them."""
    text = rendered(snapshots.snapshot(snapshots.bare(0)), hostname="")
    (sample,) = samples(text)
    assert sample.labels.keys() == {
        *("gpu", "UUID", "pci_bus_id", "device", "modelName", "err_code", "err_msg")
    }


@BOTH
def test_mig_is_whole_or_part(names: Names) -> None:
    """What adds up is there once, of nobody; what is an instance's, or holds for each, for them."""
    node = snapshots.with_pods(snapshots.snapshot(snapshots.h100_mig(0)))
    scopes: dict[str, set[str]] = {}
    for sample in samples(rendered(node, names)):
        scope = sample.labels.get("GPU_I_ID", "board")
        scopes.setdefault(sample.name, set()).add(scope)
        owned = {"pod", "hpc_job"} & sample.labels.keys()
        assert owned == {"board": set(), "1": {"pod"}, "2": {"hpc_job"}}[scope]
    by_number = {field.number: scopes.get(field.form(names).name) for field in FIELDS}

    for board in (155, 156, 202, 230, 240, 310, 393, 395, 409):
        assert by_number[board] == {"board"}, board
    for each in (100, 101, 140, 150, 158, 159):
        assert by_number[each] == {"1", "2"}, each
    for part in (251, 252, 253, 1001, 1002, 1004, 1005, 1016):
        assert by_number[part] == {"1"}, part
    for unknown in (203, 204, 206, 207, 449, 1009, 1010, 1011, 1012):
        assert by_number[unknown] is None, unknown


@BOTH
def test_an_estimate_is_no_measurement(names: Names) -> None:
    """A GPU without counters has no profiling row, and an unknown reading no row at all."""
    text = rendered(snapshots.snapshot(snapshots.t4_estimate(0)), names)
    found = {sample.name for sample in samples(text)}

    assert not [name for name in found if name.startswith("DCGM_FI_PROF_")]
    assert {field.number for field in FIELDS if field.form(names).name in found} == {
        *(100, 101, 150, 155, 164, 203, 204, 230, 250, 251, 252, 254),
        *(310, 311, 312, 313, 390, 391, 392),
    }


@pytest.mark.parametrize(
    ("xids", "expected"),
    [
        ({}, ("0", "No Error", 0)),
        ({48: 5.0}, ("48", "uncorrectable ECC error", 48)),
        ({79: 5.0, 31: 7.0}, ("31", "memory access to a page that is not mapped", 31)),
        ({79: 7.0, 31: 7.0}, ("79", "the GPU has fallen off the bus", 79)),
        ({999: 5.0}, ("999", "Unknown Error", 999)),
    ],
)
def test_the_last_xid(xids: dict[int, float], expected: tuple[Any, ...]) -> None:
    """Its number, and what it means in our words; 0 before the first."""
    records = {code: XidRecord(1, at) for code, at in xids.items()}
    gpu = replace(snapshots.h100_idle(0), xids=records)
    (row,) = rows(rendered(snapshots.snapshot(gpu)), "DCGM_FI_DEV_XID_ERRORS")
    assert (row.labels["err_code"], row.labels["err_msg"], row.value) == expected


@pytest.mark.parametrize(
    ("source", "said"), [("nvml", False), ("simulate", True), ("replay", True)]
)
def test_what_is_not_real_says_so(source: str, said: bool) -> None:
    """A simulated or replayed node is marked at the top."""
    gpu = snapshots.h100_idle(0)
    gpu = replace(gpu, device=replace(gpu.device, source=source))
    text = rendered(snapshots.snapshot(gpu))
    heading = [line for line in text.splitlines() if line.startswith("# ")][:3]

    assert heading[0] == MADE_HERE
    assert ("no number here is of" in heading[2]) is said


@BOTH
def test_our_dcgm_source_refuses_it(names: Names) -> None:
    """What we make of readings must not come back as a reading, of this node or of another."""
    for snapshot in (NODE, *snapshots.EXAMPLES.values()):
        with pytest.raises(NotDcgm, match=r"made by a roofline-exporter, not by DCGM"):
            parse(rendered(snapshot, names))


@BOTH
def test_without_its_first_line_it_is_a_page_of_dcgm(names: Names) -> None:
    """Our reader of dcgm-exporter's pages reads back the counters of the snapshot."""
    text = rendered(snapshots.snapshot(snapshots.h100_training(0)), names)
    (found,) = parse(text.replace(MADE_HERE, "")).values()
    activity = found.activities[None]
    own = snapshots.TRAINING_ACTIVITY
    for ratio in ("engine", "sm", "occupancy", "dram", "tensor", "fp32", "fp16", "integer", "hmma"):
        assert getattr(activity, ratio) == pytest.approx(getattr(own, ratio), abs=1e-6), ratio
    for rate in ("pcie_transmit_bytes", "nvlink_receive_bytes"):
        assert getattr(activity, rate) == pytest.approx(getattr(own, rate) / own.seconds), rate


def test_lines_follow_the_values_and_the_work() -> None:
    """What is remembered of the last snapshot never outlives it."""
    page = DcgmPage("legacy", "node-1")
    busy = snapshots.h100_training(0)
    for gpu in (
        busy,
        with_work(busy, snapshots.TRAIN_POD),
        with_work(snapshots.h100_idle(0), snapshots.SIDE_POD),
        snapshots.h100_mig(0),
        snapshots.lost(0),
        busy,
    ):
        node = snapshots.with_pods(snapshots.snapshot(gpu))
        assert page.render(node) == DcgmPage("legacy", "node-1").render(node)
    assert page.render(snapshots.snapshot()) == DcgmPage("legacy", "node-1").render(None)


def test_pods_that_share_a_gpu_are_one_row() -> None:
    """The first by namespace, name and container, so that no series changes hands by chance."""
    node = snapshots.snapshot(
        with_work(
            snapshots.h100_training(0),
            snapshots.BATCH_JOB,
            *(Workload("kubernetes", "", "", "", id="unknown"), snapshots.SIDE_POD),
            snapshots.TRAIN_POD,
        )
    )
    found = rows(rendered(node), "DCGM_FI_DEV_GPU_UTIL")
    assert [(row.labels["pod"], row.labels["hpc_job"]) for row in found] == [("notebook-7", "4711")]


def test_pod_labels_take_no_label_that_is_there() -> None:
    """A label of a pod that comes out as one of dcgm-exporter's own, or as another, is left out."""
    labels = {
        "gpu": "9",
        "pod": "x",
        "xid": "1",
        "a.b": "1",
        "a/b": "2",
        "__name__": "up",
        "9": "n",
        "größe": "l",
        "": "nameless",
    }
    node = replace(
        snapshots.snapshot(with_work(snapshots.h100_training(0), snapshots.TRAIN_POD)),
        pod_labels={"team-a/train-0": labels},
    )
    (row,) = rows(rendered(node), "DCGM_FI_DEV_GPU_UTIL")

    assert row.labels["gpu"] == "0"
    assert row.labels["pod"] == "train-0"
    assert row.labels["a_b"] == "1"
    assert row.labels["_9"] == "n"
    assert row.labels["gr__e"] == "l"
    assert "nameless" not in row.labels.values()
    assert "xid" not in row.labels
    assert not [name for name in row.labels if name.startswith("__")]


@given(
    text=st.text(max_size=20),
    labels=st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=6),
)
def test_whatever_a_pod_is_called(text: str, labels: dict[str, str]) -> None:
    """The parser reads every sample back; no name or label breaks out of its quotes."""
    workload = Workload("kubernetes", "ns" + text, "pod" + text, "c" + text)
    node = replace(
        snapshots.snapshot(with_work(snapshots.h100_training(0), workload)),
        pod_labels={f"ns{text}/pod{text}": labels},
    )
    plain = snapshots.snapshot(with_work(snapshots.h100_training(0), snapshots.TRAIN_POD))
    found = samples(rendered(node))

    assert len(found) == len(samples(rendered(plain)))
    safe = text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert {row.labels["pod"] for row in found if row.name == "DCGM_FI_DEV_GPU_UTIL"} == {
        "pod" + safe
    }
    for row in found:
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in row.labels)
