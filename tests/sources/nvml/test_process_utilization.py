# SPDX-License-Identifier: Apache-2.0
"""How much of the SM time each process had, as the driver samples it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml import processes as module
from exporter.sources.nvml.processes import GROUP, ProcessLists, ProcessUtilization
from exporter.sources.reading_state import Journal
from tests.fake_nvml import DRIVER_470, steps
from tests.sources.conftest import START, Open, Rig

CALL = "nvmlDeviceGetProcessUtilization"
BUSY = ({"pid": 10, "sm": 60}, {"pid": 11, "sm": 30}, {"pid": 12})


class Reader:
    """What is known of the processes of a GPU at each read, ten seconds apart."""

    def __init__(self, rig: Rig, procfs: str = "/nonexistent") -> None:
        self.rig = rig
        self.lists = ProcessLists(rig.handle, rig.journal, procfs, utilization=True)

    def __call__(self, instances: list[int] | None = None) -> dict[int, float | None]:
        self.rig.advance(10.0)
        found = self.lists.read(instances)
        assert found is not None
        return {each.pid: each.sm_utilization_ratio for share in found.values() for each in share}


def test_the_average_since_the_last_read(open_gpu: Open) -> None:
    """The first answer is an average over nobody knows what; who had nothing has no entry."""
    wave = steps((0, 80), (15, 40), (20, 0))
    read = Reader(open_gpu(processes=[{"pid": 10, "sm": wave}, {"pid": 11}]))
    assert read() == {10: None, 11: None}
    assert read() == {10: 0.6, 11: 0.0}
    assert read() == {10: 0.0, 11: 0.0}


def test_nothing_is_asked_unless_it_is_wanted(open_gpu: Open) -> None:
    """Without the flag the call is not made."""
    rig = open_gpu(processes=list(BUSY))
    (share,) = rig.session().read().shares
    assert share.processes is not None
    assert {each.sm_utilization_ratio for each in share.processes} == {None}
    assert not {CALL} & rig.calls().keys()
    rig.session(SessionOptions(process_utilization=True)).read()
    assert rig.calls()[CALL] == 1


def test_a_process_in_two_lists_has_one_ratio(open_gpu: Open) -> None:
    """One that computes and draws is listed twice."""
    processes = {"compute": [{"pid": 10, "sm": 50}], "graphics": [{"pid": 10}]}
    read = Reader(open_gpu(processes=processes))
    read()
    read.rig.advance(10.0)
    found = read.lists.read(None)
    assert found is not None
    assert [each.sm_utilization_ratio for each in found[None]] == [0.5, 0.5]


def test_impossible_entries_are_refused(open_gpu: Open) -> None:
    """More than 100 % is what some drivers write into entries of processes that ended. Whom they
    name is not known, which is not 0. A stamp that was seen is no news."""
    rig = open_gpu(processes=list(BUSY), process_samples=[{"at": 5, "pid": 10, "sm": 9}])
    read = Reader(rig)
    assert read() == {10: None, 11: None, 12: None}
    samples = [
        {"at": 15, "pid": 10, "sm": 4_000_000_000},
        {"at": 16, "pid": 10, "sm": 50},
        {"at": 5, "pid": 11, "sm": 90},
        {"at": 16, "pid": 11, "sm": 20},
        {"at": 17, "pid": 11, "sm": 40},
        {"at": 18, "pid": 99, "sm": 40},
    ]
    rig.fake.device(0, process_samples=samples)
    assert read() == {10: None, 11: 0.3, 12: 0.0}
    assert rig.journal.states == {GROUP: "implausible"}
    rig.fake.device(0, process_samples=[{"at": 25, "pid": 10, "sm": 100}])
    assert read() == {10: 1.0, 11: 0.0, 12: 0.0}
    assert rig.journal.states == {}


def test_a_stamp_of_another_time_is_refused(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stamp far in the future would make all later ones look old."""
    monkeypatch.setattr(module, "_now", lambda: int((START + 100.0) * 1e6))
    reader = ProcessUtilization(None, Journal("GPU 0"))
    second = 1_000_000
    start = int(START) * second
    for answer, known in (
        ([(10, start + 10 * second, 5)], {}),
        ([(10, 2**63, 5), (11, start + 20 * second, 5)], {10: 0.0, 11: 0.05}),
        ([(10, start + 30 * second, 5)], {10: 0.05, 11: 0.0}),
    ):
        monkeypatch.setattr(reader, "_probe", lambda answer=answer: answer)
        assert reader.read({10, 11}, complete=True) == known


