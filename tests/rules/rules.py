# SPDX-License-Identifier: Apache-2.0
"""The rule files as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus.thresholds import THRESHOLDS

DIRECTORY = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules"
FILES = tuple(
    DIRECTORY / name for name in ("recording.yml", "scale.yml", "queries.yml", "alerts.yml")
)
RECORDED_NAME = re.compile(r"[a-z_]+:[a-z0-9_]+:[a-z0-9_]+")


def at_one_interval(folder: Path, interval: str) -> Path:
    """Write the thresholds with all rules evaluated at one interval; return the file."""
    sections = yaml.safe_load(THRESHOLDS.read_text(encoding="utf-8"))
    intervals = [key for key in sections["evaluation"] if key.endswith("interval")]
    sections["evaluation"] |= dict.fromkeys(intervals, interval)
    file = folder / "thresholds.yml"
    file.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return file


def recorded_in(name: str) -> list[str]:
    """The series that a file of rules records."""
    groups = yaml.safe_load((DIRECTORY / name).read_text(encoding="utf-8"))["groups"]
    return [rule["record"] for group in groups for rule in group["rules"]]


def _groups() -> dict[str, list[dict[str, Any]]]:
    loaded = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES]
    return {group["name"]: group["rules"] for file in loaded for group in file["groups"]}


RULES_BY_GROUP: Mapping[str, Sequence[Mapping[str, Any]]] = _groups()
RULES = [rule for rules in RULES_BY_GROUP.values() for rule in rules]
RECORDED: Mapping[str, str] = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
ALERTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    name: [rule for rule in RULES if rule.get("alert") == name]
    for name in dict.fromkeys(rule["alert"] for rule in RULES if "alert" in rule)
}
"""By name: one has a rule for each severity."""


def read_by(expression: str) -> set[str]:
    """The recorded series that an expression needs, and those that these need."""
    found: set[str] = set()
    todo = [expression]
    while todo:
        names = set(RECORDED_NAME.findall(todo.pop())) - found
        found |= names
        todo.extend(RECORDED[name] for name in names)
    return found


def only(names: Iterable[str]) -> Mapping[str, Any]:
    """A rule file with the rules of these names and what they read, in the order of the files.

    All in one group and at the interval of the test: each sees what those before it recorded.
    """
    wanted = set(names)
    for rule in RULES:
        if wanted & {rule.get("record"), rule.get("alert")}:
            wanted |= read_by(rule["expr"])
    rules = [rule for rule in RULES if wanted & {rule.get("record"), rule.get("alert")}]
    return {"groups": [{"name": "under-test", "rules": rules}]}
