# SPDX-License-Identifier: Apache-2.0
"""Every alert fires, stays quiet on what is near, and survives an exporter that is away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.cases import (
    BY_UUID,
    CASES,
    CRITICAL,
    GPU,
    HOLDER,
    WARNING,
    Case,
    counter,
    ecc,
    firing,
    gauge,
    given,
    held,
    held_by,
    rank,
    xid,
)
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Expected,
    Interruption,
    Labels,
    Series,
    Test,
    Value,
    between,
    check,
    check_all,
    piecewise,
    selector,
    total,
)
from tests.rules.rules import ALERTS

AWAY_SECONDS = 2 * MINUTE
AFTERWARDS_SECONDS = 12 * MINUTE
LONG_SECONDS = 4 * HOUR
FIRING = [case for case in CASES if case.labels is not None]
QUIET = [case for case in CASES if case.labels is None]
AWAY = {
    "missed": Interruption(0, 0, stale=False),
    "gone": Interruption(0, 0),
    "restart": Interruption(0, 0, restart=True),
}


def never(case: Case) -> Expected:
    alerts = selector("ALERTS", {"alertname": case.alert, "alertstate": "firing"})
    return Expected(f"last_over_time({alerts}[{int(case.by)}s])", case.by, [])


def interrupted(how: str, start: float) -> Interruption:
    event = AWAY[how]
    return Interruption(start, start + AWAY_SECONDS, event.stale, event.restart)


TARGET = {"cluster": "berlin"}
"""Labels that a scrape configuration gives a target."""
OF_THE_FLEET = {"GpuDriverVersionMixed"}
"""Not about one target."""


def fires(case: Case) -> Test:
    """It is firing when it should be, with the labels by which it is routed: also the target's."""
    series = [replace(one, labels={**one.labels, **TARGET}) for one in case.series]
    is_kept = "instance" in (case.labels or {}) or case.alert == "GpuExporterMissing"
    if case.labels is not None and case.alert not in OF_THE_FLEET and is_kept:
        case = replace(case, labels={**case.labels, **TARGET})
    return Test(f"fires: {case.about}", series, [firing(case, case.by)])


