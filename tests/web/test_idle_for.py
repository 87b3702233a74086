# SPDX-License-Identifier: Apache-2.0
"""Whether GPUs have been idle for so long: nothing lost, unknown or too young is idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Process
from exporter.model.snapshot import Gpu, Snapshot
from exporter.model.workload import ShareWork, Workload
from exporter.web.idle_for import Asked, idle_for, seconds_of
from tests import snapshots
from tests.snapshots import NOW

HALF_AN_HOUR = 1800.0
POD = Workload("kubernetes", namespace="team-a", pod="notebook-7")
SLURM = Workload("slurm", job="4711", step="0", user="ada")
ADA = Process(4001, "compute", command="python3", owner="ada")


def idle_gpu(
    index: int = 0,
    idle: float | None = 3600.0,
    busy: float | None = None,
    since: float | None = NOW - 7200,
    *,
    work: tuple[Workload, ...] = (),
    processes: tuple[Process, ...] | None = (),
) -> Gpu:
    """A GPU that has been idle for so long, was seen busy at that time, and has such work."""
    gpu = snapshots.h100_idle(index)
    totals = replace(gpu.shares[0].totals, idle_for_seconds=idle, seen_busy_timestamp_seconds=busy)
    share = replace(
        gpu.shares[0],
        totals=totals,
        same_work_since_seconds=since,
        processes=processes,
        work=ShareWork(work, allocated=bool(work) or None),
    )
    return replace(gpu, shares=(share,))


def said(snapshot: Snapshot | None, *, age: float | None = 0.5, **asked: Any) -> tuple[str, str]:
    """Return the state for half an hour, and the reason."""
    state, reason, _ = idle_for(snapshot, age, HALF_AN_HOUR, Asked(**asked))
    return state, reason


def test_all_have_to_be_idle() -> None:
    """One that is busy makes them busy; else one of which it is not known, not known."""
    idle, young = idle_gpu(0), idle_gpu(1, idle=240.0)
    busy = idle_gpu(2, idle=0.0, busy=NOW - 0.2)
    assert said(snapshots.snapshot(idle)) == (
        "idle",
        "the GPU has been idle for 30 min and longer",
    )
    assert said(snapshots.snapshot(idle, idle_gpu(3)))[0] == "idle"
    assert said(snapshots.snapshot(idle, young)) == (
        "not_known",
        "GPU 1: the exporter has seen it idle for 4 min without a break",
    )
    assert said(snapshots.snapshot(idle, young, busy)) == ("busy", "GPU 2: it is busy")


def test_a_busy_moment_within_the_time_is_busy() -> None:
    """Until it is older than the time that is asked for; a gap after it hides nothing."""
    assert said(snapshots.snapshot(idle_gpu(idle=600.0, busy=NOW - 600))) == (
        "busy",
        "GPU 0: it was busy 10 min ago",
    )
    assert said(snapshots.snapshot(idle_gpu(idle=None, busy=NOW - 600)))[0] == "busy"
    assert said(snapshots.snapshot(idle_gpu(idle=1800.0, busy=NOW - 1800)))[0] == "idle"


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (snapshots.lost(), "GPU 0: lost"),
        (idle_gpu(idle=None), "GPU 0: the exporter has seen nothing without a break"),
        (
            idle_gpu(idle=1799.0, busy=NOW - 2000),
            "GPU 0: the exporter has seen it idle for 29 min without a break",
        ),
        (
            replace(snapshots.h100_idle(0), shares=()),
            "GPU 0: it has MIG instances that cannot be read",
        ),
        (
            replace(idle_gpu(), states={"mig": "no_permission"}),
            "GPU 0: it has MIG instances that cannot be read",
        ),
    ],
)
def test_what_is_not_sure_is_not_known(gpu: Gpu, reason: str) -> None:
    """Lost, not observed, a gap in the time, and MIG without an instance."""
    assert said(snapshots.snapshot(gpu)) == ("not_known", reason)


def test_a_gpu_that_is_on_the_bus_alone_may_be_busy() -> None:
    """As one that is left out, or that the driver does not list; one that is named is read."""
    node = replace(snapshots.snapshot(idle_gpu()), devices={"pci": 2, "nvml": 1})
    assert said(node) == ("not_known", "2 GPUs are on the bus, 1 are read")
    assert said(node, gpu="0")[0] == "idle"


def test_old_readings_say_nothing_of_now() -> None:
    """As when the publisher hangs; and before the first ones."""
    assert said(snapshots.snapshot(idle_gpu()), age=60.0) == (
        "not_known",
        "the readings are 1 min old",
    )
    assert said(None, age=None) == ("not_known", "no GPU was read yet")
    assert said(snapshots.NO_DRIVER) == ("not_known", snapshots.NO_DRIVER.problem)


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu": "1"},
        {"gpu": "GPU-11111111-2222-3333-4444-000000000001"},
        {"pod": "notebook-7"},
        {"pod": "team-a/notebook-7"},
        {"job": "4711"},
        {"job": "4711.0"},
        {"user": "ada"},
        {"user": "ada", "gpu": "1"},
    ],
)
def test_only_what_is_asked_for_counts(asked: dict[str, Any]) -> None:
    """By index, UUID, pod, job and user."""
    busy = idle_gpu(0, idle=0.0, busy=NOW)
    mine = idle_gpu(1, work=(POD, SLURM), processes=(ADA,))
    assert said(snapshots.snapshot(busy, mine), **asked)[0] == "idle"
    other: dict[str, Any] = {name: f"{each}9" for name, each in asked.items()}
    state, reason = said(snapshots.snapshot(busy, mine), **other)
    assert state == "not_known"
    assert reason.startswith("no GPU here is known to be of ")


def test_instances_have_names_of_their_own() -> None:
    """Each counts for its GPU, too."""
    node = snapshots.snapshot(snapshots.h100_mig(2))
    for name in ("2/1", "MIG-00000000-0000-0000-0000-000000000011"):
        _, _, found = idle_for(node, 0.5, 60.0, Asked(gpu=name))
        assert [each.gpu_instance for each in found] == [1]
    _, _, found = idle_for(node, 0.5, 60.0, Asked(gpu="2"))
    assert [each.gpu_instance for each in found] == [1, 2]


def test_work_that_has_just_begun_is_not_idle() -> None:
    """On a GPU that was idle before it came; the GPU itself is."""
    node = snapshots.snapshot(idle_gpu(0, since=NOW - 30, work=(POD,)))
    assert said(node, pod="notebook-7") == (
        "not_known",
        "GPU 0: its work has been there for 30 s",
    )
    assert said(node, gpu="0")[0] == "idle"


def test_a_user_who_is_called_as_a_training_job_is_no_job() -> None:
    """That a job of this name reports says nothing of whose another GPU is."""
    mine = idle_gpu(0, processes=(replace(ADA, owner="resnet"),))
    nobodys = idle_gpu(1, idle=0.0, busy=NOW, processes=(replace(ADA, pid=7, owner=None),))
    rank = replace(snapshots.rank_on_cpu(), job="resnet")
    node = replace(snapshots.snapshot(mine, nobodys), ranks=(rank,))
    assert said(node, user="resnet")[0] == "not_known"


def test_a_gpu_may_be_theirs_while_nobody_knows_whose_it_is() -> None:
    """One that is lost, or whose processes cannot be listed."""
    mine = idle_gpu(0, work=(POD,), processes=(ADA,))
    hidden = idle_gpu(1, processes=None)
    nobodys = idle_gpu(1, idle=0.0, busy=NOW, processes=(replace(ADA, pid=7, owner=None),))
    for other in (hidden, nobodys, snapshots.lost(1)):
        for asked in ({"user": "ada"}, {"pod": "notebook-7"}):
            found: dict[str, Any] = {**asked}
            assert said(snapshots.snapshot(mine, other), **found)[0] == "not_known"
    others = idle_gpu(1, idle=0.0, busy=NOW, work=(SLURM,), processes=(replace(ADA, owner="bob"),))
    assert said(snapshots.snapshot(mine, others), user="bob")[0] == "busy"
    assert said(snapshots.snapshot(mine, others), pod="notebook-7")[0] == "idle"


@given(
    idle=st.none() | st.floats(0.0, 1e6),
    busy=st.none() | st.floats(0.0, 1e6),
    seconds=st.floats(1.0, 1e6),
)
def test_idle_means_idle_all_the_time(
    idle: float | None, busy: float | None, seconds: float
) -> None:
    """Whatever else is known."""
    gpu = idle_gpu(idle=idle, busy=None if busy is None else NOW - busy)
    state, _, _ = idle_for(snapshots.snapshot(gpu), 0.5, seconds, Asked())
    assert state != "idle" or (idle is not None and idle >= seconds)
    assert state == "busy" or busy is None or busy >= seconds


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200)])
def test_durations(text: str, seconds: float) -> None:
    """A number and a unit."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "1.5h", "0s", "31d", "m", "-5m", "1h30m", "\u0663s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match=r"expected a duration from 1s to 30d"):
        seconds_of(text)
