# SPDX-License-Identifier: Apache-2.0
"""PCI Express bandwidth per direction."""

from __future__ import annotations

# Per lane in GB/s = transfers x encoding / 8 bits: 2.5 and 5 GT/s carry 8 of 10 bits, 8, 16 and
# 32 GT/s carry 128 of 130, and 64 GT/s carries 242 of the 256 bytes of each FLIT.
_LANE_BYTES_PER_SECOND = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}


def pcie_bytes_per_second(generation: int | None, lanes: int | None) -> float | None:
    """Return the bytes per second and direction after line encoding, before packet headers: 63 GB/s
    for generation 5 with 16 lanes. None where either is not known."""
    lane = None if generation is None else _LANE_BYTES_PER_SECOND.get(generation)
    if lane is None or lanes is None or not 1 <= lanes <= 32:
        return None
    return lane * lanes
