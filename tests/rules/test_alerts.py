# SPDX-License-Identifier: Apache-2.0
"""Every alert fires, stays quiet on what is near, and survives an exporter that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.cases import (
    CASES,
    GPU,
    HOLDER,
    WARNING,
    Case,
    counter,
    gauge,
    held,
    rank,
    xid,
)
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Expected,
    Interruption,
    check,
    piecewise,
    selector,
    total,
)
from tests.rules.rules import ALERTS

AWAY_SECONDS = 2 * MINUTE
AFTERWARDS_SECONDS = 12 * MINUTE
FIRING = [case for case in CASES if case.labels is not None]
QUIET = [case for case in CASES if case.labels is None]
AWAY = {
    "missed": Interruption(0, 0, stale=False),
    "gone": Interruption(0, 0),
    "restart": Interruption(0, 0, restart=True),
}


def name(case: Case) -> str:
    return f"{case.alert}: {case.about}"


def firing(case: Case, at: float) -> Expected:
    """The alert, and no other of its name and severity, is firing."""
    labels = {"alertname": case.alert, "alertstate": "firing", **(case.labels or {})}
    query = selector(
        "ALERTS", {key: labels[key] for key in ("alertname", "alertstate", "severity")}
    )
    return Expected(query, at, [(selector("ALERTS", dict(sorted(labels.items()))), 1)])


def never(case: Case) -> Expected:
    alerts = selector("ALERTS", {"alertname": case.alert, "alertstate": "firing"})
    return Expected(f"last_over_time({alerts}[{int(case.by)}s])", case.by, [])


def interrupted(how: str, start: float) -> Interruption:
    event = AWAY[how]
    return Interruption(start, start + AWAY_SECONDS, event.stale, event.restart)


@pytest.mark.parametrize("case", FIRING, ids=name)
def test_fires(case: Case, tmp_path: Path) -> None:
    """It is firing when it should be, with the labels by which it is routed."""
    check(tmp_path, [case.alert], case.series, [firing(case, case.by)])


@pytest.mark.parametrize("case", QUIET, ids=name)
def test_stays_quiet(case: Case, tmp_path: Path) -> None:
    """It never fires, not even for a moment."""
    check(tmp_path, [case.alert], case.series, [never(case)])


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("alert", sorted({case.alert for case in FIRING}))
def test_survives_an_exporter_that_is_away(alert: str, how: str, tmp_path: Path) -> None:
    """Scrapes that fail for two minutes, with or without a restart, do not end it."""
    case = next(case for case in FIRING if case.alert == alert)
    event = interrupted(how, case.by + MINUTE)
    end = event.end + AFTERWARDS_SECONDS
    times = [case.by + 30 * step for step in range(int((end - case.by) // 30))]
    check(tmp_path, [case.alert], case.series, [firing(case, at) for at in times], event)


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize(
    "alert", sorted({case.alert for case in QUIET if case.interruptible} - {"GpuExporterDown"})
)
def test_is_not_raised_by_an_exporter_that_is_away(alert: str, how: str, tmp_path: Path) -> None:
    """Nor do they raise it."""
    case = next(case for case in QUIET if case.alert == alert)
    check(tmp_path, [case.alert], case.series, [never(case)], interrupted(how, case.by / 2))


def test_every_alert_has_cases() -> None:
    """One at least on which it fires, and one on which it does not."""
    assert {case.alert for case in FIRING} == set(ALERTS)
    assert {case.alert for case in QUIET} == set(ALERTS)


HELD_IDLE = ("GpuHeldIdle",)
IDLE = next(case for case in FIRING if case.alert == "GpuHeldIdle")


def ended(at: float, severity: str = "warning") -> Expected:
    labels = {"alertname": "GpuHeldIdle", "alertstate": "firing", "severity": severity}
    return Expected(selector("ALERTS", labels), at, [])


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("away", [10 * MINUTE, 40 * MINUTE])
def test_an_absent_series_does_not_end_an_idle_alert(away: float, how: str, tmp_path: Path) -> None:
    """Longer than any staleness, and until enough was observed again to know better."""
    start = IDLE.by
    event = Interruption(start, start + away, AWAY[how].stale, AWAY[how].restart)
    times = [start + 30 * step for step in range(int((away + 45 * MINUTE) // 30))]
    check(tmp_path, HELD_IDLE, held(1), [firing(IDLE, at) for at in times], event)


def test_an_idle_alert_does_not_outlive_its_readings_for_ever(tmp_path: Path) -> None:
    """A node that was taken away is forgotten."""
    event = Interruption(IDLE.by, 1e9)
    expected = [firing(IDLE, IDLE.by + 110 * MINUTE), ended(IDLE.by + 130 * MINUTE)]
    check(tmp_path, HELD_IDLE, held(1), expected, event)


def test_an_absent_series_does_not_raise_an_idle_alert(tmp_path: Path) -> None:
    """What was pending when the readings stopped stays that."""
    event = Interruption(30 * MINUTE, 1e9)
    check(tmp_path, HELD_IDLE, held(1), [ended(40 * MINUTE), ended(60 * MINUTE)], event)


def test_an_idle_alert_ends_with_work(tmp_path: Path) -> None:
    """Within two minutes of work it is over: no window is waited for."""
    start = 45 * MINUTE
    busy_again = held(total((0, 1), (start, 0)))
    expected = [firing(IDLE, start), ended(start + 3 * MINUTE)]
    check(tmp_path, HELD_IDLE, busy_again, expected)


def test_an_idle_alert_ends_when_the_gpu_is_given_back(tmp_path: Path) -> None:
    """Although the window is still full of idle time."""
    start = 45 * MINUTE
    free = held(1, held_value=piecewise((0, 1), (start, 0)))
    check(tmp_path, HELD_IDLE, free, [firing(IDLE, start - 30), ended(start + MINUTE)])


def test_an_idle_alert_ends_after_work_during_a_restart(tmp_path: Path) -> None:
    """A GPU that works when the exporter is back is not idle, however little was observed."""
    start = 45 * MINUTE
    event = Interruption(start, start + 20 * MINUTE, restart=True)
    busy_again = held(total((0, 1), (start, 0)))
    expected = [firing(IDLE, event.end - 30), ended(event.end + 4 * MINUTE)]
    check(tmp_path, HELD_IDLE, busy_again, expected, event)


def test_a_new_command_of_the_same_owner_changes_nothing(tmp_path: Path) -> None:
    """The alert is about an owner, not about a process."""
    change = 45 * MINUTE
    rows = [one for one in held(1) if one.name != "gpu_holder_info"]
    for command, value in (
        ("python3", lambda at: 1.0 if at < change else None),
        ("bash", lambda at: 1.0 if at >= change else None),
    ):
        rows.append(gauge("gpu_holder_info", value, **HOLDER, command=command))
    times = [change + 30 * step for step in range(-4, 20)]
    check(tmp_path, HELD_IDLE, rows, [firing(IDLE, at) for at in times])


def test_a_new_owner_is_not_blamed_at_once(tmp_path: Path) -> None:
    """Who comes to a GPU that was idle has five minutes, then the alert names the new owner."""
    change = 45 * MINUTE
    rows = [one for one in held(1) if one.name != "gpu_holder_info"]
    for owner, value in (
        ("alice", lambda at: 1.0 if at < change else None),
        ("bob", lambda at: 1.0 if at >= change else None),
    ):
        rows.append(
            gauge("gpu_holder_info", value, **{**HOLDER, "owner": owner}, command="python3")
        )
    bob = Case("GpuHeldIdle", "", (), 0, {**GPU, "class": "training", "owner": "bob", **WARNING})
    expected = [
        firing(IDLE, change - 30),
        ended(change + MINUTE),
        ended(change + 4 * MINUTE),
        firing(bob, change + 6 * MINUTE),
    ]
    check(tmp_path, HELD_IDLE, rows, expected)


def test_two_holders_at_a_time_cost_no_rule(tmp_path: Path) -> None:
    """Series that overlap, and two scrape jobs that read one exporter, give an alert each."""
    second = {**GPU, "job": "gpus"}
    rows = [
        *held(1),
        gauge("gpu_holder_info", 1, **{**HOLDER, "owner": "bob"}, command="bash"),
        *held(1, HOLDER, second),
    ]
    query = selector(
        "ALERTS", {"alertname": "GpuHeldIdle", "alertstate": "firing", "severity": "warning"}
    )
    alerts = [
        {**GPU, **HOLDER},
        {**GPU, **HOLDER, "owner": "bob"},
        {**second, **HOLDER},
    ]
    samples = [
        (
            selector(
                "ALERTS",
                dict(
                    sorted(
                        {
                            **labels,
                            **WARNING,
                            "alertname": "GpuHeldIdle",
                            "alertstate": "firing",
                        }.items()
                    )
                ),
            ),
            1.0,
        )
        for labels in alerts
    ]
    check(tmp_path, HELD_IDLE, rows, [Expected(query, 45 * MINUTE, samples)])


def test_a_stall_ends_with_its_run(tmp_path: Path) -> None:
    """A run that ended is not complained about for the rest of the window."""
    end = 40 * MINUTE
    rows = rank(stall=0.4, end=end)
    stalled = next(case for case in FIRING if case.alert == "GpuDataStallHigh")
    gone = Expected(
        selector("ALERTS", {"alertname": "GpuDataStallHigh", "alertstate": "firing"}),
        end + 7 * MINUTE,
        [],
    )
    check(tmp_path, [stalled.alert], rows, [firing(stalled, end - 30), gone])


def test_critical_comes_after_two_hours(tmp_path: Path) -> None:
    """Not before: half an hour of idle time is no emergency."""
    critical = next(case for case in FIRING if case.about == "held idle for hours")
    expected = [ended(95 * MINUTE, "critical"), firing(critical, 2 * HOUR)]
    check(tmp_path, HELD_IDLE, held(1), expected)


def test_an_xid_is_forgotten_an_hour_after_the_last(tmp_path: Path) -> None:
    """By then somebody has seen it, or another came."""
    case = next(case for case in FIRING if case.alert == "GpuXidCritical")
    query = selector("ALERTS", {"alertname": "GpuXidCritical", "alertstate": "firing"})
    rows = [*xid(48, 300), counter("gpu_xid_errors_total", 0, xid="13")]
    check(
        tmp_path, [case.alert], rows, [firing(case, 60 * MINUTE), Expected(query, 70 * MINUTE, [])]
    )
