# SPDX-License-Identifier: Apache-2.0
"""Workers and their supervisor on the fake driver, with real threads and real hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.fleet import Fleet
from exporter.reading import SlotReport
from exporter.session import SessionOptions
from exporter.sources.library import Library
from exporter.worker import BackOff
from tests.fake_nvml import FakeNvml, fault
from tests.waiting import wait_until

STALE_SECONDS = 0.3

Start = Callable[..., tuple[Fleet, FakeNvml]]


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a fleet on a scenario; afterwards nothing of it is stuck."""
    started: list[tuple[Fleet, FakeNvml]] = []

    def start(scenario: dict[str, Any]) -> tuple[Fleet, FakeNvml]:
        fake = FakeNvml(tmp_path, scenario)
        fake.activate(monkeypatch)
        fleet = Fleet(
            Library(str(fake.library)),
            SessionOptions(slow_interval_seconds=0.2),
            SystemClock(),
            STALE_SECONDS,
        )
        started.append((fleet, fake))
        fleet.start()
        return fleet, fake

    yield start
    for fleet, fake in started:
        fake.write({"devices": {"count": 1}})
        fleet.stop()
    wait_until(lambda: not _gpu_threads(), what="for the workers to end")


def _gpu_threads(index: int | None = None) -> list[threading.Thread]:
    name = "gpu-" if index is None else f"gpu-{index}"
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def _report(fleet: Fleet, index: int = 0) -> SlotReport:
    return {report.index: report for report in fleet.reports()}[index]


def _reads(fleet: Fleet, index: int = 0) -> bool:
    """Ask for a round; has GPU `index` a reading after it?"""
    fleet.round(0.1)
    reports = {report.index: report for report in fleet.reports()}
    return index in reports and reports[index].reading is not None


def test_every_gpu_is_read_each_round(start: Start) -> None:
    """After a round each GPU has a new reading."""
    fleet, _ = start({"devices": {"count": 3}})
    wait_until(lambda: all(_reads(fleet, index) for index in range(3)))
    first = [_report(fleet, index).reading for index in range(3)]
    fleet.round(5.0)
    second = [_report(fleet, index).reading for index in range(3)]

    for before, after in zip(first, second, strict=True):
        assert before is not None
        assert after is not None
        assert after.monotonic_seconds > before.monotonic_seconds


