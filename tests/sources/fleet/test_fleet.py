# SPDX-License-Identifier: Apache-2.0
"""Workers and their supervisor on the fake driver, with real threads and real hangs.

What users see of a GPU that hangs or is lost is in tests/e2e/test_gpu_faults.py, of a driver that
goes in tests/e2e/test_driver_faults.py.
"""

from __future__ import annotations

import logging
import threading

import pytest

from exporter.derive.topology import peers
from exporter.model.reading import SlotReport
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.slots import NOT_LISTED
from tests.fake_nvml import fault
from tests.sources.fleet.conftest import STALE_SECONDS, SkippingClock, Start, gpu_threads
from tests.waiting import PATIENCE_SECONDS, wait_until


def _report(fleet: Fleet, index: int = 0) -> SlotReport:
    return {report.index: report for report in fleet.reports()}[index]


def _reads(fleet: Fleet, *indexes: int) -> bool:
    """Ask for a round; has each of these GPUs a reading after it?"""
    fleet.round(0.1)
    read = {report.index for report in fleet.reports() if report.reading is not None}
    return read.issuperset(indexes or (0,))


def _rest(fleet: Fleet, *besides: int) -> None:
    """Wait until no worker is in a round, besides those of these GPUs."""
    slots = [slot for slot in fleet._slots if slot.index not in besides]
    for worker in (slot.current for slot in slots if slot.current is not None):
        assert worker.idle.wait(PATIENCE_SECONDS), "the end of all rounds"


def _reads_on(fleet: Fleet, index: int) -> bool:
    """Is GPU `index` read once more?"""
    before = _report(fleet, index).reading
    return wait_until(
        lambda: _reads(fleet, index) and _report(fleet, index).reading is not before,
        what=f"for another reading of GPU {index}",
    )


def _let_hang(fleet: Fleet, clock: SkippingClock, index: int = 0) -> None:
    """Let GPU `index`, whose calls hang by now, be found hung."""
    _rest(fleet)
    fleet.round(0.1)
    _rest(fleet, index)
    clock.skip(STALE_SECONDS)
    fleet.round(0.1)
    problem = _report(fleet, index).problem
    assert problem is not None
    assert problem.startswith("hung: a driver call does not return")
    assert _report(fleet, index).reading is None


@pytest.mark.slow
def test_a_hung_gpu_costs_no_thread_and_reads_on(start: Start, clock: SkippingClock) -> None:
    """Also while the library is initialised again; then a new worker waits for the old one."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0, 1))
    hang = fault("nvmlDevice*", gpu=0, hang=True)
    fake.update(faults=[hang])
    _let_hang(fleet, clock)
    inits = fake.calls()["nvmlInitWithFlags"]
    fake.update(faults=[hang, fault("nvmlDeviceGetTemperatureV", gpu=1, error=1)])
    wait_until(lambda: not _reads(fleet, 1) and fake.calls()["nvmlInitWithFlags"] > inits)
    fake.update(faults=[hang])
    wait_until(lambda: _reads(fleet, 1))

    assert len(gpu_threads("gpu-0")) == 1
    assert _report(fleet, 0).problem == "hung: a driver call does not return"
    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0), what="for recovery")


class Refusals:
    """Threads whose names begin so cannot be started while this says so."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.count = 0


@pytest.fixture(name="refusals")
def _refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    refusals = Refusals()
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if refusals.names and thread.name.startswith(refusals.names):
            refusals.count += 1
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return refusals


@pytest.mark.usefixtures("often")
def test_a_gpu_whose_links_hang_takes_no_peer_along(start: Start) -> None:
    """The others are read, with the links between them."""
    hang = fault("nvmlDeviceGetNvLink*", gpu=1, hang=True)
    fleet, _ = start({"devices": {"count": 3}, "faults": [hang]})
    wait_until(lambda: _reads(fleet, 0, 2))
    readings = [_report(fleet, index).reading for index in (0, 2)]
    first, last = (reading.device for reading in readings if reading is not None)

    assert _report(fleet, 1).reading is None
    assert [each.link for each in peers([first, last])[first.uuid]] == ["NV18"]


