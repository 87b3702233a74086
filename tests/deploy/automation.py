# SPDX-License-Identifier: Apache-2.0
"""The configurations and queries of docs/automation.md, and what fields they may have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.remote import blocks, commands, configurations

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "automation"
PAGE = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
BLOCKS = blocks("automation.md")
FILES = configurations("automation.md")
COMMANDS = commands("automation.md")
TARGET = 0.7
"""The saturation at which the page's autoscalers aim."""


def of(name: str) -> Any:
    """What a YAML file of the page says."""
    return yaml.safe_load(FILES[name])


def rules() -> list[dict[str, Any]]:
    """The rules of the page."""
    (group,) = of("gpu-automation.yml")["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def adapter_query(name: str, namespace: str, pods: str) -> str:
    """What prometheus-adapter asks for a metric of some pods, as its docs/config.md fills it in."""
    (rule,) = (each for each in of("adapter.yml")["rules"] if each["name"]["as"] == name)
    values = {
        "<<.Series>>": rule["seriesQuery"],
        "<<.LabelMatchers>>": f'namespace="{namespace}",pod=~"{pods}"',
        "<<.GroupBy>>": "pod",
    }
    query: str = rule["metricsQuery"]
    for field, value in values.items():
        query = query.replace(field, value)
    return query


def triggers() -> Mapping[str, Mapping[str, str]]:
    """The triggers of the ScaledObject by their names."""
    return {each["name"]: each["metadata"] for each in of("scaledobject.yml")["spec"]["triggers"]}


def queries() -> Mapping[str, str]:
    """Every query of the page by a name: those in manifests, and those that stand alone."""
    alone = [text.strip() for language, text in BLOCKS if language == "promql"]
    names = ("vllm-incoming", "vllm-waiting", "reclaim")
    return {
        **{f"keda-{name}": trigger["query"].strip() for name, trigger in triggers().items()},
        **{
            f"hpa-{metric}": adapter_query(metric, "team-b", "chat-.*")
            for metric in ("saturation_lower", "saturation_upper_to_target")
        },
        **dict(zip(names, alone, strict=True)),
    }


SCALED_OBJECT = {
    *("apiVersion", "kind", "metadata", "name", "namespace", "spec", "type"),
    *("scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"),
    *("fallback", "failureThreshold", "replicas", "behavior"),
    *("advanced", "horizontalPodAutoscalerConfig"),
    *("triggers", "serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"),
}
"""Its fields by KEDA 2.20's apis/keda/v1alpha1 and pkg/scalers/prometheus_scaler.go."""
ADAPTER = {
    *("rules", "seriesQuery", "metricsQuery", "name", "matches", "as"),
    *("resources", "overrides", "namespace", "pod", "resource", "group"),
}
"""The same of prometheus-adapter's configuration, by its pkg/config/config.go."""


def fields_of(value: Any) -> set[str]:
    """The names of all fields of a manifest, but for `behavior`, which is HPA's own."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value))
    if not isinstance(value, dict):
        return set()
    inner = [fields_of(each) for name, each in value.items() if name != "behavior"]
    return set(value).union(*inner)
