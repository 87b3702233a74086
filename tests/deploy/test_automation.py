# SPDX-License-Identifier: Apache-2.0
"""docs/automation.md: its manifests are valid, and its queries never take unknown for idle."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition.catalogue import CATALOGUE
from tests.deploy import automation
from tests.deploy.automation import (
    ADAPTER,
    COMMANDS,
    FILES,
    SCALED_OBJECT,
    TARGET,
    fields_of,
    of,
    queries,
)
from tests.deploy.kubectl import of_kind, rendered, validate
from tests.deploy.pod_security import violations
from tests.programs import ended, exporter, verified_by_systemd
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Expected,
    Interruption,
    Labels,
    Series,
    Test,
    between,
    piecewise,
    run_suite,
    selector,
)
from tests.rules.rules import RECORDED, RECORDED_NAME, only

FOREIGN = {
    "rabbitmq_queue_messages_ready",
    "kube_deployment_status_replicas",
    "vllm:num_requests_waiting",
    "vllm:num_incoming_requests_total",
}
"""Series of others that the page asks for."""
FUNCTIONS = {
    *("sum", "min", "max", "count", "by", "on", "and", "or", "unless", "offset"),
    *("group_left", "group_right", "clamp_max", "clamp_min", "label_replace"),
    *("count_over_time", "increase"),
}


def test_every_configuration_is_checked() -> None:
    """A new one needs a test here, or the page has to say that it was not run."""
    manifests = {"gpu-automation.yml", "adapter.yml", "hpa.yml", "scaledobject.yml"}
    units = {"slurm-reclaim.service", "slurm-reclaim.timer"}
    assert set(FILES) == manifests | units | {"jupyterhub_config.py"}
    languages = {language for language, _ in automation.BLOCKS}
    assert languages == {"yaml", "promql", "sh", "python", "ini"}


def test_the_autoscaler_follows_the_schema() -> None:
    """Of the oldest and the newest Kubernetes."""
    validate([of("hpa.yml")])


def test_the_scaled_object_has_keda_s_fields() -> None:
    """And the behaviour in it is that of an HPA."""
    found = of("scaledobject.yml")
    assert fields_of(found) <= SCALED_OBJECT
    assert {each["type"] for each in found["spec"]["triggers"]} == {"prometheus"}
    behavior = found["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    hpa = of("hpa.yml")
    validate([hpa | {"spec": hpa["spec"] | {"behavior": behavior}}])


def test_the_adapter_s_rules_have_its_fields() -> None:
    """HPA asks for what they are called there."""
    found = of("adapter.yml")
    assert fields_of(found) <= ADAPTER
    names = [rule["name"]["as"] for rule in found["rules"]]
    metrics = [each["pods"]["metric"]["name"] for each in of("hpa.yml")["spec"]["metrics"]]
    assert names == metrics
    recorded = {rule["record"] for rule in automation.rules()}
    assert {rule["seriesQuery"] for rule in found["rules"]} <= recorded


def test_a_lost_series_is_an_error_for_keda_and_never_zero() -> None:
    """As the page's table says; and no query of it makes a 0 out of nothing."""
    spec = of("scaledobject.yml")["spec"]
    for name, trigger in automation.triggers().items():
        assert trigger["ignoreNullValues"] == "false", name
        assert float(trigger["threshold"]) >= 1, name
    assert spec["fallback"]["replicas"] > 0
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    for name, query in [
        *queries().items(),
        *((r["record"], r["expr"]) for r in automation.rules()),
    ]:
        assert not re.search(r"vector\(|absent", query), name


def test_the_target_is_the_same_everywhere() -> None:
    """In the adapter's rule, in HPA, and in percent in KEDA's triggers."""
    for each in of("hpa.yml")["spec"]["metrics"]:
        assert each["pods"]["target"]["averageValue"] == f"{round(TARGET * 1000)}m"
    upper = automation.adapter_query("saturation_upper_to_target", "n", "p")
    assert upper.endswith(f", {TARGET})")
    triggers = automation.triggers()
    for name in ("saturation-out", "saturation-in"):
        assert triggers[name]["threshold"] == f"{round(TARGET * 100)}"
    assert f", {TARGET}))" in triggers["saturation-in"]["query"]
    assert f"+ {round(TARGET * 100)} *" in triggers["saturation-in"]["query"]


