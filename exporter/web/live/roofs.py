# SPDX-License-Identifier: Apache-2.0
"""The roofs of the roofline chart: the ceilings that the rows of the live view refer to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from exporter.model.snapshot import CLOCK_UNITS, PEAK_CLOCKS, Ceilings, Gpu, Snapshot
from exporter.web.live.rounding import known, rounded
from exporter.web.wording.numbers import model_name, precision_name

NEARLY = 1.01
"""Peaks that differ by less are one line."""


def roof_key(ceilings: Ceilings | None) -> str | None:
    """Return the name of a set of ceilings: h100-sxm5-80gb/60sm/4of8/bf16_tensor.

    Equal ceilings have equal names; derived ones differ by their figures.
    """
    if ceilings is None:
        return None
    parts = [ceilings.spec]
    if ceilings.spec == "derived":
        peak = max(ceilings.peak_flops_per_second.values(), default=0.0)
        bandwidth = ceilings.memory_bandwidth_bytes_per_second or 0.0
        parts.append(f"{peak / 1e12:.4g}-{bandwidth / 1e9:.4g}")
    if ceilings.share_of_sms != 1.0 or ceilings.share_of_memory != 1.0:
        memory = ceilings.share_of_memory
        parts.append("?" if ceilings.sm_count is None else f"{ceilings.sm_count}sm")
        parts.append("?" if memory is None else f"{8 * memory:g}of8")
    if ceilings.assumed_precision is not None:
        parts.append(ceilings.assumed_precision)
    return "/".join(parts)


def peak_clock_hertz(ceilings: Ceilings, precision: str) -> float | None:
    """Return the clock at which the peak of a precision holds; None where it is not published."""
    clocks = ceilings.peak_clock_hertz
    names = PEAK_CLOCKS[CLOCK_UNITS[precision]]
    return next((clocks[name] for name in names if name in clocks), None)


def whole_ceilings(gpu: Gpu) -> Ceilings | None:
    """Return the ceilings of a GPU without MIG, also while it is down."""
    return None if gpu.device.mig else gpu.ceilings


def roofs(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return every set of ceilings that a row refers to, by its name, as the chart draws it.

    `bandwidth` in bytes/s and the `peak` of `lines` in FLOP/s (dense, FMA = 2) are the datasheet's
    figure and what the best public kernels reach, or the first alone. Highest first; precisions of
    nearly the same peak are one line, the one that tensor work is counted in marked as `assumed`.
    `intensity` and `flops` are the ranges of the axes.
    """
    found: dict[str, dict[str, Any]] = {}
    for gpu in snapshot.gpus:
        shown = [share.ceilings for share in gpu.shares] if gpu.up else [whole_ceilings(gpu)]
        for ceilings in shown:
            key = roof_key(ceilings)
            if key is not None and key not in found and ceilings is not None:
                found[key] = _roof(ceilings, gpu.device.name)
    return found


def _roof(ceilings: Ceilings, name: str) -> dict[str, Any]:
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    part = ceilings.share_of_sms != 1.0 and ceilings.sm_count
    of = f", instance of {ceilings.sm_count} SMs" if part else ""
    return known(
        title=model_name(name) + of,
        bandwidth=_pair(bandwidth, ceilings.achievable_ratio.get("memory")),
        lines=[_line(ceilings, precisions) for precisions in _groups(ceilings)],
        **_ranges(list(ceilings.peak_flops_per_second.values()), bandwidth),
    )


def _ranges(peaks: Sequence[float], bandwidth: float | None) -> dict[str, list[float]]:
    if not peaks:
        return {}
    ridges = [peak / bandwidth for peak in peaks] if bandwidth else [10.0, 100.0]
    left = 10.0 ** math.floor(math.log10(min(ridges) / 4))
    right = 10.0 ** math.ceil(math.log10(max(ridges) * 4))
    lowest = min(min(peaks) / 3, left * bandwidth if bandwidth else math.inf)
    return {
        "intensity": [left, right],
        "flops": [10.0 ** math.floor(math.log10(lowest)), max(peaks) * 2.5],
    }


def _groups(ceilings: Ceilings) -> list[list[str]]:
    """Return the precisions, highest peak first, those within 1 % of each other together."""
    peaks = ceilings.peak_flops_per_second
    groups: list[list[str]] = []
    for precision in sorted(peaks, key=lambda each: -peaks[each]):
        if groups and peaks[groups[-1][0]] < NEARLY * peaks[precision]:
            groups[-1].append(precision)
        else:
            groups.append([precision])
    return groups


def _line(ceilings: Ceilings, precisions: list[str]) -> dict[str, Any]:
    peaks = ceilings.peak_flops_per_second
    assumed = (ceilings.assumed_precision or "fp32") in precisions
    one = (ceilings.assumed_precision or "fp32") if assumed else precisions[0]
    reached = [ceilings.achievable_ratio.get(each) for each in (one, *precisions)]
    return known(
        name=_joined(precisions),
        peak=_pair(peaks[one], next((each for each in reached if each is not None), None)),
        clock=rounded(peak_clock_hertz(ceilings, one)),
        assumed=assumed or None,
    )


def _joined(precisions: Iterable[str]) -> str:
    """Return several names in few letters: "FP8/INT8 tensor", "FP64 tensor, FP32"."""
    names = [precision_name(each) for each in precisions]
    tensor = [each.removesuffix(" tensor") for each in names if each.endswith(" tensor")]
    other = [each for each in names if not each.endswith(" tensor")]
    parts = ["/".join(tensor) + " tensor" if tensor else "", "/".join(other)]
    return ", ".join(filter(None, parts))


def _pair(peak: float | None, reached: float | None) -> list[float | int | None] | None:
    if peak is None:
        return None
    return [rounded(peak)] if reached is None else [rounded(peak), rounded(peak * reached)]
