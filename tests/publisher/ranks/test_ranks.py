# SPDX-License-Identifier: Apache-2.0
"""Training ranks: which GPU they are on, their totals over restarts, and what is believed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.reading import Device, Instance, Place, Process, ShareReading
from exporter.model.snapshot import Rank
from exporter.model.training import NO_DEVICE, TrainingReport, TrainingTotals
from exporter.publisher.ranks import GapClock, GpuShares, Ranks
from exporter.publisher.ranks.places import NOWHERE, locate

DIGITS = "01234567-89ab-cdef-0123-456789abcdef"
GPU = Device(index=0, uuid=f"GPU-{DIGITS}", name="NVIDIA H100 80GB HBM3")
OTHER = Device(index=1, uuid="GPU-ffffffff-89ab-cdef-0123-456789abcdef", name=GPU.name)
SPLIT = replace(
    OTHER,
    mig=True,
    instances=(
        Instance(1, 0, "3g.40gb", "MIG-11111111-89ab-cdef-0123-456789abcdef"),
        Instance(2, 0, "3g.40gb", "MIG-22222222-89ab-cdef-0123-456789abcdef"),
    ),
)
HERE = Place(GPU.uuid, None)
KNOWN: list[GpuShares] = [
    (GPU, (ShareReading(processes=(Process(4242, "compute"),)),)),
    (OTHER, (ShareReading(),)),
]
INSTANCE = Place(OTHER.uuid, 2)
SHARES = (
    ShareReading(gpu_instance=1, processes=(Process(1, "compute"),)),
    ShareReading(gpu_instance=2, processes=(Process(4242, "compute"),)),
)
UNREADABLE: list[GpuShares] = [(GPU, (ShareReading(processes=None),))]


def report(seconds: float = 100.0, **changes: object) -> TrainingReport:
    """Return a report received at monotonic time `seconds`."""
    values: dict[str, object] = {
        "report_id": "a" * 32,
        "job": "resnet",
        "rank": 0,
        "received_monotonic_seconds": seconds,
        "received_timestamp_seconds": 1e6 + seconds,
        "totals": TrainingTotals(),
        "device": GPU.uuid,
        "uid": 1000,
        "host_pids": (4242, 400),
    }
    return TrainingReport(**{**values, **changes})  # type: ignore[arg-type]


def totals(
    wait: float = 0.0, stall: float | None = None, steps: float = 0.0, **phases: float
) -> TrainingTotals:
    """Return totals with so many seconds of data wait and exposed stall."""
    return TrainingTotals(
        steps=steps,
        batches=steps,
        step_seconds=1000.0,
        phase_seconds={"data": wait, **phases},
        phase_gpu_idle_seconds={} if stall is None else {"data": stall},
    )


def gaps(*intervals: tuple[float, float | None], start: float = 100.0) -> GapClock:
    """Return a clock that saw these intervals: length and idle ratio (None: not observed)."""
    clock = GapClock()
    clock.advance(start, 0.0, None)
    for length, ratio in intervals:
        start += length
        clock.advance(start, length, ratio)
    return clock


def after(ranks: Ranks, reports: Iterable[TrainingReport], clock: GapClock | None = None) -> Rank:
    """Take these reports and return the only rank."""
    said = list(reports)
    now = max(r.received_monotonic_seconds for r in said)
    ranks.take(said, KNOWN, now)
    ranks.settle({} if clock is None else {HERE: clock})
    (rank,) = ranks.pictures(now)
    return rank


# Where.


@pytest.mark.parametrize(
    ("device", "gpus", "place"),
    [
        (GPU.uuid, KNOWN, HERE),
        (DIGITS, KNOWN, HERE),
        ("GPU-" + DIGITS.replace("0", "9"), KNOWN, None),
        (NO_DEVICE, KNOWN, NOWHERE),
        (None, KNOWN, HERE),
        (None, UNREADABLE, None),
        ("MIG-22222222-89ab-cdef-0123-456789abcdef", [(SPLIT, ())], INSTANCE),
        ("GPU-22222222-89ab-cdef-0123-456789abcdef", [(SPLIT, ())], INSTANCE),
        (f"MIG-{OTHER.uuid}/2/0", [(SPLIT, ())], INSTANCE),
        (OTHER.uuid, [(SPLIT, ())], None),
        (OTHER.uuid, [(SPLIT, SHARES)], INSTANCE),
        (OTHER.uuid, [(replace(SPLIT, instances=SPLIT.instances[1:]), ())], INSTANCE),
    ],
)
def test_a_process_is_where_its_device_or_the_driver_says(
    device: str | None, gpus: list[GpuShares], place: Place | None
) -> None:
    """By the digits of the UUID of a GPU or MIG device, else by the process list."""
    assert locate(report(device=device), gpus) == place
    if device is None:
        assert locate(report(device=None, host_pids=()), gpus) is None


def test_a_rank_is_shown_once_its_gpu_is_known_and_keeps_it() -> None:
    """Its labels never change, whatever later reports say."""
    ranks = Ranks()
    ranks.take([report(device=None)], UNREADABLE, 100.0)
    assert ranks.pictures(100.0) == ()
    assert after(ranks, [report(101.0)]).gpu_uuid == GPU.uuid
    assert after(ranks, [report(102.0, device=OTHER.uuid)]).gpu_uuid == GPU.uuid
    assert after(ranks, [report(103.0, job="else", rank=7)]).job == "resnet"


def test_a_rank_whose_gpu_is_not_found_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """After half a minute, with the job's name on one line."""
    caplog.set_level(logging.INFO)
    ranks = Ranks()
    for now in range(100, 200, 10):
        ranks.take([report(now, job="a\nb", device="GPU-" + "9" * 32)], KNOWN, now)
    assert [r.getMessage() for r in caplog.records] == [
        "training job a\\nb, rank 0 is not shown: its device "
        f"(GPU-{'9' * 32}) is not a GPU of this node"
    ]


