# SPDX-License-Identifier: Apache-2.0
"""What the training jobs on simulated GPUs report: their steps, phases and stalls."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.training import Loader, TrainingReport, TrainingTotals
from exporter.sources.simulate.stories import Behaviour
from exporter.sources.simulate.waves import Rates

CYCLES_PER_STEP = 3e8
"""SM clock x tensor activity: about four steps a second at 1.98 GHz and 60 %. Each step is as much
work, so that a job slows down with its GPU."""
SAMPLES_PER_STEP = 256
HIDDEN_WAIT_RATIO = 0.01
"""Host time in the loader while the GPU works: prefetching hides it."""
PHASE_RATIOS: Mapping[str, float] = {
    "data": HIDDEN_WAIT_RATIO,
    "h2d": 0.01,
    "forward": 0.30,
    "backward": 0.55,
    "optimizer": 0.08,
    "checkpoint": 0.004,
    "eval": 0.0,
    "logging": 0.006,
    "other": 0.04,
}
"""How the working time is divided into phases, on the host."""
MODEL_FLOPS_RATIO = 0.9
"""Of the operations of the tensor cores; the rest is recomputation."""
WORKERS = 4
STARVED_RATIO = 0.05
"""From this share of stalled time on, no batch is ever ready."""


def job_name(owner: str) -> str:
    """Return the name of the training job of a simulated user."""
    return f"{owner}-training"


def training_totals(done: Rates, tensor_flops_per_cycle: float | None) -> TrainingTotals:
    """Return what a job did while its GPU did `done`, an integral since the start.

    `tensor_flops_per_cycle` is what the whole GPU does in an SM clock at full tensor activity.
    """
    worked = done.trained - done.stalled - done.waited
    phases = {phase: ratio * worked for phase, ratio in PHASE_RATIOS.items()}
    phases["data"] += done.stalled
    phases["other"] += done.waited
    steps = float(int(done.tensor_cycles / CYCLES_PER_STEP))
    return TrainingTotals(
        steps=steps,
        batches=steps,
        samples=steps * SAMPLES_PER_STEP,
        step_seconds=done.trained,
        phase_seconds=phases,
        phase_gpu_idle_seconds={"data": done.stalled, "checkpoint": 0.0, "logging": 0.0},
        model_flops=(
            None
            if tensor_flops_per_cycle is None
            else MODEL_FLOPS_RATIO * tensor_flops_per_cycle * done.tensor_cycles
        ),
    )


def training_report(
    owner: str,
    rank: int,
    world_size: int,
    uuid: str,
    behaviour: Behaviour,
    memory_bytes: int,
    peak_memory: float,
    totals: TrainingTotals,
    monotonic_seconds: float,
    unix_seconds: float,
) -> TrainingReport:
    """Return what the one process of a simulated rank reports now.

    `peak_memory` is the highest share of `memory_bytes` that it has needed so far.
    """
    stalled = totals.phase_gpu_idle_seconds["data"] > STARVED_RATIO * totals.step_seconds
    used = round(behaviour.memory * memory_bytes)
    job = job_name(owner)
    return TrainingReport(
        report_id=f"{uuid}/{job}",
        job=job,
        rank=rank,
        received_monotonic_seconds=monotonic_seconds,
        received_timestamp_seconds=unix_seconds,
        totals=totals,
        device=uuid,
        owner=owner,
        verified=True,
        world_size=world_size,
        framework="simulated",
        precision="bf16",
        loader=Loader(
            workers=WORKERS,
            prefetch_factor=2,
            pin_memory=True,
            persistent_workers=True,
            ready_batches=0 if stalled else 2 * WORKERS,
        ),
        memory_bytes={
            "allocated": round(0.8 * used),
            "reserved": used,
            "peak": round(peak_memory * memory_bytes),
        },
    )