def test_a_hung_call_stalls_only_its_own_gpu(start: Start) -> None:
    """The others are read on, and rounds wait for the hung GPU only until it counts as hung."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    fake.update(faults=[fault("nvmlDeviceGetTemperatureV", gpu=0, hang=True)])

    wait_until(lambda: not _reads(fleet, 0), what="for GPU 0 to be found hung")

    assert _report(fleet, 0).problem == "hung: a driver call does not return"
    assert _report(fleet, 0).device is not None
    before = _report(fleet, 1).reading
    assert _reads(fleet, 1)
    after = _report(fleet, 1).reading
    assert before is not None
    assert after is not None
    assert after.monotonic_seconds > before.monotonic_seconds


def test_a_hung_gpu_gets_one_replacement_and_only_one(start: Start) -> None:
    """However long it hangs, two threads are the most that it costs."""
    fleet, fake = start({"devices": {"count": 1}})
    wait_until(lambda: _reads(fleet))
    fake.update(faults=[fault("nvmlDevice*", gpu=0, hang=True)])
    wait_until(lambda: not _reads(fleet))
    wait_until(lambda: _reads(fleet) or len(_gpu_threads(0)) == 2)
    for _ in range(30):
        fleet.round(0.05)

    assert len(_gpu_threads(0)) == 2

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet), what="for recovery")
    wait_until(lambda: _reads(fleet) and len(_gpu_threads(0)) == 1, what="for one thread to end")


def test_a_gpu_whose_replacement_hangs_for_good_is_taken_back_by_the_first_worker(
    start: Start,
) -> None:
    """Whichever thread comes back reads on."""
    fleet, fake = start({"devices": {"count": 1}})
    wait_until(lambda: _reads(fleet))
    hang_fast = fault("nvmlDeviceGetTemperatureV", gpu=0, hang=True)
    hang_open = fault("nvmlDeviceGetHandleByIndex*", hang=True)
    fake.update(faults=[hang_fast, hang_open])
    wait_until(lambda: not _reads(fleet))
    wait_until(lambda: _reads(fleet) or len(_gpu_threads(0)) == 2)
    wait_until(lambda: not _reads(fleet) and fake.calls()["nvmlDeviceGetHandleByIndex_v2"] >= 2)
    for _ in range(int(STALE_SECONDS / 0.05) + 2):  # until the replacement counts as hung too
        fleet.round(0.05)
        threading.Event().wait(0.05)
    fake.update(faults=[hang_open])

    wait_until(lambda: _reads(fleet), what="for the first worker to take over")


def test_a_lost_gpu_is_down_at_once_and_back_within_ten_seconds(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its identity and a reason; each change of state is one line in the log."""
    caplog.set_level(logging.INFO)
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    fake.device(0, lost=1)
    wait_until(lambda: not _reads(fleet, 0))
    report = _report(fleet, 0)

    assert report.problem is not None
    assert report.problem.startswith("lost")
    assert report.device is not None
    assert _reads(fleet, 1)

    for _ in range(10):
        fleet.round(0.05)
    fake.device(0, lost=0)
    wait_until(lambda: _reads(fleet, 0))

    lines = [record.getMessage() for record in caplog.records if "GPU 0" in record.getMessage()]
    assert len(lines) == 2
    assert "cannot be read: lost" in lines[0]
    assert "answers again" in lines[1]


def test_a_gpu_that_was_lost_before_the_start_is_known_by_its_uuid(start: Start) -> None:
    """So its gpu_up can say 0."""
    fleet, _ = start({"devices": [{"lost": 1, "uuid": "GPU-gone"}, {}]})
    wait_until(lambda: _reads(fleet, 1))
    device = wait_until(lambda: _report(fleet, 0).device)

    assert device is not None
    assert device.uuid == "GPU-gone"
    assert _report(fleet, 0).reading is None


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_went_away_is_initialised_again(start: Start, code: int) -> None:
    """Codes 1, 9 and 18 concern the library: everything is down, then everything is back."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    fake.update(faults=[fault("nvmlDevice*", error=code), fault("nvmlInit*", error=code)])
    wait_until(lambda: not _reads(fleet, 0) and not _reads(fleet, 1))
    problem = wait_until(lambda: fleet.problem)

    assert problem
    wait_until(lambda: fleet.failed_initialisations > 0)

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    assert fleet.problem is None
    assert len(_gpu_threads()) == 2


def test_one_gpu_that_blames_the_library_is_its_own_fault(start: Start) -> None:
    """The others are read on, and the library is not initialised again and again."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    inits = fake.calls()["nvmlInitWithFlags"]
    fake.update(faults=[fault("nvmlDeviceGetTemperatureV", gpu=0, error=1)])
    wait_until(lambda: not _reads(fleet, 0))
    for _ in range(20):
        assert _reads(fleet, 1)

    assert fleet.problem is None
    assert fake.calls()["nvmlInitWithFlags"] == inits

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0))


def test_a_driver_that_is_not_there_yet_is_waited_for(start: Start) -> None:
    """The daemon starts before the driver does."""
    fleet, fake = start({"faults": [fault("nvmlInit*", error=9)]})
    problem = wait_until(lambda: fleet.problem)
    assert problem is not None
    assert "driver is not loaded" in problem
    assert fleet.reports() == []

    fake.update(faults=[])

    wait_until(lambda: _reads(fleet))


