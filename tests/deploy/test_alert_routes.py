# SPDX-License-Identifier: Apache-2.0
"""Alerts find the receiver of their team, and their texts can be read; by Alertmanager's tools."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import require_tool
from tests.programs import said

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
TEMPLATES = SHIPPED.with_name("roofline.tmpl")
OPERATOR = SHIPPED.with_name("alertmanagerconfig.yml")
SCHEMA = ROOT / "tests" / "data" / "alertmanagerconfig.schema.json"
EXAMPLES = re.findall(
    r"```yaml\n(receivers:.*?)```", (ROOT / "docs/alerting.md").read_text(encoding="utf-8"), re.S
)
"""The receivers that the page shows."""


def amtool(*words: str) -> str:
    return said(require_tool("amtool"), *words).strip()


@pytest.fixture
def with_team(tmp_path: Path) -> Path:
    """The file that ships with the team of its comments."""
    config = tmp_path / "alertmanager.yml"
    team = re.compile(
        r"(?ms)^ *# - (?:matchers: .workload_namespace=|name: team-a).*?(?=^ *[^# \n])"
    )
    text = team.sub(lambda found: re.sub(r"(?m)^( *)# ", r"\1", found[0]), SHIPPED.read_text())
    config.write_text(text, encoding="utf-8")
    amtool("check-config", str(config))
    return config


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"workload_namespace": "team-a", "workload_pod": "p", "owner": "team-a/p"}, "team-a"),
        ({"workload_namespace": "team-a", "severity": "critical"}, "team-a"),
        ({"workload_namespace": "team-b", "owner": "team-b/p"}, "default"),
        ({"workload_user": "ada", "workload_job": "4711", "owner": "ada, job 4711"}, "default"),
        ({"owner": "alice"}, "default"),
        ({"severity": "critical"}, "default"),
        ({"severity": "info"}, "default"),
    ],
    ids=str,
)
def test_an_alert_is_routed_by_its_namespace(
    labels: Mapping[str, str], receiver: str, with_team: Path
) -> None:
    """To the team, if it has a receiver; all else to the one that gets everything."""
    words = [f"{name}={value}" for name, value in labels.items()]
    found = f"--verify.receivers={receiver}"
    amtool("config", "routes", "test", f"--config.file={with_team}", found, *words)


@pytest.mark.parametrize("side", ["source_matchers", "target_matchers"])
def test_nothing_but_our_alerts_is_held_back(side: str) -> None:
    """The rules may stand in an Alertmanager of many others, whose alerts lack our labels.

    Two labels that are both missing count as equal there.
    """
    for rule in yaml.safe_load(SHIPPED.read_text())["inhibit_rules"]:
        assert any(re.match(r'alertname=~?"Gpu', each) for each in rule[side]), rule


def _firing(summary: str, labels: Mapping[str, str], **more: str) -> dict[str, Any]:
    annotations = {"summary": summary, "runbook_url": "http://book#idle", **more}
    return {"status": "firing", "labels": labels, "annotations": annotations}


IDLE = _firing(
    "GPU 0 of n1 is held by team-a/p and does nothing.",
    {"owner": "team-a/p", "workload_namespace": "team-a", "workload_pod": "p"},
    gpu_hours="1.5",
    cost="3.75 EUR",
    dashboard_url="http://grafana/d/idle?var-gpu=0&x=1",
)
STALL = _firing(
    "Rank 3 of <!here> [x](y) (GPU 1 of n1) waits for its data loader.",
    {"workload_user": "ada", "workload_job": "4711"},
    gpu_hours="",
    cause_url="http://causes#no_workers",
)
ENDED = {**_firing("GPU 2 of n1 is held by team-a/q and does nothing.", {}), "status": "resolved"}


def rendered(text: str, folder: Path, *alerts: Mapping[str, Any], **common: str) -> str:
    """What Alertmanager makes of a template and alerts."""
    data = folder / "data.json"
    status = "firing" if any(one["status"] == "firing" for one in alerts) else "resolved"
    labels = {"alertname": "GpuHeldIdle", **common}
    data.write_text(json.dumps({"status": status, "alerts": alerts, "commonLabels": labels}))
    kind = "html" if "roofline.html" in text else "text"
    return amtool(
        *("template", "render", f"--template.glob={TEMPLATES}", f"--template.data={data}"),
        *(f"--template.type={kind}", f"--template.text={text}"),
    )


def shown(name: str, folder: Path, *alerts: Mapping[str, Any], **common: str) -> str:
    """The same of a template that ships."""
    return rendered(f'{{{{ template "roofline.{name}" . }}}}', folder, *alerts, **common)


WASTED = (
    f"{IDLE['annotations']['summary']} In the last 24 hours this took 1.5 GPU-hours (3.75 EUR)."
)
WAITS = "(GPU 1 of n1) waits for its data loader. It is the work of ada, job 4711."
LINES = {
    "slack": (
        f"• {WASTED} <http://grafana/d/idle?var-gpu=0&x=1|Panel> <http://book#idle|What to do>\n"
        f"• Rank 3 of &lt;!here> [x](y) {WAITS}"
        " <http://causes#no_workers|Cause> <http://book#idle|What to do>\n"
        f"• Ended: {ENDED['annotations']['summary']}"
    ),
    "markdown": (
        f"- {WASTED} [Panel](http://grafana/d/idle?var-gpu=0&x=1) [What to do](http://book#idle)\n"
        rf"- Rank 3 of \<!here\> \[x\](y) {WAITS}"
        " [Cause](http://causes#no_workers) [What to do](http://book#idle)\n"
        f"- Ended: {ENDED['annotations']['summary']}"
    ),
    "text": (
        f"- {WASTED} Panel: http://grafana/d/idle?var-gpu=0&x=1 What to do: http://book#idle\n"
        f"- Rank 3 of <!here> [x](y) {WAITS}"
        " Cause: http://causes#no_workers What to do: http://book#idle\n"
        f"- Ended: {ENDED['annotations']['summary']}"
    ),
    "html": (
        f'<ul>\n<li>{WASTED} <a href="http://grafana/d/idle?var-gpu=0&amp;x=1">Panel</a>'
        ' <a href="http://book#idle">What to do</a></li>\n'
        f"<li>Rank 3 of &lt;!here&gt; [x](y) {WAITS}"
        ' <a href="http://causes#no_workers">Cause</a>'
        ' <a href="http://book#idle">What to do</a></li>\n'
        f"<li>Ended: {ENDED['annotations']['summary']}</li>\n</ul>"
    ),
}


@pytest.mark.parametrize("form", LINES)
def test_a_text_has_a_line_for_each_gpu(form: str, tmp_path: Path) -> None:
    """What is not known is left out; no name of a job mentions anybody or adds a link."""
    assert shown(form, tmp_path, IDLE, STALL, ENDED) == LINES[form]


@pytest.mark.parametrize(
    ("alerts", "common", "title"),
    [
        ([IDLE], {"workload_namespace": "team-a"}, "GpuHeldIdle of namespace team-a"),
        ([IDLE, IDLE, ENDED], {"workload_user": "ada"}, "GpuHeldIdle of ada (2 alerts)"),
        ([IDLE], {"owner": "alice", "instance": "n1"}, "GpuHeldIdle of alice"),
        ([ENDED, ENDED], {"instance": "n1"}, "Ended: GpuHeldIdle on n1 (2 alerts)"),
        ([IDLE], {}, "GpuHeldIdle"),
    ],
    ids=["namespace", "user", "owner", "node", "fleet"],
)
def test_a_title_says_whose_it_is(
    alerts: list[Mapping[str, Any]], common: Mapping[str, str], title: str, tmp_path: Path
) -> None:
    """Or where, if it is nobody's."""
    assert shown("title", tmp_path, *alerts, **common) == title


