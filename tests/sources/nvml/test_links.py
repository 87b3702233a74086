# SPDX-License-Identifier: Apache-2.0
"""Traffic and errors of PCIe and NVLink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.nvml.links import (
    NVLINK5_RECEIVE_BYTES,
    NVLINK5_TRANSMIT_BYTES,
    NVLINK_DATA_RECEIVE_KIB,
    NVLINK_DATA_TRANSMIT_KIB,
    PCIE_COUNTER_WRAP,
    PCIE_RECEIVE_BYTES,
    PCIE_TRANSMIT_BYTES,
    PcieTraffic,
    error_fields,
    nvlink_bytes,
    nvlink_errors,
    nvlink_traffic_fields,
    pcie_errors,
)
from exporter.specs.pcie import pcie_bytes_per_second


def transmit(values: dict[tuple[int, int], float], links: int) -> float | None:
    return nvlink_bytes(values, NVLINK_DATA_TRANSMIT_KIB, NVLINK5_TRANSMIT_BYTES, links)


def test_nvlink_total_is_in_kib() -> None:
    """The field for all links together counts KiB."""
    assert transmit({NVLINK_DATA_TRANSMIT_KIB: 3}, 18) == 3072


def test_nvlink_per_link_bytes_are_summed() -> None:
    """The newer fields count bytes of each link."""
    assert transmit({(202, 0): 5, (202, 1): 7}, 2) == 12


def test_nvlink_total_wins_over_links() -> None:
    """Where both families answer, one of them counts, always the same one."""
    assert transmit({NVLINK_DATA_TRANSMIT_KIB: 1, (202, 0): 5, (202, 1): 7}, 2) == 1024


def test_nvlink_sum_needs_every_link() -> None:
    """A sum that lacks a link would fall and rise: it is absent instead."""
    assert transmit({(202, 0): 5}, 2) is None
    assert transmit({}, 0) is None


def test_nvlink_fields_name_both_families() -> None:
    """A GPU with links is asked for the totals and for each link; one without for nothing."""
    fields = nvlink_traffic_fields(2)

    assert set(fields) == {
        NVLINK_DATA_TRANSMIT_KIB,
        NVLINK_DATA_RECEIVE_KIB,
        *((NVLINK5_TRANSMIT_BYTES, link) for link in range(2)),
        *((NVLINK5_RECEIVE_BYTES, link) for link in range(2)),
    }
    assert nvlink_traffic_fields(0) == ()


def test_nvlink_errors_from_totals() -> None:
    """Up to Ampere one field per kind holds the errors of all links."""
    assert nvlink_errors({(38, 0): 1, (45, 0): 2, (52, 0): 3, (59, 0): 4}, 12) == {
        "crc_flit": 1,
        "crc_data": 2,
        "replay": 3,
        "recovery": 4,
    }


def test_nvlink_errors_from_links() -> None:
    """From Hopper on each link counts its own; kinds with a silent link are absent."""
    values = {(161, 0): 1, (161, 1): 2, (162, 0): 4, (162, 1): 0, (163, 0): 9}

    assert nvlink_errors(values, 2) == {"replay": 3, "recovery": 4}


def test_error_fields_without_links_are_pcie_only() -> None:
    """A GPU without NVLink is not asked about it."""
    assert all(94 <= number <= 183 for number, _ in error_fields(0))
    assert len(error_fields(4)) == len(error_fields(0)) + 4 + 3 * 4


def test_pcie_errors_by_kind() -> None:
    """Kinds that do not answer are absent."""
    assert pcie_errors({(173, 0): 5, (180, 0): 1}) == {"correctable": 5, "fatal": 1}


def traffic() -> PcieTraffic:
    return PcieTraffic(1, 16)


def test_first_count_is_a_start() -> None:
    """One value of a counter says nothing about an interval."""
    assert traffic().moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 7}, 0.0) is None


def test_moved_bytes_per_direction() -> None:
    """Each direction has its own counter."""
    pcie = traffic()
    before = {PCIE_TRANSMIT_BYTES: 100.0, PCIE_RECEIVE_BYTES: 5.0}
    after = {PCIE_TRANSMIT_BYTES: 350.0, PCIE_RECEIVE_BYTES: 5.0}
    for field in before:
        pcie.moved(field, before, 0.0)

    assert pcie.moved(PCIE_TRANSMIT_BYTES, after, 1.0) == 250
    assert pcie.moved(PCIE_RECEIVE_BYTES, after, 1.0) == 0


def test_wrap_is_undone() -> None:
    """A counter that fell has passed 2^32 once."""
    pcie = traffic()
    pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: PCIE_COUNTER_WRAP - 10}, 0.0)

    assert pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 20}, 1.0) == 30


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
    moved = int(peak * seconds * load)
    pcie = PcieTraffic(generation, width)
    pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: start % PCIE_COUNTER_WRAP}, 0.0)
    counted = pcie.moved(
        PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: (start + moved) % PCIE_COUNTER_WRAP}, seconds
    )

    assert counted in (None, moved)


def test_fast_links_are_absent_at_one_second() -> None:
    """A Gen5 x16 link can wrap 32 bits many times in a second."""
    pcie = PcieTraffic(5, 16)
    pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 1}, 0.0)

    assert pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 2}, 1.0) is None


@pytest.mark.parametrize(("generation", "width"), [(None, 16), (4, None), (99, 16)])
def test_unknown_links_are_absent(generation: int | None, width: int | None) -> None:
    """Without the link's speed nothing can be said about wraps."""
    pcie = PcieTraffic(generation, width)
    pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 1}, 0.0)

    assert pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 2}, 0.001) is None


def test_silent_counter_is_absent() -> None:
    """A counter that did not answer moves nothing, and spans the gap when it does again."""
    pcie = traffic()
    pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 10}, 0.0)

    assert pcie.moved(PCIE_TRANSMIT_BYTES, {}, 0.4) is None
    assert pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 40}, 0.8) == 30
    assert pcie.moved(PCIE_TRANSMIT_BYTES, {PCIE_TRANSMIT_BYTES: 50}, 9.0) is None