def test_an_initialisation_that_hangs_hangs_nobody_else(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds return at once, and the reason is known after a while."""
    monkeypatch.setattr("exporter.fleet.SLOW_INIT_SECONDS", 0.2)
    fleet, fake = start({"faults": [fault("nvmlInit*", hang=True)]})

    def problem() -> str | None:
        fleet.round(0.01)
        return fleet.problem

    assert wait_until(problem) == "NVML's initialisation does not return"

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet))
    assert fleet.problem is None


def test_gpus_that_appear_and_vanish_are_noticed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is asked for its GPUs again and again."""
    monkeypatch.setattr("exporter.fleet.ENUMERATION_INTERVAL_SECONDS", 0.1)
    fleet, fake = start({"devices": {"count": 1}})
    wait_until(lambda: _reads(fleet))
    fake.update(devices={"count": 3})
    wait_until(lambda: _reads(fleet, 2))

    fake.update(devices={"count": 1})
    wait_until(lambda: not _reads(fleet, 2))

    assert _reads(fleet, 0)
    wait_until(lambda: len(_gpu_threads()) == 1)


def _by_uuid(fleet: Fleet) -> dict[str, int]:
    """After one more round: the index of every GPU that is read, by UUID."""
    fleet.round(0.1)
    readings = [report.reading for report in fleet.reports()]
    uuids = [reading.device.uuid for reading in readings if reading is not None]
    assert len(uuids) == len(set(uuids)), "each GPU is read once"
    return {
        reading.device.uuid: reading.device.index for reading in readings if reading is not None
    }


GPUS = {"devices": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}, {"uuid": "GPU-c"}]}


@pytest.fixture(name="often")
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the GPUs ten times a second."""
    monkeypatch.setattr("exporter.fleet.ENUMERATION_INTERVAL_SECONDS", 0.1)


@pytest.mark.usefixtures("often")
def test_a_gpu_that_is_added_before_the_others_moves_them(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Every GPU is read by one worker, under the index that the driver gives it by now; each
    change is one line."""
    caplog.set_level(logging.INFO)
    fleet, fake = start({**GPUS, "order": [0, 1]})
    wait_until(lambda: _by_uuid(fleet) == {"GPU-a": 0, "GPU-b": 1})
    fake.update(order=[2, 0, 1])

    wait_until(lambda: _by_uuid(fleet) == {"GPU-c": 0, "GPU-a": 1, "GPU-b": 2})
    for _ in range(20):
        assert len(_by_uuid(fleet)) == 3
    assert len(_gpu_threads()) == 3
    assert sorted(record.getMessage() for record in caplog.records) == [
        "GPU 0 (GPU-a) is GPU 1 from now on",
        "GPU 1 (GPU-b) is GPU 2 from now on",
    ]
    numbers = [report.index for report in fleet.reports()]
    assert len(numbers) == len(set(numbers)) == 3


@pytest.mark.usefixtures("often")
def test_gpus_that_change_places_are_followed(start: Start) -> None:
    """Also when none is lost for it."""
    fleet, fake = start(GPUS)
    wait_until(lambda: len(_by_uuid(fleet)) == 3)
    fake.update(order=[2, 0, 1])

    wait_until(lambda: _by_uuid(fleet) == {"GPU-c": 0, "GPU-a": 1, "GPU-b": 2})


@pytest.mark.usefixtures("often")
def test_a_lost_gpu_is_found_at_another_index(start: Start) -> None:
    """While it is lost another GPU takes its index; when it heals it has a new one."""
    fleet, fake = start(GPUS)
    wait_until(lambda: len(_by_uuid(fleet)) == 3)
    fake.device(0, lost=1)
    wait_until(lambda: set(_by_uuid(fleet)) == {"GPU-b", "GPU-c"})
    fake.update(order=[1, 2, 0])
    wait_until(lambda: _by_uuid(fleet) == {"GPU-b": 0, "GPU-c": 1})
    fake.device(0, lost=0)

    wait_until(lambda: _by_uuid(fleet) == {"GPU-b": 0, "GPU-c": 1, "GPU-a": 2})


