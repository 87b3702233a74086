# SPDX-License-Identifier: Apache-2.0
"""The numbers of a GPU or MIG instance: the columns of history and page.

What a share does is the mean of the last 10 s (`Share.recent`), as its state is judged: a GPU that
works in bursts does not jump from one reading to the next. Readings of the board, its memory and
what goes through its links are of the last interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.derive import waits
from exporter.model.reading import THROTTLE_REASONS
from exporter.model.snapshot import (
    DRAM_ESTIMATE_ERROR_RATIO,
    LEAST_OF_DRAM_ESTIMATE,
    TIME_PARTS,
    Gpu,
    Rank,
    Recent,
    Share,
)
from exporter.web.wording.facts import WIDEST_BAND_RATIO, Range

LINKS = {
    "pcie_rx": "pcie_receive_bytes",
    "pcie_tx": "pcie_transmit_bytes",
    "nvlink_rx": "nvlink_receive_bytes",
    "nvlink_tx": "nvlink_transmit_bytes",
}
"""By column: what was moved, of an activity and of a board's totals."""
_COUNTERS = ("sm", "dram", "engine", "tensor", "fp64", "fp32", "fp16", "int")
COLUMNS = (
    *("power", "power_limit", "sm_clock", "temperature", "throttled"),
    *("utilization", "saturation_lower", "saturation_upper"),
    *_COUNTERS,
    *("idle", "narrow", "unsaturated", "clock", "saturated"),
    *("memory", *LINKS),
    *("stall", "stall_lower", "stall_upper", "wait", "flops", "bytes"),
)
"""Units as in the snapshot: ratios, watts, hertz, degrees Celsius, bytes, bytes/s, FLOP/s.
`throttled` is a bit for each of `THROTTLE_REASONS` that held, in their order."""

ESTIMATE = "estimate"
"""What `Saturation.source` says of bounds that follow from utilization."""
_BITS = {reason: 1 << bit for bit, reason in enumerate(THROTTLE_REASONS)}
_TOGETHER = {"tensor": "tensor_fp16", "fp32": "fma"}
"""Where a source measures two pipes together: the counter shown in the column of one of them."""

Found = Mapping[str, float | None]
"""By column; what is not known may be None or absent."""


def readings(
    gpu: Gpu,
    share: Share | None,
    ranks: Sequence[Rank],
    now: float,
    link_rates: Found | None = None,
) -> dict[str, float]:
    """Return the known values of a share at the Unix time `now`, or of the board, by column.

    `ranks` run on the share; `link_rates` are the bytes/s of the board's links, for those that the
    counters of the share do not give.
    """
    found: dict[str, float | None] = {}
    if share is None or not gpu.device.mig:
        found |= _board(gpu)
    if share is not None:
        found |= _share(share, ranks, now) | _links(share, link_rates or {})
    return {name: value for name, value in found.items() if value is not None}


def _board(gpu: Gpu) -> dict[str, float | None]:
    vitals, limit = gpu.vitals, None if gpu.board is None else gpu.board.power_limit_watts
    if vitals is None:
        return {"power_limit": limit}
    reasons = vitals.throttle_reasons
    return {
        "power": vitals.power_watts,
        "power_limit": limit,
        "sm_clock": vitals.clock_hertz.get("sm"),
        "temperature": vitals.temperature_celsius,
        "throttled": None if reasons is None else sum(_BITS.get(each, 0) for each in reasons),
    }


def _share(share: Share, ranks: Sequence[Rank], now: float) -> dict[str, float | None]:
    work = measured(share) or share.roofline
    return {
        "utilization": _busy_ratio(share),
        **_saturation(share),
        **_activity(share),
        **_parts(share),
        "memory": None if share.memory is None else share.memory.used_bytes,
        **_stall(share, ranks, now),
        "wait": waits.wait_for_data(ranks),
        "flops": None if work is None else work.total_flops_per_second,
        "bytes": None if work is None else work.dram_bytes_per_second,
    }


def _busy_ratio(share: Share) -> float | None:
    """Return the time in which something ran: as the driver samples it, else as counters say."""
    recent = share.recent
    if recent is not None:
        used = recent.utilization_ratio
        return recent.busy_ratio if used is None else used
    if share.utilization is not None:
        return share.utilization.ratio
    return None if share.activity is None else share.activity.engine


