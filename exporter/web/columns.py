# SPDX-License-Identifier: Apache-2.0
"""What is known of a GPU or of an instance in numbers: the columns of history and page."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from exporter.model.reading import THROTTLE_REASONS
from exporter.model.snapshot import Gpu, Rank, Saturation, Share
from exporter.web.waits import inferred_stall, measured_stall, wait_for_data

_BOARD_COLUMNS = ("power", "power_limit", "sm_clock", "temperature", "throttled")
_SHARE_COLUMNS = (
    "utilization",
    "saturation_lower",
    "saturation_upper",
    "sm",
    "dram",
    "engine",
    "tensor",
    "fp64",
    "fp32",
    "fp16",
    "int",
    "idle",
    "narrow",
    "unsaturated",
    "clock",
    "saturated",
    "memory",
    "pcie_rx",
    "pcie_tx",
    "nvlink_rx",
    "nvlink_tx",
    "stall",
    "stall_lower",
    "stall_upper",
    "wait",
    "flops",
    "bytes",
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

_BITS = {reason: 1 << bit for bit, reason in enumerate(THROTTLE_REASONS)}
_NO_ACTIVITY = (None,) * 8
_NO_PARTS = (None,) * 5
links_of = attrgetter(
    "pcie_receive_bytes",
    "pcie_transmit_bytes",
    "nvlink_receive_bytes",
    "nvlink_transmit_bytes",
)
_activity_of = attrgetter("sm", "dram", "engine", "tensor", "fp64", "fp32", "fp16", "integer")
_parts_of = attrgetter("idle", "narrow", "unsaturated", "clock", "saturated")


def readings(gpu: Gpu, share: Share | None, ranks: Sequence[Rank] = ()) -> dict[str, float]:
    """Return what is known of a share now, or of the board, by the names of the columns.

    What goes through the links is left out.
    """
    board = NO_BOARD if share is not None and gpu.device.mig else board_values(gpu)
    own = NO_SHARE if share is None else share_values(share, ranks, NO_LINKS)
    found = zip(COLUMNS, board + own, strict=True)
    return {name: value for name, value in found if value is not None}


def busy_ratio(share: Share) -> float | None:
    """Return the time in which something ran: as the driver samples it, else as counters say."""
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


def _saturation(saturation: Saturation | None) -> Values:
    """Return the lower and the upper bound; both are the measured ratio where there is one."""
    if saturation is None:
        return None, None
    if saturation.ratio is not None:
        return saturation.ratio, saturation.ratio
    return saturation.bounds.lower, saturation.bounds.upper


def share_values(share: Share, ranks: Sequence[Rank], board_rates: Values) -> Values:
    """Return the columns of a share, on which these ranks run.

    `board_rates` are the bytes/s of the board's links, for those that its counters do not give.
    """
    activity, saturation, parts = share.activity, share.saturation, share.time_parts
    roofline = share.roofline
    stall = measured_stall(ranks)
    inferred = None
    if stall is None and share.data_stall:
        inferred = inferred_stall((each.lower, each.upper) for each in share.data_stall.values())
    links = board_rates
    if activity is not None and activity.seconds > 0:
        seconds = activity.seconds
        links = tuple(
            [
                rate if moved is None else moved / seconds
                for moved, rate in zip(links_of(activity), board_rates, strict=True)
            ]
        )
    flops = None if roofline is None else roofline.flops_per_second
    return (
        busy_ratio(share),
        *_saturation(saturation),
        *(_NO_ACTIVITY if activity is None else _activity_of(activity)),
        *(_NO_PARTS if parts is None else _parts_of(parts)),
        None if share.memory is None else float(share.memory.used_bytes),
        *links,
        stall,
        None if inferred is None else inferred.lower,
        None if inferred is None else inferred.upper,
        wait_for_data(ranks),
        sum(flops.values()) if flops else None,
        None if roofline is None else roofline.dram_bytes_per_second,
    )
