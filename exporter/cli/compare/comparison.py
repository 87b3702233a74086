# SPDX-License-Identifier: Apache-2.0
"""What two jobs have in numbers and settings, and by how much they differ, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from exporter.cli.compare.job_summary import JobSummary
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
_WHAT_COUNTS = ("steps", "ranks", "gpu", "precision", "batch_size")
_UNITS = {"flops_per_second": "FLOP/s", "energy_joules": "J"}


def value(job: JobSummary, name: str) -> float | None:
    """Return one of `FIGURES` of a job; None where it is not known."""
    if name not in ("checkpoint_wait_ratio", "eval_wait_ratio"):
        found: float | None = getattr(job, name)
        return found
    seconds = job.phase_seconds.get(name.partition("_")[0])
    return seconds / job.loop_seconds if seconds is not None and job.loop_seconds else None


def change(a: float, b: float) -> float:
    """Return the change from a to b as a ratio of a; from 0 it is infinite."""
    return (b - a) / a if a else math.inf if b else 0.0


def missing(a: object, b: object) -> str:
    """Return in which of two jobs something is not known; empty if it is in both."""
    where = " and ".join(side for side, found in (("A", a), ("B", b)) if found is None)
    return f"not known in {where}" if where else ""


def rows(a: JobSummary, b: JobSummary) -> Iterator[tuple[str, ...]]:
    """Yield label, A, B, change and a word of each number, and of each setting that differs."""
    for name, (label, less, more) in FIGURES.items():
        of_a, of_b = value(a, name), value(b, name)
        said, word = "", missing(of_a, of_b)
        if of_a is not None and of_b is not None:
            by = change(of_a, of_b)
            said = f"{100 * by:+.0f} %" if math.isfinite(by) else "from 0"
            word = "about the same" if abs(by) < SAME_RATIO else more if by > 0 else less
            if name.endswith("_ratio") and 0 < abs(of_b - of_a) < POINT:
                word = "within a point"
        if (of_a, of_b) != (None, None):
            yield label, text_of(name, of_a), text_of(name, of_b), said, word
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


def text_of(name: str, found: float | None) -> str:
    """Return one of `FIGURES` for a person."""
    if found is None:
        return "-"
    if name.endswith("_ratio"):
        return percent(found)
    return si(found, _UNITS[name]) if name in _UNITS else f"{found:,.2f}"
