# SPDX-License-Identifier: Apache-2.0
"""Panels name the workload on a GPU as the rules do, once for each GPU, and divide hours by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dashboards.owners import TEAM, whose
from tests.dashboards.models import NAMES, targets
from tests.dashboards.test_sums import query_of, shows, substituted
from tests.rules.cases import GPU, NODE, counter, gauge, given, held, observed, pod, workload
from tests.rules.promtool import (
    MINUTE,
    Expected,
    Labels,
    Series,
    Test,
    check,
    check_all,
    piecewise,
    selector,
)
from tests.rules.test_workloads import HEX, NAMED, SEVERAL

AT = 20 * MINUTE
OTHER: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
THIRD: Labels = {**GPU, "gpu": "2", "uuid": "GPU-c"}
PART: Labels = {**THIRD, "gpu_instance": "3"}


def named(about: str, series: Sequence[Series], owner: str, query: str) -> Test:
    labels = {"job": NODE["job"], "instance": NODE["instance"], "uuid": "GPU-a", "owner": owner}
    row = (selector("", dict(sorted(labels.items()))), 1.0)
    return Test(about, series, [Expected(substituted(query), AT, [row])])


def test_an_owner_is_called_as_in_the_rules(tmp_path: Path) -> None:
    """An alert and the page that it leads to name one pod alike, and several workloads."""
    tests = [
        named(str(said), [workload(scheduler, **said)], owner, whose())
        for scheduler, said, owner in NAMED
    ]
    tests += [named(about, series, owner, whose()) for about, (series, owner) in SEVERAL.items()]
    check_all(tmp_path, [], tests)


TEAMS: Sequence[tuple[Sequence[Series], str]] = (
    ([pod("a/p"), pod("a/q")], "a"),
    ([pod("a/p"), pod("b/q")], "2 teams"),
    ([workload("slurm", job="1", user="ada"), workload("slurm", job="2", user="ada")], "ada"),
    ([workload("slurm", job="4711")], "job 4711"),
    ([workload("container", id=HEX)], HEX[:12]),
)


def test_a_team_is_a_namespace_or_a_user(tmp_path: Path) -> None:
    """Where there is neither, the workload itself."""
    check_all(tmp_path, [], [named(team, series, team, whose(TEAM)) for series, team in TEAMS])


def _node() -> list[Series]:
    """Three GPUs: a pod idles on the first, which root holds; the second is given to a pod that
    never opens it; of the third two pods share an instance, which they use, and another is free."""
    free = {**PART, "gpu_instance": "4"}
    return [
        *held(1, {"owner": "root", "class": "notebook"}),
        gauge("gpu_allocated", 1),
        counter("gpu_allocated_unopened_seconds_total", 0),
        pod("team-a/notebook-7"),
        *observed(OTHER),
        counter("gpu_idle_seconds_total", 1, OTHER),
        counter("gpu_held_idle_seconds_total", 0, OTHER),
        *given(("team-a/eval-0", 0, 1e9), labels=OTHER),
        *held(0, {"owner": "root", "class": "serving"}, PART),
        gauge("gpu_allocated", 1, PART),
        counter("gpu_allocated_unopened_seconds_total", 0, PART),
        pod("team-b/serve-0", PART),
        pod("team-b/serve-1", PART),
        *observed(free),
        counter("gpu_idle_seconds_total", 1, free),
        counter("gpu_held_idle_seconds_total", 0, free),
        *given(labels=free),
    ]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("idle/GPU-hours by owner/A", {"2 workloads": 0.25}),
        ("idle/GPU-hours by owner/B", {"team-a/notebook-7": 0.25}),
        ("idle/GPU-hours by owner/C", {"team-a/eval-0": 0.25}),
        ("idle/GPU-hours by owner/D", {"team-a/notebook-7": 0.5, "team-a/eval-0": 0.5}),
        ("idle/GPU-hours by namespace or user/A", {"team-b": 0.25}),
        ("idle/GPU-hours by namespace or user/D", {"team-a": 1.0}),
        ("idle/GPUs held idle, by owner/{{owner}}", {"team-a/notebook-7": 1.0}),
    ],
)
def test_hours_and_costs_are_of_workloads(
    query: str, rows: dict[str, float], tmp_path: Path
) -> None:
    """A quarter of an hour, at 2 the hour; what two pods share is neither's alone."""
    expected = [(f'{{owner="{owner}"}}', value) for owner, value in rows.items()]
    check(tmp_path, [], _node(), [Expected(f"round({query_of(query)}, 0.01)", AT, expected)])


