# SPDX-License-Identifier: Apache-2.0
"""The programs that docs/remote.md configures accept what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import require_tool
from tests.deploy.remote import COMMANDS, CONFIGURATIONS
from tests.programs import ended, said, verified_by_systemd

NOT_RUN = {"config.alloy"}
"""No registry has the program; the page says so."""
RULES = ("silent-nodes.yml", "textfile-age.yml")
SILENT = 'up{job="roofline-exporter", instance="n1"}'
AGE = 'node_textfile_mtime_seconds{instance="n1:9100", file="/x/roofline.prom"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with every file of the page."""
    for name, text in CONFIGURATIONS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_configuration_is_checked() -> None:
    """A new one needs a test here, or the page has to say that it was not run."""
    units = {"roofline-textfile.service", "roofline-textfile.timer"}
    checked = {"prometheus-agent.yml", "vmagent.yml", "otelcol.yaml", *RULES, *units}
    ran_end_to_end = {"roofline-textfile"}
    assert set(CONFIGURATIONS) == checked | ran_end_to_end | NOT_RUN


def test_prometheus_takes_the_agents_file(folder: Path) -> None:
    """By promtool, in agent mode."""
    promtool = require_tool("promtool")
    words = ("check", "config", "--agent", folder / "prometheus-agent.yml")
    assert "SUCCESS" in said(promtool, *words)


def test_vmagent_takes_its_file_and_flags(folder: Path) -> None:
    """The command of the page, but with its files here; it checks and ends."""
    (command,) = (text for text in COMMANDS if text.startswith("vmagent "))
    words = command.replace("\\\n", " ").split()[1:]
    said(
        require_tool("vmagent"),
        *(word.replace("=vmagent.yml", f"={folder / 'vmagent.yml'}") for word in words),
        "-dryRun",
    )


def test_vmagent_refuses_an_address_in_the_file(folder: Path) -> None:
    """As the page says: remote_write belongs in the flags."""
    vmagent = require_tool("vmagent")
    file = f"-promscrape.config={folder / 'prometheus-agent.yml'}"
    words = [vmagent, file, "-remoteWrite.url=http://h", "-dryRun"]
    done = ended(*words)
    assert done.returncode != 0
    assert "remote_write not found" in done.stderr


def test_prometheus_takes_what_the_collector_is_to_scrape(folder: Path) -> None:
    """Its receiver has Prometheus's own scrape_configs; pipelines name what is configured."""
    config: dict[str, Any] = yaml.safe_load(CONFIGURATIONS["otelcol.yaml"])
    scrape = folder / "scrape.yml"
    scrape.write_text(yaml.safe_dump(config["receivers"]["prometheus"]["config"]))
    assert "SUCCESS" in said(require_tool("promtool"), "check", "config", scrape)

    service = config["service"]
    assert set(service["extensions"]) == set(config["extensions"])
    for kind in ("receivers", "exporters"):
        assert set(service["pipelines"]["metrics"][kind]) == set(config[kind])


@pytest.mark.parametrize(
    ("rule", "alert", "series", "values", "fires"),
    [
        ("silent-nodes.yml", "GpuNodeSilent", SILENT, "1x60", False),
        ("silent-nodes.yml", "GpuNodeSilent", SILENT, "0x60", False),
        ("silent-nodes.yml", "GpuNodeSilent", SILENT, "1x10", True),
        ("textfile-age.yml", "GpuTextfileOld", AGE, "0+60x60", False),
        ("textfile-age.yml", "GpuTextfileOld", AGE, "0x60", True),
    ],
    ids=["sends", "exporter-down", "silent", "fresh", "old"],
)
def test_silence_is_an_alert(
    folder: Path, rule: str, alert: str, series: str, values: str, fires: bool
) -> None:
    """After half an hour of it; and never while the node sends, or the file is written."""
    summary = yaml.safe_load(CONFIGURATIONS[rule])["groups"][0]["rules"][0]["annotations"]
    labels = dict(re.findall(r'(\w+)="([^"]+)"', series)) | {"severity": "warning"}
    text = summary["summary"].replace("{{ $labels.instance }}", labels["instance"])
    expected = [{"exp_labels": labels, "exp_annotations": {"summary": text}}] if fires else []
    case = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": [{"eval_time": "30m", "alertname": alert, "exp_alerts": expected}],
    }
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [rule], "tests": [case]}), encoding="utf-8")
    said(require_tool("promtool"), "test", "rules", file)


def test_systemd_takes_the_units(folder: Path) -> None:
    """Without a word on either; the script is a program that exists."""
    service = folder / "roofline-textfile.service"
    text = service.read_text().replace("/usr/local/bin/roofline-textfile", sys.executable)
    service.write_text(text, encoding="utf-8")
    verified_by_systemd(service, service.with_suffix(".timer"))
