# SPDX-License-Identifier: Apache-2.0
"""The rows of the live view: what a browser gets of each GPU and each MIG instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.model.snapshot import Bounds, Gpu, Share, Snapshot
from exporter.web.columns import measured_saturation
from exporter.web.facts import lines_of
from exporter.web.live.addresses import page_address, row_key
from exporter.web.live.roofs import roof_key, whole_ceilings
from exporter.web.live.rounding import known, moment, ratio, rounded
from exporter.web.live.row_words import AMOUNTS, RATIOS, Row, worded
from exporter.web.wording.facts import Facts


def rows(snapshot: Snapshot) -> Iterator[tuple[str, Row, Facts]]:
    """Yield the row of each GPU and MIG instance by its name, and the facts its words are from."""
    for gpu, share, values, facts in lines_of(snapshot):
        key = row_key(gpu.device.uuid, None if share is None else share.gpu_instance)
        row = worded(facts, _numbers(gpu, share, values), snapshot.timestamp_seconds)
        yield key, {**row, "href": page_address(key)}, facts


def _numbers(gpu: Gpu, share: Share | None, found: dict[str, float]) -> dict[str, Any]:
    """Return what a row has beside its words."""
    if not gpu.up:
        return known(
            since=moment(gpu.last_read_timestamp_seconds),
            ceilings=roof_key(whole_ceilings(gpu)),
        )
    values = {name: ratio(found[name]) for name in RATIOS if name in found}
    values |= {name: rounded(found[name]) for name in AMOUNTS if name in found}
    if share is None:
        return {**known(mig=gpu.device.mig or None), "values": values}
    memory = share.memory
    of_memory = memory.used_bytes / memory.total_bytes if memory and memory.total_bytes else None
    return {
        **known(
            memory_ratio=ratio(of_memory),
            **_bounds(share),
            ceilings=roof_key(share.ceilings),
        ),
        "values": values,
    }


def _bounds(share: Share) -> dict[str, Any]:
    """Return the FLOP/s that are possible, and the bytes/s where work or traffic is not measured.

    Over the last seconds where these are known.
    """
    now, saturation = share.roofline, share.saturation
    recent = share.recent
    flops = None if now is None else now.flops_bounds_per_second
    dram = None if now is None else now.dram_bounds_bytes_per_second
    traffic = None if now is None else now.dram_bytes_per_second
    if recent is not None and recent.flops_bounds_per_second is not None:
        flops, dram = recent.flops_bounds_per_second, recent.dram_bounds_bytes_per_second
        traffic = traffic if recent.dram_bytes_per_second is None else recent.dram_bytes_per_second
    if flops is None or not flops.upper:
        return {}
    bounds: dict[str, Any] = {"flops_bounds": [rounded(flops.lower), rounded(flops.upper)]}
    if saturation is None or saturation.complete or measured_saturation(share) is not None:
        return bounds
    if dram is None and traffic is not None:
        dram = Bounds(traffic, traffic)
    if dram is None:
        return bounds
    return {**bounds, "bytes_bounds": [rounded(dram.lower), rounded(dram.upper)]}