def test_an_idle_gpu_says_nothing_until_the_driver_has_sampled(open_gpu: Open) -> None:
    """A driver that never samples any process must not make a busy GPU look idle."""
    read = Reader(open_gpu(processes=[{"pid": 10}]))
    assert [read() for _ in range(3)] == [{10: None}] * 3
    assert read.rig.journal.states == {}


@pytest.mark.parametrize("server", ["listed", "named"])
def test_with_mps_only_who_has_an_entry_is_known(
    open_gpu: Open, tmp_path: Path, server: str
) -> None:
    """The driver may count the work of MPS clients as their server's."""
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "comm").write_text("nvidia-cuda-mps\n" if server == "named" else "python3\n")
    kind = "mps" if server == "listed" else "compute"
    processes: dict[str, Any] = {"compute": [{"pid": 10}]}
    processes.setdefault(kind, []).append({"pid": 12, "sm": 40})
    read = Reader(open_gpu(processes=processes), str(tmp_path))
    read()
    assert read() == {10: None, 12: 0.4}


def test_mig_has_none(open_gpu: Open) -> None:
    """The driver is not even asked, and the state says why."""
    rig = open_gpu(
        processes=[{"pid": 10, "gi": 2, "ci": 0, "sm": 40}], mig={"instances": [{"gi": 2}]}
    )
    read = Reader(rig)
    assert read([2]) == {10: None}
    assert rig.journal.states == {GROUP: "mig"}
    assert not {CALL} & rig.calls().keys()


@pytest.mark.parametrize(
    ("device", "missing", "state"),
    [
        ({"process_samples": None}, (), "unsupported"),
        ({"process_samples": {"error": 4}}, (), "no_permission"),
        ({}, (*DRIVER_470, CALL), "old_driver"),
    ],
)
def test_a_driver_that_does_not_say(
    open_gpu: Open, device: dict[str, Any], missing: tuple[str, ...], state: str
) -> None:
    """The state says why, and the processes stay listed."""
    read = Reader(open_gpu(processes=list(BUSY), missing=missing, **device))
    assert read() == {10: None, 11: None, 12: None}
    assert read.rig.journal.states == {GROUP: state}


def test_a_clock_that_is_set_back(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's stamps are of the host's clock: it begins anew, and nobody reads 0 meanwhile."""
    now = START + 100.0
    monkeypatch.setattr(module, "_now", lambda: int(now * 1e6))
    rig = open_gpu(processes=[{"pid": 10, "sm": 50}])
    read = Reader(rig)
    read()
    assert read() == {10: 0.5}
    now -= 3600.0
    rig.fake.device(0, process_samples=[{"at": -3570, "pid": 10, "sm": 70}])
    assert read() == {10: None}
    rig.fake.device(0, process_samples=[{"at": -3560, "pid": 10, "sm": 70}])
    assert read() == {10: 0.7}


def test_a_list_that_outgrows_its_array(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again, and the room stays."""
    monkeypatch.setattr(module, "ENTRIES", 2)
    listed = [{"pid": pid, "sm": 1} for pid in range(100, 150)]
    read = Reader(open_gpu(processes=listed))
    read()
    read.rig.calls()
    assert set(read().values()) == {0.01}
    assert read.rig.calls()[CALL] == 1


ENTRY = st.tuples(st.integers(0, 5), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))


@given(st.lists(st.lists(ENTRY, max_size=6), max_size=6))
def test_any_entries_are_ratios_or_nothing(answers: list[list[tuple[int, int, int]]]) -> None:
    """Whatever the driver writes, a ratio is between 0 and 1."""
    reader = ProcessUtilization(None, Journal("GPU 0"))
    for answer in answers:
        reader._probe = _answering(answer)
        found = reader.read({1, 2, 3}, complete=True)
        assert found.keys() <= {1, 2, 3}
        assert all(0.0 <= ratio <= 1.0 for ratio in found.values())


def _answering(answer: list[tuple[int, int, int]]) -> Any:
    return lambda: answer
