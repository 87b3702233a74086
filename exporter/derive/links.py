# SPDX-License-Identifier: Apache-2.0
"""How much a share moves over PCIe and NVLink per second."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.model.reading import Activity, Vitals


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bytes per second over the last interval; None where a link is not read."""

    total: float | None = None
    """All links that are read, both directions."""
    pcie: float | None = None
    """The busier direction."""
    nvlink: float | None = None
    """The busier direction, all links together."""


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
    pcie: tuple[float | None, float | None] = (None, None)
    nvlink: tuple[float | None, float | None] = (None, None)
    if activity is not None and activity.seconds > 0:
        pcie = (
            _rate(activity.pcie_transmit_bytes, activity.seconds),
            _rate(activity.pcie_receive_bytes, activity.seconds),
        )
        nvlink = (
            _rate(activity.nvlink_transmit_bytes, activity.seconds),
            _rate(activity.nvlink_receive_bytes, activity.seconds),
        )
    if vitals is not None and seconds is not None and seconds > 0:
        if pcie == (None, None):
            pcie = (
                _rate(vitals.pcie_transmit_bytes, seconds),
                _rate(vitals.pcie_receive_bytes, seconds),
            )
        if previous is not None and nvlink == (None, None):
            nvlink = (
                _rate(
                    _growth(
                        vitals.nvlink_transmit_bytes_total, previous.nvlink_transmit_bytes_total
                    ),
                    seconds,
                ),
                _rate(
                    _growth(vitals.nvlink_receive_bytes_total, previous.nvlink_receive_bytes_total),
                    seconds,
                ),
            )
    known = [rate for rate in (*pcie, *nvlink) if rate is not None]
    return LinkRates(
        total=sum(known) if known else None, pcie=_busier(*pcie), nvlink=_busier(*nvlink)
    )


def _rate(amount: float | None, seconds: float) -> float | None:
    return None if amount is None else amount / seconds


def _growth(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None or now < before else now - before


def _busier(transmit: float | None, receive: float | None) -> float | None:
    if transmit is None or receive is None:
        return transmit if receive is None else receive
    return max(transmit, receive)
