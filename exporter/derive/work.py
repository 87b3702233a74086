# SPDX-License-Identifier: Apache-2.0
"""What follows for a share without counters from the FLOPs that its training jobs state.

Work that was done takes units that can do it, so FLOP/s F bound from below how busy these were.
With the rates of a full tensor pipe P_t, in the precision of the job, and of full vector pipes P_v,
at the highest clock of the GPU,

    s >= F / (P_t + P_v)        tensor >= (F - U P_v) / P_t

because F <= tensor P_t + vector P_v <= s (P_t + P_v), and vector <= U. Which unit did the work, a
tensor pipe or (as torch may for small or odd shapes) an FMA unit, does not matter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.derive.clocks import reference_clock
from exporter.derive.flops import FLOAT_TENSOR, vector_peaks
from exporter.derive.units import cut, fma_is_shared
from exporter.model.reading import Device, Vitals
from exporter.model.snapshot import CLOCK_UNITS, Bounds, Ceilings, Recent, Roofline, Saturation

FASTER = ("fp8_tensor", "fp4_tensor", "fp8_tensor_fp16acc")
"""What Transformer Engine may compute in, whatever the job says of the rest of its model."""
ALSO = {"fp16_tensor": "fp16_tensor_fp16acc", "fp8_tensor": "fp8_tensor_fp16acc"}
"""The faster accumulation that work in a precision may use."""


@dataclass(frozen=True, slots=True)
class Work:
    """What training jobs state of the last ten seconds on a share."""

    flops_per_second: float
    """As a mean over ten seconds, or over the last reports where these are further apart."""
    least_flops_per_second: float = 0.0
    """What of it was certainly done in these ten seconds."""
    precisions: frozenset[str] | None = None
    """Tensor precisions that it may be in; None where that is not known of all of it."""


class Rates(NamedTuple):
    """The FLOP/s of full pipes at the highest clock."""

    tensor: float
    vector: float

    @property
    def whole(self) -> float:
        """Of all of them together."""
        return self.tensor + self.vector


def with_faster(precisions: frozenset[str] | None) -> frozenset[str] | None:
    """Return the precisions that work may be in where Transformer Engine is in use."""
    return None if precisions is None else precisions | set(FASTER)


def rates_of_work(
    ceilings: Ceilings,
    vitals: Vitals,
    device: Device,
    precisions: Collection[str] | None,
) -> Rates | None:
    """Return how fast work in these precisions can be done; None where no peak or clock is known.

    Where a precision is not known, or has no published rate, it may be any; FP64 units count only
    then.
    """
    peaks = ceilings.peak_flops_per_second
    seen, most = vitals.clock_hertz.get("sm"), device.clock_max_hertz.get("sm")
    clock = max(seen or 0.0, most or 0.0)
    tensor_clock, vector_clock = (
        reference_clock(unit, ceilings, device) for unit in ("tensor", "fma")
    )
    if not peaks or not clock or not tensor_clock or not vector_clock:
        return None
    known = precisions is not None and any(precision in peaks for precision in precisions)
    among = set(precisions or ()) | {ALSO[each] for each in ALSO.keys() & set(precisions or ())}
    if not known or (among - set(ALSO.values()) - set(FASTER)) - peaks.keys():
        among = {*FLOAT_TENSOR, "fp64_tensor", "int8_tensor", "int4_tensor"}
        known = False
    tensor = max(
        (
            peaks[each] * clock / (vector_clock if CLOCK_UNITS[each] == "fp64" else tensor_clock)
            for each in among
            if each in peaks
        ),
        default=0.0,
    )
    fp64, fp32, fp16 = vector_peaks(peaks, device.compute_capability)
    shared = fma_is_shared(device.compute_capability)
    vector = max(fp32, fp16) if shared else fp32 + fp16
    if not known or "fp64_tensor" in among:
        vector += fp64
    return Rates(tensor, vector * clock / vector_clock)


def busier(saturation: Saturation, work: Work, rates: Rates) -> Saturation:
    """Return an estimated saturation with the lower bounds that work sets; never above the upper.

    SMs are at least as busy as the pipes in them.
    """
    flops = work.least_flops_per_second
    if saturation.ratio is not None or not flops or not rates.whole:
        return saturation
    unmeasured = dict(saturation.unmeasured)
    least = flops / rates.whole
    fma = unmeasured.get("fma")
    if rates.tensor and fma is not None and "tensor" in unmeasured:
        tensor = (flops - fma.upper * rates.vector) / rates.tensor
        unmeasured["tensor"] = _at_least(unmeasured["tensor"], tensor)
        least = max(least, tensor)
    if "sm" in unmeasured:
        unmeasured["sm"] = _at_least(unmeasured["sm"], least)
    bounds = _at_least(saturation.bounds, cut(least))
    return replace(saturation, bounds=bounds, unmeasured=unmeasured)


def worked(roofline: Roofline, work: Work, believed: float, *, measured: bool) -> Roofline:
    """Return the roofline with what the jobs state; its lower bound only where nothing counts."""
    bounds = roofline.flops_bounds_per_second
    if not measured and bounds is not None:
        bounds = _at_least(bounds, work.least_flops_per_second)
    return replace(roofline, flops_bounds_per_second=bounds, stated_flops_per_second=believed)


def recently_worked(
    recent: Recent, work: Work, rates: Rates | None, believed: float, *, measured: bool
) -> Recent:
    """Return the last ten seconds with what the jobs state of them."""
    saturation, flops = recent.saturation_bounds, recent.flops_bounds_per_second
    intensity, traffic = recent.intensity_bounds_flops_per_byte, recent.dram_bounds_bytes_per_second
    if not measured:
        if flops is not None:
            flops = _at_least(flops, work.least_flops_per_second)
        if saturation is not None and rates is not None and rates.whole:
            saturation = _at_least(saturation, work.least_flops_per_second / rates.whole)
        if intensity is not None and flops is not None and traffic is not None and traffic.upper:
            intensity = _at_least(intensity, flops.lower / traffic.upper)
    return replace(
        recent,
        saturation_bounds=saturation,
        flops_bounds_per_second=flops,
        intensity_bounds_flops_per_byte=intensity,
        stated_flops_per_second=believed,
    )


def _at_least(bounds: Bounds, lower: float) -> Bounds:
    """Return the bounds with a lower end that is at least so high, but not above the upper one."""
    return Bounds(max(bounds.lower, min(lower, bounds.upper)), bounds.upper)
