# SPDX-License-Identifier: Apache-2.0
"""A unit that is no longer read is nowhere 0: page, words, rules and panels are absent or true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dashboards import promql
from dashboards.roofline_chart import INTENSITY
from exporter.cli.status.render import view
from exporter.exposition.catalogue import CATALOGUE
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.fleet import session
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.interface import CUPTI
from exporter.sources.nvml import GPM
from exporter.sources.nvml.gpm import CYCLES, PERCENTS
from exporter.sources.table import COUNTER_SOURCES
from exporter.specs import load_specs
from exporter.web.wording.state import state
from tests.rules.promtool import STEP_SECONDS, Expected, Series, check
from tests.rules.rules import RECORDED
from tests.rules.scrapes import Scrapes
from tests.sources.conftest import Rig, _only_gpm, _open_gpu, pid_namespace  # noqa: F401
from tests.sources.dcgm.nodes import OneGpu

Open = Callable[..., Rig]
POLL_SECONDS = 5
POLLS = STEP_SECONDS // POLL_SECONDS
WORK = {
    "graphics": 90, "sm": 80, "occupancy": 40, "int": 20, "tensor": 30, "hmma": 20, "imma": 0,
    "dmma": 10, "dfma": 10, "dram": 60, "fp64": 15, "fp32": 25, "fp16": 5,
}  # fmt: skip

CUPTI_WORK = {
    "engine": 0.9, "sm": 0.8, "occupancy": 0.4, "integer": 0.2, "tensor": 0.3, "hmma": 0.2,
    "imma": 0.0, "dmma": 0.1, "dram": 0.6, "fp64": 0.15, "fp32": 0.25, "fp16": 0.05,
}  # fmt: skip
CUPTI_FIELDS = list(CUPTI_WORK)
QUIET = {"idle", "free", "held idle", "often idle"}
COUNTED = re.compile(
    "(gpu|node|job):gpu_(busy|saturation|engine|sm|dram|pipe|time:ratio|flops|roof|idle|held_idle)"
    "(?!.*(lower|upper|:hours|:increase|_watts:))(?<!node:gpu_busy)(?<!node:gpu_saturation)"
)
"""Of bounds, less is known while less is read, and what is added up is not the same time; the sums
of a node are divided by those of the time that belongs to them."""
OF_NODES = {
    "utilization of nodes": "node:gpu_busy:sum_rate5m / node:gpu_observed:sum_rate5m",
    "saturation of nodes": (
        "node:gpu_saturation:sum_rate5m / sum without (part) (node:gpu_time:sum_rate5m)"
    ),
}
RULES = [name for name in RECORDED if COUNTED.match(name)]
RECORDED_THERE = {*RULES, *re.findall(r"node:[\w:]+", " ".join(OF_NODES.values()))}
SCRAPED = [
    name
    for name in CATALOGUE
    if re.search(
        "(_active_seconds|flops|dram_bytes|roof_seconds|idle_seconds|busy_seconds)_total", name
    )
    or re.fullmatch("gpu_(saturation|time|limited|observed)_seconds_total|gpu_energy.*", name)
    or name in ("gpu_held", "gpu_saturation_source_info")
]
TOLERANCE = 0.03


class Node(OneGpu):
    """A fake driver's GPU, with a child or GPM, through to the page."""

    def __init__(self, rig: Rig, source: str) -> None:
        self.rig, self._source = rig, source
        self.blank: int | None = None
        self._child = ChildCounters(CUPTI, {}, rig, patience_seconds=0.0)
        self.session = session.Session(
            rig.handle,
            0,
            SessionOptions(counters=(source,)),
            rig,
            rig.past,
            lambda: None,
            lambda seconds: None,
            node={CUPTI: self._child} if source == CUPTI else {},
        )
        self.pages = Pages(RenderOptions())
        rules = Rules(interval_seconds=POLL_SECONDS)
        self.publisher = Publisher(self, load_specs(), rules, rig, (self.pages.publish,))

    def message(self) -> dict[str, Any]:
        """What the child writes once a second."""
        blank = None if self.blank is None else CUPTI_FIELDS[self.blank]
        ratios = {name: ratio for name, ratio in CUPTI_WORK.items() if name != blank}
        uuid = self.session.device.uuid
        return {"gpu": uuid, "seconds": 1.0, "ratios": ratios, "bytes": {}}

    def round(self, wait_seconds: float) -> None:
        self.reading = self.session.read()

    def tick(self, unit: int | None) -> Snapshot:
        """The snapshot after a further poll, in which this unit was blank."""
        if self._source == GPM and unit != self.blank:
            name = None if unit is None else PERCENTS[unit]
            totals = [number for number, other in CYCLES.items() if other == name]
            blank = [] if unit is None else [unit, *totals]
            self.rig.fake.device(0, gpm={**WORK, "nan_ids": blank})
        self.blank = unit
        if self._source == CUPTI:
            for _ in range(POLL_SECONDS):
                self.rig.advance(1.0)
                self._child.handle(self.message(), self.rig.monotonic())
        else:
            self.rig.advance(POLL_SECONDS)
        return self.publisher.tick()


