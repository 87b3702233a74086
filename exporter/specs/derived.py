# SPDX-License-Identifier: Apache-2.0
"""Estimates the ceilings of a GPU without a spec row, from its architecture and NVML.

These are never better than "derived": the clock of the datasheet is estimated from NVML's maximum
(specs/boost.py says how well), and no rule sees that a GPU model was cut. Also: the clock that the
published tensor peaks of a spec row imply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.model.reading import Device
from exporter.model.snapshot import CLOCK_UNITS, Ceilings
from exporter.specs.boost import UNITS, Unit, boost_factor
from exporter.specs.gpu_class import MODULE_CAPABILITIES, gpu_class
from exporter.specs.gpu_model import DERIVED, assumed_precision


@dataclass(frozen=True, slots=True)
class RateRule:
    """Dense operations per clock and SM of one architecture (FMA = 2 operations)."""

    cores_per_sm: int
    flops_per_clock: Mapping[str, int]
    """By precision, per SM."""


_COLUMNS = (
    *("fp64", "fp64_tensor", "fp32", "fp16", "bf16"),
    *("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor"),
    *("int8", "int8_tensor", "int4_tensor", "fp4_tensor"),
)
# By compute capability: FP32 cores per SM, then the columns above. Vector rates are twice the
# results per clock of the CUDA programming guide's throughput table, tensor rates those of the
# architecture papers.
_RATES = """
5.0   128     8     -   256    -    -      -     -     -     -     -     -     -     -
5.2   128     8     -   256    -    -      -     -     -     -     -     -     -     -
6.0    64    64     -   128  256    -      -     -     -     -     -     -     -     -
6.1   128     8     -   256    4    -      -     -     -     -  1024     -     -     -
7.0    64    64     -   128  256    -      -  1024     -     -   512     -     -     -
7.5    64     4     -   128  256    -      -  1024     -     -     -  2048  4096     -
8.0    64    64   128   128  512  256   1024  2048  2048     -     -  4096  8192     -
8.6   128     4     -   256  256  256    512  1024  1024     -     -  2048  4096     -
8.7   128     -     -   256  512    -      -  2048     -     -     -  4096     -     -
8.9   128     4     -   256  256  256    512  1024  1024  2048     -  2048  4096     -
9.0   128   128   256   256  512  512   2048  4096  4096  8192     -  8192     -     -
10.0  128   128   128   256    -    -   4096  8192  8192 16384     - 16384     - 32768
10.3  128     4     -   256    -    -   4096  8192  8192 16384     -   512     - 49152
11.0  128     -     -   256    -    -      -  8192  8192 16384     -     -     - 32768
12.0  128     4     -   256  256  256    512  1024  1024  2048     -  2048     -  4096
12.1  128     4     -   256  256  256    512  1024  1024  2048     -  2048     -  4096
"""


def _parse_rule(line: str) -> tuple[tuple[int, int], RateRule]:
    capability, cores, *rates = line.split()
    major, minor = capability.split(".")
    named = zip(_COLUMNS, rates, strict=True)
    flops = {name: int(rate) for name, rate in named if rate != "-"}
    return (int(major), int(minor)), RateRule(int(cores), flops)


RULES = dict(_parse_rule(line) for line in _RATES.strip().splitlines())


def _geforce(rule: RateRule) -> RateRule:
    """Return the rule with half the rates for FP32 accumulation, and the full ones for FP16."""
    full = rule.flops_per_clock
    halved = ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor")
    rates = {name: rate // 2 if name in halved else rate for name, rate in full.items()}
    for name in ("fp16_tensor", "fp8_tensor"):
        if name in full:
            rates[f"{name}_fp16acc"] = full[name]
    return RateRule(rule.cores_per_sm, rates)


GEFORCE_RULES = {
    capability: _geforce(RULES[capability]) for capability in ((7, 5), (8, 6), (8, 9), (12, 0))
}
"""GeForce from Turing on, also in laptops; TITAN boards run at the professional rate."""

SMALL_TURING_RULE = RateRule(64, {"fp64": 4, "fp32": 128, "fp16": 256})
"""TU116 and TU117 have no tensor cores, though their compute capability is that of TU102."""

LOWEST_TENSOR_CLOCK_RATIO = 0.8
"""Of the highest clock: peaks that imply less are those of a GPU model that was cut; datasheets
state tensor peaks for 0.87 (H100 NVL) and more."""
HIGHEST_TENSOR_CLOCK_RATIO = 1.02
"""Above this ratio the published peaks are not those of this architecture."""
FLOAT_TENSOR = ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "fp4_tensor")

_SMALL_TURING_NAME = re.compile(r"\b(?:GTX 16\d0|MX\d{3}|T\d{3,4})\b")


def rule_for(device: Device) -> RateRule | None:
    """Return the rule of this GPU's architecture and class, or None."""
    capability = device.compute_capability
    if capability is None:
        return None
    if capability == (7, 5) and _SMALL_TURING_NAME.search(device.name):
        return SMALL_TURING_RULE
    if "GeForce" in device.name and capability in GEFORCE_RULES:
        return GEFORCE_RULES[capability]
    return RULES.get(capability)


