# SPDX-License-Identifier: Apache-2.0
"""The programs that deploy/scale/ configures accept its files; docs has all of them, and how many
series there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from exporter.exposition.catalogue import CATALOGUE
from tests.conftest import require_tool
from tests.deploy import series, sizing
from tests.deploy.keep import FILES, METRIC, content, read
from tests.deploy.remote import DOCS
from tests.programs import said
from tests.rules.rules import RECORDED_NAME, RULES_BY_GROUP, recorded_in

FOLDER = DOCS.parent / "deploy" / "scale"
CONFIGURATIONS = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
OF_PROMETHEUS = (
    *("agent.yml", "prometheus-ha.yml"),
    *("prometheus-shard.yml", "prometheus-global.yml"),
)
CORE_BESIDES = {
    "gpu_utilization_ratio",
    "gpu_energy_source_info",
    "gpu_inferred_data_stall_upper_ratio",
    "gpu_inferred_data_stall_upper_seconds_total",
    "roofline_exporter_config_last_reload_successful",
    "roofline_exporter_web_config_success",
}
"""Served at level core, though no rule and no dashboard reads it; docs/metrics.md says why."""
NOT_RUN = {"mimir.yml"}
"""No registry has the program; the page says so."""


def test_every_configuration_is_checked() -> None:
    """A new one needs a test here, or the page has to say that it was not run."""
    assert set(CONFIGURATIONS) == {*OF_PROMETHEUS, *NOT_RUN, *FILES}
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    assert [name for name in CONFIGURATIONS if f"(../deploy/scale/{name})" not in page] == []


@pytest.mark.parametrize("name", OF_PROMETHEUS)
def test_prometheus_takes_its_files(name: str, tmp_path: Path) -> None:
    """By promtool; the files of rules and passwords that they name are not here."""
    config = yaml.safe_load(CONFIGURATIONS[name])
    config.pop("rule_files", None)
    file = tmp_path / name
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    agent = ["--agent"] if name == "agent.yml" else []
    said(require_tool("promtool"), "check", "config", *agent, "--syntax-only", file)


def test_the_lists_of_metrics_are_current() -> None:
    """`make docs` writes them."""
    for name in FILES:
        assert CONFIGURATIONS[name] == content(name)


@pytest.mark.slow
def test_the_tables_of_sizes_are_current() -> None:
    """`make docs` writes them, and every level has more than the one before."""
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    assert sizing.written(page) == page
    assert all(core <= full for core, full in sizing.counts().values())


@pytest.mark.parametrize("name", FILES)
def test_a_list_keeps_what_is_read(name: str, tmp_path: Path) -> None:
    """Prometheus takes it, and no metric of a rule's expression is missing."""
    part = yaml.safe_load(CONFIGURATIONS[name])
    file = tmp_path / name
    job = {"job_name": "roofline-exporter", **part}
    file.write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
    said(require_tool("promtool"), "check", "config", file)
    kept = re.compile(part["metric_relabel_configs"][0]["regex"])
    left_out = set(recorded_in("queries.yml"))
    if name == "keep-alerts.yml":
        left_out |= set(recorded_in("scale.yml"))
    every = [rule for group in RULES_BY_GROUP.values() for rule in group]
    rules = [rule for rule in every if rule.get("record") not in left_out]
    used = {
        one for rule in rules for one in METRIC.findall(re.sub(RECORDED_NAME, "", rule["expr"]))
    }
    assert {one for one in used & set(CATALOGUE) if not kept.fullmatch(one)} == set()


def test_level_core_is_what_is_read() -> None:
    """By rules, alerts and dashboards: nobody stores a series of it for nothing."""
    core = {family.name for family in CATALOGUE.values() if family.level == "core"}
    assert core - set(read("keep-dashboards.yml")) == CORE_BESIDES


def test_groups_keep_below_the_limits_of_mimir() -> None:
    """They are its defaults; a group with more rules is refused as a whole."""
    limits = yaml.safe_load(CONFIGURATIONS["mimir.yml"])["limits"]
    most = max(len(rules) for rules in RULES_BY_GROUP.values())
    assert most <= limits["ruler_max_rules_per_rule_group"] == 20
    assert len(RULES_BY_GROUP) <= limits["ruler_max_rule_groups_per_tenant"] == 70


def test_the_guide_has_as_many_series_as_a_node() -> None:
    """`make docs` writes them; both levels are named once, and *core* is about half."""
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    assert [found[1] for found in series.PHRASE.finditer(page)] == ["full", "core"]
    assert series.written(page) == page
    most = series.most_series()
    assert most["core"] < 0.6 * most["full"]