def test_ranks_without_a_gpu_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Any user can report hundreds of them: at most one line in 10 s."""
    caplog.set_level(logging.INFO)
    ranks = Ranks()
    device = "GPU-" + "9" * 32
    for now in (*range(100, 161), 169.9):
        lost = [
            report(now, report_id=f"{number:032x}", rank=number, device=device)
            for number in range(50)
        ]
        ranks.take(lost, KNOWN, now)
    assert [r.getMessage().split(" is not shown")[0] for r in caplog.records] == [
        f"training job {lost[0].job}, rank {rank}" for rank in range(4)
    ]


# Totals.


def test_a_restarted_process_goes_on_counting() -> None:
    """The totals of the old process stay, even after it is forgotten."""
    ranks = Ranks()
    old = report(100.0, totals=totals(wait=5.0, steps=10))
    new = report(110.0, report_id="b" * 32, totals=totals(wait=1.0, steps=2))
    assert after(ranks, [old]).totals.steps == 10
    both = after(ranks, [replace(old, alive=False), new])
    assert (both.totals.steps, both.processes) == (12, 1)
    assert both.totals.phase_seconds["data"] == 6.0
    alone = after(ranks, [replace(new, received_monotonic_seconds=111.0)])
    assert (alone.totals.steps, alone.processes) == (12, 1)


def test_a_rank_counts_since_its_first_process_began() -> None:
    """Also after a restart; where one of them is not seen, nobody knows."""
    ranks = Ranks()
    first, second = (
        report(at, report_id=str(at), born_timestamp_seconds=at) for at in (90.0, 95.0)
    )
    assert after(ranks, [second]).since_timestamp_seconds == 95.0
    assert after(ranks, [first, second]).since_timestamp_seconds == 90.0
    assert after(ranks, [second]).since_timestamp_seconds == 90.0
    assert after(ranks, [second, report(report_id="b")]).since_timestamp_seconds is None
    assert after(ranks, [second]).since_timestamp_seconds is None


def test_a_run_is_that_of_the_longest_running_process() -> None:
    """A restart resets it, the totals continue."""
    ranks = Ranks()

    def ran(number: int, seconds: float, *, alive: bool = True) -> TrainingReport:
        said = TrainingTotals(step_seconds=seconds)
        return report(100.0 + seconds, report_id=f"{number:032x}", totals=said, alive=alive)

    assert after(ranks, [ran(1, 500.0)]).run_seconds == 500.0
    restarted = after(ranks, [ran(1, 500.0, alive=False), ran(2, 3.0)])
    assert (restarted.run_seconds, restarted.totals.step_seconds) == (3.0, 503.0)
    assert after(ranks, [ran(2, 30.0), ran(3, 8.0)]).run_seconds == 30.0
    assert after(ranks, [ran(2, 40.0, alive=False), ran(3, 8.0, alive=False)]).run_seconds == 40.0


def test_a_process_that_reports_again_is_not_counted_twice() -> None:
    """It was dropped after a long silence while another process of the rank was known."""
    ranks = Ranks()
    one = report(100.0, totals=totals(wait=5.0, steps=10))
    two = report(101.0, report_id="b" * 32, totals=totals(steps=1))
    assert after(ranks, [one, two]).totals.steps == 11
    assert after(ranks, [two]).totals.steps == 11
    again = report(500.0, totals=totals(wait=6.0, steps=12))
    assert after(ranks, [again, two]).totals.steps == 13


def test_many_restarts_are_all_counted() -> None:
    """A job that crashes in a loop keeps all its steps."""
    ranks = Ranks()
    for number in range(200):
        said = report(100.0 + number, report_id=f"{number:032x}", totals=totals(steps=1))
        before = [report(99.0 + number, report_id=f"{number - 1:032x}", totals=totals(steps=1))]
        rank = after(ranks, [*(before if number else ()), said])
    assert rank.totals.steps == 200


@given(st.lists(st.floats(0, 1e5), min_size=2, max_size=50), st.randoms(use_true_random=False))
def test_no_total_falls_by_a_rounding(waits: list[float], random: Random) -> None:
    """The sum of floats depends on the order in which processes end."""
    ranks = Ranks()
    said = [
        report(100.0, report_id=f"{number:032x}", totals=totals(wait, wait, forward=wait))
        for number, wait in enumerate(waits)
    ]
    before = after(ranks, said).totals
    random.shuffle(said)
    while len(said) > 1:
        said.pop()
        now = after(ranks, said).totals
        assert now.phase_seconds["data"] >= before.phase_seconds["data"]
        assert now.phase_seconds["forward"] >= before.phase_seconds["forward"]
        assert now.phase_gpu_idle_seconds["data"] >= before.phase_gpu_idle_seconds["data"]
        before = now


def test_a_living_rank_that_is_silent_is_not_shown_and_goes_on_later() -> None:
    """With its earlier totals and its withheld stall."""
    ranks = Ranks()
    idle = gaps((900.0, 0.0))
    old = report(100.0, report_id="b" * 32, totals=totals(steps=1000), alive=False)
    after(ranks, [old, report(100.0, totals=totals(0.0, 0.0))], idle)
    claimed = totals(300.0, 300.0, steps=10)
    shown = after(ranks, [report(160.0, totals=claimed)], idle)
    ranks.take([report(160.0, totals=claimed, silent=True)], KNOWN, 600.0)
    ranks.settle({HERE: idle})
    assert ranks.pictures(600.0) == ()

    again = after(ranks, [report(700.0, totals=totals(300.0, 300.0, steps=11))], idle)
    assert again.totals.steps == 1011
    assert shown.totals.phase_gpu_idle_seconds["data"] < 100
    assert again.totals.phase_gpu_idle_seconds["data"] < 100


# What is believed.


def test_a_stall_beyond_the_idle_time_is_cut_and_counted() -> None:
    """A GPU that was idle for a tenth cannot have been starved for half of the time."""
    ranks, clock = Ranks(), gaps()
    seen = []
    for second in range(1, 242):
        clock.advance(100.0 + second, 1.0, 0.1)
        rank = after(
            ranks, [report(100.0 + second, totals=totals(0.6 * second, 0.5 * second))], clock
        )
        seen.append(rank.totals.phase_gpu_idle_seconds["data"])
    assert seen == sorted(seen)
    published = seen[-1] - seen[0]
    assert published == pytest.approx(0.1 * 240 + 0.02 * 240, rel=0.01)
    assert ranks.disbelieved["stall_exceeds_idle"] == 4


@pytest.mark.parametrize(("late", "ticks"), [(0.0, 1), (0.5, 3), (19.9, 3), (20.1, 1)])
def test_a_report_is_judged_once_its_gpu_was_observed(late: float, ticks: int) -> None:
    """At the third tick at the latest; at once if the GPU was last read 20 s ago."""
    ranks, clock = Ranks(), gaps((60.0, 1.0), start=40.0)
    first, later = (report(at, totals=totals(at, at)) for at in (99.0, 100.0 + late))
    after(ranks, [first], clock)
    judged = []
    for _ in range(3):
        rank = after(ranks, [later], clock)
        judged.append(rank.totals.phase_gpu_idle_seconds == later.totals.phase_gpu_idle_seconds)
    assert judged == [number >= ticks for number in (1, 2, 3)]


def test_time_that_was_not_observed_refutes_no_stall() -> None:
    """While the GPU is lost, or its idle time is not known, any stall is accepted."""
    ranks, clock = Ranks(), gaps()
    after(ranks, [report(100.0, totals=totals(0.0, 0.0))], clock)
    for second in range(1, 100):
        clock.advance(100.0 + second, 1.0, None)
    rank = after(ranks, [report(199.0, totals=totals(80.0, 80.0))], clock)
    assert rank.totals.phase_gpu_idle_seconds["data"] == pytest.approx(80.0)
    alone = Ranks()
    after(alone, [report(100.0, totals=totals(0.0, 0.0))], None)
    rank = after(alone, [report(199.0, totals=totals(80.0, 80.0))], None)
    assert rank.totals.phase_gpu_idle_seconds["data"] == pytest.approx(80.0)
    assert ranks.disbelieved["stall_exceeds_idle"] == alone.disbelieved["stall_exceeds_idle"] == 0


@given(
    st.lists(
        st.tuples(st.floats(0.01, 30), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_what_is_published_never_falls_and_never_exceeds_what_was_claimed(
    events: list[tuple[float, float, float]],
) -> None:
    """For any intervals, stalls and idle times."""
    ranks, clock = Ranks(), gaps()
    now, claimed, idle, last = 100.0, 0.0, 0.0, 0.0
    after(ranks, [report(now, totals=totals(0.0, 0.0))], clock)
    for seconds, stalled, quiet in events:
        now += seconds
        claimed += stalled * seconds
        idle += quiet * seconds
        clock.advance(now, seconds, quiet)
        rank = after(ranks, [report(now, totals=totals(claimed, claimed))], clock)
        published = rank.totals.phase_gpu_idle_seconds["data"]
        assert last - 1e-9 <= published <= claimed + 1e-6
        windows = (now - 100.0) / 60.0 + 1
        assert published <= idle + 1.2 * windows + 0.02 * (now - 100.0) + 1e-6
        last = published


# What it reports of the GPU.


def test_the_precision_of_a_gpu_is_what_its_living_ranks_agree_on() -> None:
    """None if two differ; ended ranks do not count."""
    ranks = Ranks()
    one = report(100.0, precision="fp16")
    two = report(100.0, rank=1, report_id="b" * 32, precision="bf16")
    ranks.take([one], KNOWN, 100.0)
    assert ranks.claims.precisions.get(GPU.uuid) == "fp16"
    ranks.take([one, two], KNOWN, 100.0)
    assert ranks.claims.precisions.get(GPU.uuid) is None
    ranks.take([one, replace(two, alive=False)], KNOWN, 100.0)
    assert ranks.claims.precisions.get(GPU.uuid) == "fp16"
    assert ranks.claims.precisions.get(OTHER.uuid) is None


# Whose it is.


def users(*uids: int | None, **changes: object) -> list[TrainingReport]:
    """Return one report per user, with one job and rank on one GPU."""
    return [
        report(
            100.0,
            report_id=f"{number:032x}",
            uid=uid,
            owner=None if uid is None else {1: "alice", 2: "bob"}.get(uid, str(uid)),
            **changes,
        )
        for number, uid in enumerate(uids)
    ]


def names(ranks: Ranks) -> list[str]:
    return [rank.job for rank in ranks.pictures(100.0)]


def test_who_comes_as_another_leaves_gets_a_name_of_its_own() -> None:
    """One user's totals are never continued by another user."""
    ranks = Ranks()
    alice, bob = users(1, 2, totals=totals(steps=100))
    ranks.take([alice], KNOWN, 100.0)
    ranks.take([bob], KNOWN, 100.0)
    (rank,) = ranks.pictures(100.0)
    assert (rank.job, rank.owner, rank.totals.steps) == ("resnet (bob)", "bob", 100)


