# SPDX-License-Identifier: Apache-2.0
"""Counters that stand still while the GPU works."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity, Utilization, Vitals
from exporter.sources.fleet.dead_counters import DeadCounters, is_dead, works
from exporter.sources.journal import Journal

DEAD = Activity("gpm", 1.0, engine=0.0, sm=0.0, tensor=0.0, dram=0.0)
ALIVE = replace(DEAD, dram=0.01)
STOCK = Activity("dcgm", 1.0, engine=0.0, tensor=0.0, dram=0.0, pcie_receive_bytes=5e9)


def vitals(utilization: float | None, watts: float | None) -> Vitals:
    seen = None if utilization is None else Utilization(utilization, utilization, 1.0)
    return Vitals(utilization=seen, power_watts=watts)


@pytest.mark.parametrize(
    ("read", "limit", "working"),
    [
        (vitals(1.0, 300.0), 400.0, True),
        (vitals(0.4, 300.0), 400.0, False),
        (vitals(1.0, 80.0), 400.0, False),
        (vitals(None, 300.0), 400.0, False),
        (vitals(1.0, None), 400.0, False),
        (vitals(1.0, 300.0), None, False),
    ],
)
def test_a_gpu_works_by_utilization_and_power(
    read: Vitals, limit: float | None, *, working: bool
) -> None:
    """Both, and in doubt not."""
    assert works(read, limit) is working


def test_what_is_dead() -> None:
    """Every unit that is read, and one of those that no kernel leaves at rest."""
    assert is_dead(DEAD)
    assert is_dead(STOCK)
    assert not is_dead(ALIVE)
    assert not is_dead(Activity("dcgm", 1.0, tensor=0.0, dram=0.0))


def test_zeros_are_believed_for_a_moment_and_then_not(caplog: pytest.LogCaptureFixture) -> None:
    """One line, one state, one failure; and when something counts again, one line more."""
    caplog.set_level("INFO")
    journal = Journal("GPU 0")
    dead = DeadCounters(journal)
    found = []
    for now in range(10):
        found.append(dead.believed("gpm", DEAD, float(now), working=True))
        journal.log_changes()

    assert found == [True] * 3 + [False] * 7
    assert journal.states == {"gpm": "implausible"}
    assert journal.failures == {"gpm": 1}
    assert dead.believed("gpm", ALIVE, 10.0, working=True)
    journal.log_changes()
    assert journal.states == {}
    assert caplog.messages == [
        "GPU 0 cannot be read in part: gpm (it reads 0 while utilization and power say that the "
        "GPU works)",
        "GPU 0: can be read again: gpm",
    ]


def test_rest_is_no_sign_of_life() -> None:
    """At rest, counters that stand still read what true ones read."""
    dead = DeadCounters(Journal("GPU 0"))
    for now in range(10):
        dead.believed("gpm", DEAD, float(now), working=True)

    assert not dead.believed("gpm", DEAD, 10.0, working=False)
    assert not dead.believed("gpm", DEAD, 11.0, working=True)
    assert dead.believed("gpm", ALIVE, 12.0, working=False)
    assert dead.believed("gpm", DEAD, 13.0, working=False)


@pytest.mark.parametrize(("on", "off"), [(2, 1), (1, 1), (1, 9), (30, 30)])
def test_contradictions_of_short_work_add_up(on: int, off: int) -> None:
    """A load of 2 s on and 1 s off never lasts for 3 s."""
    dead = DeadCounters(Journal("GPU 0"))
    working = [now % (on + off) < on for now in range(300)]
    found = [
        dead.believed("gpm", DEAD, float(now), working=works) for now, works in enumerate(working)
    ]

    first = found.index(False)
    assert sum(working[: first + 1]) == 4
    assert not any(found[first:])


def test_true_counters_of_short_work_are_believed() -> None:
    """Utilization lags by one reading: each stretch of work begins and ends with a 0."""
    dead = DeadCounters(Journal("GPU 0"))
    for now in range(300):
        activity = ALIVE if now % 5 in (1, 2) else DEAD
        assert dead.believed("gpm", activity, float(now), working=now % 5 < 4)


def test_old_activity_has_more_time() -> None:
    """The mean over 30 s before the work began is 0 for as long as it stands."""
    dead = DeadCounters(Journal("GPU 0"))
    old = replace(STOCK, age_seconds=30.0)
    found = [dead.believed("dcgm", old, float(now), working=True) for now in range(40)]

    assert found == [True] * 33 + [False] * 7


def test_each_source_is_judged_by_itself() -> None:
    """Another one may count."""
    dead = DeadCounters(Journal("GPU 0"))
    for now in range(10):
        found = [
            dead.believed(name, activity, float(now), working=True)
            for name, activity in (("gpm", DEAD), ("dcgm", ALIVE))
        ]

    assert found == [False, True]


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([DEAD, ALIVE]), st.floats(0.1, 2.0)), max_size=60
    )
)
def test_nothing_is_refused_without_a_long_contradiction(
    reads: list[tuple[bool, Activity, float]],
) -> None:
    """Neither work that begins or ends, nor an idle GPU: three seconds since the last sign of life,
    and three readings."""
    dead = DeadCounters(Journal("GPU 0"))
    now, contradicted, count = 0.0, 0.0, 0
    for working, activity, step in reads:
        now += step
        if activity is ALIVE:
            contradicted, count = 0.0, 0
        elif working:
            contradicted, count = contradicted + step, count + 1
        if not dead.believed("gpm", activity, now, working=working):
            assert contradicted >= 3.0
            assert count >= 3
