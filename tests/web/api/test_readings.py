# SPDX-License-Identifier: Apache-2.0
"""``readings`` of ``/api/v1/gpus/{uuid}``: every reading once, with its state, source and age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.model.reading import SUSPENDED, Activity, group_and_instance
from exporter.model.snapshot import Gpu
from exporter.web.api.models.gpus import ReadingJson
from exporter.web.api.readings import BOARD, readings
from tests import snapshots
from tests.divided import HEALTHY, MIXED, DividedNode
from tests.fake_nvml import fault
from tests.snapshots import EXAMPLES

Divided = Callable[..., DividedNode]


@pytest.fixture(name="node_of")
def _node_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Divided]:
    nodes: list[DividedNode] = []

    def make(**device: Any) -> DividedNode:
        nodes.append(DividedNode(tmp_path, monkeypatch, {**HEALTHY, **device}))
        return nodes[-1]

    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    yield make
    for node in nodes:
        node.close()


def listed(node: DividedNode) -> dict[tuple[str, int | None, str | None], ReadingJson]:
    found = readings(node.gpu(), node.snapshot)
    by_key = {(each.reading, each.gpu_instance, each.source): each for each in found}
    assert len(by_key) == len(found), "each once"
    return by_key


def of_board(node: DividedNode, name: str) -> ReadingJson:
    (found,) = [each for (reading, _, _), each in listed(node).items() if reading == name]
    return found


def test_ages_are_those_of_the_cadences(node_of: Divided) -> None:
    """Fast readings are of now, slow ones of their last round, the identity of the opening."""
    node = node_of(gpm={"graphics": 50, "sm": 50})
    node.tick(14)
    assert of_board(node, "power") == ReadingJson(
        reading="power", state="ok", source="nvml", age_seconds=0.0
    )
    assert of_board(node, "ecc").age_seconds == of_board(node, "processes").age_seconds == 3.0
    assert of_board(node, "identity").age_seconds == 13.0
    node.advance(0.75)
    later = replace(node.snapshot, timestamp_seconds=node.time())
    found = readings(node.gpu(), later)
    ages = {each.reading: each.age_seconds for each in found if each.state == "ok"}
    assert (ages["power"], ages["ecc"], ages["activity"]) == (0.75, 3.75, 0.75)


def test_what_is_absent_has_its_reason_and_no_age(node_of: Divided) -> None:
    """Of a T4: what it lacks; and what the driver refuses."""
    node = node_of(product="t4")
    node.fake.update(faults=[fault("nvmlDeviceGetTemperature*", error=4)])
    node.tick(3)
    found = listed(node)
    states = {each.reading: each.state for each in found.values() if each.state != "ok"}

    assert states["temperature"] == "no_permission"
    assert states["activity"] in {"unsupported", "disabled"}
    assert states["row_remap"] == states["nvlink_state"] == states["fans"] == "unsupported"
    assert all((each.age_seconds is None) == (each.state != "ok") for each in found.values())
    assert found["activity", None, "gpm"].state == "unsupported"


def test_links_that_may_not_be_counted_are_not_called_missing(node_of: Divided) -> None:
    """Their number is a field as well; a GPU without NVLink answers 0, or knows no such field."""
    node = node_of(product="h100-sxm")
    node.fake.update(faults=[fault("nvmlDeviceGetFieldValues", error=4)])
    node.tick(3)
    states = {each.reading: each.state for each in listed(node).values()}

    assert states["nvlink_errors"] == states["nvlink_state"] == "no_permission"


def test_each_instance_has_its_own(node_of: Divided) -> None:
    """What is of the board is listed once; what MIG takes away says so."""
    node = node_of(mig={"instances": MIXED})
    node.tick(3)
    found = listed(node)
    by_instance = {
        number: {each.reading for each in found.values() if each.gpu_instance == number}
        for number in (1, 5, 13)
    }

    assert set(map(frozenset, by_instance.values())) == {
        frozenset({"memory", "processes", "activity"})
    }
    assert {each.reading for each in found.values() if each.gpu_instance is None} == {
        row.name for row in BOARD
    }
    assert found["activity", 5, "gpm"].state == "ok"
    away = {name for (name, _, _), each in found.items() if each.state == "mig"}
    assert away == {"utilization", "encoder", "decoder", "jpeg", "ofa", "pcie_traffic"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_state_is_in_the_list(name: str) -> None:
    """Whatever `roofline_exporter_reading_state` says of a group."""
    snapshot = EXAMPLES[name]
    for gpu in snapshot.gpus:
        found = readings(gpu, snapshot)
        said = {(each.reading, each.gpu_instance, each.state) for each in found}
        for group, state in gpu.states.items() if gpu.up else ():
            reading, instance = group_and_instance(group)
            reading = "activity" if reading in {"gpm", "dcgm", "cupti"} else reading
            reading = "processes" if reading == "compute_processes" else reading
            assert (reading, instance, state) in said


def test_a_group_that_no_row_knows_is_listed_too() -> None:
    """A reading that is new here is not forgotten there."""
    states = {"flux": "unsupported", "flux_instance_2": "busy", "fields": "no_permission"}
    gpu = replace(snapshots.h100_mig(), states=states)
    found = readings(gpu, snapshots.snapshot(gpu))

    assert [(e.gpu_instance, e.state) for e in found if e.reading == "flux"] == [
        (None, "unsupported"),
        (2, "busy"),
    ]
    assert [e.state for e in found if e.reading == "fields"] == ["no_permission"]
    assert [e.state for e in found if e.reading == "memory_temperature"] == ["ok"]


def test_an_activity_that_is_handed_over_has_its_own_age() -> None:
    """That of a dcgm-exporter's page, with why the preferred source gives none."""
    gpu = snapshots.h100_training()
    old = Activity(source="dcgm", seconds=1.0, sm=0.5, age_seconds=7.5)
    gpu = replace(
        gpu, shares=(replace(gpu.shares[0], activity=old),), states={"gpm": "no_permission"}
    )
    found = [each for each in _all(gpu) if each.reading == "activity"]

    assert [(each.source, each.state) for each in found] == [
        ("dcgm", "ok"),
        ("gpm", "no_permission"),
    ]
    assert found[0].age_seconds == pytest.approx(7.5 + snapshots.NOW - _read_at(gpu), abs=1e-3)
    assert found[1].age_seconds is None


def _all(gpu: Gpu) -> list[ReadingJson]:
    return readings(gpu, snapshots.snapshot(gpu))


def _read_at(gpu: Gpu) -> float:
    assert gpu.last_read_timestamp_seconds is not None
    return gpu.last_read_timestamp_seconds


def test_of_a_gpu_that_is_down_there_is_one_line() -> None:
    """When it was last read, and whether it sleeps."""
    lost = snapshots.lost()
    asleep = replace(lost, down_reason=SUSPENDED, states={"gpu": "suspended"})

    assert [(e.reading, e.state, e.age_seconds) for e in _all(lost)] == [("gpu", "unreachable", 61)]
    assert [(e.reading, e.state) for e in _all(asleep)] == [("gpu", "suspended")]