def test_names_are_unique_and_short_whatever_users_call_their_jobs() -> None:
    """A name that looks like another one with its owner is one more name."""
    ranks = Ranks()
    alice, bob, carol = users(1, 2, 3)
    taken = [alice, replace(carol, job="resnet (bob)"), bob]
    ranks.take(taken, KNOWN, 100.0)
    assert names(ranks) == ["resnet", "resnet (2)", "resnet (bob)"]

    long = Ranks()
    long.take(users(1, 2, 3, job="é" * 64), KNOWN, 100.0)
    assert sorted(names(long)) == sorted(["é" * 64, "é" * 61 + " (bob)", "é" * 60 + " (uid 3)"])
    assert all(len(name.encode()) <= 128 for name in names(long))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "a (bob)", "a (2)"]))),
        max_size=8,
    )
)
def test_no_two_jobs_ever_share_a_name(ticks: list[list[tuple[int, str]]]) -> None:
    """And no job changes its name while it is known."""
    ranks = Ranks()
    before: dict[str, str] = {}
    for present in ticks:
        said = [
            replace(users(uid)[0], job=job, report_id=f"{uid}/{job}")
            for uid, job in dict.fromkeys(present)
        ]
        ranks.take(said, KNOWN, 100.0)
        now = {each.report_id: ranks._keys[each.report_id][0] for each in said}
        assert len(set(now.values())) == len(now)
        assert all(before.get(report_id, name) == name for report_id, name in now.items())
        before = now


