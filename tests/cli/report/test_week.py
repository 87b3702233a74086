# SPDX-License-Identifier: Apache-2.0
"""``report`` of a scripted week in a real Prometheus: each number is the script's, by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from exporter.cli import http_get
from exporter.cli.report import queries
from tests.cli.outcomes import Outcome
from tests.cli.report.week import END, H100, START, T4, Backfilled, series
from tests.conftest import require_tool

pytestmark = pytest.mark.slow

Report = dict[str, Any]
HOURS = 168
"""In the week."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    program = require_tool("prometheus")
    server = Backfilled(program, tmp_path_factory.mktemp("week") / "prometheus", series())
    yield server
    server.kill()


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def ask(
    prometheus: Backfilled,
    answers: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome,
) -> Any:
    """Runs `report` at the end of the week, some seconds after the last step.

    What Prometheus has answered once is not asked again.
    """
    monkeypatch.setattr("exporter.cli.report.time.time", lambda: END + 33.0)

    def remembered(server: Any, path: str, **options: Any) -> Any:
        if path not in answers:
            answers[path] = http_get.get(server, path, **options)
        return answers[path]

    monkeypatch.setattr(queries, "get", remembered)

    def run(*words: str) -> str:
        argv = ("report", "--prometheus", prometheus.url, *words)
        code, out, err = outcome(*argv)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def week(ask: Any) -> Report:
    """The report by owner."""
    found: Report = json.loads(ask("--format", "json"))
    return found


def rows(report: Report) -> dict[str, Report]:
    return {row["name"]: row for row in report["rows"]}


def near(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-6, abs=1e-6)


def of(row: Report, *names: str) -> list[Any]:
    return [row.get(f"{name}_gpu_hours") for name in names]


STATES = ("allocated", "used", "held_idle", "unopened", "free")


def test_hours_by_owner(week: Report) -> None:
    """In which state each GPU was, and whose it was; what is not known is not there."""
    assert (week["start"], week["end"]) == (END - HOURS * 3600, END)
    assert (week["by"], week["gpus"], week["observed_ratio"]) == ("owner", 5, near(1))
    found = rows(week)
    assert found.keys() == {"team-a/train-0", "ada, job 4711", "team-b/notebook", "web-1", ""}
    assert of(found["team-a/train-0"], *STATES) == near([96, 96, 0, 0, 0])
    # Every other hour.
    assert of(found["ada, job 4711"], *STATES) == [near(168), near(84), near(84), None, near(0)]
    # It works for 72 h; for the other 96 h no process is there.
    assert of(found["team-b/notebook"], *STATES) == near([168, 72, 0, 96, 0])
    assert of(found["web-1"], *STATES) == [near(168), near(0), near(168), None, near(0)]
    # 168 - 96 h after the training, and 84 h of the GPU that joins.
    assert of(found[""], *STATES) == near([0, 0, 0, 0, 72 + 84])
    assert of(week["total"], *STATES) == near([600, 252, 252, 96, 156])
    assert [row["name"] for row in week["rows"]][-1] == ""


def test_what_it_was_lost_to(week: Report) -> None:
    """By limiter, phase and cause; free time is lost to nobody."""
    found = rows(week)
    train, ada = found["team-a/train-0"], found["ada, job 4711"]
    assert train["limited_gpu_hours"] == near({"compute": 0.6 * 96, "input": 0.4 * 96})
    assert ada["limited_gpu_hours"] == near({"idle": 84, "memory": 84})
    assert found[""]["limited_gpu_hours"] == near({"idle": 0})
    assert found["team-b/notebook"]["limited_gpu_hours"] == near({"unknown": 72, "idle": 96})
    # As its rank measures; the rank that is not there does not count.
    assert train["stalled_lower_gpu_hours"] == near({"data": 0.4 * 96, "eval": 0.05 * 96})
    assert train["stalled_upper_gpu_hours"] == train["stalled_lower_gpu_hours"]
    # Found from outside: between an eighth and a quarter of the time.
    assert ada["stalled_lower_gpu_hours"] == near({"data": 21})
    assert ada["stalled_upper_gpu_hours"] == near({"data": 42})
    # Shown on the first day. A window of two minutes has three scrapes here, of which one is the
    # last of the window before: at both ends of the day it counts half.
    assert train["cause_gpu_hours"] == pytest.approx({"too_few_workers": 24}, abs=1 / 60)
    assert "cause_gpu_hours" not in ada


