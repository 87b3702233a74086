# SPDX-License-Identifier: Apache-2.0
"""What several processes of one rank did together."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.reading import TRAINING_PHASES, TrainingTotals


def total_of(one: TrainingTotals, other: TrainingTotals) -> TrainingTotals:
    """Return what two processes did together."""
    return TrainingTotals(
        steps=one.steps + other.steps,
        batches=one.batches + other.batches,
        samples=_known_sum(one.samples, other.samples),
        step_seconds=one.step_seconds + other.step_seconds,
        phase_seconds=_sum_by_phase(one.phase_seconds, other.phase_seconds),
        phase_gpu_idle_seconds=_sum_by_phase(
            one.phase_gpu_idle_seconds, other.phase_gpu_idle_seconds
        ),
        model_flops=_known_sum(one.model_flops, other.model_flops),
    )


def at_least(totals: TrainingTotals, floor: TrainingTotals) -> TrainingTotals:
    """Return totals of which none is less than that of `floor`.

    A sum of floats depends on the order of its parts in the last digit, and a counter that falls
    by that much would count anew from zero for whoever reads it.
    """
    return TrainingTotals(
        steps=max(totals.steps, floor.steps),
        batches=max(totals.batches, floor.batches),
        samples=_known_most(totals.samples, floor.samples),
        step_seconds=max(totals.step_seconds, floor.step_seconds),
        phase_seconds=_most_by_phase(totals.phase_seconds, floor.phase_seconds),
        phase_gpu_idle_seconds=_most_by_phase(
            totals.phase_gpu_idle_seconds, floor.phase_gpu_idle_seconds
        ),
        model_flops=_known_most(totals.model_flops, floor.model_flops),
    )


def _known_most(one: float | None, floor: float | None) -> float | None:
    if one is None or floor is None:
        return floor if one is None else one
    return max(one, floor)


def _most_by_phase(one: Mapping[str, float], floor: Mapping[str, float]) -> Mapping[str, float]:
    return {**floor, **{phase: max(each, floor.get(phase, each)) for phase, each in one.items()}}


def _known_sum(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _sum_by_phase(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    return {
        phase: one.get(phase, 0.0) + other.get(phase, 0.0)
        for phase in TRAINING_PHASES
        if phase in one or phase in other
    }
