# SPDX-License-Identifier: Apache-2.0
"""MIG while it is reconfigured: what is published follows within one round, and nothing flaps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.divided import HEALTHY, MIXED, SEVEN, DividedNode, instance
from tests.fake_nvml import fault

Divided = Callable[..., DividedNode]
ONE = instance(1, "3g.40gb")
TWO = instance(2, "3g.40gb")
GONE_CODES = [
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_GPU_IS_LOST,
]


@pytest.fixture(name="divided")
def _divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Divided]:
    nodes: list[DividedNode] = []

    def make(*layouts: Any, ticks: int = 0) -> DividedNode:
        devices = [
            {**HEALTHY, "mig": {"instances": layout or [], "current": int(layout is not None)}}
            for layout in layouts
        ]
        nodes.append(DividedNode(tmp_path, monkeypatch, *devices))
        if ticks:
            nodes[-1].tick(ticks)
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def shares(node: DividedNode, gpu: int = 0) -> list[int | None]:
    return [share.gpu_instance for share in node.gpu(gpu).shares]


def test_a_layout_is_followed_in_the_next_round(
    divided: Divided, caplog: pytest.LogCaptureFixture
) -> None:
    """Off, on without an instance, two, another two, one, off: each in the round after, with one
    line in the log."""
    caplog.set_level(logging.INFO)
    node = divided(None, None, ticks=3)
    found = [shares(node)]
    for layout, on in (([], 1), ([ONE, TWO], 1), (SEVEN[:2], 1), (SEVEN[1:2], 1), ([], 0)):
        node.divide(layout, on=on)
        node.tick()
        found.append(shares(node))
        assert all(gpu.up for gpu in node.snapshot.gpus)

    assert found == [[None], [], [1, 2], [7, 8], [8], [None]]
    assert shares(node, 1) == [None]
    assert "gpu_mig_info" not in {name for name, _, _ in node.series()}
    said = [line.partition(": ")[2] for line in caplog.messages]
    assert said == [
        "MIG is on: no instance",
        "MIG is on: 3g.40gb, 3g.40gb",
        "MIG is on: 1g.10gb, 1g.10gb",
        "MIG is on: 1g.10gb",
        "MIG is off",
    ]


@pytest.mark.parametrize(
    "again",
    [
        {"uuid": "MIG-anew"},
        {"profile": "2g.20gb", "sm_count": 32, "memory_mb": 19968},
        {"memory_mb": 20480},
    ],
    ids=["uuid", "profile", "size"],
)
def test_an_instance_with_the_number_of_another_starts_anew(
    divided: Divided, again: dict[str, Any]
) -> None:
    """Nothing of the old one is carried over, and what stays goes on."""
    node = divided([ONE, TWO], ticks=20)
    before = node.instances_of("gpu_sm_active_seconds_total")
    node.divide([{**ONE, **again, "gpm": {"graphics": 10, "sm": 10, "tensor": 10}}, TWO])
    node.tick()
    totals = {share.gpu_instance: share.totals for share in node.gpu().shares}

    assert before["1"] == pytest.approx(0.8 * 19, abs=0.01)
    assert totals[1].sm_active_seconds is None
    assert totals[1].observed_seconds == {}
    assert totals[2].sm_active_seconds == pytest.approx(before["2"])
    node.tick(10)
    after = node.instances_of("gpu_sm_active_seconds_total")
    assert after["1"] == pytest.approx(0.1 * 10, abs=0.01)
    assert after["2"] == pytest.approx(before["2"] + 0.8 * 10, abs=0.01)


@pytest.mark.parametrize("code", [10, 15, 999])
def test_an_instance_whose_size_is_not_told_for_a_while_goes_on(
    divided: Divided, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """It is no other instance: its totals do not start anew, and the log has no line."""
    caplog.set_level(logging.INFO)
    node = divided([ONE, TWO], ticks=20)
    before = node.instances_of("gpu_sm_active_seconds_total")
    node.fake.update(faults=[fault("nvmlDeviceGetAttributes_v2", error=code)])
    node.tick(2)
    sizes = {(each.sm_count, each.memory_bytes) for each in node.gpu().device.instances}
    node.fake.update(faults=[])
    node.tick(10)
    after = node.instances_of("gpu_sm_active_seconds_total")

    assert sizes == {(60, 40448 * 2**20)}
    assert after == pytest.approx({gi: total + 0.8 * 12 for gi, total in before.items()})
    assert not caplog.messages


def test_totals_never_fall_or_jump_while_the_layout_changes(divided: Divided) -> None:
    """The board's counters go on, and no counter grows faster than time."""
    node = divided(None)
    layouts: list[tuple[list[Any], int]] = [([ONE, TWO], 1), (SEVEN, 1), ([TWO], 1), ([], 0)]
    last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for layout, on in layouts * 3:
        node.divide(layout, on=on)
        for _ in range(4):
            node.tick()
            now = {
                (name, tuple(sorted(labels.items()))): value
                for name, labels, value in node.series()
                if name.endswith("_total") and name.startswith("gpu_")
            }
            assert all(value >= 0 for value in now.values())
            for key in now.keys() & last.keys():
                if "gpu_instance" not in dict(key[1]):
                    assert now[key] >= last[key], key
                if key[0].endswith("_seconds_total"):
                    assert now[key] - last[key] <= 1.0 + 1e-6, key
            last = now
    energy = node.instances_of("gpu_energy_joules_total")
    assert energy == {None: pytest.approx(500 * 48, rel=0.1)}


