# SPDX-License-Identifier: Apache-2.0
"""The texts of alerts name whose work it is, for how long, and who else says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rules.cases import (
    BY_UUID,
    CRITICAL,
    EXPORTER,
    GPU,
    HOLDER,
    NODE,
    WARNING,
    busy,
    gauge,
    given,
    held,
    kubelet_reading,
    orphan,
    owned,
    pod,
    wanted,
    workload,
    xid,
)
from tests.rules.promtool import (
    MINUTE,
    STEP_SECONDS,
    Labels,
    Series,
    between,
    inputs,
    piecewise,
    run_suite,
)
from tests.rules.rules import ALERTS, only

UP = gauge("gpu_up", 1)


def text(
    folder: Path,
    alert: str,
    series: Sequence[Series],
    at: float,
    labels: Labels,
    reads: Iterable[str] = (),
    **expected: str,
) -> None:
    """Check texts of an alert; `reads` are recorded series that only a text looks up."""
    rules: Any = json.loads(json.dumps(only([alert, *reads])))
    for rule in rules["groups"][0]["rules"]:
        if "alert" in rule:
            # promtool wants all annotations or none: only these are under test.
            rule["annotations"] = {
                name: re.sub(r"\s*\{\{- with printf `gpu_info.*", "", rule["annotations"][name])
                for name in expected
            }
    group = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": inputs(series, at),
        "alert_rule_test": [
            {
                "alertname": alert,
                "eval_time": f"{int(at)}s",
                "exp_alerts": [{"exp_labels": dict(labels), "exp_annotations": expected}],
            }
        ],
    }
    run_suite(folder, rules, [group])


@pytest.mark.parametrize(
    ("work", "owner", "more"),
    [
        ([], "alice", ""),
        ([pod("team-a/notebook-7")], "team-a/notebook-7", ""),
        ([workload("slurm", job="4711", user="ada")], "ada, job 4711", ""),
        ([pod("b/q"), pod("a/p")], "2 workloads", " Among them: a/p, b/q."),
    ],
    ids=["nobody knows", "a pod", "a job", "two pods"],
)
def test_who_holds_a_gpu_idle(
    work: Sequence[Series], owner: str, more: str, tmp_path: Path
) -> None:
    """In the summary, and at the end of what was observed."""
    rows, at = [UP, *held(1), *work], 40 * MINUTE
    labels = {**BY_UUID, **HOLDER, **owned(owner), **WARNING}
    gpu = "GPU 0 of node-1:19400"
    text(
        tmp_path,
        "GpuHeldIdle",
        rows,
        at,
        labels,
        summary=f"{gpu} is held by {owner} and does nothing.",
        description=f"{gpu} was held and idle for 100 % of what was observed in the last 30m."
        f" It is now held by {owner} (python3).{more}"
        f" Ask {owner} to end or restart the work, or to give the GPU back.",
    )


def test_whose_gpu_nobody_opens(tmp_path: Path) -> None:
    """And for how long; a MIG instance as well as a whole GPU."""
    part = {"gpu_instance": "3"}
    rows = [UP, *given(("team-a/notebook-7", 0, 1e9), labels={**GPU, **part})]
    rows.append(pod("team-b/eval-0", {**GPU, **part}))
    at = 2 * 60 * MINUTE
    labels = {**BY_UUID, **part, "owner": "2 workloads", **WARNING}
    gpu = "GPU 0/3 of node-1:19400"
    text(
        tmp_path,
        "GpuAllocatedUnopened",
        rows,
        at,
        labels,
        summary=f"{gpu} is given to 2 workloads, and no process opens it.",
        description=f"{gpu} is given to 2 workloads, but no process held it for 100 % of what was"
        " observed in the last 30m. Among them: team-a/notebook-7, team-b/eval-0."
        " In the last 24 hours that was 2 h 0 min 30 s in all."
        " See whether the work is still starting, waits for something, or does not need a GPU;"
        " else end it, so that others can have the GPU.",
        reads=["workload:gpu_allocated_unopened_seconds:hours1d"],
    )


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ({}, ""),
        ({"missing": 0, "dead": 0, "unresponsive": 3}, ""),
        (
            {"dead": 1},
            " NCCL calls ranks of a communicator of this node dead (1): begin with them.",
        ),
        (
            {"dead": 2, "missing": 1, "unresponsive": 0},
            " NCCL calls ranks of a communicator of this node dead (2): begin with them."
            " NCCL calls ranks of a communicator of this node missing (1): begin with them.",
        ),
    ],
    ids=["not asked", "all answer or are slow", "a dead rank", "dead and missing ranks"],
)
def test_a_hang_has_a_second_witness(said: Mapping[str, float], more: str, tmp_path: Path) -> None:
    """Where NCCL itself says that ranks are missing or dead; else the text is what it was."""
    rows = [
        *busy(1, 0, 0.001, 0),
        *(
            gauge("gpu_nccl_ras_ranks", count, NODE, communicator="0xabc", state=state)
            for state, count in said.items()
        ),
    ]
    text(
        tmp_path,
        "GpuPossibleCollectiveHang",
        rows,
        20 * MINUTE,
        {**GPU, **WARNING},
        description="GPU 0 of node-1:19400 was busy for 100 % of the last 10m, but did no work and"
        f" moved no data.{more} Look for a rank that died or hangs: check its stack (py-spy dump),"
        " NCCL's log, and Xids on the other GPUs.",
    )


@pytest.mark.parametrize(
    "price",
    [[], [gauge("gpu:gpu_price_per_hour:max", 2.5, currency="EUR")]],
    ids=["no price", "a price"],
)
@pytest.mark.parametrize(
    ("alert", "reads", "rows", "labels", "cost"),
    [
        ("GpuHeldIdle", "holder:gpu_held_idle_seconds:hours1d", held(1), HOLDER, "3.70 EUR"),
        (
            "GpuAllocatedUnopened",
            "workload:gpu_allocated_unopened_seconds:hours1d",
            given(("team-a/eval-0", 0, 1e9)),
            owned("team-a/eval-0"),
            "3.75 EUR",
        ),
    ],
    ids=["held idle", "unopened"],
)
def test_what_an_owner_has_wasted_today(
    alert: str,
    reads: str,
    rows: Sequence[Series],
    labels: Labels,
    cost: str,
    price: Sequence[Series],
    tmp_path: Path,
) -> None:
    """In GPU-hours, and in money only where a price is recorded."""
    text(
        tmp_path,
        alert,
        [UP, *rows, *price],
        90 * MINUTE - 30,
        {**BY_UUID, **labels, **WARNING},
        [reads],
        gpu_hours="1.5",
        cost=cost if price else "",
    )


CAUSES = "https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/causes.md"
OTHER = {**GPU, "gpu": "1", "uuid": "GPU-b"}
LIMITED = [gauge("gpu_power_limit_watts", 238.4), gauge("gpu_power_default_limit_watts", 700)]


@pytest.mark.parametrize(
    ("shown", "more"),
    [
        ([], ""),
        (
            [(GPU, "power_capped")],
            f" The GPU shows the cause power_capped ({CAUSES}#power_capped).",
        ),
        (
            [(GPU, "power_capped"), (GPU, "fail_slow_gpu")],
            f" The GPU shows the cause fail_slow_gpu ({CAUSES}#fail_slow_gpu)."
            f" The GPU shows the cause power_capped ({CAUSES}#power_capped).",
        ),
        ([(OTHER, "power_capped"), ({**GPU, "instance": "node-2:19400"}, "thermal")], ""),
    ],
    ids=["none", "one", "two", "of others"],
)
def test_a_text_names_the_causes_of_its_gpu(
    shown: Sequence[tuple[Labels, str]], more: str, tmp_path: Path
) -> None:
    """With where to read what to change; without any, the text is what it was."""
    rows = [*LIMITED, *(gauge("gpu_diagnosis", 1, on, cause=cause) for on, cause in shown)]
    text(
        tmp_path,
        "GpuPowerLimitLowered",
        rows,
        16 * MINUTE,
        {**GPU, "severity": "info"},
        description="The power limit in force on GPU 0 of node-1:19400 is 34 % of its default."
        f"{more} If this is not intended, set it back (nvidia-smi -pl), and find out what lowered"
        " it.",
    )


@pytest.mark.parametrize(("owner", "named"), [("alice", True), ("bob", False)])
def test_a_held_gpu_names_the_sibling_that_works(owner: str, named: bool, tmp_path: Path) -> None:
    """A GPU of the same owner that shows `idle_sibling`; nobody else's."""
    rows = [
        UP,
        *held(1),
        gauge("gpu_diagnosis", 1, OTHER, cause="idle_sibling"),
        gauge("gpu_holder_info", 1, OTHER, owner=owner, command="python3"),
    ]
    gpu = "GPU 0 of node-1:19400"
    more = (
        " GPU 1 of this owner works meanwhile, and shows the cause idle_sibling"
        f" ({CAUSES}#idle_sibling)."
    )
    text(
        tmp_path,
        "GpuHeldIdle",
        rows,
        40 * MINUTE,
        {**BY_UUID, **HOLDER, **WARNING},
        description=f"{gpu} was held and idle for 100 % of what was observed in the last 30m."
        f" It is now held by alice (python3).{more if named else ''}"
        " Ask alice to end or restart the work, or to give the GPU back.",
    )


