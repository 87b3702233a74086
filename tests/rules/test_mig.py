# SPDX-License-Identifier: Apache-2.0
"""One fault of a board that MIG divides is one alert, however many instances it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.cases import CASES, GPU, HOLDER, Case, counter, gauge, held
from tests.rules.promtool import Expected, Series, check, selector
from tests.rules.rules import RULES_BY_GROUP

HARDWARE = {
    str(rule["alert"]) for rule in RULES_BY_GROUP["roofline-hardware-alerts"] if "alert" in rule
}
OF_A_BOARD = [
    case
    for case in CASES
    if case.alert in HARDWARE and case.labels is not None and "uuid" in case.labels
]
INSTANCES = ("7", "8", "9")


def name(case: Case) -> str:
    return f"{case.alert}: {case.about}"


def part(number: str) -> list[Series]:
    """What is published of an instance that is held and computes."""
    labels = {**GPU, "gpu_instance": number}
    return [
        *held(0, HOLDER, labels),
        gauge("gpu_memory_used_bytes", 2.0**30, labels),
        gauge("gpu_sm_active_ratio", 0.8, labels),
        gauge("gpu_allocated", 1, labels),
        counter("gpu_sm_active_seconds_total", 0.8, labels),
        counter("gpu_engine_active_seconds_total", 0.9, labels),
        counter("gpu_pipe_active_seconds_total", 0.5, labels, pipe="tensor"),
    ]


@pytest.mark.parametrize("case", OF_A_BOARD, ids=name)
def test_a_fault_of_the_board_is_told_once(case: Case, tmp_path: Path) -> None:
    """Of the board, without an instance."""
    assert case.labels is not None
    series = [*case.series, *(each for number in INSTANCES for each in part(number))]
    found = {"alertname": case.alert, "alertstate": "firing"}
    labels = {**found, **case.labels}
    query = selector("ALERTS", {**found, "severity": labels["severity"]})
    expected = Expected(query, case.by, [(selector("ALERTS", dict(sorted(labels.items()))), 1)])

    assert "gpu_instance" not in labels
    check(tmp_path, [case.alert], series, [expected])
