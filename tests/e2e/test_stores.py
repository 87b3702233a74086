# SPDX-License-Identifier: Apache-2.0
"""Panels and rules give on VictoriaMetrics what they give on Prometheus."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.conftest import require_tool
from tests.dashboards.grafana import Range, variables
from tests.dashboards.models import (
    NAMES,
    NAMES_AT_SCALE,
    ROOT,
    Target,
    load,
    targets,
)
from tests.e2e.processes import Process
from tests.e2e.stores import (
    END,
    EVALUATION_SECONDS,
    HOUR,
    LEAD_SECONDS,
    SCRAPE_SECONDS,
    START,
    Answer,
    Store,
    VictoriaMetrics,
    Written,
    counters_change,
    nameless,
    over_time,
    prometheus,
    promised,
    record,
    rules,
    scraped,
)
from tests.rules.promtool import STEP_SECONDS, Series, version
from tests.rules.rules import ALERTS, RECORDED, RECORDED_NAME, only, read_by
from tests.rules.test_alerts import FIRING
from tests.serving import free_port

pytestmark = pytest.mark.slow
SAME = 1e-6
"""Relative: both add up the same numbers, in another order."""
SAME_BY_VERSION: dict[tuple[int, ...], int] = {(2, 42): 392, (3, 9): 241}
"""Queries and rules whose results are the same in both, by Prometheus' version."""
CLUSTER, RULER = {"cluster": "berlin"}, {"ruler": "fleet"}
TIMES = Range(END, HOUR, step=60, rate_seconds=60)
CASE_SECONDS = 5 * 86400
"""From the beginning of one case to that of the next: no window of an alert is as long."""
SHOWN = {"gpu": "2", "training_job": "bob-training"}
WINDOW = re.compile(r"\[((?:\d+(?:ms|[smhd]))+)(:(?:\d+(?:ms|[smhd]))?)?\]")
PART = re.compile(r"(\d+)(ms|[smhd])")
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_OF_A_CHANGE = 15 * UNITS["m"]
"""Windows in which a GPU that comes or goes may change all; longer ones change by its time."""


@dataclass(frozen=True)
class Difference:
    """One value of one series that is not the same in both; None where it has none."""

    labels: frozenset[tuple[str, str]]
    at: float
    prometheus: float | None
    other: float | None


@dataclass(frozen=True)
class Question:
    """What was asked, and what is known of the data."""

    name: str
    expression: str
    changes: list[int]
    """When counters of GPUs begin or end."""
    largest: float
    """The largest value that Prometheus gives."""

    @functools.cached_property
    def windows(self) -> list[tuple[float, float]]:
        """Seconds of each window, and from one of its samples to the next."""
        return list(_windows(self.expression))

    @functools.cached_property
    def longest(self) -> float:
        """Seconds of the longest window, also of what it reads."""
        read = [self.expression, *(RECORDED[name] for name in read_by(self.expression))]
        return max((window for one in read for window, _ in _windows(one)), default=0.0)


def _windows(expression: str) -> Iterator[tuple[float, float]]:
    plain = EVALUATION_SECONDS if RECORDED_NAME.search(expression) else SCRAPE_SECONDS
    for window, step in WINDOW.findall(expression):
        yield _seconds(window), (_seconds(step) or TIMES.step) if step else plain


def _seconds(duration: str) -> float:
    return sum(int(number) * UNITS[unit] for number, unit in PART.findall(duration))


def _apart(found: Difference, question: Question) -> float:
    """How far the values are from each other, as a share of the largest there is."""
    if found.prometheus is None or found.other is None:
        return math.inf
    return abs(found.prometheus - found.other) / question.largest


def _is_one_sample(found: Difference, question: Question) -> bool:
    """A sample at the very beginning of a window is in it in Prometheus 2, and is not in
    VictoriaMetrics and in Prometheus 3."""
    share = max((step / window for window, step in question.windows), default=0.0)
    return _apart(found, question) <= 1.5 * share


def _is_after_a_change(found: Difference, question: Question) -> bool:
    """A GPU or a rank came or went within the window: Prometheus has its rate over the whole
    window, VictoriaMetrics over the time of which it has samples."""
    if question.longest > LONGEST_OF_A_CHANGE:
        return False
    ages = [found.at - change for change in question.changes]
    return any(0 <= age <= question.longest + SCRAPE_SECONDS for age in ages)