def derived_ceilings(device: Device, precision: str | None) -> Ceilings:
    """Compute ceilings from core count, compute capability, class, maximum clocks and bus width.

    FLOP/s = cores / cores per SM x FLOP per clock and SM x boost clock; none without a class, as
    the tensor rate could be twice or half of any rule's.
    bytes/s = maximum memory clock x 2 x bus bits / 8, as NVML's memory clock is half the effective
    data rate; none for a module, whose memory is the system's.
    """
    rule = rule_for(device)
    clocks = _datasheet_clocks(device)
    sm_count = None if rule is None else sms_of(device.core_count, rule.cores_per_sm)
    peaks: dict[str, float] = {}
    peak_clocks: dict[str, float] = {}
    if rule is not None and sm_count is not None:
        for name, flops in rule.flops_per_clock.items():
            unit: Unit = "tensor" if CLOCK_UNITS[name] == "tensor" else "vector"
            clock = clocks.get(unit)
            peak = None if clock is None else positive(sm_count * flops * clock)
            if clock is not None and peak is not None:
                peaks[name], peak_clocks[unit] = peak, clock
    memory_clock = positive(device.clock_max_hertz.get("memory"))
    bus_bits, bandwidth = bus_width(device), None
    if memory_clock is not None and device.compute_capability not in MODULE_CAPABILITIES:
        peak_clocks["memory"] = memory_clock
        bandwidth = None if bus_bits is None else positive(memory_clock * 2 * bus_bits / 8)
    return Ceilings(
        spec=DERIVED,
        peak_flops_per_second=peaks,
        peak_clock_hertz=peak_clocks,
        memory_bandwidth_bytes_per_second=bandwidth,
        memory_bus_width_bits=bus_bits,
        sm_count=sm_count,
        architecture=device.architecture,
        assumed_precision=assumed_precision(peaks, precision),
    )


def _datasheet_clocks(device: Device) -> dict[Unit, float]:
    """Estimate the clocks of the datasheet's peaks, by unit; empty where that cannot be done."""
    sm_clock = positive(device.clock_max_hertz.get("sm"))
    capability, kind = device.compute_capability, gpu_class(device)
    if sm_clock is None or capability is None or kind is None:
        return {}
    return {unit: sm_clock * boost_factor(capability, kind, unit) for unit in UNITS}


def implied_tensor_clock(
    peak_flops_per_second: Mapping[str, float],
    flops_per_clock: Mapping[str, int],
    sm_count: int | None,
    highest_hertz: float | None,
) -> float | None:
    """Return peak / (SMs x FLOP per clock and SM) in hertz, the lowest over the tensor precisions.

    B200: 2250 TFLOP/s / (148 x 8192) = 1856 MHz, while its highest clock is 1965 MHz. None where
    SMs, rates or the highest clock are not known, and for GPU models that were cut (H20).
    """
    if not sm_count or not highest_hertz:
        return None
    clocks = [
        peak_flops_per_second[precision] / (sm_count * flops_per_clock[precision])
        for precision in FLOAT_TENSOR
        if precision in peak_flops_per_second and flops_per_clock.get(precision)
    ]
    lowest = min(clocks, default=0.0)
    ratio = lowest / highest_hertz
    return lowest if LOWEST_TENSOR_CLOCK_RATIO <= ratio <= HIGHEST_TENSOR_CLOCK_RATIO else None


def bus_width(device: Device) -> int | None:
    """Return the bus width in bits; None for a driver's nonsense."""
    return None if positive(device.memory_bus_width_bits) is None else device.memory_bus_width_bits


def sms_of(core_count: int | None, cores_per_sm: int) -> int | None:
    """Return the number of SMs, or None where the cores do not divide evenly."""
    cores = positive(core_count)
    if core_count is None or cores is None or core_count % cores_per_sm:
        return None
    return core_count // cores_per_sm


def positive(value: float | None) -> float | None:
    """Return the value if it is above 0 and finite, else None (a driver's nonsense)."""
    return float(value) if value is not None and math.isfinite(value) and value > 0 else None
