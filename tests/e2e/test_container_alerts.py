# SPDX-License-Identifier: Apache-2.0
"""The image, Prometheus and Alertmanager in containers: an idle GPU of the demo is reported."""

from __future__ import annotations

import shutil
from pathlib import Path

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.e2e.alerting import (
    DEPLOY,
    HURRY,
    alertmanager_config,
    prometheus_config,
    receiver,
    write_rules,
)
from tests.e2e.containers import Engine, address, exporter, fetch_json, service_images
from tests.e2e.test_alerting import IDLE, check_arrived
from tests.waiting import wait_until

INSTANCE = "exporter:19400"


def _configured(tmp_path: Path, name: str, config: str) -> Path:
    """A server's folder as it ships, with another configuration."""
    folder = tmp_path / name
    shutil.copytree(DEPLOY / name, folder)
    (folder / f"{name}.yml").write_text(config, encoding="utf-8")
    return folder


def _states(prometheus: str) -> set[str]:
    """The states of the alert about the notebook."""
    answer = fetch_json(f"{prometheus}/api/v1/alerts")
    alerts = answer["data"]["alerts"] if answer else []
    return {alert["state"] for alert in alerts if alert["labels"].items() >= IDLE.items()}


def test_an_idle_gpu_is_told_of(tmp_path: Path) -> None:
    """demo -> Prometheus -> Alertmanager -> webhook on the host: pending, firing, arrives."""
    engine = Engine()
    try:
        image = engine.build()
        shipped = service_images()
        images = {name: engine.require(shipped[name]) for name in ("prometheus", "alertmanager")}
        with Network() as network:
            config = engine.client.networks.get(network.id).attrs["IPAM"]["Config"]
            _told_of(tmp_path, network, image, images, config[0]["Gateway"])
    finally:
        engine.client.close()


def _told_of(
    tmp_path: Path, network: Network, image: str, images: dict[str, str], host: str
) -> None:
    with receiver(host) as inbox:
        rules = "/etc/prometheus/rules"
        folders = {
            "alertmanager": _configured(tmp_path, "alertmanager", alertmanager_config(inbox.url)),
            "prometheus": _configured(
                tmp_path, "prometheus", prometheus_config(rules, "alertmanager:9093", INSTANCE)
            ),
        }
        write_rules(folders["prometheus"] / "rules", HURRY)

        def server(name: str, port: int) -> DockerContainer:
            return (
                DockerContainer(images[name])
                .with_network(network)
                .with_network_aliases(name)
                .with_exposed_ports(port)
                .with_volume_mapping(folders[name], f"/etc/{name}")
            )

        with (
            server("alertmanager", 9093),
            server("prometheus", 9090) as prometheus,
            exporter(image, "--demo").with_network(network).with_network_aliases("exporter"),
        ):
            url = address(prometheus, 9090)
            wait_until(lambda: _states(url) == {"pending"}, 90, "pending")
            wait_until(lambda: _states(url) == {"firing"}, 60, "firing")
            alert = inbox.next("GpuHeldIdle", owner="team-a/notebook-7", severity="warning")
            check_arrived(alert, INSTANCE)
