# SPDX-License-Identifier: Apache-2.0
"""Where a share lies under its roofline: work, traffic, intensity and distance to the roofs."""

from __future__ import annotations

from exporter.derive.clocks import Clocks
from exporter.derive.flops import (
    assumed_flops,
    estimated_flops_bounds,
    measured_flops_bounds,
    tensor_split,
)
from exporter.derive.units import busiest_pipe, busiest_vector_pipe, cut, reads_every_unit
from exporter.model.reading import Activity, Device, Utilization
from exporter.model.snapshot import CLOCK_UNITS, Bounds, Ceilings, Roofline, Saturation

UNKNOWN = "unknown"

LEAST_DRAM_BYTES_PER_SECOND = 1e6
"""Traffic below this is rounding of the counter, and an intensity would be noise."""


def roofline(
    activity: Activity,
    timed: Activity,
    saturation: Saturation,
    ceilings: Ceilings | None,
    clocks: Clocks,
    device: Device,
    *,
    tensor_cores: bool,
) -> Roofline:
    """Return the work, traffic and distances of a measured interval.

    `activity` and `saturation` are shares of cycles, `timed` is the activity in shares of time.
    Intensity (FLOP/s / DRAM bytes/s: traffic after the caches) and roof ratios exist where every
    unit of the saturation is read. OFU = tensor activity x f / f_ref (arXiv 2605.20799).
    """
    dram_bytes = dram_bytes_per_second(activity.dram, ceilings, clocks, device)
    dram_bounds = dram_bounds_per_second(saturation, ceilings, clocks, device)
    everything_read = reads_every_unit(activity, tensor_cores=tensor_cores)
    ofu = None
    if activity.tensor is not None and (ratio := clocks.ratio("tensor")) is not None:
        ofu = cut(activity.tensor) * ratio
    flops: dict[str, float] = {}
    flops_bounds = None
    if ceilings is not None:
        flops = assumed_flops(activity, ceilings, clocks, tensor_cores=tensor_cores)
        capability = device.compute_capability
        flops_bounds = measured_flops_bounds(
            activity, saturation, ceilings, clocks, capability, tensor_cores=tensor_cores
        )
    point, roofs = None, {}
    if everything_read:
        point = intensity(sum(flops.values()), dram_bytes) if flops else None
        roofs = roof_ratios(
            activity, timed, ceilings, clocks, dram_bytes, tensor_cores=tensor_cores
        )
    return Roofline(
        flops_per_second=flops,
        flops_bounds_per_second=flops_bounds,
        dram_bytes_per_second=dram_bytes,
        dram_bounds_bytes_per_second=dram_bounds,
        intensity_flops_per_byte=point,
        intensity_bounds_flops_per_byte=(
            intensity_bounds(flops_bounds, dram_bytes, dram_bounds) if point is None else None
        ),
        dram_estimate_bytes_per_second=dram_bytes_per_second(
            saturation.estimates.get("dram"), ceilings, clocks, device
        ),
        roof_ratio=roofs,
        tensor_flops_utilization_ratio=ofu,
    )


def estimated_roofline(
    utilization: Utilization,
    saturation: Saturation,
    ceilings: Ceilings | None,
    clocks: Clocks,
    device: Device,
    *,
    tensor_cores: bool,
) -> Roofline | None:
    """Return the bounds of FLOP/s and traffic that follow from utilization and estimate."""
    if ceilings is None:
        return None
    upper, capability = utilization.upper_ratio, device.compute_capability
    flops = estimated_flops_bounds(upper, ceilings, clocks, capability, tensor_cores=tensor_cores)
    dram = dram_bounds_per_second(saturation, ceilings, clocks, device)
    if flops is None and dram is None:
        return None
    return Roofline(
        flops_bounds_per_second=flops,
        dram_bounds_bytes_per_second=dram,
        dram_estimate_bytes_per_second=dram_bytes_per_second(
            saturation.estimates.get("dram"), ceilings, clocks, device
        ),
        intensity_bounds_flops_per_byte=intensity_bounds(flops, None, dram),
    )


