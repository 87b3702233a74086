# SPDX-License-Identifier: Apache-2.0
"""One card for each GPU, or for each GPU instance while MIG is on: the state in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from exporter.snapshot import Bounds, Ceilings, Gpu, Holder, Rank, Share, Snapshot

UNKNOWN = "unknown"
_CUT = 120
"""Longer texts from outside are cut."""
_RANKS = 4
"""More ranks on one GPU are only counted."""


def text(value: str) -> str:
    """Return text from outside as HTML, cut to a sensible length."""
    return escape(value if len(value) <= _CUT else f"{value[: _CUT - 1]}…")


def percent(ratio: float | None) -> str:
    """Return a ratio as whole percents."""
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def duration_text(seconds: float) -> str:
    """Return a length of time as a person would say it: 12 s, 5 min, 2 h 10 min, 3 d 4 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def _bar(kind: str, bounds: Bounds | None) -> str:
    """Return a bar filled up to the lower bound, with a band up to the upper one."""
    lower, upper = (0.0, 0.0) if bounds is None else (bounds.lower, bounds.upper)
    lower, upper = (min(1.0, max(0.0, ratio)) * 100 for ratio in (lower, upper))
    return (
        f'<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="6"/>'
        f'<rect class="band" x="{lower:.1f}" width="{upper - lower:.1f}" height="6"/>'
        f'<rect class="{kind}" width="{lower:.1f}" height="6"/></svg>'
    )


def _gauge(name: str, kind: str, bounds: Bounds | None, value: str) -> str:
    return f"<dt>{name}</dt><dd>{value}{_bar(kind, bounds)}</dd>"


def _saturation(share: Share) -> tuple[Bounds | None, str]:
    saturation = share.saturation
    if saturation is None:
        return None, UNKNOWN
    if saturation.ratio is not None:
        bounds = Bounds(saturation.ratio, saturation.ratio)
        return bounds, f"{saturation.ratio:.0%} ({saturation.source})"
    bounds = saturation.bounds
    return bounds, f"{bounds.lower:.0%} to {bounds.upper:.0%} ({saturation.source})"


def _idle_for(gpu: Gpu, share: Share) -> str:
    last_busy, read = share.totals.last_busy_timestamp_seconds, gpu.last_read_timestamp_seconds
    if last_busy is None or read is None:
        return UNKNOWN
    return duration_text(read - last_busy) if read > last_busy else "busy"


def _held(held: bool | None, holder: Holder | None) -> str:
    if holder is not None:
        who = ": ".join(filter(None, (holder.owner, holder.command))) or UNKNOWN
        return f"{who} ({holder.workload})"
    return {True: "yes", False: "nobody", None: UNKNOWN}[held]


def _memory(share: Share) -> str:
    if share.memory is None:
        return UNKNOWN
    return f"{share.memory.used_bytes / 2**30:.1f} of {share.memory.total_bytes / 2**30:.0f} GiB"


def _power(gpu: Gpu) -> str:
    if gpu.vitals is None or gpu.vitals.power_watts is None:
        return UNKNOWN
    limit = gpu.board.power_limit_watts if gpu.board is not None else None
    of_limit = "" if limit is None else f" of {limit:.0f}"
    return f"{gpu.vitals.power_watts:.0f}{of_limit} W"


def _ceilings(ceilings: Ceilings | None) -> str:
    """Return the roof that tensor work (or FP32 without tensor cores) has, in one line."""
    if ceilings is None:
        return UNKNOWN
    precision = ceilings.assumed_precision or "fp32"
    peak = ceilings.peak_flops_per_second.get(precision)
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    parts = []
    if peak is not None:
        parts.append(f"{peak / 1e12:.4g} TFLOP/s {precision.replace('_', ' ')}")
    if bandwidth is not None:
        parts.append(f"{bandwidth / 1e9:.4g} GB/s")
    if peak is not None and bandwidth:
        parts.append(f"ridge {peak / bandwidth:.0f} FLOP/B")
    return f"{', '.join(parts) or UNKNOWN} ({ceilings.spec})"


def _fact(name: str, value: str) -> str:
    return f"<dt>{name}</dt><dd>{text(value)}</dd>"


def _waits(rank: Rank) -> str:
    """Return what a rank waits for, in words: W, then S where it is measured."""
    name = f"{text(rank.job)} rank {rank.rank}"
    wait, stall = rank.data_wait_ratio, rank.data_stall_ratio
    if wait is None:
        return f"{name}: no waiting time known yet"
    idle = "" if stall is None else f", GPU idle for it {percent(stall)}"
    return f"{name}: waits for data {percent(wait)} of the time{idle}"


def _training(gpu: Gpu, share: Share, ranks: Iterable[Rank]) -> list[str]:
    """Return a fact for each rank on a share that has a live process."""
    place = (gpu.device.uuid, share.gpu_instance)
    on_it = [
        rank for rank in ranks if rank.processes and (rank.gpu_uuid, rank.gpu_instance) == place
    ]
    lines = [_waits(rank) for rank in on_it[:_RANKS]]
    if len(on_it) > _RANKS:
        lines.append(f"and {len(on_it) - _RANKS} more ranks")
    return [f"<dt>Training</dt><dd>{line}</dd>" for line in lines]


def _share_card(gpu: Gpu, share: Share, ranks: Iterable[Rank]) -> str:
    instance = share.gpu_instance
    title = f"GPU {gpu.device.index}" + ("" if instance is None else f", MIG instance {instance}")
    utilization = None if share.utilization is None else share.utilization.ratio
    bounds, saturation = _saturation(share)
    roof = None if share.roofline is None else share.roofline.roof_ratio.get("spec")
    facts = (
        _gauge(
            "Utilization",
            "utilization",
            None if utilization is None else Bounds(utilization, utilization),
            percent(utilization),
        ),
        _gauge("Saturation", "saturation", bounds, saturation),
        _fact("Of roof", percent(roof)),
        _fact("Limited by", share.limiter or UNKNOWN),
        _fact("Idle for", _idle_for(gpu, share)),
        _fact("Held by", _held(share.held, share.holder)),
        *_training(gpu, share, ranks),
        _fact("Memory", _memory(share)),
        _fact("Power", _power(gpu)),
        _fact("Ceilings", _ceilings(share.ceilings)),
    )
    return _card("up", title, gpu.device.name, f"<dl>{''.join(facts)}</dl>")


def _card(state: str, title: str, name: str, body: str) -> str:
    return (
        f'<section class="{state}"><h2>{title} <small>{text(name)}</small></h2>\n{body}</section>\n'
    )


def cards(snapshot: Snapshot) -> Iterator[str]:
    """Yield the HTML of each card; a GPU that is down keeps one, with the reason."""
    for gpu in snapshot.gpus:
        if gpu.up and gpu.shares:
            yield from (_share_card(gpu, share, snapshot.ranks) for share in gpu.shares)
        else:
            state = "up" if gpu.up else "down"
            reason = "no readings" if gpu.up else f"Down: {gpu.down_reason or 'no answer'}"
            title = f"GPU {gpu.device.index}"
            yield _card(state, title, gpu.device.name, f"<p>{text(reason)}</p>")
