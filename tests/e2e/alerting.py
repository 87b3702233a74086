# SPDX-License-Identifier: Apache-2.0
"""Prometheus and Alertmanager with the files that ship, sped up, and a receiver of alerts."""

from __future__ import annotations

import json
import queue
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus.render_rules import rules
from deploy.prometheus.thresholds import BadThresholds, load, seconds
from tests.e2e.processes import ROOT, Process
from tests.serving import serving

DEPLOY = ROOT / "deploy"
LAG = ("for", "steps")
KEPT = ("ecc.window", "data_stall.age", "evaluation.keep_firing_for")


def _hurried() -> dict[str, dict[str, str | float]]:
    """The thresholds by section, each duration as a few seconds but for some that look back
    further."""
    sections: dict[str, dict[str, str | float]] = {}
    for name, value in load().items():
        section, key = name.split(".")
        try:
            seconds(value)
        except BadThresholds:
            pass
        else:
            if name not in KEPT and key != "remember":
                value = "1s" if "interval" in key else "3s" if key.endswith(LAG) else "6s"
        sections.setdefault(section, {})[key] = value
    sections["exporter"]["rejected_reports"] = 0
    sections["links"]["grafana"] = "https://grafana.example.com"
    return sections


def write_rules(directory: Path) -> None:
    """Write the same rules, but with windows of seconds, through a thresholds file of their own."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = directory.parent / "thresholds.yml"
    changed.write_text(yaml.safe_dump(_hurried()), encoding="utf-8")
    for name, text in rules(load(changed)).items():
        (directory / name).write_text(text, encoding="utf-8")


def prometheus_config(rule_folder: str, alertmanager: str, exporter: str) -> str:
    """Return deploy/prometheus/prometheus.yml, scraping one exporter every second."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = dict.fromkeys(config["global"], "1s")
    config["rule_files"] = [f"{rule_folder}/*.yml"]
    config["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [alertmanager]}]
    (ours,) = (one for one in config["scrape_configs"] if one["job_name"] == "roofline-exporter")
    ours["static_configs"] = [{"targets": [exporter]}]
    del ours["file_sd_configs"]
    config["scrape_configs"] = [ours]
    return yaml.safe_dump(config)


def alertmanager_config(webhook: str) -> str:
    """Return deploy/alertmanager/alertmanager.yml with a receiver, and without waiting."""
    path = DEPLOY / "alertmanager" / "alertmanager.yml"
    text = re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", path.read_text(encoding="utf-8"))
    config = yaml.safe_load(text)
    config["receivers"][0]["webhook_configs"] = [{"url": webhook, "send_resolved": True}]
    slack = {name: f'{{{{ template "roofline.{name}" . }}}}' for name in ("title", "slack")}
    config["receivers"][0]["slack_configs"] = [
        {"api_url": webhook, "channel": "#gpus", "title": slack["title"], "text": slack["slack"]}
    ]
    return yaml.safe_dump(config)


@dataclass
class Receiver:
    """A webhook that keeps every alert and every message to a channel that it gets, in order."""

    url: str = ""
    alerts: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    messages: queue.SimpleQueue[tuple[str, str]] = field(default_factory=queue.SimpleQueue)
    """Title and text of each."""

    def next(self, name: str, seconds: float = 60.0, **labels: str) -> dict[str, Any]:
        """Wait for an alert of this name and with these labels."""
        while True:
            alert = self.alerts.get(timeout=seconds)
            if alert["labels"].items() >= {"alertname": name, **labels}.items():
                return alert


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listen for alerts on a free port."""
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            said = json.loads(body)
            for alert in said.get("alerts", ()):
                kept.alerts.put(alert)
            for message in said.get("attachments", ()):
                kept.messages.put((message["title"], message["text"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/"
    with serving(server):
        yield kept


class Alertmanager(Process):
    """Alertmanager with a configuration, on a port that it chose itself."""

    def __init__(self, program: str, directory: Path, config_text: str) -> None:
        directory.mkdir(parents=True)
        config = directory / "alertmanager.yml"
        config.write_text(config_text, encoding="utf-8")
        shutil.copy(DEPLOY / "alertmanager" / "roofline.tmpl", directory)
        super().__init__(
            [
                program,
                f"--config.file={config}",
                f"--storage.path={directory / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                "--cluster.listen-address=",
            ],
            directory,
        )
        self.address = self.find_in_line(r"address=(127\.0\.0\.1:\d+)")[1]
        self.url = f"http://{self.address}"
