# SPDX-License-Identifier: Apache-2.0
"""Which ceilings a GPU that no spec row describes has, by its architecture and what NVML reports.

These are never better than "derived": the clock of the datasheet is estimated from NVML's maximum
(specs/boost.py says how well), and no rule sees that a GPU model was cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.model.reading import Device
from exporter.specs.boost import UNITS, Unit, boost_factor
from exporter.specs.gpu_class import MODULE_CAPABILITIES, accumulates_at_half_rate, gpu_class


@dataclass(frozen=True, slots=True)
class Rule:
    """Dense operations per clock and SM of one architecture; FMA = 2 operations."""

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


def _parse_rule(line: str) -> tuple[tuple[int, int], Rule]:
    capability, cores, *rates = line.split()
    major, minor = capability.split(".")
    named = zip(_COLUMNS, rates, strict=True)
    flops = {name: int(rate) for name, rate in named if rate != "-"}
    return (int(major), int(minor)), Rule(int(cores), flops)


RULES = dict(_parse_rule(line) for line in _RATES.strip().splitlines())


def _geforce(rule: Rule) -> Rule:
    """Halve what accumulates in FP32, and keep the full rate as that of FP16 accumulation."""
    full = rule.flops_per_clock
    halved = ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor")
    rates = {name: rate // 2 if name in halved else rate for name, rate in full.items()}
    for name in ("fp16_tensor", "fp8_tensor"):
        if name in full:
            rates[f"{name}_fp16acc"] = full[name]
    return Rule(rule.cores_per_sm, rates)


GEFORCE_RULES = {
    capability: _geforce(RULES[capability]) for capability in ((7, 5), (8, 6), (8, 9), (12, 0))
}
"""GeForce from Turing on; TITAN boards run at the professional rate."""

SMALL_TURING_RULE = Rule(64, {"fp64": 4, "fp32": 128, "fp16": 256})
"""TU116 and TU117 have no tensor cores, though their compute capability is that of TU102."""

_SMALL_TURING_NAME = re.compile(r"\b(?:GTX 16\d0|MX\d{3}|T\d{3,4})\b")


@dataclass(frozen=True, slots=True)
class DerivedPeaks:
    """What NVML and the architecture give: only the parts that can be known."""

    peak_flops_per_second: Mapping[str, float]
    peak_clock_hertz: Mapping[str, float]
    memory_bandwidth_bytes_per_second: float | None
    sm_count: int | None


def rule_for(device: Device) -> Rule | None:
    """Return the rule of this GPU's architecture and class, or None."""
    capability = device.compute_capability
    if capability is None:
        return None
    if capability == (7, 5) and _SMALL_TURING_NAME.search(device.name):
        return SMALL_TURING_RULE
    if accumulates_at_half_rate(device.name) and capability in GEFORCE_RULES:
        return GEFORCE_RULES[capability]
    return RULES.get(capability)


def derive_peaks(device: Device) -> DerivedPeaks:
    """Compute peaks from core count, compute capability, class, maximum clocks and bus width.

    FLOP/s = cores / cores per SM x FLOP per clock and SM x boost clock, where the boost clock is
    NVML's maximum SM clock x the factor of this architecture and class, and
    bytes/s = maximum memory clock x 2 x bus bits / 8, where NVML's memory clock is half the
    effective data rate for every type of memory. A GPU whose class is not known has no peak FLOP/s:
    its tensor rate could be twice or half of any rule's.
    """
    rule = rule_for(device)
    clocks = _datasheet_clocks(device)
    sm_count = None if rule is None else sms_of(device.core_count, rule.cores_per_sm)
    peaks: dict[str, float] = {}
    if rule is not None and sm_count is not None:
        for precision, flops in rule.flops_per_clock.items():
            clock = clocks.get(_unit(precision))
            peak = None if clock is None else positive(sm_count * flops * clock)
            if peak is not None:
                peaks[precision] = peak
    units = {_unit(precision) for precision in peaks}
    peak_clocks: dict[str, float] = {unit: clocks[unit] for unit in UNITS if unit in units}
    memory_clock = positive(device.clock_max_hertz.get("memory"))
    if memory_clock is not None and device.compute_capability not in MODULE_CAPABILITIES:
        peak_clocks["memory"] = memory_clock
    return DerivedPeaks(peaks, peak_clocks, memory_bandwidth(device), sm_count)


def _unit(precision: str) -> Unit:
    """Return the unit at whose clock a peak holds; FP64 of the tensor cores is at the vector's."""
    return "tensor" if "_tensor" in precision and precision != "fp64_tensor" else "vector"


def _datasheet_clocks(device: Device) -> dict[Unit, float]:
    """Estimate the clocks of the datasheet's peaks, by unit; empty where that cannot be done."""
    sm_clock = positive(device.clock_max_hertz.get("sm"))
    capability, kind = device.compute_capability, gpu_class(device)
    if sm_clock is None or capability is None or kind is None:
        return {}
    factors = {unit: boost_factor(capability, kind, unit) for unit in UNITS}
    return {unit: sm_clock * factor for unit, factor in factors.items() if factor is not None}


def memory_bandwidth(device: Device) -> float | None:
    """Return maximum memory clock x 2 x bus bits / 8, in bytes per second.

    None for a module: its memory is the system's, and the clock in NVML is not that memory's.
    """
    if device.compute_capability in MODULE_CAPABILITIES:
        return None
    clock = positive(device.clock_max_hertz.get("memory"))
    bits = positive(device.memory_bus_width_bits)
    return None if clock is None or bits is None else positive(clock * 2 * bits / 8)


def sms_of(core_count: int | None, cores_per_sm: int) -> int | None:
    """Return the number of SMs, or None where the cores do not divide evenly."""
    cores = positive(core_count)
    if core_count is None or cores is None or core_count % cores_per_sm:
        return None
    return core_count // cores_per_sm


def positive(value: float | None) -> float | None:
    """Return the value as a float if it is above 0 and finite, else None (a driver's nonsense)."""
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None
