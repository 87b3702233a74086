# SPDX-License-Identifier: Apache-2.0
"""Which execution units a share has and how they share hardware."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from exporter.model.reading import ACTIVITY_RATIOS, Activity
from exporter.model.snapshot import Ceilings

FIRST_WITH_TENSOR_CORES = (7, 0)
FIRST_WITH_SHARED_FMA = (8, 6)
RATIOS = tuple(sorted(ACTIVITY_RATIOS - {"encoder", "decoder", "jpeg", "ofa"}))
"""The fields of `Activity` that are ratios of a unit and shown each by itself."""


_ratios = attrgetter(*RATIOS)


def cut(ratio: float) -> float:
    """Return a ratio cut to [0, 1]; drivers overshoot by rounding."""
    if ratio <= 0.0:
        return 0.0
    return 1.0 if ratio > 1.0 else ratio


def cut_activity(activity: Activity) -> Activity:
    """Return the activity with those of RATIOS cut to 1 that are above; itself if none is."""
    known = zip(RATIOS, _ratios(activity), strict=True)
    above: dict[str, Any] = {name: 1.0 for name, ratio in known if ratio is not None and ratio > 1}
    return replace(activity, **above) if above else activity


def busiest_vector_pipe(activity: Activity) -> float:
    """Return the activity of the busiest vector pipe: fp64, fp32, fp16, int, or fma as a whole."""
    pipes = (activity.fp64, activity.fp32, activity.fp16, activity.integer, activity.fma)
    return max(cut(pipe or 0.0) for pipe in pipes)


def tensor_activity(activity: Activity) -> float | None:
    """Return the activity of the tensor pipe, together with that of FP16 where they are one."""
    return activity.tensor_fp16 if activity.tensor is None else activity.tensor


def busiest_pipe(activity: Activity) -> float:
    """Return the activity of the busiest pipe, tensor or vector."""
    return max(cut(tensor_activity(activity) or 0.0), busiest_vector_pipe(activity))


def reads_fma(activity: Activity) -> bool:
    """Return whether all FP32 and FP16 units are read, FP16 perhaps as part of the tensor pipe."""
    fp16 = activity.fp16 is not None or activity.tensor_fp16 is not None
    if activity.fma is not None:
        return True
    return activity.fp32 is not None and fp16


def reads_every_unit(activity: Activity, *, tensor_cores: bool) -> bool:
    """Return whether every unit of the saturation is read; int is optional."""
    return (
        (tensor_activity(activity) is not None or not tensor_cores)
        and activity.fp64 is not None
        and reads_fma(activity)
        and activity.dram is not None
    )


def fma_is_shared(compute_capability: tuple[int, int] | None) -> bool | None:
    """Return whether FP32 and FP16 instructions run on the same units; None where not known."""
    return None if compute_capability is None else compute_capability >= FIRST_WITH_SHARED_FMA


def has_tensor_cores(ceilings: Ceilings | None, compute_capability: tuple[int, int] | None) -> bool:
    """Return whether there is a tensor pipe; when in doubt yes, and it counts as not measured."""
    if compute_capability is not None and compute_capability < FIRST_WITH_TENSOR_CORES:
        return False
    if ceilings is None or not ceilings.peak_flops_per_second:
        return True
    return any("_tensor" in precision for precision in ceilings.peak_flops_per_second)