# Whether it is there.


def listed(*pids: int) -> list[GpuShares]:
    return [(GPU, (ShareReading(processes=tuple(Process(pid, "compute") for pid in pids)),))]


@pytest.mark.parametrize(
    ("changes", "gpus", "expected"),
    [
        ({}, listed(4242), True),
        ({}, listed(1, 400), True),
        ({}, listed(), False),
        ({"host_pids": ()}, listed(4242), False),
        ({"host_pids": (), "verified": True}, listed(), True),
        ({}, UNREADABLE, False),
        ({"host_pids": (), "verified": True}, UNREADABLE, True),
        ({"device": NO_DEVICE}, listed(), None),
        ({"alive": False}, listed(4242), False),
    ],
)
def test_a_rank_is_on_the_gpu_that_the_driver_lists_it_on(
    changes: dict[str, object], gpus: list[GpuShares], expected: bool | None
) -> None:
    """It or an ancestor; without a process list it is unverified."""
    ranks = Ranks()
    ranks.take([report(100.0, **changes)], gpus, 100.0)
    (rank,) = ranks.pictures(100.0)
    assert rank.verified is expected
    assert rank.degraded == (("unverified",) if expected is False else ())


def test_any_instance_of_the_gpu_will_do() -> None:
    """Under MIG the driver may list a process on another instance than the runtime."""
    shares = (
        ShareReading(gpu_instance=1, processes=(Process(4242, "compute"),)),
        ShareReading(gpu_instance=2, processes=None),
    )
    ranks = Ranks()
    ranks.take([report(device=SPLIT.instances[1].mig_uuid)], [(SPLIT, shares)], 100.0)
    (rank,) = ranks.pictures(100.0)
    assert (rank.gpu_instance, rank.verified) == (2, True)


# What it does not measure.


def test_what_is_degraded_is_that_of_its_living_processes() -> None:
    """In the order of the table, without duplicates."""
    ranks = Ranks()
    one = report(100.0, degraded=("loaders", "client"))
    two = report(100.0, report_id="b" * 32, degraded=("checkpoints", "client"))
    ended = report(100.0, report_id="c" * 32, degraded=("other",), alive=False)
    ranks.take([one, two, ended], listed(4242), 100.0)
    (rank,) = ranks.pictures(100.0)
    assert rank.degraded == ("loaders", "checkpoints", "client")


def test_a_phase_that_was_reported_once_stays() -> None:
    """Even one of no time that a later report omits."""
    ranks = Ranks()
    first = TrainingTotals(phase_seconds={"data": 0.0, "eval": 0.0})
    after(ranks, [report(100.0, totals=first)])
    later = TrainingTotals(step_seconds=1.0, phase_seconds={"data": 1.0})
    rank = after(ranks, [report(101.0, totals=later)])
    assert rank.totals.phase_seconds == {"data": 1.0, "eval": 0.0}
