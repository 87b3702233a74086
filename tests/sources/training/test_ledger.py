# SPDX-License-Identifier: Apache-2.0
"""The last word of each process is kept, for a while, and only its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.training import TrainingReport
from exporter.sources.training import ledger
from exporter.sources.training.credentials import Peer, Processes
from exporter.sources.training.decode import decode
from exporter.sources.training.ledger import Ledger
from exporter.sources.training.receiver import Arrival
from exporter.sources.training.refusals import Rejected
from tests.clocks import ManualClock
from tests.sources.training.reports import LEAST, datagram, numbered

PEER = Peer(4242, 1000)


class FakeProcesses(Processes):
    """Knows the processes that a test lists: their start time, and what they may claim to be."""

    def __init__(self) -> None:
        self.alive: dict[int, int] = {}
        self.namespaces: dict[int, set[int]] = {}
        self.looks = 0
        self.age = 1e6

    def may_claim(self, pid: int, claimed: int) -> bool:
        return pid not in self.namespaces or claimed in self.namespaces[pid]

    def started(self, pid: int) -> int | None:
        self.looks += 1
        return self.alive.get(pid)

    def age_seconds(self, started: int | None) -> float:
        return self.age

    def ancestors(self, pid: int) -> tuple[int, ...]:
        return (400,)


class Node:
    """A ledger, its clock and its processes."""

    def __init__(self, max_jobs: int = 64, max_ranks: int = 512, *, owners: bool = True) -> None:
        self.clock = ManualClock()
        self.processes = FakeProcesses()
        self.ledger = Ledger(self.clock, self.processes, max_jobs, max_ranks, owners=owners)
        self._sequence = 100

    def say(self, peer: Peer = PEER, **changes: Any) -> str:
        """Send a report; return the reason for which it was refused, or nothing."""
        self._sequence += 1
        claim = decode(datagram(**{"sequence": self._sequence, **changes}))
        try:
            now = self.clock
            self.ledger.take(claim, Arrival(b"", peer, now.monotonic(), now.time()))
        except Rejected as refused:
            return refused.reason
        return ""

    def say_in(self, phase: str | None, **changes: Any) -> str:
        """Send a report whose last word is that this phase is under way."""
        return self.say(PEER, **{"in": phase, **changes})

    def known(self) -> Mapping[str, TrainingReport]:
        return {report.report_id: report for report in self.ledger.reports()}

    def only(self) -> TrainingReport:
        (report,) = self.ledger.reports()
        return report

    def after(self, seconds: float) -> Mapping[str, TrainingReport]:
        """Return what is known then; the publisher asks at every tick."""
        while seconds > 0:
            self.clock.advance(min(seconds, 0.5))
            seconds -= 0.5
            known = self.known()
        return known


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users whose names show their numbers."""
    monkeypatch.setattr(ledger, "user_name", lambda uid: f"user {uid}")


@pytest.fixture(name="node")
def _node() -> Node:
    return Node()


def test_what_was_said_last_is_handed_on(node: Node) -> None:
    """With who said it and when."""
    node.say(steps=100)
    node.clock.advance(1)
    node.say(steps=150, device="GPU-1", exit=False)
    report = node.only()

    assert report.totals.steps == 150
    assert report.host_pids == (4242, 400)
    assert (report.uid, report.owner) == (1000, "user 1000")
    assert report.device == "GPU-1"
    assert report.alive
    assert report.received_monotonic_seconds == node.clock.monotonic()
    assert report.received_timestamp_seconds == node.clock.time()
    assert node.ledger.taken_total == 2


# Whose it is


@pytest.mark.parametrize("other", [Peer(4243, 1000), Peer(4242, 1001), Peer(0, 1000)])
def test_an_id_belongs_to_its_first_sender(node: Node, other: Peer) -> None:
    """Another process or user cannot speak for it, nor end it."""
    node.say(steps=100)

    assert node.say(other, steps=200, exit=True) == "credentials"
    assert node.say(PEER, pid=1, steps=200) == "credentials"
    assert node.only().totals.steps == 100
    assert node.only().alive
    assert node.say(steps=200) == ""