@pytest.mark.slow
def test_a_gpu_without_a_thread_costs_no_other_and_gets_one_later(
    start: Start, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    """A host may be out of threads for a while: the reason is logged once."""
    caplog.set_level(logging.INFO)
    refusals.names = ("gpu-0",)
    fleet, _ = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 1))
    wait_until(lambda: refusals.count >= 3)

    problem = "no thread can be started for it: can't start new thread"
    assert _report(fleet, 0).problem == problem
    assert fleet.problem is None

    refusals.names = ()
    wait_until(lambda: _reads(fleet, 0) and len(caplog.records) > 1)
    first, last = caplog.messages
    assert first == f"GPU 0 cannot be read: {problem}"
    assert last.endswith(f"answers again after: {problem}")


@pytest.mark.usefixtures("often")
def test_the_supervisor_survives_whatever_goes_wrong_in_it(
    start: Start, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    """GPUs are read while nobody can listen for Xids, and somebody does once that is possible; the
    fault is logged once, with its trace."""
    caplog.set_level(logging.INFO)
    refusals.names = ("xid",)
    fleet, _ = start({"devices": {"count": 1}})
    wait_until(lambda: refusals.count >= 2 and _reads(fleet))
    assert fleet.problem == "supervising the GPUs failed: can't start new thread"

    refusals.names = ()
    wait_until(lambda: any(each.name.startswith("xid") for each in threading.enumerate()))
    wait_until(lambda: fleet.problem is None)
    assert [(record.getMessage(), record.exc_info is None) for record in caplog.records] == [
        ("supervising the GPUs failed: can't start new thread; retrying", False),
        ("the GPUs are supervised again", True),
    ]


def test_a_gpu_that_was_lost_before_the_start_is_known_by_its_uuid(start: Start) -> None:
    """So its gpu_up can say 0."""
    fleet, _ = start({"devices": [{"lost": 1, "uuid": "GPU-gone"}, {}]})
    wait_until(lambda: _reads(fleet, 1))
    device = wait_until(lambda: _report(fleet, 0).device)

    assert device is not None
    assert device.uuid == "GPU-gone"
    assert _report(fleet, 0).reading is None


def test_one_gpu_that_blames_the_library_is_its_own_fault(start: Start) -> None:
    """The others are read on, and the library is not initialised again and again."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0, 1))
    inits = fake.calls()["nvmlInitWithFlags"]
    fake.update(faults=[fault("nvmlDeviceGetTemperatureV", gpu=0, error=1)])
    wait_until(lambda: not _reads(fleet, 0))
    for _ in range(5):
        assert _reads_on(fleet, 1)

    assert fleet.problem is None
    assert fake.calls()["nvmlInitWithFlags"] == inits

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0))


def test_an_initialisation_that_hangs_hangs_nobody_else(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds return at once, and the reason is known after a while."""
    monkeypatch.setattr("exporter.sources.fleet.fleet.SLOW_INIT_SECONDS", 0.2)
    fleet, fake = start({"faults": [fault("nvmlInit*", hang=True)]})

    def problem() -> str | None:
        fleet.round(0.01)
        return fleet.problem

    assert wait_until(problem) == "NVML's initialisation does not return"

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet))
    assert fleet.problem is None


def _by_uuid(fleet: Fleet) -> dict[str, int]:
    """After one more round: the index of every GPU that is read, by UUID."""
    fleet.round(0.1)
    readings = [report.reading for report in fleet.reports()]
    devices = [reading.device for reading in readings if reading is not None]
    found = {device.uuid: device.index for device in devices}
    assert len(found) == len(devices), "each GPU is read once"
    return found


GPUS = {"devices": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}, {"uuid": "GPU-c"}]}


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
    assert len(gpu_threads()) == 3
    assert sorted(caplog.messages) == [
        "GPU 0 (GPU-a) is GPU 1 from now on",
        "GPU 1 (GPU-b) is GPU 2 from now on",
    ]
    numbers = [report.index for report in fleet.reports()]
    assert len(numbers) == len(set(numbers)) == 3


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
    for _ in range(20):
        assert _by_uuid(fleet) == {"GPU-a": 0, "GPU-c": 2}
        threading.Event().wait(0.02)

    reports = {report.device.uuid: report for report in fleet.reports() if report.device}
    assert reports["GPU-b"].problem is not None
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