def test_a_gpu_of_which_nobody_knows_whether_it_idles_costs_what_is_not_opened(
    tmp_path: Path,
) -> None:
    """A MIG instance without counters: that no process holds it is known."""
    rows = given(("team-a/eval-0", 0, 1e9), labels=PART)
    expected = [
        Expected(f"round({query_of(f'idle/GPU-hours by owner/{name}')}, 0.01)", AT, [(row, value)])
        for row in ['{owner="team-a/eval-0"}']
        for name, value in (("C", 0.25), ("D", 0.5))
    ]
    cost = f"round(sum({query_of('idle/By node/C')}), 0.01)"
    check(tmp_path, [], rows, [*expected, Expected(cost, AT, [("{}", 0.5)])])


def test_the_four_states_add_up_to_all_gpus(tmp_path: Path) -> None:
    """Four GPUs and instances, each in another; nothing is counted twice."""
    names = ("in use", "held idle", "not opened", "free")
    shows(tmp_path, _node(), **{f"idle/What the GPUs do/{name}": 1.0 for name in names})


def test_time_that_was_not_idle_is_not_counted_as_unopened_too(tmp_path: Path) -> None:
    """A process that the exporter does not see works for a quarter of the time."""
    rows = [
        *observed(),
        counter("gpu_idle_seconds_total", 0.75),
        counter("gpu_held_idle_seconds_total", 0),
        *given(("team-a/eval-0", 0, 1e9)),
    ]
    states = {"in use": 0.25, "held idle": 0.0, "not opened": 0.75, "free": 0.0}
    shown = {f"idle/What the GPUs do/{name}": value for name, value in states.items()}
    shows(tmp_path, rows, **shown)


@pytest.mark.parametrize(("device", "share"), [(OTHER, "1"), (PART, "2/3")])
def test_who_was_given_a_gpu_that_nobody_opens(device: Labels, share: str, tmp_path: Path) -> None:
    """The table of now has one row, with whom to ask; one that is open has none."""
    labels = {**device, "owner": "team-a/eval-0", "share": share}
    row = (selector("", dict(sorted(labels.items()))), 900.0)
    query = f"round({query_of('idle/Never opened now/A')})"
    series = _node() if device == OTHER else [*given(("team-a/eval-0", 0, 1e9), labels=device)]
    check(tmp_path, [], series, [Expected(query, AT, [row])])
    opened = [*given(("a/p", 0, 1e9), held_value=piecewise((0, 0), (300, 1)))]
    check(tmp_path, [], opened, [Expected(query, AT, [])])


def test_free_is_what_nobody_was_given(tmp_path: Path) -> None:
    """As in node:gpu_free:count."""
    shows(tmp_path, _node(), **{"fleet/GPUs now/free": 1.0, "fleet/GPUs now/unopened": 1.0})


def test_no_query_fails_or_doubles_a_gpu_because_workloads_share_it(tmp_path: Path) -> None:
    """Each answers; a table of GPUs has one row for each."""
    gpus = {"fleet/The worst ten", "idle/Held idle now", "idle/Never opened now", "idle/By GPU"}
    rows, expected = _node(), []
    for target in (target for name in NAMES for target in targets(name)):
        text = substituted(target.expression)
        # That it fails is what promtool finds.
        expected.append(Expected(f"({text}) unless abs({text}) < Inf", AT, []))
        if f"{target.page}/{target.panel['title']}" in gpus:
            doubled = f"count by (instance, uuid, gpu_instance) ({text}) > 1"
            expected.append(Expected(doubled, AT, []))
    check(tmp_path, [], rows, expected)
