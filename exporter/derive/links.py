# SPDX-License-Identifier: Apache-2.0
"""Traffic of a share over PCIe and NVLink, per second."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.model.reading import Activity, Vitals


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bytes per second over the last interval; None where a link is not read."""

    total: float | None = None
    """All links that are read, both directions."""
    pcie: float | None = None
    """The busier direction; the next one too."""
    nvlink: float | None = None


DRAM_BYTES_PER_LINK_BYTE = 3.0
"""What a byte of the busier direction costs in DRAM at most. In a ring collective each byte that is
sent was read, and each that comes in is written, and read again to be added up."""


def dram_of_links(links: LinkRates, dram_bandwidth: float | None) -> float:
    """Return the DRAM activity that the traffic of the links explains, at bytes/s of bandwidth."""
    if not dram_bandwidth:
        return 0.0
    moved = (links.nvlink or 0.0) + (links.pcie or 0.0)
    return min(1.0, DRAM_BYTES_PER_LINK_BYTE * moved / dram_bandwidth)


def link_rates(
    activity: Activity | None,
    vitals: Vitals | None,
    previous: Vitals | None,
    seconds: float | None,
) -> LinkRates:
    """Return the rates by the counters of `activity`, else by the readings of the board.

    `previous` was read `seconds` before `vitals`, which must be None for MIG instances: the board's
    traffic is not theirs. A driver total that fell (a reset) gives no rate.
    """
    pcie = nvlink = _NOT_READ
    if activity is not None:
        counted = activity.seconds
        pcie = _rates(activity.pcie_transmit_bytes, activity.pcie_receive_bytes, counted)
        nvlink = _rates(activity.nvlink_transmit_bytes, activity.nvlink_receive_bytes, counted)
    if vitals is not None and pcie == _NOT_READ:
        pcie = _rates(vitals.pcie_transmit_bytes, vitals.pcie_receive_bytes, seconds)
    if vitals is not None and previous is not None and nvlink == _NOT_READ:
        nvlink = _rates(
            _growth(vitals.nvlink_transmit_bytes_total, previous.nvlink_transmit_bytes_total),
            _growth(vitals.nvlink_receive_bytes_total, previous.nvlink_receive_bytes_total),
            seconds,
        )
    known = [rate for rate in (*pcie, *nvlink) if rate is not None]
    return LinkRates(
        total=sum(known) if known else None, pcie=_busier(*pcie), nvlink=_busier(*nvlink)
    )


_Rates = tuple[float | None, float | None]
_NOT_READ: _Rates = (None, None)


def _rates(transmit: float | None, receive: float | None, seconds: float | None) -> _Rates:
    if seconds is None or seconds <= 0:
        return _NOT_READ
    return (
        None if transmit is None else transmit / seconds,
        None if receive is None else receive / seconds,
    )


def _growth(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None or now < before else now - before


def _busier(transmit: float | None, receive: float | None) -> float | None:
    return max((rate for rate in (transmit, receive) if rate is not None), default=None)