def test_saturation_is_measured_or_bounded(week: Report) -> None:
    """Over the time of each owner; without counters it lies between bounds."""
    found = rows(week)

    def bounds(row: Report) -> list[float]:
        return [row["saturation_lower_ratio"], row["saturation_upper_ratio"]]

    assert bounds(found["team-a/train-0"]) == near([0.5, 0.5])
    assert bounds(found["ada, job 4711"]) == near([0.5, 0.5])
    # At most a quarter in 72 of 168 h.
    assert bounds(found["team-b/notebook"]) == pytest.approx([0, 0.25 * 72 / 168], rel=1e-3)
    assert bounds(found[""]) == [0, 0]
    assert "saturation_upper_ratio" not in found["web-1"]


def test_energy_and_cost(week: Report) -> None:
    """By board, and what is power x time; models without a price have no cost."""
    found, hour = rows(week), 3600
    joules = {name: row.get("energy_joules") for name, row in found.items()}
    assert joules == {
        "team-a/train-0": near(500 * 96 * hour),
        "ada, job 4711": near(200 * 168 * hour),
        "team-b/notebook": near(25 * 168 * hour),
        # The power of a board with instances belongs to none of them.
        "": near((100 * 72 + 100 * 168) * hour),
        "web-1": None,
    }
    assert found["team-b/notebook"]["energy_joules_from_power"] == near(25 * 168 * hour)
    assert week["total"]["energy_joules_from_power"] == near(25 * 168 * hour)
    assert week["currency"] == "EUR"
    costs = {name: row.get("cost") for name, row in found.items()}
    assert costs == {
        "team-a/train-0": near(96 * 3),
        "ada, job 4711": near(168 * 3),
        "team-b/notebook": near(168 * 0.5),
        "": near(0),
        "web-1": None,
    }
    assert found["ada, job 4711"]["lost_cost"] == near(84 * 3)
    assert week["total"]["priced_gpu_hours"] == near(600 - 168)


@pytest.mark.parametrize(
    ("by", "allocated"),
    [
        ("namespace", {"team-a": 96, "team-b": 168, "": 168 + 168}),
        # bob's process is there for 72 h.
        ("user", {"ada": 168, "bob": 72, "": 96 + 96 + 168}),
        ("job", {"4711": 168, "resnet": 96, "": 168 + 168}),
        ("node", {"node-1:19400": 96 + 168, "node-2:19400": 168, "node-3:19400": 168}),
        ("model", {H100: 96 + 168, T4: 168, f"{H100} MIG": 168}),
    ],
)
def test_hours_by_everything_else(by: str, allocated: dict[str, float], ask: Any) -> None:
    """The sum is the same; it needs no recording rule."""
    report = json.loads(ask("--by", by, "--format", "json"))
    found = {name: row["allocated_gpu_hours"] for name, row in rows(report).items()}
    assert found == pytest.approx(allocated, abs=0.05)
    assert report["total"]["cost"] == near(876)
    if by == "model":
        assert rows(report)[H100]["energy_joules"] == near(
            3600 * (500 * 96 + 100 * 72 + 200 * 168 + 100 * 168)
        )


def test_worst_and_days(week: Report) -> None:
    """The GPUs that were kept and not used, the worst first; and each day of the fleet."""
    assert [(w["name"], w["instance"], w["gpu"], w["lost_gpu_hours"]) for w in week["worst"]] == [
        ("web-1", "node-3:19400", "0/1", near(168)),
        ("team-b/notebook", "node-2:19400", "0", near(96)),
        ("ada, job 4711", "node-1:19400", "1", near(84)),
    ]
    days = week["buckets"]
    assert [day["end"] for day in days] == [END - day * 86400 for day in range(6, -1, -1)]
    assert [day["used_gpu_hours"] for day in days] == near([60, 60, 60, 36, 12, 12, 12])
    assert [day["held_idle_gpu_hours"] for day in days] == near([36] * 7)
    assert [day["unopened_gpu_hours"] for day in days] == near([0, 0, 0, 24, 24, 24, 24])
    assert [day["free_gpu_hours"] for day in days] == near([0, 0, 0, 12, 48, 48, 48])


