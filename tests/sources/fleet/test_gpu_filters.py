# SPDX-License-Identifier: Apache-2.0
"""GPUs that are left out, asleep or forgotten, and owners that are not shown."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition.parts import Node
from exporter.model.reading import SUSPENDED, Process, SlotReport
from exporter.model.snapshot import Holder, Snapshot
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.selection import Selection
from tests.fake_nvml import fault
from tests.publisher.test_tick import H100, Bench
from tests.rows import expected_rows
from tests.sources.fleet.conftest import Start, gpu_threads
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("often")
UUIDS = ("GPU-a0", "GPU-b1", "GPU-c2")
COUNTING = {"nvmlDeviceGetCount_v2"}
ADDRESSES = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
GPUS = [{"uuid": uuid, "pci_bus_id": at} for uuid, at in zip(UUIDS, ADDRESSES, strict=True)]
THREE = {"devices": GPUS}


# Selection


@pytest.mark.parametrize(
    ("include", "exclude", "read"),
    [
        ((), (), (0, 1, 2)),
        (("0", "GPU-c2"), (), (0, 2)),
        (("gpu-C2",), (), (2,)),
        ((), ("GPU-b1", "0"), (2,)),
        (("0", "1"), ("GPU-b1",), (0,)),
        (("GPU-b1",), ("1",), ()),
        ((), ("7", "GPU-x", "01"), (0, 2)),
    ],
)
def test_which_gpus_are_read(
    include: tuple[str, ...], exclude: tuple[str, ...], read: tuple[int, ...]
) -> None:
    """Those of the one list, or all, without those of the other."""
    selection = Selection(include, exclude)
    assert tuple(i for i, uuid in enumerate(UUIDS) if selection.admits(i, uuid)) == read


ENTRIES = st.lists(st.sampled_from(["0", "1", "2", *UUIDS]), max_size=4).map(tuple)


@given(ENTRIES, ENTRIES)
def test_what_the_index_decides_the_uuid_does_not_change(
    include: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    """A GPU is left out by index exactly if no UUID would admit it."""
    selection = Selection(include, exclude)
    for index in range(len(UUIDS)):
        verdicts = {selection.admits(index, each) for each in ("GPU-other", *UUIDS)}
        assert selection.leaves_out(index) <= (verdicts == {False})
        assert selection.by_uuid or selection.leaves_out(index) == (verdicts == {False})


# The fleet


def power_state(tmp_path: Path, *states: str) -> None:
    """Put the GPUs of THREE into these states."""
    for address, state in zip(ADDRESSES, states, strict=False):
        power = tmp_path / "sys/bus/pci/devices" / address / "power"
        power.mkdir(parents=True, exist_ok=True)
        (power / "runtime_status").write_text(f"{state}\n")
        driver = tmp_path / "sys/bus/pci/drivers/nvidia"
        driver.mkdir(parents=True, exist_ok=True)
        (driver / address).touch()


def settled(fleet: Fleet) -> dict[str, bool]:
    """Ask for a round; is each GPU read, by UUID? Empty while one is not decided on."""
    fleet.round(1.0)
    reports = fleet.reports()
    if any(report.device is None for report in reports):
        return {}
    return {report.device.uuid: report.reading is not None for report in reports if report.device}


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [line for line in caplog.messages if word in line]


def test_a_gpu_excluded_by_index_is_never_opened(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even for a handle, by its worker or by the wait for Xids; its hang affects no one."""
    caplog.set_level(logging.INFO)
    scenario = {**THREE, "faults": [fault("nvmlDevice*", gpu=1, hang=True)]}
    fleet, fake = start(scenario, selection=Selection(exclude=("1",)))
    assert wait_until(lambda: settled(fleet)) == {"GPU-a0": True, "GPU-c2": True}
    wait_until(lambda: fake.calls()["nvmlDeviceGetCount_v2"] > 3)
    wait_until(lambda: fake.calls().get("nvmlDeviceRegisterEvents") == 2)

    assert fake.calls()["nvmlDeviceGetHandleByIndex_v2"] == 4
    assert not gpu_threads("gpu-1")
    assert len(lines(caplog, "left out")) == 1