def test_a_pid_must_be_the_senders_in_one_of_its_namespaces(node: Node) -> None:
    """A container's pid counts as well as the host's; any other is a lie."""
    node.processes.namespaces[4242] = {4242, 1}

    assert node.say(id=numbered(1), pid=1) == ""
    assert node.say(id=numbered(2), pid=4242) == ""
    assert node.say(id=numbered(3), pid=4243) == "credentials"
    assert set(node.known()) == {numbered(1), numbered(2)}


# What may follow


def test_a_report_must_be_newer(node: Node) -> None:
    """Datagrams of one process arrive in order; what comes twice is a copy."""
    node.say(sequence=5, steps=100)

    assert node.say(sequence=5, steps=101) == "old"
    assert node.say(sequence=4, steps=101) == "old"
    assert node.say(sequence=9, steps=101) == ""


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"steps": 5}, {"steps": 4}),
        ({"batches": 5}, {"batches": 4.5}),
        ({"step_seconds": 5}, {"step_seconds": 4.999}),
        ({"samples": 5}, {"samples": 4}),
        ({"samples": 5}, {}),
        ({"model_flops": 1e15}, {"model_flops": 1e14}),
        ({"model_flops": 1e15}, {}),
        ({"phase_seconds": {"data": 1}}, {"phase_seconds": {"data": 0.5, "eval": 2}}),
        ({"phase_seconds": {"data": 1}}, {"phase_seconds": {}}),
        ({"phase_seconds": {"mine": 1}}, {"phase_seconds": {"yours": 0.5}}),
        ({"phase_gpu_idle_seconds": {"data": 1}}, {"phase_gpu_idle_seconds": {"data": 0}}),
        ({"phase_gpu_idle_seconds": {"data": 1}}, {}),
    ],
)
def test_no_total_falls(node: Node, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A process that starts over draws a new id."""
    common = {"step_seconds": 5, "phase_seconds": {"data": 1}}
    assert node.say(**{**common, **before}) == ""
    assert node.say(**{**common, **now}) == "schema"
    assert node.say(**{**common, **before}) == ""


def test_what_was_not_known_may_become_known(node: Node) -> None:
    """Samples, FLOPs, phases and the device; a phase of no time may be left out again."""
    assert node.say(phase_gpu_idle_seconds={"data": 0}) == ""
    assert node.say(samples=5, model_flops=1, device="none", phase_gpu_idle_seconds={}) == ""
    assert node.say(samples=5, model_flops=1, phase_gpu_idle_seconds={"data": 1}) == ""
    assert node.only().device == ""


def test_what_names_the_series_does_not_change(node: Node) -> None:
    """One id is one job and one rank; the first device that it named stays."""
    node.say(device="GPU-1")

    assert node.say(job="other") == "schema"
    assert node.say(rank=1) == "schema"
    assert node.say(device="GPU-2") == ""
    assert node.say(device="none") == ""
    assert node.say(device=None) == ""
    assert node.only().device == "GPU-1"


# What a process can have done


@pytest.mark.parametrize(
    "lie",
    [
        {"step_seconds": 1e18},
        {"step_seconds": 1e18, "phase_seconds": {"data": 1e18, "checkpoint": 1}},
        {"steps": 1e18},
        {"batches": 1e18},
        {"samples": 1e18},
        {"model_flops": 1e30},
    ],
)
def test_totals_that_no_process_reaches_are_refused(node: Node, lie: dict[str, Any]) -> None:
    """One datagram with totals of 1e18 froze the counters of a rank for ever."""
    node.processes.age = 3600.0
    common: dict[str, Any] = {"samples": 1, "model_flops": 1}
    assert node.say(**{**common, **lie}) == "implausible"
    assert not node.known()
    assert node.say(**common) == ""
    node.clock.advance(1)
    assert node.say(**{**common, **lie}) == "implausible"
    assert node.say(**{**common, "steps": 101}) == ""
    assert node.only().totals.steps == 101


def test_the_age_of_a_process_grows(node: Node) -> None:
    """A new one has done little; a day later it may have done a day's work."""
    node.processes.age = 10.0
    assert node.say(step_seconds=16, phase_seconds={}) == "implausible"
    assert node.say(step_seconds=15, phase_seconds={}) == ""
    node.clock.advance(86400)
    assert node.say(step_seconds=86400, phase_seconds={}) == ""
    assert node.say(step_seconds=1.2 * 86400, phase_seconds={}) == "implausible"


def test_when_a_process_started_is_known_where_it_can_be_seen(node: Node) -> None:
    """It does not move from report to report; of a process that is not seen there is none."""
    node.processes.age = 10.0
    node.say(step_seconds=1, phase_seconds={})
    assert node.only().born_timestamp_seconds is None

    node = Node()
    node.processes.age = 10.0
    node.processes.alive = {PEER.pid: 77}
    born = node.clock.time() - 10.0
    for seconds in (1, 6):
        assert node.say(step_seconds=seconds, phase_seconds={}) == ""
        assert node.only().born_timestamp_seconds == born
        node.clock.advance(5.0)


def test_loop_time_grows_no_faster_than_time(node: Node) -> None:
    """Whatever its age: a job that is a month old cannot make up a month within a second."""
    assert node.say(step_seconds=0, phase_seconds={}) == ""
    node.clock.advance(1)
    assert node.say(step_seconds=62, phase_seconds={}) == "implausible"
    assert node.say(step_seconds=61, phase_seconds={}) == ""
    node.clock.advance(100)
    assert node.say(step_seconds=167, phase_seconds={}) == "implausible"
    assert node.say(step_seconds=166, phase_seconds={}) == ""


# How long


def test_the_last_word_of_a_process_that_ended_stays_five_minutes(node: Node) -> None:
    """It is said to be gone from the first moment."""
    node.say(exit=True)

    assert not node.only().alive
    assert node.after(299.5)
    assert not node.after(1.5)


def test_a_living_process_is_silent_after_five_minutes_but_not_forgotten(node: Node) -> None:
    """A checkpoint or a hang may last: its totals go on when it speaks again, until it is gone."""
    node.processes.alive[4242] = 77
    node.say(steps=5)
    assert not node.after(299.5)[LEAST["id"]].silent
    assert node.after(1.5)[LEAST["id"]].silent
    assert node.after(3600)[LEAST["id"]].silent
    node.say(steps=6)
    assert not node.only().silent
    assert node.after(302)[LEAST["id"]].silent
    del node.processes.alive[4242]
    assert not node.after(1.5)


def test_a_process_that_said_that_it_waits_is_not_silent(node: Node) -> None:
    """However long it waits: until it says otherwise, ends or is found to be gone."""
    node.processes.alive[4242] = 77
    node.say_in("data")
    shown = node.after(3600)[LEAST["id"]]
    assert (shown.phase, shown.announces, shown.silent) == ("data", True, False)
    node.say_in(None)
    assert (node.only().phase, node.only().announces) == (None, True)
    node.say_in("data")
    node.say_in("data", exit=True)
    assert node.only().phase is None


def test_announced_waits_are_added_up(node: Node) -> None:
    """By what the process measured, and also where no reader asked in between."""
    for phase, waited in ((None, 1.0), ("data", 2.0), (None, 17.0), ("data", 18.0), ("eval", 20.0)):
        node.say_in(phase, phase_seconds={"data": waited}, step_seconds=100.0)
    node.say(phase_seconds={"data": 30.0}, step_seconds=100.0)

    assert node.only().announced_wait_seconds == 15.0 + 2.0


def test_a_process_that_cannot_be_seen_is_gone_after_a_minute_of_silence(node: Node) -> None:
    """Its pid is in a namespace that this one does not hold."""
    node.say(Peer(0, 1000), pid=1)

    assert node.after(59)[LEAST["id"]].alive
    assert not node.after(3)[LEAST["id"]].alive
    assert node.only().host_pids == ()
    node.say(Peer(0, 1000), pid=1)
    assert node.only().alive


@pytest.mark.parametrize("then", [{}, {4242: 78}], ids=["gone", "another"])
def test_a_process_that_is_killed_is_gone_within_seconds(node: Node, then: dict[int, int]) -> None:
    """Its last totals stay; another one with its pid has started at another time."""
    node.processes.alive[4242] = 77
    node.say(steps=123)
    assert node.after(100)[LEAST["id"]].alive
    node.say(steps=124)
    node.processes.alive = then
    report = node.after(3.5)[LEAST["id"]]

    assert not report.alive
    assert report.totals.steps == 124


def test_processes_that_report_are_not_looked_at(node: Node) -> None:
    """Once a second at most, and only those that were quiet for a while."""
    node.processes.alive[4242] = 77
    node.say()
    looks = node.processes.looks
    for _ in range(20):
        node.clock.advance(1)
        node.say()
        node.known()
    assert node.processes.looks == looks
    node.after(12)
    assert 9 <= node.processes.looks - looks <= 11


# How many


def test_a_job_that_was_silent_for_a_while_makes_room(node: Node) -> None:
    """With all its processes; the one that was silent longest goes first."""
    for n in range(64):
        node.say(id=numbered(n), job=f"job {n}")
    node.say(id=numbered(64), job="job 0", rank=1)
    node.clock.advance(9)
    for n in range(2, 64):
        node.say(id=numbered(n), job=f"job {n}")
    assert node.say(id=numbered(100), job="new") == "jobs"
    node.clock.advance(1.5)
    assert node.say(id=numbered(100), job="new") == ""
    assert node.say(id=numbered(101), job="newer") == ""
    known = node.known()

    assert not {numbered(0), numbered(1), numbered(64)} & set(known)
    assert len(known) == 64
    assert node.say(id=numbered(102), job="newest") == "jobs"


def test_a_newcomer_takes_the_room_of_who_holds_most() -> None:
    """Up to its share; the one that was silent longest goes first, also if it is not silent."""
    node = Node(max_ranks=8)
    for n in range(8):
        node.say(id=numbered(n))
        node.clock.advance(1)
    node.say(id=numbered(0))
    said = [node.say(Peer(9, 9), id=numbered(n)) for n in range(10, 15)]

    assert said == ["", "", "", "", "ranks"]
    assert set(node.known()) == {numbered(n) for n in (0, 5, 6, 7, 10, 11, 12, 13)}


def test_nobody_leaves_for_a_sender_that_lies(node: Node) -> None:
    """Room is made only for a report that is taken."""
    for n in range(64):
        node.say(id=numbered(n), job=f"job {n}")
    node.clock.advance(11)
    node.processes.namespaces[9] = {9}

    assert node.say(Peer(9, 9), id=numbered(100), job="new", pid=10) == "credentials"
    assert len(node.known()) == 64


def test_a_job_of_the_same_name_is_another_users_own(node: Node) -> None:
    """It counts as a job of its own, with its user's name beside it."""
    node = Node(max_jobs=2)
    node.say(id=numbered(1), job="resnet")
    node.say(Peer(9, 9), id=numbered(2), job="resnet", steps=7)
    assert node.say(id=numbered(3), job="other") == "jobs"

    said = [(report.job, report.uid, report.owner) for report in node.known().values()]
    assert said == [("resnet", 1000, "user 1000"), ("resnet", 9, "user 9")]


def test_users_are_not_named_where_they_may_not_be() -> None:
    """--no-process.owner."""
    node = Node(owners=False)
    node.say()

    assert (node.only().uid, node.only().owner) == (1000, None)


def test_reports_are_in_the_order_in_which_they_came(node: Node) -> None:
    """So that who came first under a name is known from who came later."""
    for n in (3, 1, 2):
        node.say(id=numbered(n))
    node.say(id=numbered(3))

    assert list(node.known()) == [numbered(n) for n in (3, 1, 2)]


EVIL = st.fixed_dictionaries(
    {"phase_seconds": st.sampled_from([{}, {"data": 0.0}])},
    optional={
        "id": st.sampled_from([LEAST["id"], *map(numbered, range(6))]),
        "job": st.sampled_from(["resnet", "a", "b", "c", "d"]),
        "rank": st.integers(0, 2),
        "pid": st.just(4242),
        "device": st.sampled_from(["none", "GPU-1"]),
        "steps": st.sampled_from([0, 5, 1e18]),
        "step_seconds": st.sampled_from([0.0, 50.0, 1e18]),
        "exit": st.booleans(),
    },
)


@given(st.lists(st.tuples(EVIL, st.integers(0, 2), st.sampled_from([0.0, 1.0, 11.0])), max_size=40))
def test_nothing_that_others_say_changes_a_user_within_its_share(
    events: list[tuple[dict[str, Any], int, float]],
) -> None:
    """Two other users, any ids (also its own), names, ranks and totals; it is silent all along."""
    node = Node(max_jobs=3, max_ranks=4)
    node.processes.alive[4242] = 77
    node.say(steps=1000)
    before = node.only()
    for changes, pid, pause in events:
        node.clock.advance(pause)
        node.say(Peer(pid, 2000 + pid % 2), **changes)
    report = node.known()[LEAST["id"]]

    assert report.totals == before.totals
    assert (report.job, report.rank, report.uid, report.alive) == ("resnet", 0, 1000, True)
    assert node.say(steps=1001) == ""


STEPS = st.tuples(
    st.integers(0, 9), st.integers(0, 5), st.integers(0, 3), st.sampled_from([0.0, 0.4, 11.0, 301])
)


@given(st.lists(STEPS, max_size=60))
def test_limits_hold_whatever_comes(steps: list[tuple[int, int, int, float]]) -> None:
    """Any ids, jobs and pauses: never too many, and every id has one job."""
    node = Node(max_jobs=3, max_ranks=5)
    jobs: dict[str, str] = {}
    for report_id, job, pid, pause in steps:
        if not node.say(Peer(pid, 0), id=numbered(report_id), job=f"job {job}", exit=pid == 3):
            jobs[numbered(report_id)] = f"job {job}"
        node.clock.advance(pause)
        known = node.known()
        assert len(known) <= 5
        assert len({report.job for report in known.values()}) <= 3
        assert all(jobs[report_id] == report.job for report_id, report in known.items())


def test_a_report_that_did_not_change_is_not_made_again(node: Node) -> None:
    """A tick costs nothing for those who said nothing."""
    node.say()
    assert node.only() is node.only()


def test_a_pid_that_is_used_again_is_another_process(node: Node) -> None:
    """Their start times differ."""
    node.processes.alive[4242] = 77
    node.say()
    node.processes.alive[4242] = 78

    assert not node.after(3.5)[LEAST["id"]].alive


def test_a_process_that_was_silent_for_a_while_makes_room() -> None:
    """Of whatever job."""
    node = Node(max_ranks=4)
    for n in range(4):
        node.say(id=numbered(n), job="job", rank=n)
    assert node.say(id=numbered(9), job="job", rank=9) == "ranks"
    node.clock.advance(10.5)
    node.say(id=numbered(0), job="job", rank=0)
    assert node.say(id=numbered(9), job="other") == ""

    assert set(node.known()) == {numbered(n) for n in (0, 2, 3, 9)}
