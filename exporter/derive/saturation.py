# SPDX-License-Identifier: Apache-2.0
"""How close a share is to a limit of the units that can be read, measured or as bounds.

Saturation is the larger of all unit activities,

    s = max(tensor, fp64, fma, int where read, DRAM)           (each 0 to 1, of cycles)

With F = FLOP/s, B = DRAM bytes/s and I = F / B it equals the distance to the roofline roof,

    F / min(F_peak, I x B_peak) = max(F / F_peak, B / B_peak)

so neither FLOPs nor a precision need to be known (Williams, Waterman, Patterson, "Roofline",
CACM 52(4), 2009). Exact for one compute pipe against its own roof at the current clock.
"""

from __future__ import annotations

from exporter.derive.units import cut, fma_is_shared, reads_every_unit, reads_fma, tensor_activity
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import (
    DRAM_PER_MEMORY_UTILIZATION,
    Bounds,
    MemoryUtilizationUse,
    Saturation,
)

DRAM_MARGIN_RATIO = 0.15
"""How far DRAM activity may lie above the driver's memory utilization; in 94 published readings of
V100, T4 and B300 it was at most 0.018 above."""


def measured(
    activity: Activity,
    compute_capability: tuple[int, int] | None,
    *,
    tensor_cores: bool = True,
    utilization: Utilization | None = None,
    memory_use: MemoryUtilizationUse | None = "estimate",
) -> Saturation:
    """Return the saturation by counters, with bounds for what they leave out.

    fma, the FP32/FP16 units: separate pipes below compute capability 8.6, so max(fp32, fp16).
    From 8.6 on they share hardware and fma lies in [max(fp32, fp16), min(1, fp32 + fp16)].
    `ratio` and `unit` take its lower end, `bounds` both. Where tensor and FP16 are one pipe
    (Turing), that pipe is the unit tensor. `unit` is the first of dram, tensor, fma, fp64, int that
    is the busiest; None while nothing is active.

    Complete = engine, SM and every unit but int are read. Otherwise what is not read is bounded: a
    pipe by SM activity, else engine activity, else the utilization, else 1; SM by engine activity
    or utilization, and from below by the busiest pipe; DRAM as in `estimated`.
    """
    fma = _fma(activity, compute_capability)
    highest, unit = 0.0, None
    for name, ratio in _units(activity, fma).items():
        if ratio is not None and cut(ratio) > highest:
            highest, unit = cut(ratio), name
    if (
        activity.engine is not None
        and activity.sm is not None
        and reads_every_unit(activity, tensor_cores=tensor_cores)
    ):
        return Saturation(
            source=activity.source,
            complete=True,
            bounds=Bounds(highest, max(highest, fma.upper)),
            ratio=highest,
            unit=unit,
        )
    return _incomplete(activity, highest, fma, utilization, memory_use, tensor_cores=tensor_cores)


def _units(activity: Activity, fma: Bounds) -> dict[str, float | None]:
    """Return the activity of each unit of the saturation; None where it is not read."""
    return {
        "dram": activity.dram,
        "tensor": tensor_activity(activity),
        "fma": fma.lower,
        "fp64": activity.fp64,
        "int": activity.integer,
    }


def _fma(activity: Activity, compute_capability: tuple[int, int] | None) -> Bounds:
    """Return the activity of the FP32/FP16 units; one that is not read counts as 0."""
    fp32, fp16 = cut(activity.fp32 or 0.0), cut(activity.fp16 or 0.0)
    lower = max(fp32, fp16, cut(activity.fma or 0.0))
    if activity.fma is not None or fma_is_shared(compute_capability) is False:
        return Bounds(lower, lower)
    return Bounds(lower, min(1.0, fp32 + fp16))