def test_a_gpu_excluded_by_uuid_is_opened_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its UUID is asked for, and nothing else, ever."""
    caplog.set_level(logging.INFO)
    fleet, fake = start({"devices": GPUS[:1]}, selection=Selection(exclude=("GPU-a0",)))
    wait_until(lambda: settled(fleet) == {} and fake.calls().get("nvmlDeviceGetUUID"))
    wait_until(lambda: fleet.problem)
    for _ in range(20):
        fleet.round(1.0)

    assert fleet.reports() == []
    assert fleet.problem == "every GPU is left out by --gpu.include or --gpu.exclude"
    calls = fake.calls()
    assert calls["nvmlDeviceGetHandleByIndex_v2"] == 1
    assert calls["nvmlDeviceGetUUID"] == 1
    assert "nvmlDeviceGetName" not in calls
    assert lines(caplog, "left out") == ["GPU 0 (GPU-a0) is left out, as configured"]


def test_entries_that_name_no_gpu_are_said_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo must not be silent, and must not stop the others."""
    caplog.set_level(logging.INFO)
    fleet, fake = start(THREE, selection=Selection(("0", "9", "GPU-typo"), exclude=("GPU-c2",)))
    wait_until(lambda: settled(fleet) == {"GPU-a0": True})
    wait_until(lambda: lines(caplog, "no GPU is"))
    count = fake.calls()["nvmlDeviceGetCount_v2"]
    wait_until(lambda: fake.calls()["nvmlDeviceGetCount_v2"] > count + 3)

    (line,) = lines(caplog, "no GPU is")
    assert line == "no GPU is 9 or GPU-typo, as --gpu.include or --gpu.exclude says"


def test_the_driver_is_initialised_again_without_those_left_out_or_asleep(
    start: Start, tmp_path: Path
) -> None:
    """A GPU without calls cannot report that the library is lost; the others decide."""
    power_state(tmp_path, "active", "active", "active")
    fleet, fake = start(THREE, selection=Selection(exclude=("GPU-c2",)), skip_suspended=True)
    wait_until(lambda: settled(fleet) == {"GPU-a0": True, "GPU-b1": True})
    power_state(tmp_path, "active", "suspended", "active")
    wait_until(lambda: settled(fleet) == {"GPU-a0": True, "GPU-b1": False})
    inits = fake.calls()["nvmlInitWithFlags"]
    fake.update(faults=[fault("nvmlDeviceGetTemperatureV", error=1)])
    wait_until(lambda: fake.calls()["nvmlInitWithFlags"] > inits or not settled(fleet))
    fake.update(faults=[])

    wait_until(lambda: settled(fleet) == {"GPU-a0": True, "GPU-b1": False})
    power_state(tmp_path, "active", "active", "active")
    wait_until(lambda: settled(fleet) == {"GPU-a0": True, "GPU-b1": True})


