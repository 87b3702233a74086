# SPDX-License-Identifier: Apache-2.0
"""An HA pair of Prometheus, VictoriaMetrics and vmalert, with the files of deploy/scale/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.prometheus import render_rules
from deploy.prometheus.thresholds import THRESHOLDS
from tests.conftest import require_tool
from tests.deploy.remote import DOCS, commands
from tests.e2e.conftest import StartAlertmanager, StartDaemon, StartPrometheus
from tests.e2e.processes import Process
from tests.e2e.stores import VictoriaMetrics
from tests.serving import answer_of, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
GPUS = 8
PAIR = DOCS.parent / "deploy" / "scale" / "prometheus-ha.yml"
NOBODY = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
RECORDED = (
    *("gpu:gpu_workload_owner:info", "owner:gpu_allocated:sum_rate2m", "job:gpu_up:count"),
    "training_job:gpu_training_mfu:ratio_rate5m",
)
"""Each reads what another rule, or another file, has recorded."""


def _flags(program: str) -> list[str]:
    """The flags with which the page starts a program."""
    (command,) = (one for one in commands("scale.md") if one.startswith(f"{program} "))
    return command.replace("\\\n", " ").split()[1:]


def _rules(folder: Path) -> Path:
    """The rules for vmalert, evaluated every second."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    sections["evaluation"] |= {"interval": "1s", "slow_interval": "2s", "long_interval": "2s"}
    thresholds = folder / "thresholds.yml"
    thresholds.write_text(yaml.safe_dump(sections), encoding="utf-8")
    words = ["--thresholds", str(thresholds), "--output", str(folder / "rules")]
    assert render_rules.main([*words, "--without-keep-firing-for"]) == 0
    return folder / "rules"


def _replica(name: str, port: int, store: VictoriaMetrics) -> str:
    """The configuration of one of the pair."""
    config = yaml.safe_load(PAIR.read_text(encoding="utf-8"))
    config["global"] |= {"scrape_interval": "1s"}
    config["global"]["external_labels"]["replica"] = name
    (job,) = config["scrape_configs"]
    del job["file_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (remote,) = config["remote_write"]
    remote["url"] = f"http://{store.address}/api/v1/write"
    del config["rule_files"], config["alerting"]
    return yaml.safe_dump(config)


def test_a_pair_is_one_and_its_rules_are_recorded(
    start: StartDaemon,
    start_prometheus: StartPrometheus,
    start_alertmanager: StartAlertmanager,
    folders: Iterator[Path],
    processes: list[Process],
) -> None:
    """Each sample of two replicas is stored once; vmalert evaluates every rule without an error."""
    flags = [one for one in _flags("victoria-metrics") if one.startswith(("-dedup", "-search"))]
    assert len(flags) == 3
    flags = [one.replace("=15s", "=1s") for one in flags]
    program = require_tool("victoria-metrics")
    store = VictoriaMetrics(program, next(folders), free_port(), flags)
    processes.append(store)
    daemon = start({}, "--demo", wait_for=GPUS)
    for name in ("a", "b"):
        start_prometheus(config=_replica(name, daemon.port, store))
    alertmanager = start_alertmanager(NOBODY)
    folder = next(folders)
    folder.mkdir()
    given = {
        "-rule": str(_rules(folder) / "*.yml"),
        "-datasource.url": f"http://{store.address}",
        "-remoteWrite.url": f"http://{store.address}",
        "-remoteRead.url": f"http://{store.address}",
        "-notifier.url": f"http://{alertmanager.address}",
        "-remoteWrite.flushInterval": "1s",
    }
    words = [
        f"{name}={given.pop(name)}" if (name := flag.partition("=")[0]) in given else flag
        for flag in _flags("vmalert")
    ]
    assert given == {}
    address = f"127.0.0.1:{free_port()}"
    vmalert = Process([require_tool("vmalert"), *words, f"-httpListenAddr={address}"], folder)
    processes.append(vmalert)

    def all_recorded() -> bool:
        return all(store.query(name) for name in RECORDED)

    # A series that was asked for before it began is found half a minute later.
    wait_until(all_recorded, 120, "recorded series of four kinds")
    assert store.query("gpu_up{replica!=''}") == []
    (up,) = store.query("count(gpu_up == 1)")
    assert float(up["value"][1]) == GPUS
    (most,) = store.query("max(count_over_time(gpu_up[10s]))")
    assert 5 <= float(most["value"][1]) <= 11
    for name in RECORDED:
        assert all("alertgroup" not in one["metric"] for one in store.query(name)), name
    shown = json.loads(answer_of(f"http://{address}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in shown for rule in group["rules"]]
    assert len(rules) > 100
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["lastError"]} == {}
    assert vmalert.lines("error") == []
