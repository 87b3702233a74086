# SPDX-License-Identifier: Apache-2.0
"""The rule files are valid, complete and documented, and name only what exists."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.palette import LIMITERS, NUMBERED
from deploy.prometheus.render_rules import rules
from deploy.prometheus.thresholds import load
from exporter.exposition.catalogue import CATALOGUE
from exporter.model.xids import XIDS
from tests.rows import label_names
from tests.rules.promtool import run
from tests.rules.rules import (
    ALERTS,
    DIRECTORY,
    FILES,
    RECORDED,
    RECORDED_NAME,
    RULES,
    read_by,
    recorded_in,
)

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
SAMPLE = re.compile(r"(?<![\w:])((?:gpu|roofline_exporter)_\w+)(?![\w:])(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
LABELS = {"gpu_instance"}
"""What looks like a metric and is a label."""
PARTS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "Benign causes")
PROSE_NAME = re.compile(r"`(" + RECORDED_NAME.pattern + r")`")


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _title(rule: Mapping[str, Any]) -> str:
    severity = rule.get("labels", {}).get("severity", "")
    return f"{rule.get('alert', rule.get('record'))} {severity}".strip()


WASTED = {"GpuHeldIdle", "GpuAllocatedUnopened"}
ALERT_RULES = [rule for both in ALERTS.values() for rule in both]


def test_promtool_accepts_the_rules() -> None:
    """And finds no rule twice."""
    run("check", "rules", "--lint=all", "--lint-fatal", *map(str, FILES))


@pytest.mark.parametrize("rule", RULES, ids=_title)
def test_rules_read_only_what_the_exporter_publishes(rule: Mapping[str, Any]) -> None:
    """Metrics are in the catalogue, with these labels and values; recorded series are recorded."""
    for name, inside in SAMPLE.findall(rule["expr"]):
        if name in LABELS:
            continue
        family = CATALOGUE[name]
        listed = {label.name: label.values for label in family.labels}
        for label, how, values in MATCHER.findall(inside):
            assert label in label_names(family), f"{name} has no label {label}"
            for value in values.strip("()").split("|") if "~" in how else [values]:
                known = listed.get(label)
                assert not (known and value) or value in known, f"{name} has no {label}={value}"
    assert set(RECORDED_NAME.findall(rule["expr"])) <= set(RECORDED)


def test_rules_are_recorded_before_they_are_read() -> None:
    """In the order of the file, so that a group sees what was recorded in the same moment; a rule
    that reads itself, what it recorded last."""
    seen: set[str] = set()
    for name, expression in RECORDED.items():
        later = set(RECORDED_NAME.findall(expression)) - seen - {name}
        assert not later, f"{name} reads {later}"
        seen.add(name)


def test_recorded_names_say_their_level() -> None:
    """level:metric:operations, and the level is one that docs/rules.md explains."""
    levels = set(re.findall(r"^\| `([a-z_]+)` \| [^|]+ \| [^|]+ \|$", _text("docs/rules.md"), re.M))
    for name in RECORDED:
        assert RECORDED_NAME.fullmatch(name), name
        assert name.split(":")[0] in levels, name


def test_every_recorded_series_is_documented() -> None:
    """docs/rules.md names all of them and no other, in a table for each file."""
    tables = [each.partition("\n\n")[0] for each in _text("docs/rules.md").split("| series |")[1:]]
    assert [sorted(PROSE_NAME.findall(table)) for table in tables] == [
        sorted(recorded_in(name)) for name in ("recording.yml", "scale.yml", "queries.yml")
    ]


def test_nothing_of_ours_reads_the_series_for_own_queries() -> None:
    """Neither rules nor dashboards, report, alert messages or recipes: the file can be left out."""
    rules_of_ours = [DIRECTORY / name for name in ("alerts.yml", "recording.yml")]
    others = [
        *(ROOT / "deploy" / "grafana").glob("dashboards*/*.json"),
        *(ROOT / "exporter" / "cli" / "report").glob("*.py"),
        *(ROOT / "deploy" / "alertmanager").iterdir(),
    ]
    assert others
    own = set(recorded_in("queries.yml"))
    for path in [*rules_of_ours, DIRECTORY / "scale.yml", *others]:
        assert not own & set(RECORDED_NAME.findall(path.read_text(encoding="utf-8"))), path.name


def test_the_rules_for_dashboards_at_scale_are_read_by_these_alone() -> None:
    """The file can be left out without them, and has nothing that they do not need."""
    folder = ROOT / "deploy" / "grafana" / "dashboards-at-scale"
    shown = " ".join(path.read_text(encoding="utf-8") for path in folder.glob("*.json"))
    read = set(RECORDED_NAME.findall(shown)) & set(RECORDED)
    own = set(recorded_in("scale.yml"))
    assert own <= read | {name for one in read for name in read_by(one)}
    for name in ("alerts.yml", "recording.yml"):
        text = (DIRECTORY / name).read_text(encoding="utf-8")
        assert not own & set(RECORDED_NAME.findall(text)), name


def test_numbers_of_limiters_are_those_of_the_charts() -> None:
    """What is recorded as a number has the words and colours of the dashboards."""
    expression = RECORDED["gpu:gpu_limiter:code_rate5m"]
    codes = {
        name: int(n) for n, name in re.findall(r'vector\((\d)\), "limiter", "(\w+)"', expression)
    }
    names = list(NUMBERED)
    assert codes == {name: names.index(name) for name in LIMITERS}
    assert f"{names.index('lost')} + 0 * (gpu_up == 0)" in expression
    assert names[0] == "mixed"


@pytest.mark.parametrize("rule", ALERT_RULES, ids=_title)
def test_alerts_say_what_to_do(rule: Mapping[str, Any]) -> None:
    """Severity, a summary in one sentence, a description of the case at hand, and both links."""
    assert rule["alert"].startswith("Gpu")
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    annotations = rule["annotations"]
    # Where Grafana is, only a user knows: a link to nowhere helps nobody.
    counted = {"gpu_hours", "cost"} if rule["alert"] in WASTED else set()
    caused = {"cause_url"} if "gpu_diagnosis" in annotations.get("cause_url", "") else set()
    always = {"summary", "description", "runbook_url"}
    assert annotations.keys() == always | counted | caused
    assert re.fullmatch(r"[A-Z][^.\n]+\.", _plain(annotations["summary"]))
    assert "{{" in annotations["description"]
    assert re.search(r"\.(\{\{ end \}\})*$", annotations["description"].strip())


def _plain(text: str) -> str:
    """A text without what its templates look up, and with the first of its branches."""
    text = re.sub(r"\{\{ else \}\}[^{]*(\{\{ \$[^}]*\}\}[^{]*)*\{\{ end \}\}", "", text)
    return re.sub(r"\{\{.*?\}\}", "X", text)


def test_a_share_says_what_it_is_of() -> None:
    """Of which time, over which window: that of the loop where the job measures, else of all."""
    (rule,) = ALERTS["GpuDataStallHigh"]
    said = re.sub(r"\s+", " ", rule["annotations"]["description"])
    share = "$value | query | first | value }} % of the time"
    assert f"{share} of its training loop in the last 15m" in said
    assert "was idle for at least {{ printf" in said
    assert f"{share} in which it was observed in the last 15m" in said


@pytest.mark.parametrize("rule", ALERT_RULES, ids=_title)
def test_alerts_have_no_threshold_of_their_own(rule: Mapping[str, Any]) -> None:
    """What the template compares with, and how long it waits, comes from thresholds.yml."""
    template = next(
        one
        for one in _template_rules()
        if one["alert"] == rule["alert"] and one["labels"]["severity"] == rule["labels"]["severity"]
    )
    durations = [str(template.get(key, "")) for key in ("for", "keep_firing_for")]
    durations += re.findall(r"\[([^\]]*)\]", template["expr"])
    durations += re.findall(r"offset ([^\s)]+)", template["expr"])
    assert all(re.fullmatch(r"(<[a-z_.]+>)?", duration) for duration in durations), durations
    compared = re.findall(r"(?:[<>]=?|==) (?:bool )?([\d.]+)", template["expr"])
    # States that the driver names by number: off and on, none, completed.
    assert set(compared) <= {"0", "1", "3"}, compared


def test_alerts_link_to_dashboards_that_exist() -> None:
    """With variables that these have."""
    pages = (PROMETHEUS.parent / "grafana" / "dashboards").glob("*.json")
    dashboards = {
        page["uid"]: {variable["name"] for variable in page["templating"]["list"]}
        for page in (json.loads(path.read_text(encoding="utf-8")) for path in pages)
    }
    text = rules({**load(), "links.grafana": "https://grafana.example.com"})["alerts.yml"]
    for rule in (rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]):
        url = rule["annotations"]["dashboard_url"]
        assert url.startswith("https://grafana.example.com/d/")
        found = re.search(r"/d/([a-z-]+)", url)
        assert found
        assert found[1] in dashboards, url
        assert set(re.findall(r"var-(\w+)=", url)) <= dashboards[found[1]], url


def _template_rules() -> list[dict[str, Any]]:
    text = (PROMETHEUS / "templates" / "alerts.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_every_threshold_is_explained() -> None:
    """Each key has a comment above it."""
    lines = (PROMETHEUS / "thresholds.yml").read_text(encoding="utf-8").splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"  [a-z_]+:", line):
            assert before.startswith("  # "), line


def test_xid_alerts_follow_the_one_table() -> None:
    """The tiers of exporter/model/xids.py, each with what it means."""
    for alert, tier in (("GpuXidCritical", "critical"), ("GpuXidWarning", "warning")):
        (rule,) = ALERTS[alert]
        found = re.search(r'xid=~"([\d|]+)"', rule["expr"])
        codes = [code for code, xid in XIDS.items() if xid.tier == tier]
        assert found
        assert found[1].split("|") == [str(code) for code in codes]
        for code in codes:
            assert XIDS[code].meaning in rule["annotations"]["description"]


def _runbook() -> dict[str, str]:
    sections = re.split(r"^## ", _text("docs/runbook.md"), flags=re.M)[1:]
    return {section.split("\n", 1)[0]: section.split("\n", 1)[1] for section in sections}


def test_the_runbook_has_a_heading_for_each_alert() -> None:
    """And none for an alert that does not exist."""
    assert set(_runbook()) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_the_runbook_has_five_parts_for_each_alert(alert: str) -> None:
    """In this order, none of them empty; the alert links to them."""
    found = re.findall(r"^\*\*([^*]+)\.\*\* (\S.*)$", _runbook()[alert], re.M)
    assert tuple(part for part, _ in found) == PARTS
    for rule in ALERTS[alert]:
        assert rule["annotations"]["runbook_url"].endswith(f"docs/runbook.md#{alert.lower()}")


def _reads_full(alert: str) -> bool:
    """Return whether it reads what level core leaves out, itself or in what is recorded for it."""
    expressions = [rule["expr"] for rule in ALERTS[alert]]
    expressions += [RECORDED[name] for text in expressions for name in read_by(text)]
    names = {name for text in expressions for name, _ in SAMPLE.findall(text)} - LABELS
    return any(CATALOGUE[name].level == "full" for name in names)


@pytest.mark.parametrize("alert", ALERTS)
def test_alerts_that_need_level_full_say_so(alert: str) -> None:
    """docs/rules.md names each of them under `--metrics.level=core`."""
    section = _text("docs/rules.md").partition("## With `--metrics.level=core`")[2]
    assert (f"`{alert}`" in section) == _reads_full(alert), (
        f"{alert}: docs/rules.md has to list it if, and only if, it reads a family of level full"
    )


@pytest.mark.parametrize(
    "alert",
    [
        name
        for name, rules in ALERTS.items()
        if any(r["labels"]["severity"] == "critical" for r in rules)
    ],
)
def test_critical_alerts_are_whole_at_level_core(alert: str) -> None:
    """It is the default in Kubernetes: a broken GPU is known there, and none is called lost that
    sleeps."""
    assert not _reads_full(alert)
