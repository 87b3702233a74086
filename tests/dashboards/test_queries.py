# SPDX-License-Identifier: Apache-2.0
"""Every query of every dashboard against a real Prometheus that scraped the demo."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from dashboards.model import OF_SHARE
from deploy.prometheus.render_rules import rules
from deploy.prometheus.thresholds import load as load_thresholds
from tests.conftest import require_tool
from tests.dashboards.grafana import Prometheus, Range, Series, variables
from tests.dashboards.models import (
    NAMES,
    NAMES_AT_SCALE,
    Model,
    Target,
    every_page,
    everything,
    load,
    panels,
    targets,
)
from tests.e2e.daemons import Daemon
from tests.e2e.prometheus import CONFIG
from tests.rules.rules import at_one_interval

pytestmark = pytest.mark.e2e

SECONDS = 34
"""Until a GPU has been idle for longer than the half minute from which it is listed."""
STARVED = {"gpu": "2", "training_job": "bob-training"}
"""The GPU whose page is opened: it waits for its data."""
MAY_LACK = {
    "gpu_instance",
    *(f"workload_{part}" for part in ("namespace", "pod", "container", "job", "user", "step")),
}
"""Only a MIG instance has the first; a pod has no job, and a job no pod."""

NOTHING_IS_UNOPENED = "whatever is given away at the beginning of the demo is in use"
COUNTERS_ARE_COMPLETE = "the demo's H100s are measured, so that none has only bounds"
NO_SERVERS = "no server is scraped beside the demo; test_serving.py has some"
OF_SERVERS = {
    panel["title"]
    for row in everything(load("fleet"))
    if row["title"] == "Serving"
    for panel in row["panels"]
}
EMPTY: Mapping[str, str] = {
    "gpu/Now/saturation, at least": COUNTERS_ARE_COMPLETE,
    "gpu/Now/saturation, at most": COUNTERS_ARE_COMPLETE,
    f"gpu/Utilization beside saturation/at least{OF_SHARE}": COUNTERS_ARE_COMPLETE,
    f"gpu/Utilization beside saturation/at most{OF_SHARE}": COUNTERS_ARE_COMPLETE,
    "roofline/Roofline: each GPU under its ceilings/C": COUNTERS_ARE_COMPLETE,
    "roofline/Roofline: what limits each GPU/C": COUNTERS_ARE_COMPLETE,
    "idle/Never opened now/A": NOTHING_IS_UNOPENED,
    "idle/GPU-hours by owner/C": NOTHING_IS_UNOPENED,
    "idle/GPU-hours by namespace or user/C": NOTHING_IS_UNOPENED,
    "gpu/Xids/A": "GPU 2 has none",
    "gpu/Xids/B": "GPU 2 has none",
    **{one.name: NO_SERVERS for one in targets("fleet") if one.panel["title"] in OF_SERVERS},
}
"""What shows nothing in the demo, and why. Else the demo has to feed every panel."""
OF_WORKLOADS = re.compile(r"gpu_allocated|gpu_workload_info\{")
"""What a page shows only where a scheduler or runtime says whose work is on its GPUs."""

STORY = {
    "all": 8,
    "near its roof": 1,
    "busy": 6,
    "starved": 1,
    "held idle": 1,
    "lost": 0,
}
"""What the demo is in its first minutes: two GPUs train, one serves, one is starved, one spins on
one SM, a notebook, one that is free or given away, one at a third of its power."""
WORKING = {"0", "1", "2", "6", "7"}
BY_GPU, BY_LIMITER = "each GPU under its ceilings", "what limits each GPU"


def _rules_of_a_second(folder: Path) -> Path:
    """What is recorded, evaluated each second: half a minute has no five of them."""
    (folder / "rules").mkdir()
    for name, text in rules(load_thresholds(at_one_interval(folder, "1s"))).items():
        if name in ("recording.yml", "scale.yml"):
            (folder / "rules" / name).write_text(text, encoding="utf-8")
    return folder / "rules"


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Range]]:
    """A Prometheus that scraped a demo every second for half a minute."""
    program = require_tool("prometheus")
    folder: Path = tmp_path_factory.mktemp("dashboards")
    config = yaml.safe_load(CONFIG.format(interval="1s", timeout="1s", port=0))
    config["rule_files"] = [str(_rules_of_a_second(folder) / "*.yml")]
    socket = f"--training.socket={folder / 'training.sock'}"
    with ExitStack() as stack:
        daemon = Daemon(folder / "daemon", {}, ("--demo", socket))
        stack.callback(daemon.kill)
        daemon.wait_for_gpus(8)
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{daemon.port}"]
        text = yaml.safe_dump(config)
        server = Prometheus(program, folder / "prometheus", daemon.port, "1s", text)
        stack.callback(server.kill)
        time.sleep(SECONDS)
        (last,) = server.query("max(timestamp(gpu_up))")
        end = math.floor(float(last["value"][1]))
        yield server, Range(end, SECONDS - 12, step=1, rate_seconds=8)


def _answer(scraped: tuple[Prometheus, Range], target: Target) -> list[Series]:
    server, times = scraped
    chosen = variables(load(target.page), server, times, **_chosen(target))
    if target.page in NAMES_AT_SCALE:
        # The step of what is added up, for data that is younger than one.
        query = target.query | {"expr": target.expression.replace(":5m]", ":1s]")}
        target = Target(target.page, target.panel, query)
    return server.answer(target, times, chosen)


def _chosen(target: Target) -> dict[str, str]:
    if target.page.endswith("gpu"):
        return {"gpu": STARVED["gpu"]}
    if "repeat" in target.panel:
        return {target.panel["repeat"]: STARVED[target.panel["repeat"]]}
    return {}


def _value(series: Series) -> float:
    return float(series["values"][-1][1])


def _wanted_labels(target: Target) -> set[str]:
    """The labels that a legend, a column or a link of this query is made of."""
    wanted = set(re.findall(r"\{\{([a-z_]+)\}\}", target.query["legendFormat"]))
    links = target.panel["fieldConfig"]["defaults"].get("links") or []
    for link in links:
        wanted |= set(re.findall(r"__field\.labels\.([a-z_]+)", link["url"]))
    for step in target.panel.get("transformations") or []:
        if step["id"] == "organize" and target.query["refId"] == "A":
            wanted |= {name for name in step["options"]["renameByName"] if name[0].islower()}
    return wanted - MAY_LACK


@every_page
def test_every_panel_shows_something(name: str, scraped: tuple[Prometheus, Range]) -> None:
    """Data with the labels of its legend, columns and links; no NaN, nothing infinite."""
    knows_workloads = bool(scraped[0].query("gpu_workload_info"))
    for target in targets(name):
        found = _answer(scraped, target)
        if not knows_workloads and not found and OF_WORKLOADS.search(target.expression):
            continue
        if target.name.removeprefix("at-scale/") in EMPTY:
            assert not found, f"{target.name} shows something now: take it out of EMPTY"
            continue
        assert found, (
            f"the demo does not feed the panel '{target.panel['title']}' of the page "
            f"'{target.page}': {target.name} is empty.\n"
            f"Query: {target.expression}\n"
            "Run `roofline-exporter serve --demo` and look for these metrics at /metrics. Correct "
            "the query, or have the demo report them (exporter/sources/simulate/). Only what the "
            "demo's GPUs cannot have belongs in EMPTY of this test, with the reason."
        )
        for series in found:
            assert _wanted_labels(target) <= set(series["metric"]), f"{target.name}: {series}"
            values = [float(value) for _, value in series["values"]]
            assert all(map(math.isfinite, values)), f"{target.name}: {values}"


def test_what_is_expected_to_be_empty_exists() -> None:
    """The list of what shows nothing has no entries of panels that are gone."""
    assert set(EMPTY) <= {target.name for name in NAMES for target in targets(name)}


@pytest.mark.parametrize("page", ["fleet", "at-scale/fleet"])
def test_the_fleet_shows_the_story_of_the_demo(
    page: str, scraped: tuple[Prometheus, Range]
) -> None:
    """The first row counts what the scenario says; at scale by what was recorded."""
    shown = {
        target.query["legendFormat"]: _value(found[0])
        for target in targets(page)
        if target.panel["title"] == "GPUs now" and (found := _answer(scraped, target))
    }

    assert {name: shown[name] for name in STORY} == STORY
    assert shown["free"] + shown.get("unopened", 0) == 1


def test_the_fleets_losses_have_owners(scraped: tuple[Prometheus, Range]) -> None:
    """GPU-hours by limiter and by owner add up to the number in the first row."""
    sums: dict[str, float] = defaultdict(float)
    for target in targets("fleet"):
        name = target.query["legendFormat"]
        if name == "GPU-hours lost" or "lost, by" in target.panel["title"]:
            for series in _answer(scraped, target):
                sums[name] += _value(series)

    hours = sums["GPU-hours lost"]
    # Spinner, notebook, power cap, and more than half of the starved one.
    assert hours == pytest.approx(3.6 * scraped[1].seconds / 3600, rel=0.15)
    assert sums["{{limiter}}"] == pytest.approx(hours, rel=0.02)
    assert sums["{{owner}}"] == pytest.approx(hours, rel=0.05)


def _by_label(found: list[Series], label: str) -> dict[str, float]:
    return {series["metric"].get(label, ""): _value(series) for series in found}


def test_no_range_hides_who_holds_an_idle_gpu(scraped: tuple[Prometheus, Range]) -> None:
    """Also while all of the data is younger than one step of the chart: the parts add up to the
    number beside them, and name whom the table of now names."""
    server, now = scraped
    day = Range(now.end, 86400, step=720, rate_seconds=735)
    shown: dict[str, list[Series]] = {
        target.name: _answer((server, day), target)
        for name in ("fleet", "idle")
        for target in targets(name)
    }

    (holder,) = _by_label(shown["idle/Held idle now/A"], "owner")
    (hours,) = map(_value, shown["idle/Held idle/GPU-hours"])
    (energy,) = map(_value, shown["idle/Held idle/energy"])
    # The notebook is held idle all the time, and the starved one for a part of it.
    (first,) = server.query('min(min_over_time(timestamp(gpu_up{gpu="4"})[1h:1s]))')
    observed_seconds = now.end - float(first["value"][1])
    assert 0.5 * observed_seconds < hours * 3600 < 1.8 * observed_seconds
    for column, total in (("B", hours), ("E", energy)):
        owners = _by_label(shown[f"idle/GPU-hours by owner/{column}"], "owner")
        assert holder in owners
        assert sum(owners.values()) == pytest.approx(total)
    (lost,) = map(_value, shown["fleet/GPUs now/GPU-hours lost"])
    for name, label in (("by limiter/{{limiter}}", "limiter"), ("by owner/{{owner}}", "owner")):
        parts = _by_label(shown[f"fleet/GPU-hours lost, {name}"], label)
        assert sum(parts.values()) == pytest.approx(lost, rel=0.05)
    assert holder in parts


def test_the_notebook_is_the_one_held_idle(scraped: tuple[Prometheus, Range]) -> None:
    """The table of those held idle now names GPU, owner and command."""
    (target,) = [t for t in targets("idle") if t.name == "idle/Held idle now/A"]
    (row,) = _answer(scraped, target)

    assert row["metric"]["gpu"] == "4"
    assert row["metric"]["class"] == "notebook"
    assert SECONDS - 5 < _value(row) < SECONDS + 30


def test_the_starved_job_leads_the_ranks(scraped: tuple[Prometheus, Range]) -> None:
    """Its stall is the demo's: idle for 0.6 of each period; the others have none."""
    (target,) = [t for t in targets("training") if t.name == "training/All ranks/A"]
    stalls = {s["metric"]["training_job"]: _value(s) for s in _answer(scraped, target)}

    assert max(stalls, key=lambda job: stalls[job]) == "bob-training"
    assert stalls.pop("bob-training") == pytest.approx(0.6, abs=0.15)
    assert all(stall < 0.05 for stall in stalls.values())


