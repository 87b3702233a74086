# SPDX-License-Identifier: Apache-2.0
"""The state of every source, and the reason if no GPU is up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from exporter.model.readers import NodeSource, Readers, TrainingReports
from exporter.model.reading import SlotReport
from exporter.model.snapshot import Gpu, SourceState, TrainingState

MOST_REASONS = 4
"""How many GPUs the message names when none is up."""


def source_states(
    readers: Readers,
    reports: Sequence[SlotReport],
    gpus: Sequence[Gpu],
    cuts: Mapping[str, int],
    training: Sequence[TrainingReports],
    others: Sequence[NodeSource],
) -> dict[str, SourceState]:
    """Return the state of every source in use: a counter source is if a share expects it, or if it
    reads all GPUs at once. `cuts`, the activities above 1 by source, count as failures."""
    own = readers.name
    failures = Counter(cuts)
    failures[own] += readers.failed_initialisations
    seconds: dict[str, float] = {}
    expected: set[str] = set()
    for report in reports:
        failures.update(report.failures)
        if report.reading is not None:
            for source, length in report.reading.read_seconds.items():
                seconds[source] = max(length, seconds.get(source, 0.0))
            expected.update(share.counters for share in report.reading.shares if share.counters)
    answering = {share.activity.source for gpu in gpus for share in gpu.shares if share.activity}
    up = {own: any(gpu.up for gpu in gpus)}
    up |= {source: source in answering for source in sorted(expected)}
    for source, state in readers.counter_states.items():
        up[source] = up.get(source, state.up)
        failures[source] += state.failures_total
        if state.read_seconds is not None:
            seconds[source] = seconds.get(source, 0.0) + state.read_seconds
    states = {name: SourceState(ok, seconds.get(name), failures[name]) for name, ok in up.items()}
    for each in training:  # sources of one name are merged
        other = states.get(each.name, SourceState(up=False))
        rejected = sum(each.rejected_total.values())
        states[each.name] = SourceState(
            each.up or other.up, failures_total=rejected + other.failures_total
        )
    used = {each.name: each.state for each in others}
    return states | {name: state for name, state in used.items() if state is not None}


def training_state(
    training: Sequence[TrainingReports], disbelieved: Mapping[str, int]
) -> TrainingState | None:
    """Return the counts of accepted and refused reports, and of the minutes in which a claim was
    cut; None without a training source."""
    if not training:
        return None
    rejected, quota_hits = Counter[str](), Counter[str]()
    for source in training:
        rejected.update(source.rejected_total)
        quota_hits.update(source.quota_hits_total)
    return TrainingState(
        sum(source.received_total for source in training),
        {**rejected, **disbelieved},
        dict(quota_hits),
    )


def problem_of(readers: Readers, reports: Sequence[SlotReport], gpus: Sequence[Gpu]) -> str | None:
    """Return why no GPU is up, in one line; None if one is."""
    if any(gpu.up for gpu in gpus):
        return None
    if readers.problem is not None:
        return readers.problem
    down = {
        report.index if report.device is None else report.device.index: report.problem
        for report in reports
        if report.problem
    }
    down |= {gpu.device.index: gpu.down_reason or "no answer" for gpu in gpus}
    if not down:
        return "the driver has not answered yet"
    return "no GPU is up: " + "; ".join(
        f"GPU {index}: {down[index]}" for index in sorted(down)[:MOST_REASONS]
    )