def test_a_range_that_is_not_recorded_as_a_whole(ask: Any) -> None:
    """It says how much of it is; a day has hours."""
    report = json.loads(ask("--range", "14d", "--format", "json"))
    assert report["observed_ratio"] == near(0.5)
    assert report["total"]["allocated_gpu_hours"] == near(600)
    said = "observed 7 d 0 h of 14 d 0 h (50 %): Prometheus has nothing of the rest"
    assert said in ask("--range", "14d").splitlines()
    day = json.loads(ask("--range", "1d", "--by", "node", "--format", "json"))
    assert len(day["buckets"]) == 24
    assert of(day["total"], *STATES) == near([72, 12, 36, 24, 48])


def test_table_and_csv(ask: Any) -> None:
    """A line for each owner, and in the table one for all."""
    table = ask().splitlines()
    assert table[:4] == [
        "GPUs: 5, 2026-03-02T00:00:00Z to 2026-03-09T00:00:00Z",
        "GPU-hours: 252 used, 252 held idle, 96.0 never opened, 156 free",
        "3.8 % of the energy is power x time: those GPUs have no energy counter",
        "the cost is of 432 of 600 allocated GPU-hours: the other GPU models have no price",
    ]
    whole = next(line for line in table if line.startswith("all "))
    assert whole.split()[1:5] == ["600", "252", "252", "96.0"]
    assert "idle 348, input 38.4" in whole
    (ada,) = [r for r in csv.DictReader(io.StringIO(ask("--format", "csv"))) if "ada" in r["name"]]
    assert float(ada["held_idle_gpu_hours"]) == near(84)
    assert float(ada["limited_gpu_hours.memory"]) == near(84)
    assert ada["unopened_gpu_hours"] == ""


def test_what_is_too_much_at_once_is_asked_in_parts(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are the same, with a Prometheus that loads one day at once."""
    real = http_get.get

    def little(server: Any, path: str, **options: Any) -> Any:
        answer, fields = real(server, path, **options), parse_qs(path.partition("?")[2])
        if fields["start"] == fields["end"]:
            return answer
        body = b'{"status": "error", "error": "query processing would load too many samples"}'
        return type(answer)(answer.url, 422, body)

    monkeypatch.setattr(queries, "get", little)
    found = rows(json.loads(ask("--by", "node", "--range", "2d", "--format", "json")))
    assert {name: row["allocated_gpu_hours"] for name, row in found.items()} == near(
        {"node-1:19400": 48, "node-2:19400": 48, "node-3:19400": 48}
    )


def test_owners_are_those_of_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """The fourth day, with what the shipped rules record of it: the same owners, the same hours."""
    program, start, end = require_tool("prometheus"), START + 72 * 3600, START + 96 * 3600
    raw = [each for each in series() if ":" not in each.name]
    day = (71 * 3600, 96 * 3600 + 1)
    server = Backfilled(program, tmp_path / "prometheus", raw, day)
    try:
        server.record(program, tmp_path, start - 600, end)
        monkeypatch.setattr("exporter.cli.report.time.time", lambda: end + 33.0)
        words = ("--range", "1d", "--format", "json")
        code, out, err = outcome("report", "--prometheus", server.url, *words)
    finally:
        server.kill()
    assert (code, err) == (0, "")
    found = rows(json.loads(out))
    assert {name: row["allocated_gpu_hours"] for name, row in found.items()} == pytest.approx(
        {"team-a/train-0": 24, "ada, job 4711": 24, "team-b/notebook": 24, "web-1": 24, "": 0},
        abs=0.05,
    )
    assert found["ada, job 4711"]["held_idle_gpu_hours"] == pytest.approx(12, abs=0.05)
    assert found["team-b/notebook"]["unopened_gpu_hours"] == pytest.approx(24, abs=0.05)
    assert "cost" not in found["ada, job 4711"], "no price is recorded"
