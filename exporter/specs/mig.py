# SPDX-License-Identifier: Apache-2.0
"""The ceilings of one MIG GPU instance, as a part of its GPU's."""

from __future__ import annotations

from dataclasses import replace

from exporter.model.reading import Device, Instance
from exporter.model.snapshot import Ceilings

MEMORY_SLICES = 8
"""Memory, its bandwidth and the L2 cache are given out in eighths."""


def share_ceilings(whole: Ceilings, device: Device, gpu_instance: int) -> Ceilings:
    """Scale the ceilings of the whole GPU to one GPU instance.

    Compute goes by real SM counts, never by the slices in the profile's name: 1g of an H200 has 16
    of 132 SMs. Bandwidth goes by eighths of the memory. What cannot be scaled because a count is
    not known is left out; links belong to the board.
    """
    instances = [each for each in device.instances if each.gpu_instance == gpu_instance]
    sms = _instance_sms(instances, whole.sm_count)
    eighths = _memory_eighths(instances, device.memory_bytes)
    of_sms = None if sms is None or whole.sm_count is None else sms / whole.sm_count
    of_memory = None if eighths is None else eighths / MEMORY_SLICES
    bandwidth = whole.memory_bandwidth_bytes_per_second
    peaks: dict[str, float] = {}
    if of_sms is not None:
        peaks = {name: peak * of_sms for name, peak in whole.peak_flops_per_second.items()}
    return replace(
        whole,
        peak_flops_per_second=peaks,
        memory_bandwidth_bytes_per_second=(
            None if of_memory is None or bandwidth is None else bandwidth * of_memory
        ),
        sm_count=sms,
        share_of_sms=of_sms,
        share_of_memory=of_memory,
        link_bandwidth_bytes_per_second={},
    )


def _instance_sms(instances: list[Instance], whole: int | None) -> int | None:
    """Return the SMs of a GPU instance, the sum over its compute instances.

    Should the driver report the GPU instance's count for each of them, the largest is the count.
    """
    counts = [each.sm_count for each in instances]
    known = [count for count in counts if count is not None and count > 0]
    if not known or len(known) < len(counts):
        return None
    for sms in (sum(known), max(known)):
        if whole is None or sms <= whole:
            return sms
    return None


def _memory_eighths(instances: list[Instance], whole_bytes: int | None) -> int | None:
    """Return the nearest number of eighths, at least one: a 1g.18gb of an H200 has 16.0 of 140.4
    GiB. Compute instances share their GPU instance's memory."""
    sizes = [each.memory_bytes for each in instances if each.memory_bytes]
    if not sizes or not whole_bytes or whole_bytes < 0 or max(sizes) < 0:
        return None
    eighths = round(MEMORY_SLICES * max(sizes) / whole_bytes)
    return min(MEMORY_SLICES, max(1, eighths))
