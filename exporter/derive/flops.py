# SPDX-License-Identifier: Apache-2.0
"""How much arithmetic a share did per second, in assumed precisions and as bounds.

    FLOP/s of a unit = activity x peak(precision) x f / f_ref(unit)

which is activity x SMs x FLOP/clk/SM x f, because peak = SMs x FLOP/clk/SM x f_ref. Activity is a
share of cycles and f the mean clock of the whole interval. Dense, FMA = 2 operations. Where the
source splits tensor work, FP64 (DMMA, also called DFMA) and 8-bit integers (IMMA) are known. In
which precision the rest was cannot be observed (FP8 looks like FP16:
github.com/NVIDIA/DCGM/issues/86), so it is counted in an assumed one. Vector work is counted as if
every instruction were an FMA on all lanes: an upper estimate. So is work of pipes that are only
read together: the FP32 and FP16 units as FP32, the tensor and FP16 pipes as tensor work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter.derive.clocks import Clocks
from exporter.derive.units import cut, fma_is_shared, tensor_activity
from exporter.model.reading import Activity
from exporter.model.snapshot import CLOCK_UNITS, PRECISIONS, Bounds, Ceilings, Saturation

INTEGER_TENSOR = ("int8_tensor", "int4_tensor")
FLOAT_TENSOR = tuple(
    each for each in PRECISIONS if CLOCK_UNITS[each] == "tensor" and each not in INTEGER_TENSOR
)
ROUNDING_RATIO = 0.005
"""Less activity than this may be none: some drivers round to whole percents."""
FP64_TENSOR_CAPABILITIES = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
"""GPUs whose tensor pipe also runs FP64."""
FP64_TENSOR_OVER_FP64 = 2.0
"""The largest ratio of FP64 on the tensor pipe to FP64 on the vector pipe (GA100, GH100)."""
FIRST_WITH_FP16 = (5, 3)
FP16_OVER_FP32 = 4.0
"""The largest ratio of vector FP16 to FP32 of any GPU (GA100), where a row has no FP16 rate."""
FP64_OVER_FP32 = 0.5
"""The same for FP64 (GP100, GV100, GA100, GH100)."""


class TensorSplit(NamedTuple):
    """The tensor activity by precision, as far as counters tell it; shares of cycles."""

    fp64: float
    int8: float
    """Of 8-bit integers, or of 4-bit ones, which look the same."""
    rest: float

    def by_precision(self, assumed: str | None) -> dict[str, float]:
        """Return the activity of each precision that was active, the rest under `assumed`."""
        parts = {} if assumed is None else {assumed: self.rest}
        for precision, ratio in (("fp64_tensor", self.fp64), ("int8_tensor", self.int8)):
            if ratio > 0.0:
                parts[precision] = parts.get(precision, 0.0) + ratio
        return parts


def tensor_split(activity: Activity) -> TensorSplit | None:
    """Split the tensor activity, perhaps with vector FP16; None where it is not read.

    FP64 is the larger of DMMA and DFMA, which are two names for it.
    """
    tensor = tensor_activity(activity)
    if tensor is None:
        return None
    whole = cut(tensor)
    fp64 = min(whole, max(cut(activity.dmma or 0.0), cut(activity.dfma or 0.0)))
    int8 = min(whole - fp64, cut(activity.imma or 0.0))
    return TensorSplit(fp64, int8, whole - fp64 - int8)


def assumed_flops(
    activity: Activity, ceilings: Ceilings, clocks: Clocks, *, tensor_cores: bool
) -> dict[str, float]:
    """Return FLOP/s by precision, with tensor work that is not split under the assumed one.

    A vector pipe that was not read, or has no published rate, is left out. Empty where tensor work
    is not known: vector work alone would be taken for the total.
    """
    peaks = ceilings.peak_flops_per_second
    flops: dict[str, float] = {}
    if tensor_cores:
        split, assumed = tensor_split(activity), ceilings.assumed_precision
        if split is None or (assumed is None and split.rest > ROUNDING_RATIO):
            return {}
        for precision, ratio in split.by_precision(assumed).items():
            peak, clock = peaks.get(precision), clocks.ratio(CLOCK_UNITS[precision])
            if peak is not None and clock is not None:
                flops[precision] = ratio * peak * clock
            elif ratio > ROUNDING_RATIO:
                return {}
    vector = clocks.ratio("fma")
    if vector is None:
        return flops
    for precision, read in _vector_pipes(activity).items():
        if read is not None and precision in peaks:
            flops[precision] = cut(read) * peaks[precision] * vector
    return flops


def _vector_pipes(activity: Activity) -> dict[str, float | None]:
    if activity.fma is not None and activity.fp32 is None and activity.fp16 is None:
        return {"fp64": activity.fp64, "fp32": activity.fma}
    return {"fp64": activity.fp64, "fp32": activity.fp32, "fp16": activity.fp16}


def measured_flops_bounds(
    activity: Activity,
    saturation: Saturation,
    ceilings: Ceilings,
    clocks: Clocks,
    compute_capability: tuple[int, int] | None,
    *,
    tensor_cores: bool,
) -> Bounds | None:
    """Return bounds of FLOP/s over all precisions; None where no clock or peak is known.

    Lower: FP64 and integers at their rate, other tensor activity at the slowest float precision
    that it can be, vector work 0, as is a pipe that is tensor and vector FP16 in one.
    Upper: integers at the fastest of 8 and 4 bits, other tensor activity at the fastest float
    precision, plus the vector pipes at full FMA rate, units that are only read together at that of
    the faster. Pipes that were not read enter with their upper bound.
    """
    peaks = ceilings.peak_flops_per_second
    vector, tensor = clocks.ratio("fma"), clocks.ratio("tensor")
    if not peaks or vector is None or tensor is None:
        return None
    lower = upper = 0.0
    fp64, fp32, fp16 = vector_peaks(peaks, compute_capability)
    if tensor_cores:
        rates = tensor_rates(ceilings, compute_capability, tensor, vector)
        split = tensor_split(activity)
        if split is None:
            fastest = max(rates.anything.upper, rates.integers.upper if activity.imma else 0.0)
            upper = _upper(saturation, "tensor") * fastest
        else:
            # The source counts FP64 separately, and FP64 is not the assumed precision.
            splits = activity.dmma is not None or activity.dfma is not None
            no_fp64 = splits and ceilings.assumed_precision != "fp64_tensor"
            rest = rates.floats if no_fp64 and rates.floats.upper else rates.anything
            if activity.tensor is None:
                rest = Bounds(0.0, max(rest.upper, fp16 * vector))
            for ratio, rate in (
                (split.rest, rest),
                (split.fp64, rates.fp64),
                (split.int8, rates.integers),
            ):
                lower += ratio * rate.lower
                upper += ratio * rate.upper
    elif activity.tensor_fp16 is not None:
        upper = cut(activity.tensor_fp16) * fp16 * vector
    a64 = _upper(saturation, "fp64") if activity.fp64 is None else cut(activity.fp64)
    if activity.fp32 is not None and activity.fp16 is not None:
        fma = cut(activity.fp32) * fp32 + cut(activity.fp16) * fp16
    elif activity.fma is not None:
        fma = cut(activity.fma) * max(fp32, fp16)
    elif activity.fp32 is not None and activity.tensor_fp16 is not None:
        fma = cut(activity.fp32) * fp32
    elif fma_is_shared(compute_capability):
        fma = _upper(saturation, "fma") * max(fp32, fp16)
    else:
        cap = _upper(saturation, "fma")
        a32 = cap if activity.fp32 is None else cut(activity.fp32)
        a16 = cap if activity.fp16 is None else cut(activity.fp16)
        fma = a32 * fp32 + a16 * fp16
    upper += (a64 * fp64 + fma) * vector
    return Bounds(lower * clocks.lowest_ratio, upper * clocks.highest_ratio)


def estimated_flops_bounds(
    utilization_ratio: float,
    ceilings: Ceilings | None,
    clocks: Clocks,
    compute_capability: tuple[int, int] | None,
    *,
    tensor_cores: bool,
) -> Bounds | None:
    """Return bounds of FLOP/s of a GPU that was busy for `utilization_ratio`; the lower is 0.

    Upper = U x (fastest tensor + FP64 + FP32 + FP16 rate); from compute capability 8.6 on FP32 and
    FP16 share units, so the larger of the two counts. A single clock sample may have missed the
    busy time, so without a busy average the highest SM clock of the device is taken.
    """
    if ceilings is None or not (peaks := ceilings.peak_flops_per_second):
        return None
    clock = clocks.sm_busy
    if clock is None:
        clock = max(clocks.sm or 0.0, clocks.sm_max or 0.0)
    if not clock or not clocks.vector_reference or not clocks.tensor_reference:
        return None
    fp64, fp32, fp16 = vector_peaks(peaks, compute_capability)
    fma = max(fp32, fp16) if fma_is_shared(compute_capability) else fp32 + fp16
    vector = clock / clocks.vector_reference
    upper = (fp64 + fma) * vector
    if tensor_cores:
        tensor = clock / clocks.tensor_reference
        upper += tensor_rates(ceilings, compute_capability, tensor, vector).anything.upper
    return Bounds(0.0, cut(utilization_ratio) * upper)


class TensorRates(NamedTuple):
    """The slowest and fastest rate in FLOP/s of a full tensor pipe, by operation."""

    floats: Bounds
    fp64: Bounds
    integers: Bounds
    anything: Bounds
    """Floating point, FP64 included."""


def tensor_rates(
    ceilings: Ceilings,
    compute_capability: tuple[int, int] | None,
    tensor_clock_ratio: float,
    vector_clock_ratio: float,
) -> TensorRates:
    """Return the rates of a full tensor pipe at these clocks; 0 where no peak is known.

    What is shown as FP64 or integers that the GPU is not known to have is some floating point.
    """
    peaks = ceilings.peak_flops_per_second
    rates = [peaks[precision] for precision in FLOAT_TENSOR if precision in peaks]
    assumed = ceilings.assumed_precision
    if assumed in INTEGER_TENSOR and assumed in peaks:
        rates.append(peaks[assumed])
    floats = Bounds(
        min(rates, default=0.0) * tensor_clock_ratio, max(rates, default=0.0) * tensor_clock_ratio
    )
    fp64 = _fp64_tensor_rate(peaks, compute_capability, vector_clock_ratio)
    anything = floats
    if fp64 is not None:
        slowest = min(floats.lower, fp64.lower) if rates else fp64.lower
        anything = Bounds(slowest, max(floats.upper, fp64.upper))
    whole = [peaks[precision] for precision in INTEGER_TENSOR if precision in peaks]
    integers = Bounds(0.0, anything.upper)
    if whole:
        integers = Bounds(min(whole) * tensor_clock_ratio, max(whole) * tensor_clock_ratio)
    return TensorRates(floats, fp64 or Bounds(0.0, anything.upper), integers, anything)


def _fp64_tensor_rate(
    peaks: Mapping[str, float],
    compute_capability: tuple[int, int] | None,
    vector_clock_ratio: float,
) -> Bounds | None:
    published = peaks.get("fp64_tensor")
    if published is not None:
        return Bounds(published * vector_clock_ratio, published * vector_clock_ratio)
    if compute_capability not in FP64_TENSOR_CAPABILITIES:
        return None
    vector = peaks.get("fp64", 0.0) * vector_clock_ratio
    return Bounds(vector, FP64_TENSOR_OVER_FP64 * vector)


def vector_peaks(
    peaks: Mapping[str, float], compute_capability: tuple[int, int] | None
) -> tuple[float, float, float]:
    """Return the highest FP64, FP32 and FP16 vector FLOP/s, bounded where a row has none."""
    fp32 = peaks.get("fp32", 0.0)
    has_fp16 = compute_capability is None or compute_capability >= FIRST_WITH_FP16
    fp16 = peaks.get("fp16", fp32 * FP16_OVER_FP32 if has_fp16 else 0.0)
    return peaks.get("fp64", fp32 * FP64_OVER_FP32), fp32, max(fp16, peaks.get("bf16", 0.0))


def _upper(saturation: Saturation, resource: str) -> float:
    bounds = saturation.unmeasured.get(resource)
    return 1.0 if bounds is None else bounds.upper
