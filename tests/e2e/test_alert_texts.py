# SPDX-License-Identifier: Apache-2.0
"""What a real Prometheus makes of every alert's description and links."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.model.xids import XIDS
from tests.benchmarks.rules import served
from tests.e2e.alerting import write_rules
from tests.e2e.conftest import StartPrometheus
from tests.e2e.prometheus import PrometheusServer
from tests.rules.cases import CASES, NODE, Case
from tests.rules.rules import ALERTS
from tests.waiting import wait_until

PATIENCE_SECONDS = 60.0
SINCE_SECONDS = 2000.0
"""How long everything has been as it is when the server starts."""
ELSEWHERE = {"GpuExporterDown"}
"""It needs an exporter that is down: test_alerting.py."""
BAD = re.compile(
    r"<no value>|<error|\{\{|%!|\bnan\b"
    # Numbers are rounded, and their units stand apart: 60 %, 56 s.
    r"|\d\.\d{3}|\.\d+[smhd]\b|\d%|\de[+-]\d\d|\d(ms|B|[KMG]iB?)\b"
)


def _page(case: Case, base: float) -> str:
    lines = []
    for series in case.series:
        value = series.value(time.time() - base)
        if value is None:
            continue
        if series.name.endswith("_timestamp_seconds"):
            value += base
        labels = {k: v for k, v in series.labels.items() if (k, v) not in NODE.items()}
        inside = ",".join(f"{key}={json.dumps(text)}" for key, text in labels.items())
        lines.append(f"{series.name}{{{inside}}} {value!r}\n")
    return "".join(lines)


def _config(port: int, count: int, rules: Path) -> str:
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"instance": f"case-{i}", "__metrics_path__": f"/{i}/metrics"},
        }
        for i in range(count)
    ]
    scrape = {"job_name": "gpus", "honor_labels": True, "static_configs": targets}
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [f"{rules}/*.yml"],
            "scrape_configs": [scrape],
        }
    )


def _firing(server: PrometheusServer) -> list[dict[str, Any]]:
    return [alert for alert in server.get("alerts")["alerts"] if alert["state"] == "firing"]


def _names(alerts: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(one["labels"]["alertname"], one["labels"]["severity"]) for one in alerts}


@pytest.mark.slow
def test_every_text_is_complete(tmp_path: Path, start_prometheus: StartPrometheus) -> None:
    """All alerts fire at once; each names its GPU, job or node, and no template is left over."""
    cases = [case for case in CASES if case.labels is not None and case.alert not in ELSEWHERE]
    rules = tmp_path / "hurry" / "rules"
    write_rules(rules)
    wanted = {
        (name, rule["labels"]["severity"])
        for name, both in ALERTS.items()
        for rule in both
        if name not in ELSEWHERE
    }
    base = time.time() - SINCE_SECONDS
    with served(lambda number: _page(cases[number], base).encode()) as port:
        server = start_prometheus(config=_config(port, len(cases), rules))
        with contextlib.suppress(AssertionError):
            wait_until(lambda: _names(_firing(server)) >= wanted, PATIENCE_SECONDS)
        alerts = _firing(server)
        assert wanted - _names(alerts) == set()
    for alert in alerts:
        labels, texts = alert["labels"], alert["annotations"]
        for name, text in texts.items():
            assert name.endswith("_url") or not BAD.search(text), alert
        place = labels.get("instance") or labels.get("job", "No GPU exporter")
        assert place in texts["description"], alert
        assert place in texts["summary"], alert
        assert " " not in texts["dashboard_url"], alert
        if "gpu" in labels:
            assert f"GPU {labels['gpu']}" in texts["description"], alert
            assert f"GPU {labels['gpu']}" in texts["summary"], alert
        elif "uuid" in labels:
            assert re.search(r"GPU (\d+|GPU-\S+) ", texts["summary"]), alert
        if "xid" in labels:
            assert XIDS[int(labels["xid"])].meaning in texts["description"], alert
