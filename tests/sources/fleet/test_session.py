# SPDX-License-Identifier: Apache-2.0
"""The device sources of one opened GPU, by cadence."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from exporter.model.reading import Reading
from exporter.sources.fleet.session import Session
from exporter.sources.nvml.reader import DeviceChanged
from tests.fake_nvml import fault
from tests.sources.conftest import Open

START = 1_000_000.0
GPM = {"tensor": 50, "sm": 80, "nvdec": 70, "ofa": 9}
STATIC = "nvmlDeviceGetSerial"
SLOW = "nvmlDeviceGetPerformanceState"
LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
FAST = "nvmlDeviceGetTemperatureV"


def tick(session: Session, rig: Any, count: int = 1, seconds: float = 1.0) -> Reading:
    """The reading after so many further intervals."""
    for _ in range(count):
        rig.advance(seconds)
        reading = session.read()
    return reading


def test_reading_of_the_whole_gpu(open_gpu: Open) -> None:
    """One round has the identity, the board, one share, its stamps and its cost by source."""
    rig = open_gpu(after=20, gpm=GPM, power=500, utilization=50)
    session = rig.session()
    first, second = session.read(), tick(session, rig)
    (share,) = second.shares

    assert second.device == session.device
    assert (second.timestamp_seconds, second.monotonic_seconds) == (START + 21, 21.0)
    assert (second.vitals.power_watts, second.board.performance_state) == (500.0, 0)
    assert (second.states, second.read_seconds) == ({}, {"nvml": 0.0, "gpm": 0.0})
    assert first.shares == (replace(share, activity=None),)
    assert (share.gpu_instance, share.counters, share.processes) == (None, "gpm", ())
    assert share.memory is not None
    assert share.activity is not None
    assert (share.activity.tensor, share.activity.seconds) == (0.5, 1.0)


def test_cadences(open_gpu: Open) -> None:
    """Every cadence runs once at the start; then each call comes at its own interval."""
    rig = open_gpu(gpm=GPM)
    session = rig.session()
    session.read()
    start = rig.calls()
    assert {start[name] for name in (STATIC, SLOW, FAST)} == {1}

    for _ in range(3):
        tick(session, rig, 60)
        calls = rig.calls()
        assert [calls[name] for name in (STATIC, SLOW, FAST)] == [1, 6, 60]


def test_slow_readings_stay_between_their_rounds(open_gpu: Open) -> None:
    """A fast round hands over the last slow readings, clocks and processes among them."""
    rig = open_gpu(performance_state=2, processes=[{"pid": 1, "bytes": 1}])
    session = rig.session()
    session.read()
    rig.fake.device(0, performance_state=5, processes=[])
    soon = tick(session, rig)
    later = tick(session, rig, 9)

    assert (soon.board.performance_state, len(soon.shares[0].processes or ())) == (2, 1)
    assert soon.vitals.clock_hertz.keys() == {"sm", "memory", "graphics", "video"}
    assert (later.board.performance_state, later.shares[0].processes) == (5, ())


JOB = {"pid": 1, "bytes": 1}


@pytest.mark.parametrize("gpm", [{"supported": 0}, {"sm": 80}], ids=["utilization", "counters"])
def test_processes_are_listed_anew_when_the_load_drops_to_0(
    open_gpu: Open, gpm: dict[str, float]
) -> None:
    """A job that ends is gone within two rounds, and a GPU at work is not asked more often."""
    rig = open_gpu(utilization=90, gpm=gpm, processes=[JOB])
    session = rig.session()
    session.read()
    rig.calls()
    tick(session, rig, 3)
    assert rig.calls().get(LISTS, 0) == 0

    rig.fake.device(0, utilization=0, gpm=dict.fromkeys(gpm, 0))
    ending = tick(session, rig, 2)
    rig.fake.device(0, utilization=0, gpm=dict.fromkeys(gpm, 0), processes=[])
    ended = tick(session, rig)

    assert [len(each.shares[0].processes or ()) for each in (ending, ended)] == [1, 0]
    rig.calls()
    tick(session, rig, 3)
    assert rig.calls().get(LISTS, 0) == 0


def test_processes_that_stay_are_listed_often_for_one_slow_interval(open_gpu: Open) -> None:
    """A notebook that holds an idle GPU is no job that ends."""
    rig = open_gpu(utilization=90, processes=[JOB])
    session = rig.session()
    session.read()
    rig.fake.device(0, utilization=0)
    tick(session, rig, 15)
    rig.calls()
    tick(session, rig, 20)

    assert rig.calls()[LISTS] == 2


def test_media_engines_come_from_counters_where_they_answer(open_gpu: Open) -> None:
    """NVML is asked in the first round only; then hardware counters have them, without a call."""
    rig = open_gpu(gpm=GPM, decoder_utilization=33, encoder_utilization=5)
    session = rig.session()
    first, second, third = session.read(), tick(session, rig), tick(session, rig)
    calls = rig.calls()

    decoder = [each.vitals.decoder_ratio for each in (first, second, third)]
    assert decoder == [0.33, 0.7, 0.7]
    assert third.vitals.ofa_ratio == 0.09
    # An H100 has no encoder: GPM does not answer for it, NVML says what it says.
    assert third.vitals.encoder_ratio == 0.05
    assert calls["nvmlDeviceGetDecoderUtilization"] == 2
    assert calls["nvmlDeviceGetEncoderUtilization"] == 3
    rig.fake.update(faults=[fault("nvmlGpm*", error=4)])
    last = tick(session, rig, 2)
    assert last.vitals.decoder_ratio == 0.33
    assert last.states == {"gpm": "no_permission"}


INSTANCES: list[dict[str, Any]] = [
    {"gi": 1, "gpm": {"tensor": 50}, "memory_used": 7},
    {"gi": 2, "gpm": {"tensor": 20}, "memory_used": 8},
]
MIG = {"instances": INSTANCES}


def test_memory_is_read_before_gpm(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPM sample of an instance can make later memory calls of the same round fail."""
    rig = open_gpu(mig=MIG)
    session = rig.session()
    session.read()
    gpm, memories = session._counters._sources["gpm"], []
    read = gpm.read

    def noting(now: float) -> Any:
        memories.append(rig.calls().get("nvmlDeviceGetMemoryInfo_v2", 0))
        return read(now)

    monkeypatch.setattr(gpm, "read", noting)
    tick(session, rig)

    assert memories[0] > 0
    assert not [name for name in rig.calls() if "MemoryInfo" in name]