def survives(case: Case, how: str) -> Test:
    """Scrapes that fail for two minutes, with or without a restart, do not end it."""
    event = interrupted(how, case.by + MINUTE)
    end = event.end + AFTERWARDS_SECONDS
    times = [case.by + 30 * step for step in range(int((end - case.by) // 30))]
    expected = [firing(case, at) for at in times]
    return Test(f"survives ({how}): {case.about}", case.series, expected, event)


def stays_quiet(case: Case) -> Test:
    """It never fires, not even for a moment."""
    return Test(f"stays quiet: {case.about}", case.series, [never(case)])


def is_not_raised(case: Case, how: str) -> Test:
    """Nor do failing scrapes raise it."""
    event = interrupted(how, case.by / 2)
    return Test(f"is not raised ({how}): {case.about}", case.series, [never(case)], event)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_stays_quiet_and_survives_an_absent_exporter(
    alert: str, tmp_path: Path
) -> None:
    """On all of its cases but the longest; an absence is tried on the first of each kind."""
    loud = [case for case in FIRING if case.alert == alert and case.by < LONG_SECONDS]
    quiet = [case for case in QUIET if case.alert == alert and case.by < LONG_SECONDS]
    tests = [fires(case) for case in loud] + [stays_quiet(case) for case in quiet]
    tests += [survives(loud[0], how) for how in AWAY]
    if alert != "GpuExporterDown":
        tests += [
            is_not_raised(case, how)
            for case in [case for case in quiet if case.interruptible][:1]
            for how in ("gone", "restart")
        ]
    check_all(tmp_path, [alert], tests)


@pytest.mark.slow
@pytest.mark.parametrize("alert", sorted({case.alert for case in CASES if case.by >= LONG_SECONDS}))
def test_an_alert_after_hours(alert: str, tmp_path: Path) -> None:
    """On those of its cases."""
    long = [case for case in CASES if case.alert == alert and case.by >= LONG_SECONDS]
    tests = [stays_quiet(case) if case.labels is None else fires(case) for case in long]
    check_all(tmp_path, [alert], tests)


def test_every_alert_has_cases() -> None:
    """One at least on which it fires, and one on which it does not."""
    assert {case.alert for case in FIRING} == set(ALERTS)
    assert {case.alert for case in QUIET} == set(ALERTS)


HELD_IDLE = ("GpuHeldIdle",)
IDLE, UNOPENED = (
    next(case for case in FIRING if case.alert == alert)
    for alert in ("GpuHeldIdle", "GpuAllocatedUnopened")
)
of_unused_gpus = pytest.mark.parametrize(
    "case", [IDLE, UNOPENED], ids=["held and idle", "never opened"]
)


def quiet_at(alert: str, at: float) -> Expected:
    """Nothing of this alert is firing."""
    return Expected(selector("ALERTS", {"alertname": alert, "alertstate": "firing"}), at, [])


def ended(at: float, severity: str = "warning", case: Case = IDLE) -> Expected:
    labels = {"alertname": case.alert, "alertstate": "firing", "severity": severity}
    return Expected(selector("ALERTS", labels), at, [])


def relabelled(case: Case, start: float, end: float, **labels: str) -> list[Series]:
    """The series of a case for a while, with other labels."""
    return [
        replace(one, labels={**one.labels, **labels}, value=since(start, end, one))
        for one in case.series
    ]


@of_unused_gpus
@pytest.mark.parametrize("how", AWAY)
def test_an_absent_series_ends_no_alert(case: Case, how: str, tmp_path: Path) -> None:
    """Longer than any staleness, and until enough was observed again to know better."""
    away = 40 * MINUTE
    event = Interruption(case.by, case.by + away, AWAY[how].stale, AWAY[how].restart)
    times = [case.by + 30 * step for step in range(int((away + 45 * MINUTE) // 30))]
    check(tmp_path, [case.alert], case.series, [firing(case, at) for at in times], event)


@of_unused_gpus
def test_an_alert_does_not_outlive_its_readings_for_ever(case: Case, tmp_path: Path) -> None:
    """A node that was taken away is forgotten."""
    event = Interruption(case.by, 1e9)
    expected = [firing(case, case.by + 110 * MINUTE), ended(case.by + 130 * MINUTE, case=case)]
    check(tmp_path, [case.alert], case.series, expected, event)


@of_unused_gpus
def test_an_absent_series_raises_no_alert(case: Case, tmp_path: Path) -> None:
    """What was pending when the readings stopped stays that."""
    event = Interruption(29 * MINUTE, 1e9)
    quiet = [ended(30 * MINUTE + 60 * step, case=case) for step in range(60)]
    check(tmp_path, [case.alert], case.series, quiet, event)


@of_unused_gpus
def test_another_index_ends_no_alert(case: Case, tmp_path: Path) -> None:
    """The GPU is the same: its UUID says so."""
    change, back = 60 * MINUTE, 61 * MINUTE
    moved = [*relabelled(case, 0.0, change), *relabelled(case, back, 1e9, gpu="1")]
    times = [40 * MINUTE + 30 * step for step in range(160)]
    check(tmp_path, [case.alert], moved, [firing(case, at) for at in times])


@of_unused_gpus
def test_an_alert_ends_when_the_gpu_is_divided(case: Case, tmp_path: Path) -> None:
    """With MIG switched on there is no whole GPU, and that is known."""
    change = 45 * MINUTE
    part = {**GPU, "gpu_instance": "1"}
    used = held(0, HOLDER, part) if case is IDLE else given(labels=part)
    parts = [replace(one, value=since(change, 1e9, one)) for one in used]
    expected = [firing(case, change - 30)]
    expected += [ended(at, case=case) for at in (change + MINUTE, change + HOUR)]
    check(tmp_path, [case.alert], [*relabelled(case, 0.0, change), *parts], expected)


@pytest.mark.parametrize(
    ("rows", "after"),
    [
        (held(total((0, 1), (45 * MINUTE, 0))), 3 * MINUTE),
        (held(1, held_value=piecewise((0, 1), (45 * MINUTE, 0))), MINUTE),
    ],
    ids=["work", "given back"],
)
def test_an_idle_alert_ends_at_once(rows: Sequence[Series], after: float, tmp_path: Path) -> None:
    """Although the window is still full of idle time."""
    end = 45 * MINUTE
    check(tmp_path, HELD_IDLE, rows, [firing(IDLE, end - 30), ended(end + after)])


def test_a_new_command_of_the_same_owner_changes_nothing(tmp_path: Path) -> None:
    """The alert is about an owner, not about a process."""
    change = 45 * MINUTE
    rows = [one for one in held(1) if one.name != "gpu_holder_info"]
    for command, start, end in (("python3", 0.0, change), ("bash", change, 1e9)):
        there = between(start, end, lambda _: 1.0)
        rows.append(gauge("gpu_holder_info", there, **HOLDER, command=command))
    times = [change + 30 * step for step in range(-4, 20)]
    check(tmp_path, HELD_IDLE, rows, [firing(IDLE, at) for at in times])


@pytest.mark.parametrize("pause", [0.0, 10 * MINUTE])
def test_a_new_owner_starts_anew(pause: float, tmp_path: Path) -> None:
    """Idle time of those before does not count: the alert names who comes after half an hour."""
    change = 45 * MINUTE
    come = change + pause
    rows = held_by(("alice", 0, change), ("bob", come, 1e9))
    bob = Case(
        "GpuHeldIdle", "", (), 0, {**BY_UUID, "class": "training", "owner": "bob", **WARNING}
    )
    expected = [firing(IDLE, change - 30), firing(bob, come + 35 * MINUTE)]
    expected += [ended(change + MINUTE + 30 * step) for step in range(int(pause // 30) + 50)]
    check(tmp_path, HELD_IDLE, rows, expected)


@pytest.mark.parametrize(("before", "pause"), [(20 * MINUTE, 5 * MINUTE), (50 * MINUTE, 30.0)])
def test_who_gave_it_back_starts_anew(before: float, pause: float, tmp_path: Path) -> None:
    """In containers everybody is root: it may be somebody else, and the GPU was there for all."""
    come = before + pause
    rows = held_by(("alice", 0, before), ("alice", come, 1e9))
    times = [before + 30 + 30 * step for step in range(int((pause + 30 * MINUTE) // 30))]
    expected = [*(ended(at) for at in times), firing(IDLE, come + 35 * MINUTE)]
    check(tmp_path, HELD_IDLE, rows, expected)


def test_two_holders_at_a_time_cost_no_rule(tmp_path: Path) -> None:
    """While two are named nobody is; two scrape jobs that read one exporter give an alert each."""
    second = {**GPU, "job": "gpus"}
    rows = [
        *held(1),
        gauge("gpu_holder_info", 1, **{**HOLDER, "owner": "bob"}, command="bash"),
        *held(1, HOLDER, second),
    ]
    twice = [*held(1), *held(1, HOLDER, second)]
    by_uuid = [BY_UUID, {**BY_UUID, "job": "gpus"}]
    alike = [{**labels, **WARNING} for labels in by_uuid]
    check(tmp_path, HELD_IDLE, rows, [all_firing(alike, 45 * MINUTE)])
    named = [{**labels, **HOLDER} for labels in alike]
    check(tmp_path, HELD_IDLE, twice, [all_firing(named, 45 * MINUTE)])


def all_firing(alerts: Sequence[Labels], at: float) -> Expected:
    """The warnings, and no others, are firing."""
    state = {"alertname": "GpuHeldIdle", "alertstate": "firing"}
    query = selector("ALERTS", {**state, **WARNING})
    rows = [selector("ALERTS", dict(sorted({**labels, **state}.items()))) for labels in alerts]
    return Expected(query, at, [(row, 1.0) for row in rows])


@pytest.mark.parametrize(
    ("by", "away", "known_after"),
    [
        ("training", 100 * MINUTE, 60 * MINUTE),
        pytest.param("notebook", 60 * MINUTE, 3 * HOUR, marks=pytest.mark.slow),
        pytest.param("serving", 40 * MINUTE, 8 * HOUR, marks=pytest.mark.slow),
        pytest.param("serving", 110 * MINUTE, 8 * HOUR, marks=pytest.mark.slow),
    ],
)
def test_a_hole_does_not_end_an_idle_alert(
    by: str, away: float, known_after: float, tmp_path: Path
) -> None:
    """Nor does the time after it: what is observed then goes on to be idle."""
    labels = {**HOLDER, "class": by}
    case = Case("GpuHeldIdle", "", (), 0, {**BY_UUID, **labels, **WARNING})
    event = Interruption(known_after, known_after + away, restart=True)
    times = [known_after + 60 * step for step in range(int((away + 2 * HOUR) // 60))]
    check(tmp_path, HELD_IDLE, held(1, labels), [firing(case, at) for at in times], event)


@pytest.mark.parametrize("away", [3 * MINUTE, 14 * MINUTE])
def test_a_hole_does_not_put_an_idle_alert_off(away: float, tmp_path: Path) -> None:
    """Half a window may be missing: what was observed before counts."""
    event = Interruption(15 * MINUTE, 15 * MINUTE + away, restart=True)
    check(tmp_path, HELD_IDLE, held(1), [firing(IDLE, 37 * MINUTE + away)], event)


@pytest.mark.parametrize("start", [45 * MINUTE, pytest.param(3 * HOUR, marks=pytest.mark.slow)])
def test_work_ends_an_idle_alert_after_a_hole(start: float, tmp_path: Path) -> None:
    """However much idle time was known before it, and however little was observed since."""
    away = Interruption(start, start + 20 * MINUTE, restart=True)
    rows = held(total((0, 1), (start, 0)))
    over = [ended(away.end + 4 * MINUTE + 60 * step) for step in range(60)]
    check(tmp_path, HELD_IDLE, rows, [firing(IDLE, away.end - 30), *over], away)


def since(start: float, end: float, series: Series) -> Value:
    """Its value while it is there; a counter begins at 0."""
    return between(
        start,
        end,
        lambda at: (series.value(at) or 0.0) - (series.value(start) or 0.0 if series.own else 0.0),
    )


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("away", [30.0, 5 * HOUR])
def test_a_reported_error_is_not_reported_again(away: float, how: str, tmp_path: Path) -> None:
    """Not an hour after a hole, nor under another index."""
    event = Interruption(2 * HOUR, 2 * HOUR + away, AWAY[how].stale, AWAY[how].restart)
    end = event.end + 2 * HOUR
    times = [70 * MINUTE + 60 * step for step in range(3)]
    times += [event.end + 60 * step for step in range(120)]
    expected = [quiet_at("GpuEccUncorrected", at) for at in times]
    moved = [
        replace(one, labels={**one.labels, "gpu": index}, value=between(start, until, one.value))
        for one in ecc(piecewise((0, 1)))
        for index, start, until in (("0", 0.0, event.end), ("1", event.end, end + 1))
    ]
    check(tmp_path, ["GpuEccUncorrected"], moved, expected, event)


def test_a_gpu_that_is_back_is_not_lost(tmp_path: Path) -> None:
    """Under another index, too; and not when the exporter goes away after that."""
    rows = [
        gauge("gpu_up", between(0, 4200, piecewise((0, 1), (3600, 0)))),
        gauge("gpu_up", between(4500, 5400, lambda _: 1.0), gpu="3"),
    ]
    lost = Case("GpuLost", "", (), 0, {**GPU, "severity": "critical"})
    expected = [firing(lost, 3900), firing(lost, 4470)]
    expected += [quiet_at("GpuLost", 4500 + 30.0 * step) for step in range(120)]
    check(tmp_path, ["GpuLost"], rows, expected)


def test_a_gpu_that_is_lost_after_an_xid_is_one_fault(tmp_path: Path) -> None:
    """One alert at a time, of one name, from the Xid until the GPU answers, however long that is;
    another GPU that is lost without an Xid has its own."""
    lost_at, back_at = 420.0, 4 * HOUR
    other = {**GPU, "gpu": "1", "uuid": "GPU-b"}
    up = piecewise((0, 1), (lost_at, 0), (back_at, 1))
    rows = [*xid(79, 300), gauge("gpu_up", up), gauge("gpu_up", up, other)]
    query = 'ALERTS{alertname=~"GpuLost|GpuXidCritical", alertstate="firing"}'
    critical = {"alertstate": "firing", **CRITICAL}
    both = [
        {"alertname": "GpuXidCritical", **GPU, **critical, "xid": "79"},
        {"alertname": "GpuLost", **other, **critical},
    ]
    firing = [(selector("ALERTS", dict(sorted(one.items()))), 1.0) for one in both]
    expected = [Expected(query, at, firing[:1]) for at in (330.0, 420.0, 480.0)]
    expected += [Expected(query, at, firing) for at in (700.0, 2 * HOUR, 3.9 * HOUR)]
    expected += [Expected(query, back_at + 60, [])]
    check(tmp_path, ["GpuXidCritical", "GpuLost"], rows, expected)


def test_a_stall_ends_with_its_run(tmp_path: Path) -> None:
    """A run that ended is not complained about for the rest of the window."""
    end = 40 * MINUTE
    rows = rank(stall=0.4, end=end)
    stalled = next(case for case in FIRING if case.alert == "GpuDataStallHigh")
    expected = [firing(stalled, end - 30), quiet_at(stalled.alert, end + 7 * MINUTE)]
    check(tmp_path, [stalled.alert], rows, expected)


def test_critical_comes_after_two_hours(tmp_path: Path) -> None:
    """Not before: half an hour of idle time is no emergency."""
    critical = next(case for case in FIRING if case.about == "held idle for hours")
    expected = [ended(95 * MINUTE, "critical"), firing(critical, 2 * HOUR)]
    check(tmp_path, HELD_IDLE, held(1), expected)


def test_an_xid_is_forgotten_an_hour_after_the_last(tmp_path: Path) -> None:
    """By then somebody has seen it, or another came."""
    case = next(case for case in FIRING if case.alert == "GpuXidCritical")
    rows = [*xid(48, 300), counter("gpu_xid_errors_total", 0, xid="13")]
    expected = [firing(case, 60 * MINUTE), quiet_at(case.alert, 70 * MINUTE)]
    check(tmp_path, [case.alert], rows, expected)


ACTION = re.compile(r"\{\{-? ?(.*?) ?-?\}\}")
GUARDED = re.compile(
    r"\(or \$labels\.\w+ \"[^\"]*\"\)"
    r"|^(?:else )?(?:if|with|or) \$labels\.\w+"
    r"|^\$labels\.\w+$"
)
"""What works with a label that is missing."""


@pytest.mark.parametrize("case", FIRING, ids=lambda case: f"{case.alert}-{case.about}")
def test_functions_in_texts_get_labels_that_are_there(case: Case) -> None:
    """A label that is missing is nil to vmalert, which then has no text, and no alert."""
    assert case.labels is not None
    for rule in ALERTS[case.alert]:
        if rule["labels"]["severity"] != case.labels["severity"]:
            continue
        for text in rule["annotations"].values():
            actions = [GUARDED.sub("", action) for action in ACTION.findall(text)]
            used = {name for one in actions for name in re.findall(r"\$labels\.(\w+)", one)}
            assert used <= set(case.labels), text