@pytest.mark.usefixtures("often")
def test_a_gpu_that_is_taken_away_is_down_until_it_is_back(start: Start) -> None:
    """The last of two, so that the other one keeps its index and is read all the time; no
    thread is left for it meanwhile."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0, 1))
    fake.update(devices={"count": 1})

    wait_until(lambda: _report(fleet, 1).problem == NOT_LISTED)
    assert _report(fleet, 1).reading is None
    assert _reads(fleet, 0)
    wait_until(lambda: not gpu_threads("gpu-1"), what="for the end of its worker")
    fake.update(devices={"count": 2})
    wait_until(lambda: _reads(fleet, 1))


@pytest.mark.parametrize("code", [1, 9])
@pytest.mark.parametrize("function", ["nvmlDeviceGetCount*", "nvmlDeviceGetHandleByIndex*"])
def test_a_library_that_is_no_use_is_tried_again_and_again(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    function: str,
    code: int,
) -> None:
    """It initialises, and then says that it is not initialised: that is no success. Every
    initialisation is undone, and it is logged once."""
    monkeypatch.setattr("exporter.sources.fleet.worker.BACK_OFF_SECONDS", (0.02, 0.04, 0.1))
    fleet, fake = start({"faults": [fault(function, error=code)]})

    def tried_often() -> bool:
        fleet.round(0.05)
        return fake.calls().get("nvmlInitWithFlags", 0) >= 8

    wait_until(tried_often)
    calls = fake.calls()
    assert calls["nvmlInitWithFlags"] - calls.get("nvmlShutdown", 0) in (0, 1)
    assert len(caplog.messages) == len(set(caplog.messages)) <= 2

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet))
    assert fleet.problem is None


@pytest.mark.parametrize("code", [2, 3, 4, 999])
def test_a_gpu_of_which_nothing_answers_is_down(
    start: Start, clock: SkippingClock, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """A round without a reading is no read: the last one stands until it is stale, then there is a
    reason, logged once; and when it answers again, everything is read as before."""
    caplog.set_level(logging.INFO)
    fleet, fake = start({"devices": [{"gpm": {"sm": 50}}, {}]})
    wait_until(lambda: _reads(fleet, 0, 1))
    _rest(fleet)
    calls = ("nvmlDeviceGet[!H]*", "nvmlGpm*")
    fake.update(faults=[fault(call, gpu=0, error=code) for call in calls])
    before = _report(fleet, 0).reading
    fleet.round(0.1)
    _rest(fleet)
    assert _report(fleet, 0).reading is before
    clock.skip(STALE_SECONDS)
    wait_until(lambda: not _reads(fleet, 0))
    problem = _report(fleet, 0).problem
    assert problem is not None
    assert problem.startswith("its driver calls fail: ")
    for _ in range(3):
        assert _reads_on(fleet, 1)

    fake.update(faults=[])
    wait_until(lambda: _reads(fleet, 0))
    assert _reads_on(fleet, 0)
    reading = _report(fleet, 0).reading
    assert reading is not None
    assert reading.vitals.power_watts is not None
    assert "gpm" not in reading.states
    lines = [line for line in caplog.messages if "GPU 0" in line and "Xid" not in line]
    assert len(lines) == 2, lines


def test_no_gpu_at_all_is_a_reason(start: Start) -> None:
    """A driver without GPUs is not an error, but must not look like nothing."""
    fleet, _ = start({"devices": {"count": 0}})

    assert wait_until(lambda: fleet.problem) == "the driver lists no GPU"


def test_stopping_does_not_wait_for_the_driver(start: Start) -> None:
    """A wedged call must not keep the daemon alive."""
    fleet, fake = start({"devices": {"count": 2}})
    wait_until(lambda: _reads(fleet, 0, 1))
    fake.update(faults=[fault("nvmlDevice*", hang=True)])
    fleet.round(0.01)
    stopping = threading.Thread(target=fleet.stop)
    stopping.start()
    stopping.join(PATIENCE_SECONDS)

    assert not stopping.is_alive()
    assert fake.calls().get("nvmlShutdown", 0) == 0


def test_without_a_sample_buffer_a_busy_gpu_is_polled_between_rounds(start: Start) -> None:
    """Polls leave gaps; ten a second narrow them while there is something to miss."""
    fleet, fake = start(
        {"devices": [{"utilization": 50, "product": "v100-sxm2", "samples": {"enabled": False}}]}
    )
    wait_until(lambda: _reads(fleet))
    fleet.round(1.0)
    before = fake.calls()["nvmlDeviceGetUtilizationRates"]

    wait_until(lambda: fake.calls()["nvmlDeviceGetUtilizationRates"] >= before + 5)