@pytest.mark.usefixtures("often")
def test_two_indexes_of_one_gpu_are_read_once(start: Start) -> None:
    """What the driver lists twice has one worker; the GPU that it does not list is down."""
    fleet, fake = start(GPUS)
    wait_until(lambda: len(_by_uuid(fleet)) == 3)
    fake.device(1, lost=1)
    wait_until(lambda: "GPU-b" not in _by_uuid(fleet))
    fake.update(order=[0, 0, 2])
    fake.device(1, lost=0)
    lost = wait_until(
        lambda: next(
            report
            for report in fleet.reports()
            if report.device is not None and report.device.uuid == "GPU-b"
        )
    )
    for _ in range(20):
        assert _by_uuid(fleet) == {"GPU-a": 0, "GPU-c": 2}
        threading.Event().wait(0.02)

    assert lost is not None
    assert lost.problem is not None
    fake.update(order=[0, 1, 2])
    wait_until(lambda: _by_uuid(fleet) == {"GPU-a": 0, "GPU-b": 1, "GPU-c": 2})


@pytest.mark.usefixtures("often")
def test_another_board_at_an_index_is_another_gpu(start: Start) -> None:
    """The old one stays known, and down."""
    fleet, fake = start({"devices": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]})
    wait_until(lambda: len(_by_uuid(fleet)) == 2)
    fake.device(1, lost=1)
    wait_until(lambda: "GPU-b" not in _by_uuid(fleet))
    fake.device(1, lost=0, uuid="GPU-new")

    wait_until(lambda: _by_uuid(fleet) == {"GPU-a": 0, "GPU-new": 1})
    reports = {report.device.uuid: report for report in fleet.reports() if report.device}
    assert set(reports) == {"GPU-a", "GPU-b", "GPU-new"}
    assert reports["GPU-b"].reading is None


@pytest.mark.parametrize("code", [1, 9])
@pytest.mark.parametrize("function", ["nvmlDeviceGetCount*", "nvmlDeviceGetHandleByIndex*"])
def test_a_library_that_is_no_use_is_tried_less_and_less_often(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    function: str,
    code: int,
) -> None:
    """It initialises, and then says that it is not initialised: that is no success. Every
    initialisation is undone, and the log tells of it once."""
    waits: list[int] = []
    monkeypatch.setattr(
        "exporter.worker.BACK_OFF_SECONDS", SpiedWaits((0.02, 0.04, 0.06, 0.08, 0.1), waits)
    )
    fleet, fake = start({"faults": [fault(function, error=code)]})

    def tried_often() -> bool:
        fleet.round(0.05)
        return fake.calls().get("nvmlInitWithFlags", 0) >= 8

    wait_until(tried_often)
    calls = fake.calls()
    assert calls["nvmlInitWithFlags"] - calls.get("nvmlShutdown", 0) in (0, 1)
    assert [at for at in waits if at is not None][:6] == [0, 1, 2, 3, 4, 4]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(set(messages)) <= 2

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet))
    assert fleet.problem is None


class SpiedWaits(tuple[float, ...]):
    """Back-off waits that note which of them were waited for."""

    noted: list[int]

    def __new__(cls, waits: tuple[float, ...], noted: list[int]) -> SpiedWaits:
        made = super().__new__(cls, waits)
        made.noted = noted
        return made

    def __getitem__(self, at: Any) -> Any:
        if threading.current_thread().name == "driver":
            self.noted.append(at)
        return super().__getitem__(at)


