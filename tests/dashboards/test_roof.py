# SPDX-License-Identifier: Apache-2.0
"""Distances to a roof on the dashboards and in the rules are those that the work really has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.models import METRIC, NAMES, Target, targets
from tests.dashboards.test_sums import substituted
from tests.rules.promtool import Expected, check
from tests.rules.rules import RECORDED, RULES
from tests.rules.scrapes import Node

BASES = ("achievable", "clock", "spec")
RECORDED_ROOF = "gpu:gpu_roof:ratio_rate5m"
MINUTES = 8
FULL_CLOCKS: Mapping[str, Mapping[str, Any]] = {
    "h100-sxm": {"clocks": {"sm": 1980, "memory": 2619}},
    "b200": {"clocks": {"sm": 1965, "memory": 3996}},
}
SHOWS: Mapping[str, Any] = {
    "An FP32 kernel at 95 %": (
        "h100-sxm",
        None,
        {"graphics": 100, "sm": 99, "fp32": 95, "dram": 2},
        {"clock": 0.95, "spec": 0.95, "achievable": 0.95},
    ),
    # 1980 of the 1830 MHz for which the datasheet states the tensor peak.
    "TF32 at 90 %, whose best public kernel nobody has measured": (
        "h100-sxm",
        "tf32",
        {"graphics": 100, "sm": 99, "tensor": 90, "hmma": 90, "dram": 20},
        {"clock": 0.9, "spec": 0.9 * 1980 / 1830},
    ),
    "bf16 at 60 %, of which the best kernels reach 80.3 %": (
        "h100-sxm",
        "bf16",
        {"graphics": 100, "sm": 99, "tensor": 60, "hmma": 60, "dram": 20},
        {"clock": 0.6, "spec": 0.6 * 1980 / 1830, "achievable": 0.6 * 1980 / 1830 / 0.803},
    ),
    # 3996 MHz x 2 x 7680 bits / 8 = 7672 of the 7700 GB/s of the datasheet.
    "memory traffic at 92 % on a B200, whose best bandwidth nobody has measured": (
        "b200",
        None,
        {"graphics": 100, "sm": 99, "tensor": 10, "hmma": 10, "dram": 92},
        {"clock": 0.92, "spec": 0.92 * 7672.32 / 7700},
    ),
    "an idle GPU": (
        "h100-sxm",
        None,
        {"graphics": 0, "sm": 0, "dram": 0},
        {"clock": 0.0, "spec": 0.0, "achievable": 0.0},
    ),
}
QUIET = {"tensor": 0, "hmma": 0, "fp64": 0, "fp32": 0, "fp16": 0, "int": 0}


def _roofs() -> list[Target]:
    """Every query of a dashboard that shows a distance to a roof."""
    found = [one for name in NAMES for one in targets(name)]
    return [one for one in found if "gpu_roof_seconds_total" in one.expression]


def _near_its_roof() -> Target:
    """The query that counts the GPUs near their roof."""
    (found,) = [one for one in targets("fleet") if one.name == "fleet/GPUs now/near its roof"]
    return found


def _basis(target: Target) -> str:
    found = re.search(r'gpu_roof_seconds_total\{[^}]*basis="([a-z]+)"', target.expression)
    assert found, target.name
    return found[1]


def _names() -> set[str]:
    """What the queries and the recorded series read."""
    shown = [one.expression for one in (*_roofs(), _near_its_roof())]
    return set(METRIC.findall(" ".join([*shown, RECORDED[RECORDED_ROOF]])))


def _expected(expression: str, at: float, value: float | None) -> Expected:
    rows = [] if value is None else [('{gpu="0"}', round(value, 4))]
    return Expected(f"round(max by (gpu) ({expression}), 0.0001)", at, rows)


def _check(folder: Path, node: Node, wanted: Mapping[str, float]) -> None:
    """Every panel and the recorded series show these distances, and none of another basis."""
    expressions = [(substituted(target.expression), _basis(target)) for target in _roofs()]
    expressions += [(f'{RECORDED_ROOF}{{basis="{basis}"}}', basis) for basis in BASES]
    rows = [_expected(text, node.scrapes.end, wanted.get(basis)) for text, basis in expressions]
    near = float(wanted["clock"] >= 0.8)
    rows.append(
        Expected(substituted(_near_its_roof().expression), node.scrapes.end, [("{}", near)])
    )
    check(folder, [RECORDED_ROOF], node.scrapes.series(), rows)


@pytest.mark.parametrize("about", SHOWS)
def test_what_is_shown_is_what_is_done(
    about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through driver, session, publisher, page and Prometheus: the truth, or nothing."""
    product, precision, gpm, wanted = SHOWS[about]
    device = {"product": product, **FULL_CLOCKS[product], "gpm": {**QUIET, **gpm}}
    node = Node(tmp_path, monkeypatch, _names(), **device)
    node.run(2 * MINUTES, precision=precision)
    _check(tmp_path, node, wanted)


def test_a_basis_that_was_unknown_for_a_while_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose best kernels nobody has measured shows no smaller distance, nor does the next."""
    product, _, gpm, known = SHOWS["bf16 at 60 %, of which the best kernels reach 80.3 %"]
    unknown = {basis: value for basis, value in known.items() if basis != "achievable"}
    device = {"product": product, **FULL_CLOCKS[product], "gpm": {**QUIET, **gpm}}
    node = Node(tmp_path, monkeypatch, _names(), **device)
    node.run(2 * MINUTES, precision="bf16")
    _check(tmp_path, node, known)
    for scrapes in (1, 3, 2 * MINUTES):
        node.run(scrapes, precision="tf32")
        _check(tmp_path, node, unknown)
    node.run(3, precision="bf16")
    _check(tmp_path, node, unknown)
    node.run(2 * MINUTES, precision="bf16")
    _check(tmp_path, node, known)


def test_no_distance_is_computed_in_another_way() -> None:
    """Work over a peak leaves out the units whose peak is unknown; the gauge misses bursts."""
    both = [
        {"gpu_flops_total", "gpu_peak_flops_per_second"},
        {"gpu_dram_bytes_total", "gpu_peak_memory_bandwidth_bytes_per_second"},
    ]
    shown = {one.name: one.expression for name in NAMES for one in targets(name)}
    shown |= {rule.get("record", rule.get("alert")): rule["expr"] for rule in RULES}
    for name, expression in shown.items():
        metrics = set(METRIC.findall(expression))
        if "gpu_training_info" in metrics:
            continue  # MFU is of the work that the job states.
        assert not any(pair <= metrics for pair in both), name
        assert not re.search(r"(avg|max|min)_over_time\(gpu_roof_ratio", expression), name


def test_every_basis_has_a_panel() -> None:
    """On the page of one GPU and on the roofline."""
    for page in ("gpu", "roofline"):
        assert {_basis(one) for one in _roofs() if one.page == page} == set(BASES)
