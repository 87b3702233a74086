# SPDX-License-Identifier: Apache-2.0
"""The programs that docs/scale.md configures accept what the page says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import require_tool
from tests.deploy.remote import configurations
from tests.rules.rules import RULES_BY_GROUP

CONFIGURATIONS = configurations("scale.md")
OF_PROMETHEUS = (
    *("agent.yml", "prometheus-ha.yml"),
    *("prometheus-shard.yml", "prometheus-global.yml"),
)
NOT_RUN = {"mimir.yml"}
"""No registry has the program; the page says so."""


def test_every_configuration_is_checked() -> None:
    """A new one needs a test here, or the page has to say that it was not run."""
    assert set(CONFIGURATIONS) == {*OF_PROMETHEUS, *NOT_RUN}


@pytest.mark.parametrize("name", OF_PROMETHEUS)
def test_prometheus_takes_its_files(name: str, tmp_path: Path) -> None:
    """By promtool; the files of rules and passwords that they name are not here."""
    config = yaml.safe_load(CONFIGURATIONS[name])
    config.pop("rule_files", None)
    file = tmp_path / name
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    agent = ["--agent"] if name == "agent.yml" else []
    words = [require_tool("promtool"), "check", "config", *agent, "--syntax-only", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_groups_keep_below_the_limits_of_mimir() -> None:
    """They are its defaults; a group with more rules is refused as a whole."""
    limits = yaml.safe_load(CONFIGURATIONS["mimir.yml"])["limits"]
    most = max(len(rules) for rules in RULES_BY_GROUP.values())
    assert most <= limits["ruler_max_rules_per_rule_group"] == 20
    assert len(RULES_BY_GROUP) <= limits["ruler_max_rule_groups_per_tenant"] == 70
