# SPDX-License-Identifier: Apache-2.0
"""Bounds of a share without counters from the FLOPs that its training jobs state.

Work that was done takes units that can do it, so FLOP/s F bound from below how busy these were.
With the rates of a full tensor pipe P_t, in the precision of the job, and of full vector pipes P_v,
at the highest clock of the GPU,

    s >= F / (P_t + P_v)        tensor >= (F - U P_v) / P_t

because F <= tensor P_t + vector P_v <= s (P_t + P_v), and vector <= U. Which unit did the work, a
tensor pipe or (as torch may for small or odd shapes) an FMA unit, does not matter.

An estimate takes the unit that the precision stands for. With p its peak at the clock f_ref, the
likely activity at clock f is the sum of F f_ref / (p f) over the precisions of a pipe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from exporter.derive.clocks import reference_clock
from exporter.derive.flops import FLOAT_TENSOR, vector_peaks
from exporter.derive.roofline import intensity
from exporter.derive.units import cut, fma_is_shared
from exporter.model.reading import Device, Vitals
from exporter.model.snapshot import CLOCK_UNITS, Bounds, Ceilings, Recent, Saturation, WorkRates

FASTER = ("fp8_tensor", "fp4_tensor", "fp8_tensor_fp16acc")
"""What Transformer Engine may compute in, whatever the job says of the rest of its model."""
ALSO = {"fp16_tensor": "fp16_tensor_fp16acc", "fp8_tensor": "fp8_tensor_fp16acc"}
"""The faster accumulation that work in a precision may use."""


@dataclass(frozen=True, slots=True)
class Work:
    """The FLOP/s that training jobs state for the last ten seconds on a share."""

    flops_per_second: float
    """As a mean over ten seconds, or over the last reports where these are further apart."""
    least_flops_per_second: float = 0.0
    """What of it was certainly done in these ten seconds."""
    precisions: frozenset[str] | None = None
    """Tensor precisions that it may be in; None where that is not known of all of it."""
    flops_per_second_by_peak: Mapping[str, float] | None = None
    """By the peak of the pipe that likely did it (bf16_tensor, fp32); None if that is not known."""


class Rates(NamedTuple):
    """The FLOP/s of full pipes at the highest clock."""

    tensor: float
    vector: float

    @property
    def whole(self) -> float:
        """Both together."""
        return self.tensor + self.vector


def with_faster(work: Work) -> Work:
    """Return the work as it may be where Transformer Engine is in use, which computes in FP8."""
    precisions = work.precisions
    if precisions is None or precisions <= set(FASTER):
        return work
    return replace(work, precisions=precisions | set(FASTER), flops_per_second_by_peak=None)


def rates_of_work(
    ceilings: Ceilings,
    vitals: Vitals,
    device: Device,
    precisions: Collection[str] | None,
) -> Rates | None:
    """Return how fast work in these precisions can be done; None where no peak or clock is known.

    One that is not known or has no published rate may be any; FP64 units count only then.
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


def pipe_estimates(
    work: Work, ceilings: Ceilings, vitals: Vitals, device: Device
) -> dict[str, float]:
    """Return the likely activity of tensor and fma at the present clock; empty if not known."""
    found: dict[str, float] = {}
    clock = vitals.clock_hertz.get("sm")
    for precision, flops in (work.flops_per_second_by_peak or {}).items():
        unit = CLOCK_UNITS[precision]
        peak, reference = ceilings.peak_flops_per_second.get(precision), None
        if unit in ("tensor", "fma"):
            reference = reference_clock(unit, ceilings, device)
        if not peak or not clock or not reference:
            return {}
        found[unit] = found.get(unit, 0.0) + flops * reference / (peak * clock)
    return found


def model_flops_utilization(work: Work, ceilings: Ceilings) -> float | None:
    """Return MFU = sum of F / p, p the datasheet peak (arXiv 2204.02311, B); None without one."""
    found, peaks = 0.0, ceilings.peak_flops_per_second
    for precision, flops in (work.flops_per_second_by_peak or {}).items():
        if not peaks.get(precision):
            return None
        found += flops / peaks[precision]
    return found if work.flops_per_second_by_peak else None


def with_estimates(saturation: Saturation, pipes: Mapping[str, float]) -> Saturation:
    """Return the saturation with the estimates of pipes that are not measured and can be true."""
    unmeasured = saturation.unmeasured
    likely = {
        name: max(ratio, unmeasured[name].lower)
        for name, ratio in pipes.items()
        if name in unmeasured and ratio <= unmeasured[name].upper
    }
    if not likely:
        return saturation
    return replace(saturation, estimates={**saturation.estimates, **likely})


Rated = TypeVar("Rated", bound=WorkRates)


def worked(rates: Rated, work: Work, believed: float, *, measured: bool) -> Rated:
    """Return work and traffic with the jobs' FLOPs; as bounds only where nothing counts."""
    flops, band = rates.flops_bounds_per_second, rates.intensity_bounds_flops_per_byte
    traffic = rates.dram_bounds_bytes_per_second
    if flops is not None and not measured:
        flops = _at_least(flops, work.least_flops_per_second)
        if band is not None and traffic is not None and traffic.upper:
            band = _at_least(band, flops.lower / traffic.upper)
    return replace(
        rates,
        flops_bounds_per_second=flops,
        intensity_bounds_flops_per_byte=band,
        stated_flops_per_second=believed,
        intensity_estimate_flops_per_byte=intensity(believed, rates.dram_estimate_bytes_per_second),
    )


def recently_worked(
    recent: Recent, work: Work, rates: Rates | None, believed: float, *, measured: bool
) -> Recent:
    """Return the last ten seconds with the jobs' FLOPs."""
    saturation = recent.saturation_bounds
    if saturation is not None and rates is not None and rates.whole and not measured:
        saturation = _at_least(saturation, work.least_flops_per_second / rates.whole)
        recent = replace(recent, saturation_bounds=saturation)
    return worked(recent, work, believed, measured=measured)


def _at_least(bounds: Bounds, lower: float) -> Bounds:
    """Return the bounds with a lower end that is at least so high, but not above the upper one."""
    return Bounds(max(bounds.lower, min(lower, bounds.upper)), bounds.upper)
