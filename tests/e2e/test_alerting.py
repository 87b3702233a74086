# SPDX-License-Identifier: Apache-2.0
"""An idle GPU of the demo is found, named and reported; what is worse holds back what follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MEASURED
from tests.e2e.alerting import (
    DEPLOY,
    alertmanager_config,
    prometheus_config,
    receiver,
    write_rules,
)
from tests.e2e.conftest import StartAlertmanager, StartDaemon, StartPrometheus
from tests.e2e.processes import ROOT
from tests.e2e.prometheus import PrometheusServer
from tests.rules.rules import ALERTS, RULES_BY_GROUP
from tests.serving import answer_of
from tests.waiting import wait_until

IDLE = {"alertname": "GpuHeldIdle", "owner": "team-a/notebook-7", "severity": "warning"}
"""What the notebook raises in the demo."""
Labels = Mapping[str, str]


def _json(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    answer = answer_of(url, data, {"Content-Type": "application/json"})
    return json.loads(answer) if answer else None


def _state(server: PrometheusServer, **labels: str) -> set[str]:
    matchers = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {row["metric"]["alertstate"] for row in server.query(f"ALERTS{{{matchers}}}")}


def _held_back(url: str) -> set[frozenset[tuple[str, str]]]:
    """The labels of the alerts that Alertmanager inhibits."""
    return {
        frozenset(alert["labels"].items())
        for alert in _json(f"{url}/api/v2/alerts")
        if alert["status"]["inhibitedBy"]
    }


def check_arrived(alert: Mapping[str, Any], instance: str) -> None:
    """It names the GPU, the owner and the command, and leads to what to do."""
    assert alert["status"] == "firing"
    names = {"workload_namespace": "team-a", "workload_pod": "notebook-7"}
    assert alert["labels"].items() >= {**IDLE, "class": "notebook", **names}.items()
    said = alert["annotations"]
    assert f"GPU 4 of {instance} was held and idle" in said["description"]
    assert "held by team-a/notebook-7 (ipykernel_launc)" in said["description"]
    page, _, heading = said["runbook_url"].partition("#")
    assert page.endswith("docs/runbook.md")
    headings = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8").lower().splitlines()
    assert f"## {heading}" in headings
    assert "var-gpu=4" in said["dashboard_url"]


def test_an_idle_gpu_is_reported_and_stays_when_the_exporter_goes(
    start: StartDaemon,
    start_alertmanager: StartAlertmanager,
    start_prometheus: StartPrometheus,
    tmp_path: Path,
    record_property: Any,
) -> None:
    """demo -> Prometheus -> Alertmanager -> webhook: pending, firing, arrives; then the exporter
    goes down: that arrives, and the idle alert is neither resolved nor sent again."""
    daemon = start({}, "--demo", wait_for=8)
    instance = f"127.0.0.1:{daemon.port}"
    rules = tmp_path / "prometheus" / "rules"
    write_rules(rules)
    with receiver() as inbox:
        alertmanager = start_alertmanager(alertmanager_config(inbox.url))
        config = prometheus_config(str(rules), alertmanager.address, instance)
        prometheus = start_prometheus(config=config)

        wait_until(lambda: _state(prometheus, **IDLE) == {"pending"}, 60, "pending")
        wait_until(lambda: _state(prometheus, **IDLE) == {"firing"}, 60, "firing")
        arrived = inbox.next("GpuHeldIdle", owner="team-a/notebook-7", severity="warning")
        check_arrived(arrived, instance)
        record_property(MEASURED, f"alert: {arrived['annotations']['description']}")
        assert not _state(prometheus, alertname="GpuHeldIdle", owner="alice"), "she trains"

        daemon.kill()
        inbox.next("GpuExporterDown", instance=instance)
        idle = frozenset(arrived["labels"].items())
        wait_until(lambda: idle in _held_back(alertmanager.url), 30, "held back")
        # Longer than all windows together since every series of the exporter is gone.
        missed = "vector(time()) - max(max_over_time(timestamp(up == 1)[5m:1s])) > 15"
        wait_until(lambda: prometheus.query(missed), 60, "15 s without a scrape")
        assert _state(prometheus, **IDLE) == {"firing"}
        while not inbox.alerts.empty():
            sent = inbox.alerts.get()
            assert (sent["labels"]["alertname"], sent["status"]) != ("GpuHeldIdle", "resolved")


def _alert(name: str, severity: str = "warning", **labels: str) -> Labels:
    return {"alertname": name, "severity": severity, "instance": "n:1", "uuid": "GPU-a", **labels}


ABOUT_WORK = sorted(
    {
        rule["alert"]
        for group in ("roofline-idle-alerts", "roofline-job-alerts", "roofline-hang-alerts")
        for rule in RULES_BY_GROUP[group]
    }
)
HELD_BACK = {
    "GpuLost": [_alert(name) for name in ABOUT_WORK],
    "GpuXidCritical": [_alert(name) for name in ABOUT_WORK],
    "GpuExporterDown": [_alert(name) for name in ALERTS if name != "GpuExporterDown"],
    "GpuHeldIdle": [_alert("GpuHeldIdle"), _alert("GpuHeldIdle", owner="bob")],
}
"""By the alert that does it."""
SENT = {
    "GpuLost": [
        _alert("GpuHeldIdle", uuid="GPU-b"),
        _alert("GpuHeldIdle", instance="n:2"),
        _alert("GpuXidCritical", "critical", xid="79"),
        _alert("GpuThermalThrottling"),
    ],
    "GpuXidCritical": [
        _alert("GpuHeldIdle", uuid="GPU-b"),
        _alert("GpuLost", "critical"),
        _alert("GpuEccUncorrected"),
    ],
    "GpuExporterDown": [
        _alert("GpuHeldIdle", instance="n:2"),
        _alert("GpuRowRemapFailure", "critical", instance="n:2"),
        _alert("NodeFilesystemFull"),
    ],
    "GpuHeldIdle": [
        _alert("GpuHeldIdle", uuid="GPU-b"),
        _alert("GpuHeldIdle", gpu_instance="1"),
        _alert("GpuOrphanMemory"),
    ],
}
"""What it must not hold back."""


@pytest.mark.parametrize("source", HELD_BACK)
def test_what_is_worse_holds_back_what_follows(
    source: str, start_alertmanager: StartAlertmanager
) -> None:
    """On the same GPU or node, and nothing else, by Alertmanager as it ships."""
    shipped = DEPLOY / "alertmanager" / "alertmanager.yml"
    alertmanager = start_alertmanager(shipped.read_text(encoding="utf-8"))
    extra = {"uuid": ""} if source == "GpuExporterDown" else {}
    alerts = [_alert(source, "critical", **extra), *HELD_BACK[source], *SENT[source]]
    _json(
        f"{alertmanager.url}/api/v2/alerts",
        [{"labels": {key: value for key, value in one.items() if value}} for one in alerts],
    )
    wanted = {frozenset(one.items()) for one in HELD_BACK[source]}
    wait_until(lambda: len(_json(f"{alertmanager.url}/api/v2/alerts")) == len(alerts), 10, "all")
    wait_until(lambda: _held_back(alertmanager.url) == wanted, 10, f"held back: {wanted}")


def _idle(gpu: int, namespace: str, instance: str = "n:1") -> dict[str, Any]:
    pod = f"notebook-{gpu}"
    labels = _alert(
        "GpuHeldIdle",
        instance=instance,
        uuid=f"GPU-{gpu}",
        owner=f"{namespace}/{pod}",
        workload_namespace=namespace,
        workload_pod=pod,
    )
    summary = f"GPU {gpu} of {instance} is held by {namespace}/{pod} and does nothing."
    return {
        "labels": labels,
        "annotations": {"summary": summary, "runbook_url": "http://book#idle", "gpu_hours": "1.5"},
    }


def _line(alert: Mapping[str, Any]) -> str:
    summary = alert["annotations"]["summary"]
    return (
        f"• {summary} In the last 24 hours this took 1.5 GPU-hours. <http://book#idle|What to do>"
    )


def test_a_team_gets_one_message_with_a_line_for_each_gpu(
    start_alertmanager: StartAlertmanager,
) -> None:
    """Over its nodes; another namespace one of its own; of a node that is lost, no line."""
    ours = [_idle(gpu, "team-a", f"n:{1 + gpu % 2}") for gpu in range(8)]
    theirs = [_idle(8, "team-b")]
    lost = [_idle(9, "team-c", "n:3")]
    down = {
        "labels": {"alertname": "GpuExporterDown", "severity": "critical", "instance": "n:3"},
        "annotations": {"summary": "The GPU exporter of n:3 cannot be scraped."},
    }
    with receiver() as inbox:
        alertmanager = start_alertmanager(alertmanager_config(inbox.url))
        _json(f"{alertmanager.url}/api/v2/alerts", [down, *lost, *ours, *theirs])
        messages = dict(inbox.messages.get(timeout=30) for _ in range(3))
        assert {title: sorted(text.splitlines()) for title, text in messages.items()} == {
            "GpuHeldIdle of namespace team-a (8 alerts)": sorted(map(_line, ours)),
            "GpuHeldIdle of namespace team-b": [_line(theirs[0])],
            "GpuExporterDown on n:3": ["• The GPU exporter of n:3 cannot be scraped."],
        }
        assert _held_back(alertmanager.url) == {frozenset(lost[0]["labels"].items())}
