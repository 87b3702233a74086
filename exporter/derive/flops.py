# SPDX-License-Identifier: Apache-2.0
"""How much arithmetic a share did per second, in an assumed precision and as bounds.

    FLOP/s of a unit = activity x peak(precision) x f / f_ref(unit)

which is activity x SMs x FLOP/clk/SM x f, because peak = SMs x FLOP/clk/SM x f_ref. Dense,
FMA = 2 operations. Which precision the tensor pipe worked in cannot be observed (FP8 looks like
FP16: github.com/NVIDIA/DCGM/issues/86), so tensor work is counted in an assumed one. Vector work is
counted as if every instruction were an FMA on all lanes: an upper estimate.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.derive.clocks import Clocks
from exporter.derive.units import cut, fma_is_shared
from exporter.model.reading import Activity
from exporter.model.snapshot import CLOCK_UNITS, Bounds, Ceilings, Saturation

FLOAT_TENSOR = (
    "tf32_tensor",
    "fp16_tensor",
    "bf16_tensor",
    "fp8_tensor",
    "fp4_tensor",
    "fp16_tensor_fp16acc",
    "fp8_tensor_fp16acc",
)
INTEGER_TENSOR = ("int8_tensor", "int4_tensor")
FP64_TENSOR_CAPABILITIES = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
"""GPUs whose tensor pipe also runs FP64, at the FP64 rate where its own is not published."""
FIRST_WITH_FP16 = (5, 3)
FP16_OVER_FP32 = 4.0
"""The largest ratio of vector FP16 to FP32 of any GPU (GA100), where a row has no FP16 rate."""
FP64_OVER_FP32 = 0.5
"""The same for FP64 (GP100, GV100, GA100, GH100)."""


def assumed_flops(
    activity: Activity, ceilings: Ceilings, clocks: Clocks, *, tensor_cores: bool
) -> dict[str, float]:
    """Return FLOP/s by precision, with tensor work under `ceilings.assumed_precision`.

    A vector pipe that was not read, or has no published rate, is left out. Empty where the GPU has
    a tensor pipe whose work is not known: vector work alone would be taken for the total.
    """
    peaks = ceilings.peak_flops_per_second
    flops: dict[str, float] = {}
    if tensor_cores:
        precision = ceilings.assumed_precision
        peak = None if precision is None else peaks.get(precision)
        ratio = None if precision is None else clocks.ratio(CLOCK_UNITS[precision])
        if precision is None or peak is None or ratio is None or activity.tensor is None:
            return flops
        flops[precision] = cut(activity.tensor) * peak * ratio
    ratio = clocks.ratio("fma")
    if ratio is None:
        return flops
    if activity.fp64 is not None and "fp64" in peaks:
        flops["fp64"] = cut(activity.fp64) * peaks["fp64"] * ratio
    if activity.fp32 is not None and "fp32" in peaks:
        flops["fp32"] = cut(activity.fp32) * peaks["fp32"] * ratio
    if activity.fp16 is not None and "fp16" in peaks:
        flops["fp16"] = cut(activity.fp16) * peaks["fp16"] * ratio
    return flops


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

    Lower: tensor activity at the slowest float precision of the hardware, vector work 0.
    Upper: tensor activity at the fastest, 8- and 4-bit integers only where IMMA activity was seen,
    plus the vector pipes at full FMA rate. Pipes that were not read enter with their upper bound.
    """
    peaks = ceilings.peak_flops_per_second
    vector, tensor = clocks.ratio("fma"), clocks.ratio("tensor")
    if not peaks or vector is None or tensor is None:
        return None
    lower = upper = 0.0
    if tensor_cores:
        slowest, fastest = tensor_rates(
            ceilings, compute_capability, tensor, vector, integers=bool(activity.imma)
        )
        if activity.tensor is None:
            upper = _upper(saturation, "tensor") * fastest
        else:
            lower = cut(activity.tensor) * slowest
            upper = cut(activity.tensor) * fastest
    fp64, fp32, fp16 = vector_peaks(peaks, compute_capability)
    a64 = _upper(saturation, "fp64") if activity.fp64 is None else cut(activity.fp64)
    if activity.fp32 is not None and activity.fp16 is not None:
        fma = cut(activity.fp32) * fp32 + cut(activity.fp16) * fp16
    elif fma_is_shared(compute_capability):
        fma = _upper(saturation, "fma") * max(fp32, fp16)
    else:
        cap = _upper(saturation, "fma")
        a32 = cap if activity.fp32 is None else cut(activity.fp32)
        a16 = cap if activity.fp16 is None else cut(activity.fp16)
        fma = a32 * fp32 + a16 * fp16
    return Bounds(lower, upper + (a64 * fp64 + fma) * vector)


