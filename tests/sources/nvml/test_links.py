# SPDX-License-Identifier: Apache-2.0
"""Traffic and errors of PCIe and NVLink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.nvml.links import (
    NVLINK_BYTES,
    PCIE_BYTES,
    PCIE_COUNTER_WRAP,
    PcieTraffic,
    nvlink_bytes,
)
from exporter.specs.gpu_model import pcie_bytes_per_second

TRANSMIT = PCIE_BYTES["pcie_transmit_bytes"]
TOTAL, PER_LINK = NVLINK_BYTES["nvlink_transmit_bytes_total"]


def transmit(values: dict[tuple[int, int], float], links: int) -> float | None:
    return nvlink_bytes(values, TOTAL, PER_LINK, links)


def test_nvlink_sum_needs_every_link() -> None:
    """A sum that lacks a link would fall and rise: it is absent instead."""
    assert transmit({(202, 0): 5}, 2) is None
    assert transmit({}, 0) is None


def moved(
    *reads: tuple[int | None, float], generation: int | None = 1, width: int | None = 16
) -> list[float | None]:
    """What was moved by each read of the counter after the first: its count, and when."""
    pcie = PcieTraffic(generation, width)
    values = (({} if count is None else {TRANSMIT: count}, at) for count, at in reads)
    return [pcie.moved(TRANSMIT, each, at) for each, at in values][1:]


def test_wrap_is_undone() -> None:
    """A counter that fell has passed 2^32 once."""
    assert moved((PCIE_COUNTER_WRAP - 10, 0.0), (20, 1.0)) == [30]


@given(
    generation=st.integers(1, 6),
    width=st.sampled_from([1, 2, 4, 8, 16]),
    seconds=st.floats(0.01, 20),
    load=st.floats(0, 1),
    start=st.integers(0, 2**40),
)
def test_moved_bytes_are_right_or_absent(
    generation: int, width: int, seconds: float, load: float, start: int
) -> None:
    """Whatever the link can carry in the interval is known exactly, or not at all."""
    peak = pcie_bytes_per_second(generation, width)
    assert peak is not None
    bytes_moved = int(peak * seconds * load)
    counts = (start % PCIE_COUNTER_WRAP, 0.0), ((start + bytes_moved) % PCIE_COUNTER_WRAP, seconds)
    [counted] = moved(*counts, generation=generation, width=width)

    assert counted in (None, bytes_moved)


@pytest.mark.parametrize(("generation", "width"), [(None, 16), (4, None), (99, 16)])
def test_unknown_links_are_absent(generation: int | None, width: int | None) -> None:
    """Without the link's speed nothing can be said about wraps."""
    assert moved((1, 0.0), (2, 0.001), generation=generation, width=width) == [None]


def test_silent_counter_is_absent() -> None:
    """A counter that did not answer moves nothing, and spans the gap when it does again."""
    assert moved((10, 0.0), (None, 0.4), (40, 0.8), (50, 9.0)) == [None, 30, None]
