# SPDX-License-Identifier: Apache-2.0
"""The rows of the live view: numbers and words of each GPU and MIG instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from exporter.model.reading import share_name
from exporter.model.snapshot import Bounds, Gpu, Share, Snapshot
from exporter.web.columns import dram_estimate, likely_range, measured_saturation
from exporter.web.facts import lines_of
from exporter.web.live.roofs import roof_key, whole_ceilings
from exporter.web.live.rounding import known, moment, ratio, rounded
from exporter.web.wording import measuring, phrases
from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import cut, duration, intensity, si
from exporter.web.wording.state import DIVIDED, UP, condition, stall_level, state, tone
from exporter.web.wording.summary import TROUBLES
from exporter.web.wording.whose import is_unopened, owner


def addresses(key: str) -> tuple[str, str]:
    """Return the addresses of a row's page and history, from ``/``; its key is the `share_name`."""
    uuid, _, instance = key.partition("/")
    name, query = quote(uuid, safe=""), f"?instance={instance}" if instance else ""
    return f"gpu/{name}{query}", f"api/v1/gpus/{name}/history{query}"


Row = dict[str, Any]
Numbers = Mapping[str, Any]
"""The numbers and timestamps of a row."""

GLYPHS = {"good": "●", "warn": "▲", "calm": "○", "bad": "✕", "neutral": "◆"}
RATIOS = (
    *("utilization", "saturation_lower", "saturation_upper", "sm", "dram"),
    *("tensor", "fp64", "fp32", "fp16", "int"),
    *("idle", "narrow", "unsaturated", "clock", "saturated"),
    *("stall", "stall_lower", "stall_upper", "wait"),
)
AMOUNTS = ("flops", "bytes", "power", "power_limit", "sm_clock", "throttled")
COLUMNS = RATIOS + AMOUNTS
"""The numbers that scripts draw, as the history names them."""
_SHOWN = (
    *("gpu", "instance", "state", "mig", "since", "memory_ratio"),
    *("trouble", "owner", "idle_for"),
    *("flops_bounds", "bytes_bounds", "bytes_likely", "stated", "ceilings"),
)
"""Further fields of a row that scripts use."""


def values_of(row: Row) -> dict[str, float]:
    """Return the known numbers of a row by column."""
    found = zip(COLUMNS, row.get("values", ()), strict=False)
    return {name: value for name, value in found if value is not None}


def _trouble(facts: Facts, word: str) -> int:
    """Return the place of a state, 0 first; a critical Xid of the last hour is next to lost."""
    place = TROUBLES.index(word) if word in TROUBLES else len(TROUBLES)
    return min(place, 1) if phrases.critical(facts) else place


def _idle_for(facts: Facts) -> int | None:
    """Return the seconds without a break in which it was idle, or unopened."""
    seconds = facts.unopened_seconds if is_unopened(facts) else facts.idle_seconds
    return int(seconds) if facts.idle and seconds else None


def _point(facts: Facts, numbers: Numbers) -> Numbers:
    """Return in words where a row is on the roofline chart, and its ratio of each roof."""
    work, traffic = (numbers["values"].get(name) for name in ("flops", "bytes"))
    bounds, likely = numbers.get("flops_bounds"), numbers.get("bytes_likely")
    point = "no work, or no memory traffic, so no place on the chart"
    if work and traffic and "bytes_bounds" not in numbers:
        point = f"{si(work, 'FLOP/s')} at {intensity(work / traffic)}"
    elif bounds is not None and "bytes_bounds" in numbers:
        least = f"from {si(bounds[0], 'FLOP/s')} to" if bounds[0] > 0 else "below"
        few, many = numbers["bytes_bounds"]
        moved = f"{'' if few == many else 'at most '}{si(many, 'B/s')} of DRAM traffic"
        if likely is not None:
            moved += f", likely {si(likely[0], 'B/s')} to {si(likely[2], 'B/s')}"
        ends, stated = f"{least} {si(bounds[1], 'FLOP/s')}, {moved}", numbers.get("stated")
        point = f"somewhere {ends}"
        if stated is not None and likely is not None:
            said = f"about {si(stated, 'FLOP/s')} at about {intensity(stated / likely[1])}"
            point = f"{said}, from the job and the driver; {ends}"
    elif "ceilings" not in numbers:
        point = "its ceilings are not known, so no place on the chart"
    return {"point": point, "roof": phrases.roof(facts)}


def _words_up(facts: Facts, numbers: Numbers, word: str) -> Numbers:
    if word == DIVIDED:
        # The row of a divided GPU is of the board; the instances have rows of their own.
        return {"limit": "divided into instances", "power": phrases.power(facts)}
    return {
        "limit": phrases.limiter(facts, word),
        "used": phrases.use(facts),
        "saturated": ", ".join(filter(None, (phrases.saturation(facts), phrases.mfu(facts)))),
        "stall": phrases.data_stall(facts),
        "level": phrases.stall_level(facts),
        "memory": phrases.memory(facts),
        "power": phrases.power(facts),
        "idle": phrases.idle(facts),
        "holder": phrases.holder(facts),
        "measure": measuring.sentence(facts),
        **_point(facts, numbers),
    }


