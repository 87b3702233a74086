# SPDX-License-Identifier: Apache-2.0
"""Prometheus, Alertmanager and Grafana find each other, and their own tools read the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import require_tool
from tests.programs import said

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
ALERTMANAGER = DEPLOY / "alertmanager" / "alertmanager.yml"
PROVISIONING = DEPLOY / "grafana" / "provisioning"


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _services() -> dict[str, Any]:
    services: dict[str, Any] = _load(DEPLOY / "docker-compose.yml")["services"]
    return services


def test_promtool_reads_the_configuration() -> None:
    """As Debian's 2.42 does, so does a newer one."""
    said(require_tool("promtool"), "check", "config", PROMETHEUS)


def test_prometheus_looks_where_the_files_are_mounted() -> None:
    """Rules and targets of a cluster are found in the folders that ship."""
    config = _load(PROMETHEUS)
    assert "./prometheus:/etc/prometheus:ro" in _services()["prometheus"]["volumes"]
    assert config["rule_files"] == ["/etc/prometheus/rules/*.yml"]
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    files = jobs["roofline-exporter"]["file_sd_configs"][0]["files"]
    assert files == ["/etc/prometheus/targets/*.yml"]
    for folder in ("rules", "targets"):
        assert (PROMETHEUS.parent / folder).is_dir()


def test_amtool_reads_the_configuration(tmp_path: Path) -> None:
    """As it is, and with the webhook of its example."""
    amtool = require_tool("amtool")
    assert "Found" in said(amtool, "check-config", ALERTMANAGER)
    text = ALERTMANAGER.read_text()
    example = re.sub(r"(?m)^    # ( *(?:webhook_configs:|- url:|send_resolved:))", r"    \1", text)
    with_webhook = tmp_path / "alertmanager.yml"
    with_webhook.write_text(example)
    (receiver,) = yaml.safe_load(example)["receivers"]
    assert receiver["webhook_configs"][0]["send_resolved"] is True
    said(amtool, "check-config", with_webhook)


def test_grafana_finds_both_servers() -> None:
    """Data sources have fixed uids, and point at the services of the compose file."""
    sources = _load(PROVISIONING / "datasources" / "datasources.yml")["datasources"]
    by_uid = {source["uid"]: source for source in sources}
    assert set(by_uid) == {"roofline-prometheus", "roofline-alertmanager"}
    for source in sources:
        host, port = re.fullmatch(r"http://([a-z]+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
        assert _services()[host]["ports"][0].endswith(f":{port}")
    prometheus = by_uid["roofline-prometheus"]
    assert prometheus["isDefault"]
    assert prometheus["jsonData"]["timeInterval"] == _load(PROMETHEUS)["global"]["scrape_interval"]
    assert prometheus["jsonData"]["alertmanagerUid"] in by_uid


def test_grafana_reads_dashboards_from_the_mounted_folder() -> None:
    """Where the provider looks, the compose file mounts the folder that ships."""
    (provider,) = _load(PROVISIONING / "dashboards" / "dashboards.yml")["providers"]
    assert not provider["allowUiUpdates"]
    mounts = dict(volume.rsplit(":", 2)[:2] for volume in _services()["grafana"]["volumes"][:2])
    assert mounts["./grafana/${DASHBOARDS:-dashboards}"] == provider["options"]["path"]
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    for folder in ("dashboards", "dashboards-at-scale"):
        assert (DEPLOY / "grafana" / folder).is_dir()