@pytest.mark.parametrize(
    "alert",
    ["GpuDataStallHigh", "GpuCheckpointOverhead", "GpuStragglerRank", "GpuThermalThrottling"],
)
def test_alerts_about_slowness_name_causes(alert: str) -> None:
    """By one series of one GPU; never a scan of the fleet."""
    (rule,) = only([alert])["groups"][0]["rules"][-1:]
    queries = re.findall(r"gpu_diagnosis\{([^}]*)\}", rule["annotations"]["description"])
    assert queries == ["instance=%q, uuid=%q, gpu_instance=%q"]


SERIES = re.compile(r"(?<![\w:])(?:gpu|holder|workload|owner)(?:_|:)[\w:]+(?![\w:{])")
GROUPED = {"gpu_instance"}


def test_texts_look_up_one_node_alone() -> None:
    """Each series that a text asks for is of the alert's instance: one without matchers would be
    read for the whole fleet, for each alert that fires."""
    for rules in ALERTS.values():
        for rule in rules:
            for text_of in rule["annotations"].values():
                for query in re.findall(r"printf `([^`]*[{(][^`]*)`", text_of):
                    whole = set(SERIES.findall(query)) - GROUPED
                    assert not whole, (rule["alert"], whole)


@pytest.mark.parametrize(("name", "held_by"), [("H100", "ada"), ("", "")], ids=["known", "not"])
@pytest.mark.parametrize("alert", ["GpuLost", "GpuXidCritical"])
def test_which_board_it_is_and_whose_work_it_was(
    alert: str, name: str, held_by: str, tmp_path: Path
) -> None:
    """Who is called at night fetches the board by its serial, and asks whose job it was."""
    there = between(0, 600, lambda _: 1.0)
    said = [
        gauge("gpu_info", there, name=name, serial="1320000000000"),
        gauge("gpu_holder_info", there, **HOLDER, command="python3"),
        pod("team-a/train-0", GPU, (0, 600)),
    ]
    rows = [
        gauge("gpu_up", piecewise((0, 1), (600, 0))),
        *(said if name else []),
        *(xid(79, 600) if alert == "GpuXidCritical" else []),
    ]
    at = 13 * MINUTE
    board = (
        " The board is H100, serial 1320000000000. Its work is or was of team-a/train-0."
        if name
        else ""
    )
    what, labels = {
        "GpuLost": (
            "GPU 0 (GPU-a) of node-1:19400 does not answer the driver. Drain the node, look for"
            " Xids in the kernel log (dmesg), and restart it; if the GPU stays away, check power"
            " and seating.",
            {**GPU, **CRITICAL},
        ),
        "GpuXidCritical": (
            "Xid 79 on GPU 0 of node-1:19400 3 min 0 s ago: the GPU has fallen off the bus; drain"
            " and restart the node; check power, temperature and seating if it comes back."
            " The GPU does not answer the driver any more.",
            {**GPU, "xid": "79", **CRITICAL},
        ),
    }[alert]
    reads = ["gpu:gpu_holder:info"]
    text(tmp_path, alert, rows, at, labels, reads, description=what + board)