@pytest.mark.parametrize("code", GONE_CODES)
@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMemoryInfo*", "nvmlGpmMigSampleGet", "nvmlDeviceGetAttributes_v2"]
)
def test_what_a_dying_instance_answers_is_not_the_boards(
    divided: Divided, call: str, code: int
) -> None:
    """Also where it is what a lost GPU, or a library that needs a restart, would answer."""
    node = divided(SEVEN, None, ticks=3)
    node.fake.update(faults=[fault(call, error=code, gpu=0)])
    ups = [[gpu.up for gpu in node.tick().gpus] for _ in range(5)]
    node.fake.update(faults=[])
    node.tick(8)

    assert ups == [[True, True]] * 5
    assert node.lost_library == []
    assert shares(node) == [7, 8, 9, 10, 11, 12, 13]
    assert all(share.memory and share.activity for share in node.gpu().shares)
    assert not node.gpu().states.keys() - {"utilization"}


@pytest.mark.parametrize("code", GONE_CODES)
def test_an_instance_that_cannot_be_described_is_left_out_alone(
    divided: Divided, code: int
) -> None:
    """While it is being made or removed; the others stay, and it comes when it answers."""
    node = divided([ONE, TWO], ticks=2)
    node.divide([ONE, TWO, *SEVEN[:1]])
    node.fake.update(faults=[fault("nvmlDeviceGetGpuInstanceId", error=code)])
    node.tick()
    assert node.gpu().up
    assert shares(node) == []
    node.fake.update(faults=[])
    node.tick()

    assert shares(node) == [1, 2, 7]
    assert node.lost_library == []


@pytest.mark.parametrize("code", [10, 999])
def test_the_old_layout_stays_while_the_new_one_cannot_be_read(divided: Divided, code: int) -> None:
    """What the driver does not say is not guessed."""
    node = divided([ONE, TWO], ticks=2)
    node.divide(SEVEN)
    node.fake.update(faults=[fault("nvmlDeviceGetMigDeviceHandleByIndex", error=code)])
    node.tick(12)
    assert node.gpu().up
    assert shares(node) == [1, 2]
    node.fake.update(faults=[])
    node.tick()

    assert shares(node) == [share["gi"] for share in SEVEN]


def test_a_gpu_is_not_whole_for_want_of_a_layout(divided: Divided) -> None:
    """Opened while MIG is on and its instances cannot be listed, it has none, not itself."""
    node = divided([ONE, TWO])
    node.fake.update(faults=[fault("nvmlDeviceGetMaxMigDeviceCount", error=999)])
    node.tick(2)
    assert node.gpu().up
    assert node.gpu().device.mig
    assert shares(node) == []
    node.fake.update(faults=[])
    node.tick()

    assert shares(node) == [1, 2]


def test_a_gpu_that_cannot_be_opened_at_once_does_not_flap(
    divided: Divided, caplog: pytest.LogCaptureFixture
) -> None:
    """The last reading stands for as long as any does; then it is down, with the reason."""
    caplog.set_level(logging.INFO)
    node = divided([ONE], ticks=3)
    node.divide([ONE, TWO])
    node.fake.update(faults=[fault("nvmlDeviceGetHandleByIndex_v2", error=999)])
    node.tick(2)
    assert node.gpu().up
    node.fake.update(faults=[])
    node.tick()
    assert shares(node) == [1, 2]
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]

    node.divide([ONE])
    node.fake.update(faults=[fault("nvmlDeviceGetHandleByIndex_v2", error=999)])
    node.tick(4)
    assert not node.gpu().up


def test_a_driver_that_is_slow_to_say_is_asked_less_often(
    divided: Divided, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking takes a fiftieth of the time at most; the slow cadence finds the change as well."""
    node = divided([ONE], ticks=2)
    session = node.workers[0]._session
    assert session is not None
    look, looks = session._nvml.look, []

    def slow() -> None:
        looks.append(node.monotonic())
        node.advance(0.1)
        look()

    monkeypatch.setattr(session._nvml, "look", slow)
    node.tick(12)
    assert len(looks) == 3
    node.divide([ONE, TWO])
    node.tick(10)

    assert shares(node) == [1, 2]


def test_instances_of_others_have_a_state(
    divided: Divided, caplog: pytest.LogCaptureFixture
) -> None:
    """Where this user may not see them, or their memory and processes, that is said."""
    caplog.set_level(logging.INFO)
    node = divided(MIXED, ticks=1)
    refusals = ["nvmlDeviceGetMemoryInfo*", "nvmlDeviceGet*RunningProcesses*"]
    node.fake.update(faults=[fault(call, error=4) for call in refusals])
    node.tick(12)
    states = node.gpu().states

    assert {group for group, state in states.items() if state == "no_permission"} == {
        *("memory_instance_1", "memory_instance_5", "memory_instance_13"),
        *("compute_processes", "graphics_processes", "mps_processes"),
    }
    assert states["utilization"] == "mig"
    assert all(share.memory is None for share in node.gpu().shares)
    node.fake.update(faults=[fault("nvmlDeviceGetMigDeviceHandleByIndex", error=4)])
    node.tick()
    assert node.gpu().states["mig"] == "no_permission"
    assert shares(node) == []
    logged = [entry.getMessage() for entry in caplog.records if "cannot be read" in entry.msg]
    assert len(logged) == len(set(logged)) <= 3
