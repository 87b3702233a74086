# SPDX-License-Identifier: Apache-2.0
"""The numbers and settings of two jobs, their differences, and the conditions that fail."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from exporter.cli.compare.job_summary import JobSummary
from exporter.cli.config.coerce import shown
from exporter.cli.config.parser import did_you_mean
from exporter.errors import ConfigError
from exporter.web.wording.numbers import percent, si, span

SAME_RATIO, POINT = 0.02, 0.01
"""A change by less than this part, or of a share by less than a point, is neither more nor less."""
FIGURES = {
    "steps_per_second": ("steps/s", "slower", "faster"),
    "data_wait_ratio": ("waited for data", "less waiting", "more waiting"),
    "data_stall_ratio": ("GPU idle meanwhile", "less stalled", "more stalled"),
    "checkpoint_wait_ratio": ("in checkpoints", "less", "more"),
    "eval_wait_ratio": ("in evaluation", "less", "more"),
    "flops_per_second": ("FLOP/s", "less", "more"),
    "mfu_ratio": ("MFU", "lower", "higher"),
    "saturation_ratio": ("saturation", "lower", "higher"),
    "energy_joules": ("energy", "less", "more"),
    "gpu_seconds": ("GPU-seconds", "less", "more"),
    "loop_seconds": ("seconds of the loop", "shorter", "longer"),
}
"""By name: label, and what less and more of it is called."""
NAMES = {"wait": "data_wait_ratio", "stall": "data_stall_ratio"} | {name: name for name in FIGURES}
"""What --fail-if may call them."""
_WHAT_COUNTS = ("steps", "ranks", "gpu", "precision", "batch_size")
_UNITS = {"flops_per_second": "FLOP/s", "energy_joules": "J"}
_FORM = re.compile(r"\s*(\w+)\s*([<>]=?)\s*([-+]?)([0-9]{1,24}(?:\.[0-9]{1,24})?)\s*(%?)\s*")
_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def figures(job: JobSummary) -> dict[str, float]:
    """Return those of `FIGURES` that are known of a job."""
    found = {name: getattr(job, name, None) for name in FIGURES}
    for phase in ("checkpoint", "eval"):
        if phase in job.phase_seconds and job.loop_seconds:
            found[f"{phase}_wait_ratio"] = job.phase_seconds[phase] / job.loop_seconds
    return {name: value for name, value in found.items() if value is not None}


def rows(a: JobSummary, b: JobSummary) -> Iterator[tuple[str, ...]]:
    """Yield label, A, B, change and verdict of each number and each setting that differs."""
    of_a, of_b = figures(a), figures(b)
    for name in [each for each in FIGURES if each in of_a | of_b]:
        (label, less, more), texts = FIGURES[name], (_text(name, of_a), _text(name, of_b))
        said, word = "", _missing(name, of_a, of_b)
        if not word:
            by = _change(of_a[name], of_b[name])
            said = f"{100 * by:+.0f} %" if math.isfinite(by) else "from 0"
            word = "about the same" if abs(by) < SAME_RATIO else more if by > 0 else less
            if name.endswith("_ratio") and 0 < abs(of_b[name] - of_a[name]) < POINT:
                word = "within a point"
        yield label, *texts, said, word
    for name, own_a, own_b in _differences(a, b):
        word = "" if own_a and own_b else "only in A" if own_a else "only in B"
        yield name, own_a or "-", own_b or "-", "", word


def not_comparable(a: JobSummary, b: JobSummary) -> Iterator[str]:
    """Yield why the numbers of the two say little about a change between them."""
    for name, own_a, own_b in _differences(a, b):
        if name in _WHAT_COUNTS and own_a and own_b:
            yield f"{name} {own_a} in A, {own_b} in B"
    for side, job, other in (("A", a, b), ("B", b, a)):
        for part in job.degraded.keys() - other.degraded.keys():
            yield f"{part} not measured in {side} ({job.degraded[part]})"


class Condition(NamedTuple):
    """One --fail-if: a number of B, or its change from A to B, beyond a limit."""

    text: str
    name: str
    is_beyond: Callable[[float, float], bool]
    limit: float
    is_change: bool

    def holds(self, a: JobSummary, b: JobSummary) -> tuple[bool | None, str]:
        """Return whether the condition holds, and why; None if a number is missing."""
        name, of_b = self.name, figures(b)
        of_a = figures(a) if self.is_change else {name: 0.0}
        if missing := _missing(name, of_a, of_b):
            return None, f"{name} is {missing}"
        if self.is_change:
            by = _change(of_a[name], of_b[name])
            return self.is_beyond(by, self.limit), f"{name} changed by {by:+.1%}"
        return self.is_beyond(of_b[name], self.limit), f"{name} is {_text(name, of_b)}"


def condition(text: str) -> Condition:
    """Read ``NAME (">" | ">=" | "<" | "<=") [SIGN] NUMBER ["%"]``; with a sign it is the change.

    Raises ConfigError, which names the text and what was expected.
    """
    found, expected = _FORM.fullmatch(text), ""
    if found is None:
        expected = "a name, <, <=, > or >=, and a number, such as wait>20%"
    elif found[1] not in NAMES:
        expected = f"one of {', '.join(NAMES)}{did_you_mean(found[1], NAMES)}"
    elif found[3] and not found[5]:
        expected = f"percents behind a sign, such as {found[3]}10%"
    elif found[5] and not found[3] and not NAMES[found[1]].endswith("_ratio"):
        expected = f"a number, or a change such as +10%: {found[1]} is no share"
    if found is None or expected:
        raise ConfigError(f"--fail-if: {shown(text)}: expected {expected}")
    limit = float(found[3] + found[4]) / (100 if found[5] else 1)
    return Condition(text, NAMES[found[1]], _OPERATORS[found[2]], limit, bool(found[3]))


def _change(a: float, b: float) -> float:
    """Return the change from a to b as a ratio of a; from 0 it is infinite."""
    return (b - a) / a if a else math.inf if b else 0.0


def _missing(name: str, a: dict[str, float], b: dict[str, float]) -> str:
    """Return in which of two jobs a number is not known; empty if it is in both."""
    where = " and ".join(side for side, found in (("A", a), ("B", b)) if name not in found)
    return f"not known in {where}" if where else ""


def _text(name: str, found: dict[str, float]) -> str:
    if name not in found:
        return "-"
    if name.endswith("_ratio"):
        return percent(found[name])
    return si(found[name], _UNITS[name]) if name in _UNITS else f"{found[name]:,.2f}"


def _differences(a: JobSummary, b: JobSummary) -> Iterator[tuple[str, str | None, str | None]]:
    of_a, of_b = _settings(a), _settings(b)
    for name in of_a | of_b:
        if of_a.get(name) != of_b.get(name):
            yield name, of_a.get(name), of_b.get(name)


def _settings(job: JobSummary) -> dict[str, str]:
    found = {name: getattr(job, name) for name in ("steps", "ranks", "gpu", "precision")}
    found |= dict(job.loader) | dict(job.versions)
    found["saturation_bounds"] = job.saturation_bounds and span(*job.saturation_bounds)
    return {name: str(each) for name, each in found.items() if each is not None}