def estimated_flops_bounds(
    utilization_ratio: float,
    ceilings: Ceilings,
    clocks: Clocks,
    compute_capability: tuple[int, int] | None,
    *,
    tensor_cores: bool,
) -> Bounds | None:
    """Return bounds of FLOP/s of a GPU that was busy for `utilization_ratio`; the lower is 0.

    Upper = U x (fastest tensor + FP64 + FP32 + FP16 rate); from compute capability 8.6 on FP32 and
    FP16 share units, so the larger of the two counts. Give the upper utilization for a bound on the
    interval, or mean + margin for one on the integral. A single clock sample may have missed the
    busy time, so without a busy average the highest SM clock of the device is taken.
    """
    peaks = ceilings.peak_flops_per_second
    if not peaks:
        return None
    clock = clocks.sm
    if not clocks.sm_is_busy_mean:
        clock = max(clocks.sm or 0.0, clocks.sm_max or 0.0)
    if not clock or not clocks.vector_reference or not clocks.tensor_reference:
        return None
    fp64, fp32, fp16 = vector_peaks(peaks, compute_capability)
    fma = max(fp32, fp16) if fma_is_shared(compute_capability) else fp32 + fp16
    vector = clock / clocks.vector_reference
    upper = (fp64 + fma) * vector
    if tensor_cores:
        tensor = clock / clocks.tensor_reference
        upper += tensor_rates(ceilings, compute_capability, tensor, vector, integers=False)[1]
    return Bounds(0.0, cut(utilization_ratio) * upper)


def tensor_rates(
    ceilings: Ceilings,
    compute_capability: tuple[int, int] | None,
    tensor_clock_ratio: float,
    vector_clock_ratio: float,
    *,
    integers: bool,
) -> tuple[float, float]:
    """Return the slowest and fastest rate in FLOP/s of a full tensor pipe at these clocks.

    The slowest is of floating point; `integers` lets 8 and 4 bit integers set the fastest.
    """
    peaks = ceilings.peak_flops_per_second
    rates = [peaks[precision] for precision in FLOAT_TENSOR if precision in peaks]
    assumed = ceilings.assumed_precision
    if assumed in INTEGER_TENSOR and assumed in peaks:
        rates.append(peaks[assumed])
    slowest, fastest = min(rates, default=0.0), max(rates, default=0.0)
    if integers:
        fastest = max(fastest, *(peaks.get(precision, 0.0) for precision in INTEGER_TENSOR))
    slowest, fastest = slowest * tensor_clock_ratio, fastest * tensor_clock_ratio
    fp64 = peaks.get("fp64_tensor")
    if fp64 is None and compute_capability in FP64_TENSOR_CAPABILITIES:
        fp64 = peaks.get("fp64", 0.0)
    if fp64 is not None:
        fp64 *= vector_clock_ratio
        slowest = min(slowest, fp64) if rates else fp64
        fastest = max(fastest, fp64)
    return slowest, fastest


def vector_peaks(
    peaks: Mapping[str, float], compute_capability: tuple[int, int] | None
) -> tuple[float, float, float]:
    """Return the highest FP64, FP32 and FP16 vector FLOP/s, bounded where a row has none."""
    fp32 = peaks.get("fp32", 0.0)
    fp64 = peaks.get("fp64")
    fp16 = peaks.get("fp16")
    if fp64 is None:
        fp64 = fp32 * FP64_OVER_FP32
    if fp16 is None:
        has_fp16 = compute_capability is None or compute_capability >= FIRST_WITH_FP16
        fp16 = fp32 * FP16_OVER_FP32 if has_fp16 else 0.0
    return fp64, fp32, max(fp16, peaks.get("bf16", 0.0))


def _upper(saturation: Saturation, resource: str) -> float:
    bounds = saturation.unmeasured.get(resource)
    return 1.0 if bounds is None else bounds.upper