def test_the_receivers_of_the_page_are_valid(tmp_path: Path) -> None:
    """But for a kind that only a newer Alertmanager than Debian's has."""
    kinds = set()
    for number, example in enumerate(EXAMPLES):
        receivers = yaml.safe_load(example)["receivers"]
        kinds |= {kind for one in receivers for kind in one if kind != "name"}
        old = [
            {kind: config for kind, config in one.items() if kind != "msteamsv2_configs"}
            for one in receivers
        ]
        config = tmp_path / f"{number}.yml"
        route = {"receiver": receivers[0]["name"]}
        config.write_text(yaml.safe_dump({"route": route, "receivers": old}))
        amtool("check-config", str(config))
    wanted = {"slack_configs", "webhook_configs", "email_configs", "msteamsv2_configs"}
    assert kinds == wanted


def test_the_operator_takes_its_example() -> None:
    """By the fields of its CRD that the example uses, and no others."""
    said(sys.executable, "-m", "check_jsonschema", "--schemafile", SCHEMA, OPERATOR)


def test_the_texts_of_the_operator_are_those_that_ship(tmp_path: Path) -> None:
    """But for whose work it is, which the title says."""
    config = yaml.safe_load(OPERATOR.read_text(encoding="utf-8"))
    (slack,) = config["spec"]["receivers"][0]["slackConfigs"]
    for name, form in (("title", "title"), ("text", "slack")):
        text = rendered(slack[name], tmp_path, IDLE, ENDED, workload_namespace="team-a")
        assert text == shown(form, tmp_path, IDLE, ENDED, workload_namespace="team-a")


def test_every_template_that_is_named_exists() -> None:
    """In the file that ships, and on the page."""
    defined = set(re.findall(r'define "([\w.]+)"', TEMPLATES.read_text(encoding="utf-8")))
    for text in (SHIPPED.read_text(encoding="utf-8"), *EXAMPLES):
        assert set(re.findall(r'template "([\w.]+)"', text)) <= defined