def _is_a_minute_for_each_change(found: Difference, question: Question) -> bool:
    """It adds up such rates: a minute at the most for each time that a GPU came or went."""
    window = min(question.longest, found.at - START + LEAD_SECONDS)
    changes = sum(0 <= found.at - change <= window for change in question.changes)
    return _apart(found, question) <= 60 * changes / window


def _is_one_scrape(found: Difference, question: Question) -> bool:
    """The counter is younger than the window: its first scrape interval."""
    age = found.at - START + LEAD_SECONDS
    return _apart(found, question) <= SCRAPE_SECONDS / age


TURNED = {
    "alerts/GpuUtilizedButUnsaturated",
    "at-scale/fleet/The worst ten/B",
    "fleet/The worst ten/B",
    "fleet/What limits each GPU/{{instance}} GPU {{gpu}}/{{gpu_instance}}",
}
"""What compares a rate with a threshold: Prometheus 3 has one sample less in a window of `rate`,
and VictoriaMetrics takes the one before it."""
REASONS = (_is_one_sample, _is_after_a_change, _is_a_minute_for_each_change, _is_one_scrape)
"""Why results differ, and how far they may."""
EMPTY = {
    *(
        f"{page}/{panel}"
        for page in ("gpu", "at-scale/gpu")
        for panel in (
            *("Now/saturation, at least", "Now/saturation, at most", "Xids/A", "Xids/B"),
            "Utilization beside saturation/at most, GPU {{gpu}}/{{gpu_instance}}",
            "Utilization beside saturation/at least, GPU {{gpu}}/{{gpu_instance}}",
        )
    ),
    "at-scale/roofline/Roofline: each GPU under its ceilings/C",
    "at-scale/roofline/Roofline: what limits each GPU/C",
    "fleet/Serving pods/J",
    "fleet/Tokens per joule/{{workload_namespace}}/{{workload_pod}}",
    "recording/gpu:gpu_ecc_uncorrected_errors:max",
    "recording/holder:gpu_held_idle:windows_warning",
    "recording/holder:gpu_held_idle:windows_critical",
}
"""What has nothing to show in this hour in either."""


def differences(left: Answer, right: Answer) -> Iterator[Difference]:
    """Every value that is not the same."""
    for labels in left.keys() | right.keys():
        ours, theirs = left.get(labels, {}), right.get(labels, {})
        for at in ours.keys() | theirs.keys():
            one, other = ours.get(at), theirs.get(at)
            if one is None or other is None or not _same(one, other):
                yield Difference(labels, at, one, other)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME) or (math.isnan(one) and math.isnan(other))


@dataclass(frozen=True)
class Stores:
    """Both with the same hour."""

    prometheus: Store
    victoria: Store
    series: list[Written]
    """What both were sent, before they recorded."""
    version: tuple[int, ...]
    """Of Prometheus."""
    different: set[str] = field(default_factory=set)
    """What was not the same in both, by page and panel or by file and rule."""

    @functools.cached_property
    def changes(self) -> list[int]:
        """When counters of GPUs begin or end."""
        return counters_change(self.series)

    def compare(self, name: str, expression: str, left: Answer, right: Answer) -> list[str]:
        """Say what differs without a reason."""
        if not left and not right and not name.startswith("alerts/") and name not in EMPTY:
            return [f"{name} is empty in both"]
        values = [abs(value) for by_time in left.values() for value in by_time.values()]
        largest = max((value for value in values if math.isfinite(value)), default=0.0)
        question = Question(name, expression, self.changes, largest)
        found = list(differences(left, right))
        if found:
            self.different.add(name)
        if self.version >= (3,) and name in TURNED:
            return []
        wrong = [each for each in found if not any(allows(each, question) for allows in REASONS)]
        return [f"{name}: {len(wrong)} of {len(found)} differ: {wrong[0]}"] if wrong else []


def _fill(store: Store, series: list[Written], own: Mapping[str, str]) -> None:
    """Send what is scraped, and record with these labels of the ruler's own."""
    store.send(series)
    for rule in rules("recording", "scale", "queries"):
        record(store, {**rule.rule, "labels": {**rule.rule.get("labels", {}), **own}})


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """A Prometheus and a VictoriaMetrics that have the hour, and what each recorded of it."""
    programs = require_tool("prometheus"), require_tool("victoria-metrics")
    folder: Path = tmp_path_factory.mktemp("stores")
    series = scraped()
    with ExitStack() as stack:
        left = prometheus(programs[0], folder / "prometheus")
        stack.callback(left.kill)
        right = VictoriaMetrics(programs[1], folder / "victoria", free_port())
        stack.callback(right.kill)
        for store in (left, right):
            _fill(store, series, {})
        yield Stores(left, right, series, version(programs[0]))