def dram_bandwidth_now(ceilings: Ceilings | None, clocks: Clocks, device: Device) -> float | None:
    """Return the bytes/s that this share's part of the DRAM can move at its present clock.

    Bandwidth = memory clock x 2 x bus bits / 8, else that of the spec. The factor is 2 for every
    memory type, because the driver reports half of the effective data rate.
    """
    if ceilings is None:
        bus, part = device.memory_bus_width_bits, None if device.mig else 1.0
    else:
        bus = ceilings.memory_bus_width_bits or device.memory_bus_width_bits
        part = ceilings.share_of_memory
    if clocks.memory and bus and part is not None:
        return clocks.memory * 2.0 * bus / 8.0 * part
    return None if ceilings is None else ceilings.memory_bandwidth_bytes_per_second


def dram_bytes_per_second(
    dram: float | None, ceilings: Ceilings | None, clocks: Clocks, device: Device
) -> float | None:
    """Return DRAM activity x bandwidth at the present clock, in bytes/s."""
    if dram is None:
        return None
    bandwidth = dram_bandwidth_now(ceilings, clocks, device)
    return None if bandwidth is None else cut(dram) * bandwidth


def dram_bounds_per_second(
    saturation: Saturation, ceilings: Ceilings | None, clocks: Clocks, device: Device
) -> Bounds | None:
    """Return bounds of the traffic in bytes/s where DRAM activity is bounded by `saturation`: at
    the memory clock that was polled or that of the spec, whichever fits."""
    dram = saturation.unmeasured.get("dram")
    now = dram_bandwidth_now(ceilings, clocks, device)
    if dram is None or now is None:
        return None
    spec = now if ceilings is None else ceilings.memory_bandwidth_bytes_per_second or now
    return Bounds(dram.lower * min(now, spec), dram.upper * max(now, spec))


def intensity_bounds(
    flops: Bounds | None, dram_bytes: float | None, dram_bounds: Bounds | None
) -> Bounds | None:
    """Return F_lower / B_upper and F_upper / B_lower; None below 1 MB/s of traffic."""
    traffic = dram_bounds if dram_bytes is None else Bounds(dram_bytes, dram_bytes)
    if flops is None or traffic is None or traffic.lower < LEAST_DRAM_BYTES_PER_SECOND:
        return None
    return Bounds(flops.lower / traffic.upper, flops.upper / traffic.lower)


def intensity(flops_per_second: float, dram_bytes_per_second: float | None) -> float | None:
    """Return the operational intensity in FLOP per DRAM byte; None below 1 MB/s of traffic."""
    if dram_bytes_per_second is None or dram_bytes_per_second < LEAST_DRAM_BYTES_PER_SECOND:
        return None
    return flops_per_second / dram_bytes_per_second


def roof_ratios(
    activity: Activity,
    timed: Activity,
    ceilings: Ceilings | None,
    clocks: Clocks,
    dram_bytes: float | None,
    *,
    tensor_cores: bool,
) -> dict[str, float]:
    """Return the distance to the roof by basis; above 1 at a clock above that of the datasheet.

        clock      = max over units of activity in shares of time
        spec       = max over units of activity x f / f_ref, DRAM: bytes/s / spec bandwidth
        achievable = max over units of that ratio / share of the spec that good kernels reach

    FP64 and integers on the tensor pipe count against their own peaks. `achievable` exists where
    that share is known for memory and every precision of the tensor work, the assumed one among
    them; for vector units it is 1. Of FP32 and FP16 the larger is taken.
    """
    ratios = {"clock": max(busiest_pipe(timed), cut(timed.dram or 0.0))}
    bandwidth = None if ceilings is None else ceilings.memory_bandwidth_bytes_per_second
    vector_clock, tensor_clock = clocks.ratio("fma"), clocks.ratio("tensor")
    if (
        ceilings is None
        or not bandwidth
        or dram_bytes is None
        or vector_clock is None
        or tensor_clock is None
    ):
        return ratios
    split = tensor_split(activity) if tensor_cores else None
    work = {} if split is None else split.by_precision(ceilings.assumed_precision or UNKNOWN)
    for precision in work:
        work[precision] *= clocks.ratio(CLOCK_UNITS.get(precision, "tensor")) or 0.0
    vector = busiest_vector_pipe(activity) * vector_clock
    memory = dram_bytes / bandwidth
    ratios["spec"] = max(sum(work.values()), vector, memory)
    reached = ceilings.achievable_ratio
    memory_share = reached.get("memory")
    if memory_share and all(reached.get(precision) for precision in work):
        tensor = sum(ratio / reached[precision] for precision, ratio in work.items())
        ratios["achievable"] = max(tensor, vector, memory / memory_share)
    return ratios