UNREAD = (
    "The exporter's log has the reason: a socket that is not mounted with its directory, or one"
    " that it may not open."
)


@pytest.mark.parametrize(
    ("alert", "rows", "at", "labels", "expected"),
    [
        (
            "GpuOrphanMemory",
            orphan(12_345_678_901),
            16 * MINUTE,
            {**GPU, **WARNING},
            "11.5 GiB are in use on GPU 0 of node-1:19400 without any process in the driver's list."
            " Look for processes that have /dev/nvidia0 open (fuser -v), such as data loader"
            " workers of a job that died, and end them. If there are none, reset the GPU.",
        ),
        (
            "GpuXidWarning",
            xid(94, 300.75),
            357.0,
            {**GPU, "xid": "94", **WARNING},
            "Xid 94 on GPU 0 of node-1:19400 29 s ago: uncorrectable memory error, contained to one"
            " application; restart that application; reset the GPU when its other work is done.",
        ),
        (
            "GpuWorkloadsStale",
            kubelet_reading(700.0, up=0),
            15 * MINUTE,
            {**NODE, "source": "kubernetes", **WARNING},
            "The kubelet of node-1:19400 could last be read 11 min 40 s ago: owners are those of"
            f" that time. {UNREAD}",
        ),
        (
            "GpuWorkloadsStale",
            kubelet_reading(None, up=0),
            15 * MINUTE,
            {**NODE, "source": "kubernetes", **WARNING},
            "The kubelet of node-1:19400 could not be read since the exporter started: owners are"
            f" what the processes alone show. {UNREAD}",
        ),
        (
            "GpuRemapBanksExhausted",
            [gauge("gpu_row_remap_banks", 1, availability="none")],
            10 * MINUTE,
            {**GPU, "availability": "none", **WARNING},
            "The memory of GPU 0 of node-1:19400 has 1 bank without a spare row: the next fault"
            " there cannot be repaired. Plan to replace the board.",
        ),
        (
            "GpuRemapBanksExhausted",
            [gauge("gpu_row_remap_banks", 2, availability="none")],
            10 * MINUTE,
            {**GPU, "availability": "none", **WARNING},
            "The memory of GPU 0 of node-1:19400 has 2 banks without a spare row: the next fault"
            " there cannot be repaired. Plan to replace the board.",
        ),
    ],
    ids=["bytes", "seconds", "minutes", "not known", "one", "several"],
)
def test_numbers_are_rounded(
    alert: str,
    rows: Sequence[Series],
    at: float,
    labels: Labels,
    expected: str,
    tmp_path: Path,
) -> None:
    """As a person would say them."""
    text(tmp_path, alert, rows, at, labels, description=expected)


@pytest.mark.parametrize(("missing", "nodes"), [(1, "1 node"), (2, "2 nodes")])
def test_missing_exporters_are_counted(missing: int, nodes: str, tmp_path: Path) -> None:
    """In the summary: there is no node to name."""
    said = f"No GPU exporter is scraped on {nodes} of Kubernetes that should have one."
    rows = [wanted(1 + missing), EXPORTER]
    text(tmp_path, "GpuExporterMissing", rows, 10 * MINUTE, WARNING, summary=said)