def test_a_gpu_that_falls_asleep_is_left_asleep(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one call reaches it, polls between rounds among them; when it wakes it is read again."""
    caplog.set_level(logging.INFO)
    busy = {"utilization": 50, "product": "v100-sxm2", "samples": {"enabled": False}}
    power_state(tmp_path, "active")
    fleet, fake = start({"devices": [{**GPUS[0], **busy}]}, skip_suspended=True)
    wait_until(lambda: settled(fleet) == {"GPU-a0": True})
    worker: Any = next(iter(fleet._slots)).current
    wait_until(lambda: settled(fleet) and worker._session._nvml.utilization.wants_burst)

    power_state(tmp_path, "suspended")
    wait_until(lambda: settled(fleet) == {"GPU-a0": False})
    (report,) = fleet.reports()
    assert report.problem == SUSPENDED
    threading.Event().wait(0.3)  # for events to be registered no more, and polls to show
    before = fake.calls()
    for _ in range(5):
        fleet.round(1.0)
    threading.Event().wait(0.3)
    more = {name for name, count in fake.calls().items() if count > before.get(name, 0)}
    assert {name for name in more if name.startswith("nvmlDevice")} <= COUNTING

    power_state(tmp_path, "active")
    wait_until(lambda: settled(fleet) == {"GPU-a0": True})
    found = [(r.levelno, r.getMessage()) for r in caplog.records if "GPU 0" in r.getMessage()]
    assert found == [
        (logging.INFO, f"GPU 0 (GPU-a0) cannot be read: {SUSPENDED}"),
        (logging.INFO, f"GPU 0 (GPU-a0) answers again after: {SUSPENDED}"),
    ]


def test_a_gpu_that_sleeps_at_the_start_is_not_woken(start: Start, tmp_path: Path) -> None:
    """Without knowing its index no call may be made that could reach it; the others are read."""
    power_state(tmp_path, "active", "suspended", "active")
    woken = [fault("nvmlDevice*", gpu=1, error=999)]  # a call on it would show as a failure
    fleet, fake = start({**THREE, "faults": woken}, skip_suspended=True)

    def reports() -> dict[int, SlotReport]:
        fleet.round(1.0)
        return {report.index: report for report in fleet.reports()}

    wait_until(lambda: (found := reports()) and found[0].reading and found[2].reading)
    found = reports()
    assert (found[1].problem, found[1].device, found[1].failures) == (SUSPENDED, None, {})
    assert "nvmlDeviceGetHandleByIndex_v2" not in fake.calls() or found[1].failures == {}

    fake.update(faults=[])
    power_state(tmp_path, "active", "active", "active")
    wait_until(lambda: reports()[1].reading)


def test_the_only_gpu_asleep_gets_no_call_at_all(start: Start, tmp_path: Path) -> None:
    """A laptop: the driver is counted on, never asked."""
    power_state(tmp_path, "suspended")
    fleet, fake = start({"devices": GPUS[:1]}, skip_suspended=True)
    wait_until(lambda: settled(fleet) == {} and any(each.problem for each in fleet.reports()))
    for _ in range(5):
        fleet.round(1.0)

    assert {name for name in fake.calls() if name.startswith("nvmlDevice")} == COUNTING


def test_without_the_flag_a_sleeping_gpu_is_read(start: Start, tmp_path: Path) -> None:
    """The default is to read what there is."""
    power_state(tmp_path, "suspended", "suspended", "suspended")
    fleet, _ = start(THREE)
    assert wait_until(lambda: settled(fleet)) == dict.fromkeys(UUIDS, True)


# The publisher

PROCESS = Process(7, "compute", 1, "python3", "ada", "training")


def labels(snapshot: Snapshot, name: str) -> list[dict[str, str]]:
    """The labels of each series of a family."""
    return [dict(pairs) for family, pairs, _ in expected_rows(Node(snapshot)) if family == name]


def test_a_suspended_gpu_is_down_but_not_lost() -> None:
    """An alert on lost GPUs can leave it out; readiness says why nothing is up."""
    bench = Bench()
    bench.tick(H100)
    bench.script.fail(H100, SUSPENDED)
    snapshot = bench.tick()
    (gpu,) = snapshot.gpus
    assert not gpu.up
    assert labels(snapshot, "roofline_exporter_reading_state") == [
        {"gpu": "0", "uuid": "GPU-h100", "group": "gpu", "state": "suspended"}
    ]
    assert snapshot.problem == f"no GPU is up: GPU 0: {SUSPENDED}"

    bench.script.fail(H100, "lost")
    snapshot = bench.tick()
    assert not snapshot.gpus[0].up
    assert labels(snapshot, "roofline_exporter_reading_state") == []


def test_a_gpu_that_was_never_opened_says_why() -> None:
    """It cannot be published without a UUID, but nobody is left to wonder."""
    bench = Bench()
    bench.script.slots[0] = SlotReport(0, None, None, SUSPENDED, {})
    assert bench.tick().problem == f"no GPU is up: GPU 0: {SUSPENDED}"
    assert bench.tick().gpus == ()


def test_a_gpu_asleep_is_not_forgotten_and_a_lost_one_is() -> None:
    """Readers that still name a lost GPU do not bring it back; a reading does."""
    bench = Bench(forget_after_seconds=60.0)
    bench.tick(H100)
    bench.script.fail(H100, SUSPENDED)
    for _ in range(5):
        assert [gpu.up for gpu in bench.tick(seconds=50.0).gpus] == [False]
    bench.script.fail(H100, "lost")
    for _ in range(5):
        assert bench.tick(seconds=61.0).gpus == ()
    assert [gpu.up for gpu in bench.tick(H100, seconds=0.0).gpus] == [True]


def test_the_holder_is_that_of_now_also_without_counters() -> None:
    """A round in which the counters do not answer still shows who holds the GPU."""
    bench = Bench()
    bench.tick(H100, counters="gpm", processes=(PROCESS,))
    processes = (replace(PROCESS, owner="bob"),)
    (gpu,) = bench.tick(H100, counters="gpm", processes=processes).gpus
    assert gpu.shares[0].holder == Holder("bob", "python3", "training")


def test_owners_are_shown_nowhere_if_not_wanted() -> None:
    """Also those that a recording brings: not for the holder, not for any process."""
    snapshot = Bench(owners=False).tick(H100, processes=(PROCESS,))
    (gpu,) = snapshot.gpus
    assert gpu.shares[0].holder == Holder(None, "python3", "training")
    assert labels(snapshot, "gpu_holder_info")[0]["owner"] == ""
    assert gpu.shares[0].processes == (replace(PROCESS, owner=None),)
    assert "ada" not in repr(gpu)
