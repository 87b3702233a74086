# SPDX-License-Identifier: Apache-2.0
"""Xids are noted as the driver reports them, by a thread that nothing ends but its stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.clock import SystemClock
from exporter.sources.nvml.library import Library
from exporter.sources.xids import events as xid_events
from exporter.sources.xids.events import XidEvents
from tests.fake_nvml import FakeNvml, fault
from tests.waiting import wait_until


class Rig:
    """A watch over the GPUs of a scenario; `heard` is what it noted."""

    def __init__(self, fake: FakeNvml, gpus: int) -> None:
        self.fake = fake
        library = Library(str(fake.library))
        library.start()
        self.uuids = {
            index: pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(gpus)
        }
        self.readable = dict(self.uuids)
        self.heard: list[tuple[str, int]] = []
        self.events = XidEvents(
            library,
            lambda: self.readable,
            lambda uuid, code: self.heard.append((uuid, code)),
            SystemClock(),
        )

    def calls(self, name: str) -> int:
        return self.fake.calls().get(name, 0)

    def wait_for_registrations(self, count: int) -> None:
        wait_until(lambda: self.calls("nvmlDeviceRegisterEvents") >= count)

    def wait_for_waits(self, count: int = 1) -> None:
        """Until the thread has begun so many more waits."""
        before = self.calls("nvmlEventSetWait_v2")
        wait_until(lambda: self.calls("nvmlEventSetWait_v2") >= before + count)

    def wait_for(self, *xids: tuple[int, int]) -> None:
        expected = [(self.uuids[gpu], xid) for gpu, xid in xids]
        wait_until(lambda: self.heard == expected, what=f"for {expected}, heard {self.heard}")


Watch = Callable[..., Rig]


@pytest.fixture(name="watch")
def _watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Start a watch; afterwards it ends within one wait."""
    monkeypatch.setattr(xid_events, "WAIT_MILLISECONDS", 100)
    monkeypatch.setattr(xid_events, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(xid_events, "NOTHING_TO_WAIT_FOR_SECONDS", 0.02)
    rigs: list[Rig] = []

    def watch(scenario: dict[str, Any] | None = None, gpus: int = 2) -> Rig:
        fake = FakeNvml(tmp_path, {"devices": {"count": gpus}, **(scenario or {})})
        fake.activate(monkeypatch)
        rig = Rig(fake, gpus)
        rigs.append(rig)
        rig.events.thread.start()
        return rig

    yield watch
    for rig in rigs:
        rig.fake.update(faults=[])
        rig.events.stop()
        rig.events.thread.join(2.0)
        assert not rig.events.thread.is_alive()


def test_every_xid_is_heard_once_with_its_gpu(watch: Watch) -> None:
    """Several of one GPU, and of several GPUs, in the driver's order."""
    rig = watch()
    rig.wait_for_registrations(2)
    rig.fake.happen((1, 79), (0, 48), (0, 48))
    rig.wait_for((1, 79), (0, 48), (0, 48))
    rig.fake.happen((1, 31))
    rig.wait_for((1, 79), (0, 48), (0, 48), (1, 31))


def test_a_gpu_that_cannot_be_registered_leaves_the_others_alone(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """NOT_SUPPORTED leaves the set usable; it is said once and not tried again."""
    caplog.set_level(logging.INFO)
    rig = watch({"faults": [fault("nvmlDeviceRegisterEvents", gpu=0, error=3)]})
    rig.wait_for_registrations(2)
    rig.fake.happen((0, 79), (1, 79))
    rig.wait_for((1, 79))
    rig.wait_for_waits(3)

    assert rig.calls("nvmlDeviceRegisterEvents") == 2
    (line,) = caplog.messages
    assert line.startswith(f"GPU 0 ({rig.uuids[0]}) has no Xid events")


def test_an_unknown_error_on_registering_costs_the_set(watch: Watch) -> None:
    """nvml.h: free the set after UNKNOWN; the others are registered in a new one."""
    rig = watch({"faults": [fault("nvmlDeviceRegisterEvents", gpu=1, error=999)]})
    wait_until(lambda: rig.calls("nvmlEventSetFree") >= 2)
    rig.fake.update(faults=[])
    wait_until(lambda: set(rig.events._registered.values()) == set(rig.uuids.values()))
    rig.fake.happen((1, 79), (0, 79))
    rig.wait_for((1, 79), (0, 79))


def test_an_xid_of_a_gpu_that_is_then_lost_is_known_by_its_uuid(watch: Watch) -> None:
    """By the handle that was registered: the GPU itself may not answer any more."""
    rig = watch()
    rig.wait_for_registrations(2)
    rig.fake.device(0, lost=1)
    rig.readable = {1: rig.uuids[1]}
    rig.wait_for_waits(2)
    rig.fake.happen((0, 79))
    rig.wait_for((0, 79))


def test_a_gpu_that_is_back_is_registered_again(watch: Watch) -> None:
    """A reset ends what was registered."""
    rig = watch()
    rig.wait_for_registrations(2)
    rig.readable = {1: rig.uuids[1]}
    rig.wait_for_waits(2)
    rig.readable = dict(rig.uuids)
    rig.wait_for_registrations(3)
    rig.fake.happen((0, 95))
    rig.wait_for((0, 95))


def test_a_numbering_that_changed_registers_nobody_under_a_wrong_name(watch: Watch) -> None:
    """The GPU at that place must be the one that was read there."""
    rig = watch()
    rig.readable = {0: "GPU-another", 1: rig.uuids[1]}
    wait_until(lambda: rig.events._registered == {1: rig.uuids[1]})
    rig.wait_for_waits(2)

    assert "GPU-another" not in rig.events._uuids.values()


@pytest.mark.parametrize("code", [15, 1])
def test_a_wait_that_fails_is_tried_again(
    watch: Watch, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With a pause, a set of its own each time, and one line in the log.

    No line if the whole library is lost (1): the workers log that.
    """
    rig = watch()
    rig.wait_for_registrations(2)
    rig.fake.update(faults=[fault("nvmlEventSetWait_v2", error=code)])
    wait_until(lambda: rig.calls("nvmlEventSetCreate") >= 4)
    rig.fake.update(faults=[])
    wait_until(lambda: not rig.events._failing)
    rig.fake.happen((0, 119))
    rig.wait_for((0, 119))

    assert rig.calls("nvmlEventSetFree") == rig.calls("nvmlEventSetCreate") - 1
    assert caplog.text.count("waiting for Xid events failed") == int(code != 1)


def test_waits_that_return_at_once_do_not_spin(watch: Watch) -> None:
    """A driver that answers TIMEOUT without waiting gets a pause from us."""
    rig = watch()
    rig.wait_for_registrations(2)
    rig.fake.update(faults=[fault("nvmlEventSetWait_v2", error=10)])
    before = rig.calls("nvmlEventSetWait_v2")
    threading.Event().wait(0.4)

    assert rig.calls("nvmlEventSetWait_v2") - before <= 0.4 / 0.02 + 2


@pytest.mark.parametrize("code", [3, 13])
def test_a_driver_without_events_ends_the_watch(
    watch: Watch, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """WSL2, for one; it is said once."""
    caplog.set_level(logging.INFO)
    rig = watch({"faults": [fault("nvmlEventSetCreate", error=code)]})
    rig.events.thread.join(2.0)

    assert not rig.events.thread.is_alive()
    assert rig.calls("nvmlEventSetCreate") == 1
    assert "no Xid events" in caplog.text


def test_a_wedged_wait_is_left_behind(watch: Watch) -> None:
    """It is a daemon thread, and what it was abandoned in is never called again."""
    rig = watch()
    rig.wait_for_registrations(2)
    rig.fake.update(faults=[fault("nvmlEventSetWait_v2", hang=True)])
    rig.wait_for_waits()
    rig.events.stop()
    rig.events.thread.join(0.2)
    assert rig.events.thread.is_alive()
    assert rig.events.thread.daemon
    rig.fake.update(faults=[])
    rig.events.thread.join(2.0)

    assert not rig.events.thread.is_alive()
    assert rig.calls("nvmlEventSetFree") == 0