@pytest.mark.parametrize("code", [2, 3, 4, 999])
def test_a_gpu_of_which_nothing_answers_is_down(
    start: Start, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """A round without a reading is no read: the last one stands until it is stale, then there is a
    reason, told once; and when it answers again, everything is read as before."""
    caplog.set_level(logging.INFO)
    fleet, fake = start(
        {"devices": [{"gpm": {"sm": 50}}, {}]},
    )
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    wait_until(lambda: (_report(fleet, 0).reading or False) and _reads(fleet, 0))
    fake.update(
        faults=[
            fault("nvmlDeviceGet[!H]*", gpu=0, error=code),
            fault("nvmlGpm*", gpu=0, error=code),
        ]
    )
    before = _report(fleet, 0).reading
    fleet.round(0.1)
    assert _report(fleet, 0).reading is before
    wait_until(lambda: not _reads(fleet, 0))
    problem = _report(fleet, 0).problem
    assert problem is not None
    assert problem.startswith("its driver calls fail: ")
    for _ in range(10):
        assert _reads(fleet, 1)

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0))
    fleet.round(0.1)
    reading = _report(fleet, 0).reading
    assert reading is not None
    assert reading.vitals.power_watts is not None
    assert "gpm" not in reading.states
    messages = [record.getMessage() for record in caplog.records]
    told = [line for line in messages if "GPU 0" in line and "Xid" not in line]
    assert len(told) == 2, told


def test_no_gpu_at_all_is_a_reason(start: Start) -> None:
    """A driver without GPUs is not an error, but must not look like nothing."""
    fleet, _ = start({"devices": {"count": 0}})

    assert wait_until(lambda: fleet.problem) == "the driver lists no GPU"


def test_a_gpu_that_may_not_be_opened_leaves_the_others_alone(start: Start) -> None:
    """A cgroup may forbid a GPU that the driver counts."""
    fleet, _ = start({"devices": [{"handle_error": 4}, {}]})
    wait_until(lambda: _reads(fleet, 1))

    assert wait_until(lambda: _report(fleet, 0).problem)
    assert _report(fleet, 0).reading is None
    assert _report(fleet, 0).failures == {"nvml": 1}


def test_a_changed_mig_layout_is_read_anew(start: Start) -> None:
    """Instances made or removed while running are noticed at the slow cadence."""
    one = {"gi": 1, "ci": 0, "profile": "1g.10gb", "uuid": "MIG-1"}
    fleet, fake = start({"devices": [{"mig": {"instances": [one]}}]})

    def instances() -> list[int | None]:
        fleet.round(0.1)
        reading = _report(fleet).reading if fleet.reports() else None
        return [share.gpu_instance for share in reading.shares] if reading else []

    wait_until(lambda: instances() == [1])
    two = {"gi": 2, "ci": 0, "profile": "1g.10gb", "uuid": "MIG-2"}
    fake.device(0, mig={"instances": [one, two]})
    wait_until(lambda: instances() == [1, 2])
    fake.device(0, mig={"instances": [], "current": 0})
    wait_until(lambda: instances() == [None])


def test_without_a_sample_buffer_a_busy_gpu_is_polled_between_rounds(start: Start) -> None:
    """Polls leave gaps; ten a second narrow them while there is something to miss."""
    fleet, fake = start(
        {"devices": [{"utilization": 50, "product": "v100-sxm2", "samples": {"enabled": False}}]}
    )
    wait_until(lambda: _reads(fleet))
    fleet.round(1.0)
    before = fake.calls()["nvmlDeviceGetUtilizationRates"]

    wait_until(lambda: fake.calls()["nvmlDeviceGetUtilizationRates"] >= before + 5)


def test_stopping_does_not_wait_for_the_driver(start: Start) -> None:
    """A wedged call must not keep the daemon alive."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0) and _reads(fleet, 1))
    fake.update(faults=[fault("nvmlDevice*", hang=True)])
    fleet.round(0.01)
    clock = SystemClock()
    started = clock.monotonic()
    fleet.stop()

    assert clock.monotonic() - started < 2.0
    assert fake.calls().get("nvmlShutdown", 0) == 0


def test_back_off_grows_to_five_seconds() -> None:
    """So that recovery shows within ten."""
    back_off = BackOff()
    waits = [back_off.next_wait_seconds() for _ in range(8)]
    back_off.reset()

    assert waits == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0]
    assert back_off.next_wait_seconds() == 0.5
