# SPDX-License-Identifier: Apache-2.0
"""While MIG is on, every family is of the board or of its instances, never of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.exposition.catalogue import CATALOGUE
from exporter.model.reading import XidRecord
from tests.derive.readings import known
from tests.divided import COMPUTE_INSTANCES, HEALTHY, MIXED, SEVEN, DividedNode

ERRORS: dict[str, Any] = {
    "ecc": {"volatile": {"corrected": {"dram": 3}, "uncorrected": {"dram": 1}}},
    "remapped_rows": {"correctable": 2, "uncorrectable": 1, "pending": 1},
    "recovery_action": 1,
    "processes": [{"pid": 1, "bytes": 2**30, "gi": 7, "ci": 0}],
}
LAYOUTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "h100-seven": ("h100-sxm", SEVEN),
    "a100-mixed": ("a100-sxm4-80gb", MIXED),
    "h100-compute-instances": ("h100-sxm", COMPUTE_INSTANCES),
}
ABSENT = "roofline_exporter_reading_state"
"""Has rows of the board and of instances: each says what is absent, and nobody adds them up."""
WHOLE_ONLY = {
    "gpu_pcie_transmit_bytes_total",
    "gpu_pcie_receive_bytes_total",
    "gpu_encoder_utilization_ratio",
    "gpu_decoder_utilization_ratio",
    "gpu_jpeg_utilization_ratio",
    "gpu_ofa_utilization_ratio",
}
"""Readings of the board that the driver does not have under MIG; on an H100 PCIe traffic is one of
the counters of the whole GPU."""
Labels = dict[str, str]
Divided = Callable[..., DividedNode]


@pytest.fixture(name="node_of")
def _node_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Divided]:
    nodes: list[DividedNode] = []

    def make(product: str, layout: list[dict[str, Any]]) -> DividedNode:
        device = {**HEALTHY, **ERRORS, "product": product, "mig": {"instances": layout}}
        node = DividedNode(tmp_path / str(len(nodes)), monkeypatch, device)
        nodes.append(node)
        node.tick()
        node.xid_records = {node.gpu().device.uuid: {79: XidRecord(1, node.time())}}
        node.tick(12)
        return node

    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    yield make
    for node in nodes:
        node.close()


def own_labels(name: str, labels: Labels) -> tuple[tuple[str, str], ...]:
    names = {label.name for label in CATALOGUE[name].labels}
    return tuple(sorted((key, value) for key, value in labels.items() if key in names))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_whole_or_its_parts(node_of: Divided, layout: str) -> None:
    """Readings of the board once, without an instance; those of shares of each instance alone."""
    product, instances = LAYOUTS[layout]
    node = node_of(product, instances)
    numbers = {str(each["gi"]) for each in instances}
    found: dict[str, list[Labels]] = {}
    for name, labels, _ in node.series():
        found.setdefault(name, []).append(labels)
    found.pop(ABSENT)
    scopes = {name: CATALOGUE[name].scope for name in found}
    assert Counter(scopes.values())["board"] > 20
    assert Counter(scopes.values())["share"] > 5
    for name, rows in found.items():
        if scopes[name] in ("gpu", "board"):
            named = {"gpu_instance"} & {label.name for label in CATALOGUE[name].labels}
            assert all(("gpu_instance" in labels) == bool(named) for labels in rows), name
            assert max(Counter(own_labels(name, labels) for labels in rows).values()) == 1, name
        elif scopes[name] == "share":
            assert {labels.get("gpu_instance") for labels in rows} <= numbers, name
            every = Counter((labels["gpu_instance"], own_labels(name, labels)) for labels in rows)
            assert max(every.values()) == 1, name
    for name in ("gpu_memory_used_bytes", "gpu_held", "gpu_processes"):
        assert {labels["gpu_instance"] for labels in found[name]} == numbers


@pytest.mark.parametrize("product", ["h100-sxm", "a100-sxm4-80gb"])
def test_the_board_has_what_it_has_without_mig(node_of: Divided, product: str) -> None:
    """Health, ECC, Xids, power, temperature, clocks, links: all, with the values of the board."""
    divided, whole = node_of(product, MIXED), node_of(product, [])

    def board(node: DividedNode) -> dict[tuple[str, object], float]:
        return {
            (name, own_labels(name, labels)): value
            for name, labels, value in node.series()
            if name in CATALOGUE and CATALOGUE[name].scope in ("gpu", "board")
            if name not in {"gpu_mig_info", "gpu_mode_info"} and "timestamp" not in name
        }

    here, there = board(divided), board(whole)
    missing = {name for name, _ in there.keys() - here.keys()}
    assert missing <= WHOLE_ONLY
    assert {name for name, _ in here.keys() - there.keys()} == set()
    assert {name: value for name, value in here.items() if there[name] != value} == {}


def test_parts_add_up_to_no_more_than_the_board(node_of: Divided) -> None:
    """What the instances have together is not what the board has again."""
    node = node_of("h100-sxm", SEVEN)
    total = node.instances_of("gpu_memory_total_bytes")
    board = known(node.gpu().device.memory_bytes)

    assert None not in total
    assert sum(total.values()) <= board
    peaks = [
        (labels["precision"], value)
        for name, labels, value in node.series()
        if name == "gpu_peak_flops_per_second" and labels["basis"] == "spec"
    ]
    together: Counter[str] = Counter()
    for precision, value in peaks:
        together[precision] += int(value)
    assert together["bf16_tensor"] <= 989.5e12