@pytest.mark.parametrize("left", ["Memory", "Power", "Temperature", "Samples", "ClockInfo"])
def test_one_reading_is_enough(open_gpu: Open, left: str) -> None:
    """A GPU of which a single reading answers is up."""
    rig = open_gpu(gpm=GPM, utilization=50, fields={"185": None, "83": None})
    session = rig.session()
    tick(session, rig)
    others = [name for name in FAST_CALLS if left not in name]
    rig.fake.update(faults=[fault(f"{name}*", error=999) for name in others])

    tick(session, rig)


FAST_CALLS = (
    *("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"),
    *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo"),
    *("nvmlDeviceGetCurrentClocks", "nvmlDeviceGetSamples", "nvmlDeviceGet*Utilization", "nvmlGpm"),
)


def test_another_gpu_behind_the_handle_needs_a_new_session(open_gpu: Open) -> None:
    """Within a minute, at the static cadence."""
    rig = open_gpu(uuid="GPU-a")
    session = rig.session()
    session.read()
    rig.fake.device(0, uuid="GPU-b")
    rig.advance(60)

    with pytest.raises(DeviceChanged):
        session.read()


def test_failures_outlive_the_session(open_gpu: Open) -> None:
    """The count of failed reads belongs to the GPU, not to one session."""
    rig = open_gpu()
    rig.fake.update(faults=[fault("nvmlDeviceGetTemperatureV", error=999)])
    for _ in range(2):
        rig.session().read()

    assert rig.failures == {"nvml": 2}


STEADY: list[dict[str, Any]] = [
    {"gpm": {**GPM, "cumulative": 1}, "processes": [{"pid": 1, "bytes": 1}]},
    {"product": "t4", "utilization": 60, "processes": [{"pid": 1, "bytes": 1}]},
    {"product": "b200", "gpm": GPM, "utilization": 60},
]


@pytest.mark.parametrize("device", STEADY, ids=["h100", "t4", "b200"])
def test_driver_calls_in_the_steady_state(open_gpu: Open, device: dict[str, Any]) -> None:
    """Fewer than 18 driver calls per GPU and second, all cadences included."""
    rig = open_gpu(**device)
    session = rig.session()
    tick(session, rig, 3)
    rig.calls()
    tick(session, rig, 60)
    calls = rig.calls()

    assert sum(calls.values()) / 60 < 18
    assert not calls.keys() & {"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetHandleByIndex_v2"}


def test_progress_is_reported_between_calls(open_gpu: Open) -> None:
    """A GPU of which every call is slow does not hang: no stretch without a word has many calls."""
    rig = open_gpu(gpm=GPM, power=500, utilization=50)
    marks: list[int] = []
    rig.advance(20)
    session = rig.session(progress=lambda: marks.append(sum(rig.fake.calls().values())))
    marks.append(sum(rig.fake.calls().values()))
    for _ in range(12):
        tick(session, rig)
        marks.append(sum(rig.fake.calls().values()))

    assert marks[-1] > 150
    assert max(after - before for before, after in pairwise(marks)) <= 6


def test_counters_that_answered_before_are_asked_for_again_soon(open_gpu: Open) -> None:
    """Also by the session after the one in which they did."""
    rig = open_gpu(after=20, gpm=GPM)
    session = rig.session()
    assert tick(session, rig, 2).shares[0].activity is not None
    session.close()

    rig.fake.update(faults=[fault("nvmlGpmQueryDeviceSupport", error=3)])
    session = rig.session()
    assert tick(session, rig).shares[0].activity is None
    rig.fake.update(faults=[])
    assert tick(session, rig, 8).shares[0].activity is not None


def test_what_the_log_says_is_taken_back_by_the_next_session(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that is over does not stay the last word in the log when a GPU is opened again."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(after=20, power=500)
    session = rig.session()
    tick(session, rig)
    rig.fake.update(faults=[fault("nvmlDeviceGetTemperatureV", error=999)])
    tick(session, rig)
    session.close()
    rig.fake.update(faults=[])
    tick(rig.session(), rig, 2)

    assert [line for line in caplog.messages if "temperature" in line] == [
        "GPU 0 cannot be read in part: temperature (Unknown Error)",
        "GPU 0: can be read again: temperature",
    ]
