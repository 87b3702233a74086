# SPDX-License-Identifier: Apache-2.0
"""The configurations and queries of docs/automation.md, and what fields they may have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "automation"
PAGE = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
BLOCKS: Sequence[tuple[str, str]] = re.findall(
    r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
)
NAME = re.compile(r"# (?:\S*/)?([\w.-]+)\n")
FILES: Mapping[str, str] = {found[1]: text for _, text in BLOCKS if (found := NAME.match(text))}
"""By the name of the file that each block is to be."""
COMMANDS = [text for language, text in BLOCKS if language == "sh"]
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


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def _object(required: Sequence[str], **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": fields,
        "additionalProperties": False,
    }


PROMETHEUS_TRIGGER = _object(
    ("serverAddress", "query", "threshold"),
    **dict.fromkeys(("serverAddress", "query", "threshold", "activationThreshold"), TEXT),
    ignoreNullValues={"enum": ["true", "false"]},
)
SCALED_OBJECT = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata=_object(("name", "namespace"), name=TEXT, namespace=TEXT),
    spec=_object(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=_object(("name",), name=TEXT, kind=TEXT, apiVersion=TEXT),
        **dict.fromkeys(("minReplicaCount", "maxReplicaCount", "cooldownPeriod"), COUNT),
        pollingInterval={"type": "integer", "minimum": 1},
        fallback=_object(
            ("failureThreshold", "replicas"),
            failureThreshold=COUNT,
            replicas=COUNT,
            behavior={
                "enum": [
                    *("static", "currentReplicas", "currentReplicasIfHigher"),
                    *("currentReplicasIfLower", "scalingModifiers"),
                ]
            },
        ),
        advanced=_object(
            (), horizontalPodAutoscalerConfig=_object((), name=TEXT, behavior={"type": "object"})
        ),
        triggers={
            "type": "array",
            "minItems": 1,
            "items": _object(
                ("type", "metadata"),
                type={"const": "prometheus"},
                name=TEXT,
                metadata=PROMETHEUS_TRIGGER,
            ),
        },
    ),
)
"""What of it the page uses, by KEDA 2.20's apis/keda/v1alpha1 and pkg/scalers/prometheus_scaler.go.

`behavior` is HPA's own, and is checked as that of one.
"""
ADAPTER = _object(
    ("rules",),
    rules={
        "type": "array",
        "items": _object(
            ("seriesQuery", "resources", "name", "metricsQuery"),
            seriesQuery=TEXT,
            metricsQuery=TEXT,
            name=_object((), matches=TEXT, **{"as": TEXT}),
            resources=_object(
                (),
                overrides={
                    "type": "object",
                    "additionalProperties": _object(("resource",), group=TEXT, resource=TEXT),
                },
            ),
        ),
    },
)
"""The same of prometheus-adapter's configuration, by its pkg/config/config.go."""