def _incomplete(
    activity: Activity,
    lower: float,
    fma: Bounds,
    utilization: Utilization | None,
    memory_use: MemoryUtilizationUse | None,
    *,
    tensor_cores: bool,
) -> Saturation:
    """Bound what was not read; `lower` is the highest activity read, `fma` its bounds of FMA."""
    units = _units(activity, fma)
    busiest_pipe = max(cut(ratio or 0.0) for name, ratio in units.items() if name != "dram")
    if activity.engine is not None:
        sm_cap = cut(activity.engine)
    elif utilization is not None:
        sm_cap = cut(utilization.upper_ratio)
    else:
        sm_cap = 1.0
    pipe_cap = sm_cap if activity.sm is None else cut(activity.sm)

    unmeasured: dict[str, Bounds] = {}
    if activity.sm is None:
        unmeasured["sm"] = Bounds(busiest_pipe, max(busiest_pipe, sm_cap))
    uppers = [lower]
    if units["tensor"] is None and tensor_cores:
        unmeasured["tensor"] = Bounds(0.0, pipe_cap)
    if reads_fma(activity):
        uppers.append(fma.upper)
    else:
        unmeasured["fma"] = Bounds(fma.lower, max(fma.lower, pipe_cap))
    for pipe in ("fp64", "int"):
        if units[pipe] is None:
            unmeasured[pipe] = Bounds(0.0, pipe_cap)
    estimates: dict[str, float] = {}
    if activity.dram is None:
        unmeasured["dram"] = Bounds(0.0, _dram_upper(utilization, memory_use))
        estimates = _dram_estimate(utilization, memory_use)
    uppers += [bounds.upper for resource, bounds in unmeasured.items() if resource != "sm"]
    return Saturation(
        source=activity.source,
        complete=False,
        bounds=Bounds(lower, max(uppers)),
        unmeasured=unmeasured,
        estimates=estimates,
    )


def unit_bounds(
    activity: Activity, saturation: Saturation, compute_capability: tuple[int, int] | None
) -> dict[str, Bounds]:
    """Return bounds of each unit of the saturation (tensor, fma, fp64, int, dram) that is known:
    what was read as it is, the rest as `saturation` bounds it."""
    fma = _fma(activity, compute_capability)
    read = _units(activity, fma).items()
    units = {name: Bounds(cut(ratio), cut(ratio)) for name, ratio in read if ratio is not None}
    unread = {name: each for name, each in saturation.unmeasured.items() if name != "sm"}
    return units | {"fma": fma} | unread


def estimated(
    utilization: Utilization,
    *,
    tensor_cores: bool = True,
    memory_use: MemoryUtilizationUse | None = "estimate",
) -> Saturation:
    """Return the bounds that follow from the driver's utilization: no unit can be busier than that.

        0 <= SM, tensor, fma, fp64, int <= U
        0 <= DRAM <= m + 0.15 where that was checked, else max(U, m + 0.15);  DRAM ~ 0.77 m

    U = `upper_ratio`, which already holds the sampling margin of its reader, m = the upper memory
    utilization (1 where unknown: copy engines move data without a kernel). Their midpoint is not an
    estimate and must not be shown.
    """
    cap = Bounds(0.0, cut(utilization.upper_ratio))
    dram = Bounds(0.0, _dram_upper(utilization, memory_use))
    unmeasured = {"sm": cap, "fma": cap, "fp64": cap, "int": cap, "dram": dram}
    if tensor_cores:
        unmeasured["tensor"] = cap
    return Saturation(
        source="estimate",
        complete=False,
        bounds=Bounds(0.0, max(cap.upper, dram.upper)),
        unmeasured=unmeasured,
        estimates=_dram_estimate(utilization, memory_use),
    )


def _dram_upper(utilization: Utilization | None, use: MemoryUtilizationUse | None) -> float:
    """Return m + 0.15 where that was checked, else max(U, m + 0.15), at most 1."""
    if utilization is None or utilization.memory_upper_ratio is None or use is None:
        return 1.0
    upper = utilization.memory_upper_ratio + DRAM_MARGIN_RATIO
    return cut(upper if use == "bound" else max(utilization.upper_ratio, upper))


def _dram_estimate(
    utilization: Utilization | None, use: MemoryUtilizationUse | None
) -> dict[str, float]:
    if utilization is None or utilization.memory_ratio is None or use is None:
        return {}
    return {"dram": DRAM_PER_MEMORY_UTILIZATION * cut(utilization.memory_ratio)}