def _words_down(facts: Facts, numbers: Numbers, now: float) -> Numbers:
    since = numbers.get("since")
    ago = "never read" if since is None else f"last read {duration(now - since)} ago,"
    return {"reason": phrases.down_reason(facts), "ago": ago, "point": "not read"}


def worded(facts: Facts, numbers: Numbers, now: float) -> Row:
    """Return a row with its words and look at the Unix time `now`; means are of the last 10 s."""
    readable, word = condition(facts), state(facts)
    up = readable == UP
    look_as = tone(word)
    words = {
        "title": phrases.title(facts),
        "name": phrases.name(facts),
        "glyph": GLYPHS[look_as],
        "word": word,
        "note": "; ".join(filter(None, [*phrases.notes(facts), phrases.throttled(facts)])),
        **(_words_up(facts, numbers, word) if up else _words_down(facts, numbers, now)),
    }
    stall = facts.data_stall
    look = [f"tone-{look_as}"]
    level = "" if stall is None or not up else stall_level(stall)
    look += [f"level-{level}"] if level else []
    look += ["divided"] if facts.divided else [] if up else ["down"]
    whose = owner(facts)
    row = {
        **numbers,
        "gpu": facts.gpu,
        "instance": facts.instance,
        "state": readable,
        "trouble": _trouble(facts, word),
        "owner": cut(whose) if whose else None,
        "idle_for": _idle_for(facts),
    }
    return {
        **{name: row[name] for name in _SHOWN if row.get(name) is not None},
        # A list without names halves the stream: most of these change every second.
        **({"values": [numbers["values"].get(name) for name in COLUMNS]} if up else {}),
        "look": " ".join(look),
        "words": {place: said for place, said in words.items() if said},
    }


def rows(snapshot: Snapshot) -> Iterator[tuple[str, Row, Facts]]:
    """Yield name, row and facts of each GPU and MIG instance."""
    for gpu, share, values, facts in lines_of(snapshot):
        key = share_name(gpu.device.uuid, None if share is None else share.gpu_instance)
        row = worded(facts, _numbers(gpu, share, values), snapshot.timestamp_seconds)
        yield key, {**row, "href": addresses(key)[0]}, facts


def _numbers(gpu: Gpu, share: Share | None, found: dict[str, float]) -> dict[str, Any]:
    if not gpu.up:
        return known(
            since=moment(gpu.last_read_timestamp_seconds),
            ceilings=roof_key(whole_ceilings(gpu)),
        )
    values = {name: ratio(found[name]) for name in RATIOS if name in found}
    values |= {name: rounded(found[name]) for name in AMOUNTS if name in found}
    if share is None:
        return {**known(mig=gpu.device.mig or None), "values": values}
    memory = share.memory
    of_memory = memory.used_bytes / memory.total_bytes if memory and memory.total_bytes else None
    return {
        **known(
            memory_ratio=ratio(of_memory),
            **_bounds(share),
            ceilings=roof_key(share.ceilings),
        ),
        "values": values,
    }


def _bounds(share: Share) -> dict[str, Any]:
    """Return the bounds of FLOP/s and, where not measured, bytes/s; of the last 10 s if known."""
    now, saturation = share.roofline, share.saturation
    recent = share.recent
    flops = None if now is None else now.flops_bounds_per_second
    dram = None if now is None else now.dram_bounds_bytes_per_second
    traffic = None if now is None else now.dram_bytes_per_second
    if recent is not None and recent.flops_bounds_per_second is not None:
        flops, dram = recent.flops_bounds_per_second, recent.dram_bounds_bytes_per_second
        traffic = traffic if recent.dram_bytes_per_second is None else recent.dram_bytes_per_second
    if flops is None or not flops.upper:
        return {}
    bounds: dict[str, Any] = {"flops_bounds": [rounded(flops.lower), rounded(flops.upper)]}
    if saturation is None or saturation.complete or measured_saturation(share) is not None:
        return bounds
    if dram is None and traffic is not None:
        dram = Bounds(traffic, traffic)
    if dram is None:
        return bounds
    stated = (recent or now).stated_flops_per_second if now is not None else None
    return {
        **bounds,
        "bytes_bounds": [rounded(dram.lower), rounded(dram.upper)],
        **known(bytes_likely=_likely_traffic(share), stated=rounded(stated or None)),
    }


def _likely_traffic(share: Share) -> list[float | int | None] | None:
    """Return lower bound, estimate and upper bound of the traffic in bytes/s."""
    found = dram_estimate(share)
    if found is None or not found[1]:
        return None
    ratio, traffic = found
    ends = likely_range(ratio)
    return [rounded(traffic * each / ratio) for each in (ends.lower, ratio, ends.upper)]
