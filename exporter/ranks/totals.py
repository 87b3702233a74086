# SPDX-License-Identifier: Apache-2.0
"""What several processes of one rank did together."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.reading import TRAINING_PHASES, TrainingTotals


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