def measured(share: Share) -> Recent | None:
    """Return the means of a share with counters over the last seconds; None for any other.

    One interval with an impossible reading does not hide what the others measured.
    """
    estimated = share.saturation is None or share.saturation.source == ESTIMATE
    return None if estimated else share.recent


def likely_range(estimate: float) -> Range:
    """Return the range of DRAM activity around its estimate, where nine of ten readings lie."""
    lower = max(estimate - DRAM_ESTIMATE_ERROR_RATIO, estimate * LEAST_OF_DRAM_ESTIMATE)
    return Range(lower, min(1.0, estimate + DRAM_ESTIMATE_ERROR_RATIO))


def memory_busy(share: Share, values: Mapping[str, float]) -> Range | None:
    """Return the measured DRAM activity of a share, else its likely range."""
    if "dram" in values:
        return Range(values["dram"], values["dram"])
    found = dram_estimate(share)
    return None if found is None else likely_range(found[0])


def dram_estimate(share: Share) -> tuple[float, float] | None:
    """Return the likely DRAM activity and bytes/s of a share that does not measure them."""
    found, traffic = share.saturation, share.roofline
    if share.recent is not None:
        likely, moved = share.recent.estimates, share.recent.dram_estimate_bytes_per_second
    elif found is not None and traffic is not None:
        likely, moved = found.estimates, traffic.dram_estimate_bytes_per_second
    else:
        return None
    return (likely["dram"], moved or 0.0) if "dram" in likely else None


def is_old(share: Share) -> bool:
    """Return whether its activity is too old to be added up: the last seconds are without it."""
    return share.activity is not None and not share.activity.integrable


def measured_saturation(share: Share) -> float | None:
    """Return the saturation where it is measured and complete."""
    recent = measured(share)
    if recent is not None and not is_old(share):
        return recent.saturation_ratio
    return None if share.saturation is None else share.saturation.ratio


def _saturation(share: Share) -> Found:
    """Return the lower and the upper bound, or nothing where these are too far apart to tell.

    Both are the measured ratio where there is one.
    """
    found, recent = share.saturation, share.recent
    if found is None:
        return {}
    ratio, bounds = measured_saturation(share), found.bounds
    if recent is not None and not is_old(share):
        bounds = recent.saturation_bounds or bounds
    lower, upper = (bounds.lower, bounds.upper) if ratio is None else (ratio, ratio)
    if upper - lower > WIDEST_BAND_RATIO:
        return {}
    return {"saturation_lower": lower, "saturation_upper": upper}


def _activity(share: Share) -> Found:
    recent, activity = measured(share), share.activity
    found: Found
    if recent is not None and recent.active_ratio:
        found = recent.active_ratio
    elif activity is None:
        return {}
    else:
        whole = {"engine": activity.engine, "sm": activity.sm, "dram": activity.dram}
        found = {**whole, **activity.pipe_ratios}
    return {name: found.get(name, found.get(_TOGETHER.get(name, name))) for name in _COUNTERS}


def _parts(share: Share) -> Found:
    recent, parts = measured(share), share.time_parts
    if recent is not None and recent.time_parts:
        return recent.time_parts
    return {} if parts is None else {name: getattr(parts, name) for name in TIME_PARTS}


def _links(share: Share, rates: Found) -> dict[str, float | None]:
    activity = share.activity
    if activity is None or activity.seconds <= 0:
        return dict(rates)
    moved = {name: getattr(activity, bytes_) for name, bytes_ in LINKS.items()}
    return {
        name: rates.get(name) if each is None else each / activity.seconds
        for name, each in moved.items()
    }


def _stall(share: Share, ranks: Sequence[Rank], now: float) -> Found:
    """Return the measured stall, or the two bounds of what is not measured."""
    found = waits.data_stall(share, ranks, now)
    if found is None:
        return {}
    if any(rank.verified and rank.data_stall_ratio is not None for rank in ranks):
        return {"stall": found.lower}
    return {"stall_lower": found.lower, "stall_upper": found.upper}
