# SPDX-License-Identifier: Apache-2.0
"""The numbers of a GPU or MIG instance: the columns of history and page.

What a share does is the mean of the last 10 s (`Share.recent`), as its state is judged: a GPU that
works in bursts does not jump from one reading to the next. Readings of the board, its memory and
what goes through its links are of the last interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from exporter.model.reading import THROTTLE_REASONS, Activity
from exporter.model.snapshot import TIME_PARTS, Gpu, Rank, Recent, Share
from exporter.web import waits

_BOARD_COLUMNS = ("power", "power_limit", "sm_clock", "temperature", "throttled")
_SHARE_COLUMNS = (
    *("utilization", "saturation_lower", "saturation_upper"),
    *("sm", "dram", "engine", "tensor", "fp64", "fp32", "fp16", "int"),
    *("idle", "narrow", "unsaturated", "clock", "saturated"),
    *("memory", "pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx"),
    *("stall", "stall_lower", "stall_upper", "wait", "flops", "bytes"),
)
COLUMNS = _BOARD_COLUMNS + _SHARE_COLUMNS
"""Units as in the snapshot: ratios, watts, hertz, degrees Celsius, bytes, bytes/s, FLOP/s.
`throttled` is a bit for each of `THROTTLE_REASONS` that held, in their order."""

Values = tuple[float | None, ...]
"""One for each column, or for those of the board, of a share or of its links."""

NO_BOARD = (None,) * len(_BOARD_COLUMNS)
NO_SHARE = (None,) * len(_SHARE_COLUMNS)
NO_LINKS = (None,) * 4
"""Where nothing is known of these."""

ESTIMATE = "estimate"
"""What `Saturation.source` says of bounds that follow from utilization."""
_BITS = {reason: 1 << bit for bit, reason in enumerate(THROTTLE_REASONS)}
_COUNTERS = ("sm", "dram", "engine", "tensor", "fp64", "fp32", "fp16", "int")
_NO_ACTIVITY: Values = (None,) * len(_COUNTERS)
_NO_PARTS: Values = (None,) * len(TIME_PARTS)
links_of = attrgetter(
    "pcie_receive_bytes",
    "pcie_transmit_bytes",
    "nvlink_receive_bytes",
    "nvlink_transmit_bytes",
)
_TOGETHER = {"tensor": "tensor_fp16", "fp32": "fma"}
"""Where a source measures two pipes together: the counter shown in the column of one of them."""
_parts_of = attrgetter(*TIME_PARTS)


def readings(gpu: Gpu, share: Share | None, ranks: Sequence[Rank], now: float) -> dict[str, float]:
    """Return what is known of a share at the Unix time `now`, or of the board, by column.

    What goes through the links is left out.
    """
    board = NO_BOARD if share is not None and gpu.device.mig else board_values(gpu)
    own = NO_SHARE if share is None else share_values(share, ranks, NO_LINKS, now)
    found = zip(COLUMNS, board + own, strict=True)
    return {name: value for name, value in found if value is not None}


def _busy_ratio(share: Share) -> float | None:
    """Return the time in which something ran: as the driver samples it, else as counters say."""
    recent = share.recent
    if recent is not None:
        used = recent.utilization_ratio
        return recent.busy_ratio if used is None else used
    if share.utilization is not None:
        return share.utilization.ratio
    return None if share.activity is None else share.activity.engine


def board_values(gpu: Gpu) -> Values:
    """Return the columns of the board of a GPU that is up."""
    vitals, limit = gpu.vitals, None if gpu.board is None else gpu.board.power_limit_watts
    if vitals is None:
        return None, limit, None, None, None
    reasons = vitals.throttle_reasons
    return (
        vitals.power_watts,
        limit,
        vitals.clock_hertz.get("sm"),
        vitals.temperature_celsius,
        None if reasons is None else sum(_BITS.get(reason, 0) for reason in reasons),
    )


def measured(share: Share) -> Recent | None:
    """Return what a share with counters did over the last seconds; None for any other.

    One interval with an impossible reading does not hide what the others measured.
    """
    estimated = share.saturation is None or share.saturation.source == ESTIMATE
    return None if estimated else share.recent


def is_old(share: Share) -> bool:
    """Return whether its activity is too old to be added up: the last seconds are without it."""
    return share.activity is not None and not share.activity.integrable


def measured_saturation(share: Share) -> float | None:
    """Return the saturation where it is measured and complete."""
    recent = measured(share)
    if recent is not None and not is_old(share):
        return recent.saturation_ratio
    return None if share.saturation is None else share.saturation.ratio


def _saturation(share: Share) -> Values:
    """Return the lower and the upper bound; both are the measured ratio where there is one."""
    found, recent = share.saturation, share.recent
    if found is None:
        return None, None
    ratio, bounds = measured_saturation(share), found.bounds
    if recent is not None and not is_old(share):
        bounds = recent.saturation_bounds or bounds
    return (bounds.lower, bounds.upper) if ratio is None else (ratio, ratio)


def _activity(share: Share) -> Values:
    recent, activity = measured(share), share.activity
    if recent is not None and recent.active_ratio:
        found = recent.active_ratio
    elif activity is None:
        return _NO_ACTIVITY
    else:
        found = {**_known_shares(activity), **activity.pipe_ratios}
    return tuple([found.get(name, found.get(_TOGETHER.get(name, name))) for name in _COUNTERS])


def _known_shares(activity: Activity) -> dict[str, float]:
    whole = {"engine": activity.engine, "sm": activity.sm, "dram": activity.dram}
    return {name: ratio for name, ratio in whole.items() if ratio is not None}


def _parts(share: Share) -> Values:
    recent = measured(share)
    if recent is not None and recent.time_parts:
        return tuple([recent.time_parts.get(name) for name in TIME_PARTS])
    return _NO_PARTS if share.time_parts is None else tuple(_parts_of(share.time_parts))


def _work(share: Share) -> Values:
    """Return FLOP/s and DRAM bytes/s."""
    now = measured(share) or share.roofline
    if now is None:
        return None, None
    return now.total_flops_per_second, now.dram_bytes_per_second


def _stall(share: Share, ranks: Sequence[Rank], now: float) -> Values:
    """Return the measured stall, or the two bounds of what is not measured."""
    found = waits.data_stall(share, ranks, now)
    if found is None:
        return None, None, None
    measured = any(rank.verified and rank.data_stall_ratio is not None for rank in ranks)
    return (found.lower, None, None) if measured else (None, *found)


def share_values(share: Share, ranks: Sequence[Rank], board_rates: Values, now: float) -> Values:
    """Return the columns of a share at the Unix time `now`, on which these ranks run.

    `board_rates` are the bytes/s of the board's links, for those that its counters do not give.
    """
    activity, links = share.activity, board_rates
    if activity is not None and activity.seconds > 0:
        seconds = activity.seconds
        links = tuple(
            [
                rate if moved is None else moved / seconds
                for moved, rate in zip(links_of(activity), board_rates, strict=True)
            ]
        )
    return (
        _busy_ratio(share),
        *_saturation(share),
        *_activity(share),
        *_parts(share),
        None if share.memory is None else float(share.memory.used_bytes),
        *links,
        *_stall(share, ranks, now),
        waits.wait_for_data(ranks),
        *_work(share),
    )