def test_the_reclaiming_job_follows_schema_and_profile(tmp_path: Path) -> None:
    """What kustomize renders is valid, in one namespace, and restricted."""
    objects = rendered(automation.FOLDER / "reclaim")
    validate(objects)
    assert {each["metadata"]["namespace"] for each in objects} == {"team-a"}
    pod = of_kind(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert violations(pod) == set()
    scripts = of_kind(objects, "ConfigMap")
    assert pod["volumes"][0]["configMap"]["name"] == scripts["metadata"]["name"]
    assert list(scripts["data"]) == ["reclaim.py"]


def test_shells_take_the_commands_and_systemd_the_units(tmp_path: Path) -> None:
    """Without a word on either."""
    for command in COMMANDS:
        done = ended("sh", "-n", input=command)
        assert (done.returncode, done.stderr) == (0, ""), command
    units = [tmp_path / name for name in FILES if name.startswith("slurm-reclaim.")]
    for unit in units:
        text = FILES[unit.name].replace("/usr/local/sbin/slurm-reclaim.sh", sys.executable)
        unit.write_text(text, encoding="utf-8")
    verified_by_systemd(*units)


def test_every_series_of_the_page_exists() -> None:
    """On the demo's page, in the shipped rules, in the page's own, or at somebody else's."""
    text = " ".join([*queries().values(), *(rule["expr"] for rule in automation.rules())])
    text = re.sub(r'"[^"]*"', "", text)
    own = {rule["record"] for rule in automation.rules()}
    recorded = set(RECORDED_NAME.findall(text))
    assert recorded <= own | set(RECORDED)
    names = set(re.findall(r"(?<![\w:])[a-z_]+[a-z0-9_:]*(?=[{ \n)\[]|$)", text)) - recorded
    labels = {"instance", "uuid", "gpu_instance", "namespace", "pod"}
    asked = {name for name in names - FUNCTIONS - labels if not name.startswith("workload_")}
    assert asked >= {"gpu_up", "gpu_workload_info", "gpu_last_busy_timestamp_seconds"}
    families = {family.name for family in CATALOGUE.values()}
    for name in asked - FOREIGN:
        assert name in families, name
        assert _demo(name), name


AT = 2.25 * HOUR
LATELY = AT - 10 * MINUTE
CLOCK = -1800.0
"""The node's clock is half an hour behind Prometheus's."""
CHAT = "chat-7d9f8c6b5-x2v4q"
"""A pod of team-b in the demo, on GPU 1; notebook-7 of team-a is on GPU 4."""
NOTEBOOK = "notebook-7"
NAMES = (
    *("gpu_up", "gpu_workload_info", "gpu_last_busy_timestamp_seconds"),
    *("gpu_saturation_lower_ratio", "gpu_saturation_upper_ratio", "roofline_exporter_source_up"),
    "roofline_exporter_snapshot_timestamp_seconds",
)
EXPORTER: Labels = {"namespace": "monitoring", "pod": "roofline-exporter-abcde"}
"""The labels of the target, where the Prometheus operator scrapes; they are not the work's."""


@cache
def _page() -> Mapping[str, Sequence[Labels]]:
    page = exporter("once", "--demo", "--log.level=error").stdout
    families = text_string_to_metric_families(page)
    return {one.name: [sample.labels for sample in one.samples] for one in families}


def _demo(name: str) -> list[Labels]:
    """The labels of a family on the demo's page, as Prometheus stores them."""
    target = {"job": "gpus", "instance": "node-1:19400", **EXPORTER}
    return [{**labels, **target} for labels in _page()[name]]


def _node(
    lower: float = 0.9, upper: float = 0.9, instance: str = "node-1:19400", began: float = 0.0
) -> list[Series]:
    """A node of the demo: its GPU 1 is saturated between bounds, its GPU 4 idle since the start."""
    bounds = {"gpu_saturation_lower_ratio": lower, "gpu_saturation_upper_ratio": upper}
    found = []
    for name in NAMES:
        for labels in _demo(name):
            own, value = {**labels, "instance": instance}, piecewise((0, 1))
            if name in bounds:
                value = piecewise((0, bounds[name] if labels["gpu"] == "1" else 0.5))
            elif name == "gpu_last_busy_timestamp_seconds":
                value = piecewise((0, CLOCK)) if labels["gpu"] == "4" else lambda at: CLOCK + at
            elif name == "roofline_exporter_snapshot_timestamp_seconds":
                value = lambda at: CLOCK + at  # noqa: E731
            elif name == "gpu_workload_info" and labels["workload_pod"] in {CHAT, NOTEBOOK}:
                value = between(began, 1e9, piecewise((0, 1)))
            found.append(Series(name, own, value))
    return found


def _changed(
    series: Sequence[Series], name: str, now: float | None, since: float = LATELY, **match: str
) -> list[Series]:
    """The same series, with another value of some, in the last ten minutes or since a time."""

    def changed(one: Series) -> Series:
        if one.name != name or any(one.labels.get(key) != each for key, each in match.items()):
            return one
        return replace(one, value=lambda at: one.value(at) if at < since else now)

    return [changed(one) for one in series]


def _without(series: Sequence[Series], gpu: str) -> list[Series]:
    """A GPU that was lost ten minutes ago: `gpu_up` is 0, its other series are gone."""
    for name in NAMES:
        series = _changed(series, name, 0 if name == "gpu_up" else None, gpu=gpu)
    return list(series)


def _boundless(since: float) -> list[Series]:
    """Since then nothing bounds the saturation of a GPU that answers."""
    series = _changed(_node(), "gpu_saturation_lower_ratio", None, since)
    return _changed(series, "gpu_saturation_upper_ratio", None, since)


def _shared(series: Sequence[Series]) -> list[Series]:
    """Each of the two pods has another one beside it on its GPU."""
    beside = [
        replace(one, labels={**one.labels, "workload_pod": "second", "workload_id": "2"})
        for one in series
        if one.name == "gpu_workload_info" and one.labels["workload_pod"] in {CHAT, NOTEBOOK}
    ]
    return [*series, *beside]


def _others(replicas: float = 1, waiting: bool = True) -> list[Series]:
    """What brokers, kube-state-metrics and vLLM say."""
    name: Labels = {"namespace": "team-b", "deployment": "chat"}
    found = [
        Series("rabbitmq_queue_messages_ready", {"queue": "chat"}, piecewise((0, 3))),
        Series("kube_deployment_status_replicas", name, piecewise((0, replicas))),
        Series("vllm:num_incoming_requests_total", {"namespace": "team-b"}, lambda at: at / 60),
    ]
    vllm = Series(
        "vllm:num_requests_waiting", {"namespace": "team-b", "pod": CHAT}, piecewise((0, 2))
    )
    return [*found, *([vllm] if waiting else [])]


Samples = Mapping[str, Sequence[tuple[Labels, float]]]
QUEUES: Samples = {
    "keda-queue": [({}, 3.0)],
    "vllm-incoming": [({}, 5.0)],
    "vllm-waiting": [({}, 2.0)],
}
NOTHING: Samples = {name: [] for name in queries()}
UNKNOWN: Samples = {**NOTHING, **QUEUES}
"""Of no pod anything: whoever asks gets no series."""


def _known(lower: float, upper: float, idle: Mapping[str, float]) -> Samples:
    """What the queries give of one pod with these bounds, and of idle pods of team-a."""
    capped = min(upper, TARGET)
    return {
        "keda-saturation-out": [({}, 100 * lower)],
        "keda-saturation-in": [({}, 100 * capped)],
        "hpa-saturation_lower": [({"pod": CHAT}, lower)],
        "hpa-saturation_upper_to_target": [({"pod": CHAT}, capped)],
        "reclaim": [({"namespace": "team-a", "pod": pod}, each) for pod, each in idle.items()],
        **QUEUES,
    }


WELL = _known(0.9, 0.9, {NOTEBOOK: AT})
GONE = Interruption(LATELY, AT + 1)
SITUATIONS: Mapping[str, tuple[Sequence[Series], Samples, Interruption | None]] = {
    "all-well": (_node(), WELL, None),
    "exporter-down": (_node(), UNKNOWN, GONE),
    "exporter-just-down": (_node(), UNKNOWN, Interruption(AT - MINUTE, AT + 1)),
    "scrapes-are-late": (
        _node(),
        _known(0.9, 0.9, {NOTEBOOK: AT - 90.0}),
        Interruption(AT - MINUTE, AT + 1, stale=False),
    ),
    "exporter-restarted": (
        _changed(_node(), "gpu_last_busy_timestamp_seconds", CLOCK + LATELY),
        _known(0.9, 0.9, {}),
        Interruption(LATELY, LATELY + MINUTE),
    ),
    "counters-absent": (_node(0.0, 1.0), _known(0.0, 1.0, {NOTEBOOK: AT}), None),
    "bounds-below-the-target": (_node(0.1, 0.3), _known(0.1, 0.3, {NOTEBOOK: AT}), None),
    "gpu-shared": (
        _shared(_node()),
        {**UNKNOWN, "reclaim": [*WELL["reclaim"], ({"namespace": "team-a", "pod": "second"}, AT)]},
        None,
    ),
    "pods-just-began": (_node(began=AT - 2 * MINUTE), UNKNOWN, None),
    "pods-began-an-hour-ago": (_node(began=AT - HOUR), _known(0.9, 0.9, {}), None),
    "another-gpu-lost": (_without(_node(), "6"), UNKNOWN, None),
    "kubelet-silent": (
        _changed(_node(), "roofline_exporter_source_up", 0, source="kubernetes"),
        UNKNOWN,
        None,
    ),
    "bounds-lost": (_boundless(LATELY), {**UNKNOWN, "reclaim": WELL["reclaim"]}, None),
    "bounds-just-lost": (_boundless(AT - MINUTE), {**UNKNOWN, "reclaim": WELL["reclaim"]}, None),
    "whether-idle-unknown": (
        _changed(_node(), "gpu_last_busy_timestamp_seconds", None, gpu="4"),
        {**WELL, "reclaim": []},
        None,
    ),
}


def _rules() -> Mapping[str, Any]:
    """The page's rules after the shipped ones that they read."""
    own = automation.rules()
    read = {name for rule in own for name in RECORDED_NAME.findall(rule["expr"])} & set(RECORDED)
    (group,) = only(read)["groups"]
    return {"groups": [{**group, "rules": [*group["rules"], *own]}]}


def _group(
    series: Sequence[Series],
    expected: Samples,
    event: Interruption | None = None,
    asked: Mapping[str, str] | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Every query of the page over some series, as a group of promtool."""
    asked = queries() if asked is None else asked
    assert set(expected) == set(asked), "each query needs an expectation"
    wanted = [
        Expected(
            f"round({asked[name]}, 1e-6)",
            AT,
            [(selector("", dict(sorted(labels.items()))), each) for labels, each in samples],
        )
        for name, samples in expected.items()
    ]
    return Test(name, series, wanted, event).group()


def _evaluated(
    folder: Path,
    series: Sequence[Series],
    expected: Samples,
    asked: Mapping[str, str] | None = None,
) -> None:
    run_suite(folder, _rules(), [_group(series, expected, asked=asked)])


@pytest.mark.slow
def test_queries_in_every_situation(tmp_path: Path) -> None:
    """What is lost, unknown or too young looks neither like no load nor like idle."""
    others = [replace(one, answers=False) for one in _others()]
    groups = [
        _group([*series, *others], expected, event, name=name)
        for name, (series, expected, event) in SITUATIONS.items()
    ]
    run_suite(tmp_path, _rules(), groups)


def test_no_pod_is_no_load_only_where_that_is_said(tmp_path: Path) -> None:
    """By kube-state-metrics; without a word of it, nothing is known."""
    zeros = ("keda-saturation-out", "keda-saturation-in", "vllm-waiting")
    said = {**UNKNOWN, **{name: [({}, 0.0)] for name in zeros}}
    _evaluated(tmp_path, _others(replicas=0, waiting=False), said)
    silent = [one for one in _others(waiting=False) if not one.name.startswith("kube_")]
    _evaluated(tmp_path, silent, {**UNKNOWN, "vllm-waiting": []})
    _evaluated(tmp_path, [], NOTHING)


def test_a_pod_on_a_lost_node_counts_as_one_at_the_target(tmp_path: Path) -> None:
    """Of two replicas, one is idle and one unknown: out counts it as 0, in as one at the target."""
    series = [*_node(0.2, 0.2), *_others(replicas=2)]
    expected = {**_known(0.2, 0.2, {NOTEBOOK: AT}), "keda-saturation-in": [({}, 20.0 + 70.0)]}
    _evaluated(tmp_path, series, expected)


@pytest.mark.parametrize("second", ["without bounds", "shared"])
def test_a_gpu_of_which_nothing_is_known_counts_as_anything(second: str, tmp_path: Path) -> None:
    """Of the mean over a pod's two GPUs, it is 0 in the lower bound and 1 in the upper one, whether
    nothing bounds it or another pod shares it: GPU 2 of the demo is saturated to 0.5."""
    (labels,) = (one for one in _demo("gpu_workload_info") if one["workload_pod"] == CHAT)
    there: Labels = {"uuid": "GPU-second", "gpu": "8"}
    if second == "shared":
        (other,) = (one for one in _demo("gpu_workload_info") if one["gpu"] == "2")
        there = {key: other[key] for key in ("gpu", "uuid")}
    given = Series("gpu_workload_info", {**labels, **there}, piecewise((0, 1)))
    names = ("pod:gpu_saturation_lower:ratio_avg5m", "pod:gpu_saturation_upper:ratio_avg5m")
    asked = {name: f'{name}{{pod="{CHAT}"}}' for name in names}
    pod: Labels = {"namespace": "team-b", "pod": CHAT}
    expected = dict(zip(names, ([(pod, 0.2)], [(pod, 0.8)]), strict=True))
    _evaluated(tmp_path, [*_node(0.4, 0.6), given], expected, asked=asked)


def test_a_pod_with_a_busy_gpu_is_not_idle(tmp_path: Path) -> None:
    """One idle GPU of two is not enough; neither is one of which it is not known."""
    (labels,) = (one for one in _demo("gpu_workload_info") if one["workload_pod"] == NOTEBOOK)
    second = {**labels, "uuid": "GPU-second", "gpu": "8"}
    given = Series("gpu_workload_info", second, piecewise((0, 1)))
    busy = {key: second[key] for key in ("job", "instance", "uuid", "gpu")} | dict(EXPORTER)
    works = Series("gpu_last_busy_timestamp_seconds", busy, lambda at: at)
    asked = {"reclaim": queries()["reclaim"]}
    for more in ([given, works], [given]):
        _evaluated(tmp_path, [*_node(), *more], {"reclaim": []}, asked=asked)


def test_the_hub_s_configuration_is_python() -> None:
    """It runs, and gives the service the rights that its script uses."""

    class Trait:
        def __getattr__(self, name: str) -> Any:
            self.__dict__[name] = found = Trait()
            return found

    config = Trait()
    exec(compile(FILES["jupyterhub_config.py"], "jupyterhub_config.py", "exec"), {"c": config})
    (service,), (role,) = config.JupyterHub.services, config.JupyterHub.load_roles
    assert role["services"] == [service["name"]]
    assert Path(service["command"][1]).name == "jupyterhub_culler.py"


def test_kueue_s_patch_is_json() -> None:
    """And deactivates."""
    (patch,) = re.findall(r"--patch='([^']+)'", automation.PAGE)
    assert json.loads(patch) == {"spec": {"active": False}}


def test_the_page_s_table_names_alerts_that_exist() -> None:
    """The links are checked with all others; the names stand beside them."""
    alerts = yaml.safe_load((automation.ROOT / "deploy/prometheus/rules/alerts.yml").read_text())
    names = {rule["alert"] for group in alerts["groups"] for rule in group["rules"]}
    found = set(re.findall(r"\[(Gpu\w+)\]", automation.PAGE))
    assert found
    assert found <= names
