# SPDX-License-Identifier: Apache-2.0
"""The roofs of the roofline chart: the ceilings that the rows of the live view refer to."""

from __future__ import annotations

from typing import Any

from exporter.snapshot import Ceilings, Snapshot
from exporter.web.numbers import cut, known, rounded


def roof_key(ceilings: Ceilings | None) -> str | None:
    """Return the name of a set of ceilings; equal ceilings have equal names.

    The product, the part of it that a MIG instance has, and the precision that tensor work is
    counted in: h100-sxm5-80gb, h100-sxm5-80gb/60sm/4of8. Derived ceilings are told apart by their
    figures.
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


def roofs(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return every set of ceilings that a row refers to, by its name.

    Ceilings are pairs of the datasheet's figure and what the best public kernels reach, or the
    datasheet's alone: FLOP/s by precision (dense, FMA = 2), bytes/s of device memory.
    """
    found: dict[str, dict[str, Any]] = {}
    for gpu in snapshot.gpus:
        for share in gpu.shares if gpu.up else ():
            key = roof_key(share.ceilings)
            if key is not None and key not in found and share.ceilings is not None:
                found[key] = _roof(share.ceilings, gpu.device.name)
    return found


def _roof(ceilings: Ceilings, name: str) -> dict[str, Any]:
    reached = ceilings.achievable_ratio
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    return known(
        spec=ceilings.spec,
        name=cut(name),
        assumed=ceilings.assumed_precision,
        sms=ceilings.sm_count,
        flops={
            precision: _pair(peak, reached.get(precision))
            for precision, peak in ceilings.peak_flops_per_second.items()
        },
        bandwidth=None if bandwidth is None else _pair(bandwidth, reached.get("memory")),
        clock={unit: rounded(hertz) for unit, hertz in ceilings.peak_clock_hertz.items()},
    )


def _pair(peak: float, reached: float | None) -> list[float | int | None]:
    return [rounded(peak)] if reached is None else [rounded(peak), rounded(peak * reached)]