def run(node: Node, blanks: Iterable[int | None], name: str) -> tuple[Scrapes, list[Snapshot]]:
    """Scrape every 30 s, with this unit blank in each poll."""
    scrapes, snapshots = Scrapes(name, SCRAPED), []
    for number, unit in enumerate(blanks, start=1):
        snapshots.append(node.tick(unit))
        if number % POLLS == 0:
            scrapes.add(node.pages.page("text-0.0.4", zipped=False))
    return scrapes, snapshots


def of_job(series: Sequence[Series], name: str) -> list[Series]:
    return [replace(one, labels={**one.labels, "job": name}) for one in series]


def queries() -> Mapping[str, str]:
    """What rules record of a GPU and what panels are made of, with $job for whose it is."""
    counters = ("engine", "sm", "dram", "pipe", "tensor_op")
    found = {
        "utilization": promql.utilization(),
        "idle": promql.idle(),
        "saturation": promql.saturation(),
        "FLOP/s": promql.measured_flops(),
        "by precision": promql.flops_by_precision(),
        "intensity": INTENSITY,
        "traffic": promql.activity("gpu_dram_bytes_total"),
        **{basis: promql.roof(basis) for basis in ("spec", "clock", "achievable")},
        **{each: promql.activity(f"gpu_{each}_active_seconds_total") for each in counters},
        **{name: f'{name}{{job=~"$job"}}' for name in RULES},
        **{
            name: re.sub(r"(node:[\w:]+)", r'\1{job=~"$job"}', text)
            for name, text in OF_NODES.items()
        },
    }
    return {
        name: re.sub(r"\$(?!job)[a-z_]+", ".*", text.replace("$__rate_interval", "2m"))
        for name, text in found.items()
    }


def wrong(text: str) -> str:
    """An expression that gives what differs from the GPU that was read throughout."""
    one, base = (text.replace("$job", name) for name in ("unit-.*", "whole"))
    difference = f"abs(({one}) - ignoring (job, instance) group_left () ({base}))"
    return f"{difference} > ignoring (job, instance) group_left () {TOLERANCE} * abs({base}) + 1e-6"


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """Every number in a tree of mappings, by its path."""
    if isinstance(value, dict):
        return {
            k: v for key, each in value.items() for k, v in numbers(each, f"{name}/{key}").items()
        }
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {name: float(value)} if known else {}


def words(snapshot: Snapshot) -> dict[str, float]:
    """What `recent` and `status` say of the GPU in numbers."""
    (share,) = snapshot.gpus[0].shares
    said = {} if share.recent is None else numbers(asdict(share.recent), "recent")
    (facts,) = view(snapshot).gpus
    assert state(facts) not in QUIET
    shown = numbers(asdict(facts), "status")
    return {name: value for name, value in (said | shown).items() if _exact(name)}


def _exact(name: str) -> bool:
    """Whether it is a share or rate that does not depend on how much is known."""
    less = ("limited_ratio", "bounds", "lower", "upper", "saturation/ratio")
    return ("ratio" in name or "_per_" in name) and not any(each in name for each in less)


UNITS = {GPM: [number for number in PERCENTS if number != 4], CUPTI: range(len(CUPTI_FIELDS))}


@pytest.fixture(name="node")
def _node(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Node]:
    monkeypatch.setattr(session, "COUNTER_SOURCES", COUNTER_SOURCES)

    def node(source: str) -> Node:
        device: dict[str, Any] = {"product": "a100-sxm4-80gb"}
        if source == GPM:
            device = {"product": "h100-sxm", "gpm": WORK}
        return Node(open_gpu(utilization=90, power=400, **device), source)

    return node


@pytest.mark.parametrize(
    "source",
    [pytest.param(GPM, marks=pytest.mark.slow), CUPTI],
)
@settings(
    max_examples=1,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(data=st.data())
def test_what_is_no_longer_read_is_absent_or_true(
    source: str, data: st.DataObject, node: Callable[[str], Node], tmp_path: Path
) -> None:
    """Blank now and then after three minutes, read for two, and then no more: against a GPU that
    was read throughout."""
    whole, snapshots = run(node(source), [None] * 24 * POLLS, "whole")
    said = words(snapshots[-1])
    series = of_job(whole.series(), "whole")
    for unit in UNITS[source]:
        chance = data.draw(st.integers(0, 2**32))
        blanks = Random(chance).choices((unit, None), (1, 3), k=4 * POLLS)
        polls: list[int | None] = [*[None] * 6 * POLLS, *blanks]
        polls += [*[None] * 4 * POLLS, *[unit] * 10 * POLLS]
        scrapes, snapshots = run(node(source), polls, f"unit-{unit}")
        for at, snapshot in enumerate(snapshots[3:], start=3):
            for name, value in words(snapshot).items():
                assert value == pytest.approx(said[name], rel=TOLERANCE, abs=1e-6), (unit, at, name)
        series += of_job(scrapes.series(), f"unit-{unit}")
    expected = [
        Expected(wrong(text), step * float(STEP_SECONDS), [])
        for text in queries().values()
        for step in (8, 11, 16, 20, 23)
    ]
    expected += [
        Expected(f"count({text.replace('$job', 'whole')}) > bool 0", 690.0, [("{}", 1.0)])
        for name, text in queries().items()
        if name != "achievable"  # of FP64 on tensor cores nothing is published
    ]
    check(tmp_path, RECORDED_THERE, series, expected)
