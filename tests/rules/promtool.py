# SPDX-License-Identifier: Apache-2.0
"""Rules under promtool: series as they are scraped, with what can happen to a scrape."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.conftest import require_tool
from tests.rules.rules import only

STEP_SECONDS = 30
MINUTE = 60.0
HOUR = 3600.0

T = TypeVar("T")
Labels = Mapping[str, str]
Value = Callable[[float], float | None]


@dataclass(frozen=True)
class Series:
    """A series and its value by the time since the start, None where there is none."""

    name: str
    labels: Labels
    value: Value
    own: bool = False
    """Whether it is a counter that starts with the exporter."""
    answers: bool = True
    """Whether it comes from the exporter; `up` is Prometheus's own."""

    def selector(self) -> str:
        return selector(self.name, self.labels)


@dataclass(frozen=True)
class Interruption:
    """A time in which the exporter gives nothing."""

    start: float
    end: float
    stale: bool = True
    """Whether Prometheus marks the series as gone; without, as if a scrape came too late."""
    restart: bool = False


def selector(name: str, labels: Labels) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    return f"{name}{{{inner}}}"


def piecewise(*pieces: tuple[float, float]) -> Value:
    """A value that changes at some times: ``piecewise((0, 1), (600, 0))``."""

    def value(at: float) -> float:
        return [level for start, level in pieces if start <= at][-1]

    return value


def total(*pieces: tuple[float, float]) -> Value:
    """The integral of a rate that changes at some times."""

    def value(at: float) -> float:
        ends = [*(start for start, _ in pieces[1:]), at]
        return sum(
            rate * (min(end, at) - start)
            for (start, rate), end in zip(pieces, ends, strict=True)
            if start < at
        )

    return value


def between(start: float, end: float, value: Value) -> Value:
    """A series that is only there for a while."""
    return lambda at: value(at) if start <= at < end else None


def _sample(series: Series, at: float, event: Interruption | None) -> float | str | None:
    found = series.value(at)
    value = None if found is None else float(found)
    if event is None or not series.answers:
        return value
    if event.start <= at < event.end:
        return "stale" if event.stale and at - event.start < STEP_SECONDS else None
    if value is not None and event.restart and series.own and at >= event.end:
        return value - (series.value(event.end) or 0.0)
    return value


def _notation(samples: Iterable[float | str | None], late: bool = False) -> str:
    """Write samples; one that ends is marked as gone, as a scrape does that is not late."""
    words = []
    before: float | str | None = None
    for sample in samples:
        gone = sample is None and isinstance(before, float) and not late
        words.append("stale" if gone else "_" if sample is None else f"{sample}")
        before = sample
    return " ".join(words)


@dataclass(frozen=True)
class Expected:
    """What an expression gives at a time: series with values, without their name if it has none."""

    expression: str
    at: float
    samples: Sequence[tuple[str, float]]


def value(name: str, at: float, *rows: tuple[Labels, float], to: float = 1e-6) -> Expected:
    """The series of an expression, and no others, have these values to such a multiple."""
    samples = [(selector("", dict(sorted(labels.items()))), each) for labels, each in rows]
    return Expected(f"round({name}, {to:f})", at, samples)


@dataclass(frozen=True)
class Test:
    """Series, and what some expressions give over them; a failure shows the name."""

    __test__ = False

    name: str
    series: Sequence[Series]
    expected: Sequence[Expected]
    event: Interruption | None = None

    def group(self) -> dict[str, Any]:
        """One test group of promtool."""
        return {
            "interval": f"{STEP_SECONDS}s",
            "input_series": inputs(self.series, max(one.at for one in self.expected), self.event),
            "promql_expr_test": [
                {
                    "expr": f"{one.expression} # {self.name}",
                    "eval_time": f"{int(one.at)}s",
                    "exp_samples": [
                        {"labels": labels, "value": value} for labels, value in one.samples
                    ],
                }
                for one in self.expected
            ],
        }


def inputs(
    series: Sequence[Series], end: float, event: Interruption | None = None
) -> list[dict[str, str]]:
    """What is scraped until a time, in promtool's notation."""
    times = [step * float(STEP_SECONDS) for step in range(int(end // STEP_SECONDS) + 1)]
    late = event is not None and not event.stale
    return [
        {
            "series": one.selector(),
            "values": _notation((_sample(one, at, event) for at in times), late),
        }
        for one in series
    ]


def check(
    directory: Path,
    about: Iterable[str],
    series: Sequence[Series],
    expected: Sequence[Expected],
    event: Interruption | None = None,
) -> None:
    """Run some rules, and those that they read, over the series and compare."""
    check_all(directory, about, [Test("", series, expected, event)])


def check_all(directory: Path, about: Iterable[str], tests: Iterable[Test]) -> None:
    """Run some rules, and those that they read, over each test's series, in one promtool."""
    run_suite(directory, only(about), [test.group() for test in tests])


def run_suite(
    directory: Path, rules: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]
) -> None:
    """Run promtool's test groups with a rule file."""
    (directory / "rules.yml").write_text(json.dumps(rules), encoding="utf-8")
    suite = {
        "rule_files": [str(directory / "rules.yml")],
        "evaluation_interval": f"{STEP_SECONDS}s",
        "tests": groups,
    }
    path = directory / "test.yml"
    path.write_text(json.dumps(suite), encoding="utf-8")
    run("test", "rules", str(path))


def version(program: str) -> tuple[int, ...]:
    """The numbers of the version of Prometheus or of its promtool."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    numbers = re.search(r", version (\d+(?:\.\d+)*)", done.stdout + done.stderr)
    assert numbers is not None, done
    return tuple(map(int, numbers[1].split(".")))


def by_version(older: T, newer: T) -> T:
    """What holds up to Prometheus 2, and what since 3.

    Since 3 a window does not contain the sample at its beginning; where a counter begins or ends,
    `rate` then is off by up to a scrape.
    """
    return newer if version(require_tool("promtool")) >= (3,) else older


def run(*words: str) -> str:
    """Run promtool; what it says is the failure."""
    done = subprocess.run(
        [require_tool("promtool"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