Asked = tuple[str, str, Answer, Answer]
"""Its name, its expression, and what each of two stores gives."""
EVALUATED = list(rules("recording", "scale", "queries", "alerts"))


def _chosen(target: Target) -> dict[str, str]:
    name = "gpu" if target.page == "gpu" else target.panel.get("repeat")
    return {name: SHOWN[name]} if name else {}


def _panels(page: str, one: Store, other: Store) -> Iterator[Asked]:
    for target in targets(page):
        chosen = variables(load(page), one, TIMES, **_chosen(target))
        left, right = (nameless(store.answer(target, TIMES, chosen)) for store in (one, other))
        yield target.name, TIMES.substitute(target.expression, chosen), left, right


def _rules(one: Store, other: Store) -> Iterator[Asked]:
    for rule in EVALUATED:
        left, right = (over_time(store, rule.expression) for store in (one, other))
        yield rule.name, rule.expression, left, right


def _asked(pages: Sequence[str], one: Store, other: Store) -> Iterator[Asked]:
    for page in pages:
        yield from _panels(page, one, other)
    yield from _rules(one, other)


def test_panels_and_rules_give_the_same(stores: Stores) -> None:
    """Labels and values: of panels at the end of the hour or through it, of rules through it, over
    what each store has recorded itself. docs/scale.md says how many were compared."""
    asked = list(_asked((*NAMES, *NAMES_AT_SCALE), stores.prometheus, stores.victoria))
    assert [line for each in asked for line in stores.compare(*each)] == []
    same = len(asked) - len(stores.different)
    assert SAME_BY_VERSION.get(stores.version[:2], same) == same
    older, newer = SAME_BY_VERSION.values()
    text = f"Of {len(asked)} queries and rules, {older} are the same, with Prometheus 3.9 {newer}"
    assert text in " ".join((ROOT / "docs" / "scale.md").read_text(encoding="utf-8").split())


def test_labels_of_a_store_and_of_its_ruler_change_nothing(
    stores: Stores, tmp_path: Path, processes: list[Process]
) -> None:
    """One on all that is scraped, one on all that is recorded, as Thanos has them."""
    own = {**CLUSTER, **RULER}
    server = prometheus(require_tool("prometheus"), tmp_path / "ruler")
    processes.append(server)
    series = [replace(one, labels={**one.labels, **CLUSTER}) for one in stores.series]
    _fill(server, series, RULER)
    said = []
    for name, _, left, right in _asked(NAMES_AT_SCALE, stores.prometheus, server):
        bare = {labels - set(own.items()): by_time for labels, by_time in right.items()}
        said += [f"{name}: {each}" for each in differences(left, bare)][:1]
    assert said == []


def _since(series: Series, start: int) -> Series:
    """A series of a case, whose time begins at 0, in one whose time begins later."""
    if not series.name.endswith("_timestamp_seconds"):
        return series

    def value(at: float) -> float | None:
        found = series.value(at)
        return None if found is None else start + found

    return replace(series, value=value)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_fires_on_victoriametrics(alert: str, stores: Stores) -> None:
    """On the cases on which it fires on Prometheus, with the same labels."""
    store = stores.victoria
    for number, case in enumerate(FIRING):
        if case.alert != alert:
            continue
        start = END + CASE_SECONDS * (number + 1)
        end = start + int(case.by)
        times = range(start, end + 1, STEP_SECONDS)
        store.send([promised(_since(one, start), times) for one in case.series])
        (group,) = only([alert])["groups"]
        for rule in group["rules"]:
            if "record" in rule:
                record(store, rule, start, end)
                continue
            assert case.labels is not None
            if rule["labels"]["severity"] != case.labels["severity"]:
                continue
            lasts = int(_seconds(rule.get("for", "0s")))
            found = over_time(store, rule["expr"], end - lasts, end, STEP_SECONDS)
            whole = [labels for labels, by_time in found.items() if len(by_time) > lasts / 30]
            fired = [{**dict(labels), **rule["labels"]} for labels in whole]
            assert fired == [case.labels], case.about