def _roofline(title: str) -> Model:
    """The roofline chart whose title contains this."""
    (panel,) = [one for one in panels(load("roofline")) if title in one["title"]]
    return panel


def _axes(found: list[Series]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Samples by thing and axis."""
    axes: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for series in found:
        samples = [(float(at), float(value)) for at, value in series["values"]]
        axes[series["metric"]["series"]][series["metric"]["axis"]] = samples
    return axes


@pytest.mark.parametrize("title", [BY_GPU, BY_LIMITER])
def test_the_roofline_pairs_its_samples(title: str, scraped: tuple[Prometheus, Range]) -> None:
    """Each GPU with work has all its axes at the same steps: the chart pairs them by position."""
    panel = _roofline(title)
    points = _axes(_answer(scraped, Target("roofline", panel, panel["targets"][0])))
    wanted = {"Intensity", "Throughput", "weight"} | ({"limiter"} if title == BY_LIMITER else set())

    assert {name.rpartition(" ")[2] for name in points} >= WORKING
    for name, axes in points.items():
        assert set(axes) == wanted, name
        steps = [[at for at, _ in samples] for samples in axes.values()]
        assert all(one == steps[0] for one in steps), name
        weights = [weight for _, weight in axes["weight"]]
        assert all(old < new for old, new in itertools.pairwise(weights))


def test_points_lie_under_the_roof(scraped: tuple[Prometheus, Range]) -> None:
    """Under the bandwidth and the tensor peak at the clocks of the moment, and not far below."""
    server, times = scraped
    panel = _roofline(BY_GPU)
    points = _axes(_answer(scraped, Target("roofline", panel, panel["targets"][0])))

    def at_clock(peak: str, clock: str, unit: str) -> dict[int, float]:
        now = f'gpu_clock_hertz{{clock="{clock}"}}'
        ratio = f'{now} / on (gpu, uuid) gpu_peak_clock_hertz{{unit="{unit}"}}'
        return server.by_gpu(f"sum by (gpu) ({peak}) * on (gpu) max by (gpu) ({ratio})", times.end)

    peaks = at_clock(
        'gpu_peak_flops_per_second{precision="bf16_tensor",basis="spec"}', "sm", "tensor"
    )
    bandwidths = at_clock(
        'gpu_peak_memory_bandwidth_bytes_per_second{basis="spec"}', "memory", "memory"
    )
    for name, axes in points.items():
        gpu = int(name.rpartition(" ")[2])
        intensity, throughput = axes["Intensity"][-1][1], axes["Throughput"][-1][1]
        roof = min(peaks[gpu], intensity * bandwidths[gpu])
        assert throughput <= 1.02 * roof, name
        if gpu in (0, 1):
            assert throughput >= 0.5 * roof, name


@pytest.mark.parametrize("basis", ["spec", "achievable"])
def test_ceilings_bend_at_the_ridge(basis: str, scraped: tuple[Prometheus, Range]) -> None:
    """Three vertices each, in the order of the line: along the bandwidth, then flat."""
    server, times = scraped
    panel = _roofline(BY_GPU)
    chosen = variables(load("roofline"), server, times, basis=basis, precision="bf16_tensor")
    found = server.answer(Target("roofline", panel, panel["targets"][1]), times, chosen)
    peak = server.query(
        f'max(gpu_peak_flops_per_second{{precision="bf16_tensor",basis="{basis}"}})'
    )
    bandwidth = server.query(f'max(gpu_peak_memory_bandwidth_bytes_per_second{{basis="{basis}"}})')
    flops, bytes_ = float(peak[0]["value"][1]), float(bandwidth[0]["value"][1])

    assert {series["metric"]["series"] for series in found} == {"H100 80GB HBM3 bf16_tensor"}
    by_axis: dict[str, list[tuple[str, object]]] = defaultdict(list)
    for series in found:
        by_axis[series["metric"]["axis"]].append((series["metric"]["vertex"], _value(series)))
    # The order of the answer is the order in which the line is drawn.
    assert by_axis["Intensity"] == [
        ("left", pytest.approx(0.1, rel=1e-3)),
        ("ridge", pytest.approx(flops / bytes_)),
        ("right", pytest.approx(10_000)),
    ]
    assert dict(by_axis["Throughput"]) == {
        "left": pytest.approx(0.1 * bytes_),
        "ridge": pytest.approx(flops),
        "right": pytest.approx(flops),
    }
    assert by_axis["Throughput"][0][0] == "left"
