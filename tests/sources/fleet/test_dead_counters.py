# SPDX-License-Identifier: Apache-2.0
"""Counters that stand still while the GPU works."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity, Utilization, Vitals
from exporter.sources.fleet.counters import DeadCounters, worked_seconds
from exporter.sources.reading_state import Journal

DEAD = Activity("gpm", 1.0, engine=0.0, sm=0.0, tensor=0.0, dram=0.0)
ALIVE = replace(DEAD, dram=0.01)
STOCK = Activity("dcgm", 1.0, engine=0.0, tensor=0.0, dram=0.0, pcie_receive_bytes=5e9)


def vitals(utilization: float | None, watts: float | None) -> Vitals:
    seen = None if utilization is None else Utilization(utilization, utilization, 2.0)
    return Vitals(utilization=seen, power_watts=watts)


class Dead(DeadCounters):
    """Reads of one source after another, each with how long the GPU has worked since the last."""

    def read(self, activity: Activity, now: float, *, working: bool, step: float = 1) -> bool:
        self.work(step if working else 0.0)
        return self.believed("gpm", activity, now)


@pytest.mark.parametrize(
    ("read", "limit", "seconds"),
    [
        (vitals(1.0, 300.0), 400.0, 2.0),
        (vitals(0.5, 100.0), 400.0, 1.0),
        (vitals(0.5, 99.0), 400.0, 0.0),
        (vitals(0.4, 300.0), 400.0, 0.8),
        (vitals(0.1, 80.0), 400.0, 0.2),
        (vitals(0.04, 300.0), 400.0, 0.0),
        (vitals(None, 300.0), 400.0, 0.0),
        (vitals(0.1, None), 400.0, 0.0),
        (vitals(1.0, 300.0), None, 0.0),
    ],
)
def test_a_gpu_works_by_utilization_and_power(
    read: Vitals, limit: float | None, seconds: float
) -> None:
    """Power is asked where utilization is high, and in doubt it does not work."""
    assert worked_seconds(read, limit, opened=True) == pytest.approx(seconds)


def test_without_a_process_a_low_utilization_is_no_work() -> None:
    """Unless power says so too."""
    assert worked_seconds(vitals(0.1, 80.0), 400.0, opened=False) == 0.0
    assert worked_seconds(vitals(0.1, 100.0), 400.0, opened=False) == pytest.approx(0.2)


def test_zeros_are_believed_for_a_moment_and_then_not(caplog: pytest.LogCaptureFixture) -> None:
    """One line, one state, one failure; and when something counts again, one line more."""
    caplog.set_level("INFO")
    journal = Journal("GPU 0")
    dead = Dead(journal)
    found = []
    for now in range(10):
        found.append(dead.read(DEAD, float(now), working=True))
        journal.log_changes()

    assert found == [True] * 3 + [False] * 7
    assert journal.states == {"gpm": "implausible"}
    assert journal.failures == {"gpm": 1}
    assert dead.read(ALIVE, 10.0, working=True)
    journal.log_changes()
    assert journal.states == {}
    assert caplog.messages == [
        "GPU 0 cannot be read in part: gpm (it reads 0 while utilization and power say that the "
        "GPU works)",
        "GPU 0: can be read again: gpm",
    ]


def test_rest_is_no_sign_of_life() -> None:
    """At rest, counters that stand still read what true ones read."""
    dead = Dead(Journal("GPU 0"))
    for now in range(10):
        dead.read(DEAD, float(now), working=True)
    later = ((DEAD, False), (DEAD, True), (ALIVE, False), (DEAD, False))
    found = [dead.read(each, at, working=works) for at, (each, works) in enumerate(later, 10)]

    assert found == [False, False, True, True]


def test_old_activity_has_more_time() -> None:
    """The mean over 30 s before the work began is 0 for as long as it stands."""
    dead = Dead(Journal("GPU 0"))
    old = replace(STOCK, age_seconds=30.0)
    found = [dead.read(old, float(now), working=True) for now in range(40)]

    assert found == [True] * 33 + [False] * 7


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
    dead = Dead(Journal("GPU 0"))
    now, contradicted, count = 0.0, 0.0, 0
    for working, activity, step in reads:
        now += step
        contradicted, count = contradicted + step * working, count + 1
        if activity is ALIVE:
            contradicted, count = 0.0, 0
        if not dead.read(activity, now, working=working, step=step):
            assert contradicted >= 3.0
            assert count >= 3


def test_work_between_the_readings_of_a_source_counts() -> None:
    """A page that is renewed every half minute, each time in a pause of the work."""
    dead, found = Dead(Journal("GPU 0")), []
    for now in range(1, 181):
        dead.work(float(now % 3 > 0))
        if now % 30 == 0:
            found.append(dead.believed("dcgm", STOCK, float(now)))
    assert found == [True, True, False, False, False, False]


def test_a_little_work_may_be_rounded_away() -> None:
    """A kernel of 20 ms every half minute is 0.0007 of it."""
    dead = Dead(Journal("GPU 0"))
    found = [dead.read(STOCK, 30.0 * turn, working=True, step=0.02) for turn in range(5000)]
    assert all(found)
