# SPDX-License-Identifier: Apache-2.0
"""The training jobs on a GPU: where the time of a step goes, phase by phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from exporter.derive import waits
from exporter.model.reading import Place
from exporter.model.snapshot import Rank, Share
from exporter.model.training import TRAINING_DEGRADATIONS, TRAINING_PHASES
from exporter.web.wording.facts import Facts, Range
from exporter.web.wording.numbers import cut, fixed, percent, plain
from exporter.web.wording.phrases import data_stall, stall_level, window
from exporter.web.wording.whose import display_names

SHOWN_RANKS = 4
"""More ranks on one GPU are only counted."""
LEAST_SHARE = 0.001
MOST_NAME = 128
_COLOURS = 8
_RECT = '<rect class="phase {colour}" x="{x:.2f}" width="{width:.2f}" height="10"/>'
_KEY = (
    '<li><svg viewBox="0 0 10 10" class="key" aria-hidden="true">'
    '<rect class="phase {colour}" width="10" height="10"/></svg> {name} {share}</li>'
)


def job_phases(rank: Rank, before: Rank | None) -> dict[str, float]:
    """Return the phases of a rank since `before`, as shares of the step time."""
    if before is None:
        return {}
    spent = rank.totals.step_seconds - before.totals.step_seconds
    if spent <= 0:
        return {}
    now, then = rank.totals.phase_seconds, before.totals.phase_seconds
    shares = {
        name: (now[name] - then.get(name, 0.0)) / spent for name in TRAINING_PHASES if name in now
    }
    return {name: share for name, share in shares.items() if share >= LEAST_SHARE}


def job_stall(rank: Rank, share: Share | None = None, now: float | None = None) -> str:
    """Return the data stall of one rank, computed as for the GPU's row, which shows the worst."""
    stall = waits.data_stall(share, [rank], now)
    recent = None if share is None else share.recent
    known = Facts(
        0,
        window_seconds=None if recent is None else recent.seconds or None,
        idle_ratio=waits.idle_ratio(recent),
        data_stall=None if stall is None else Range(stall.lower, stall.upper),
        data_wait_ratio=rank.data_wait_ratio,
    )
    if stall is None and rank.data_wait_ratio is None:
        return ""
    said = f"GPU idle for its data {data_stall(known)} {window([known])}"
    return ", ".join(filter(None, (said, stall_level(known))))


def job_rate(rank: Rank, before: Rank | None) -> str:
    """Return the step rate of a rank and its time span, from report to report."""
    if before is None:
        return ""
    passed = rank.last_report_timestamp_seconds - before.last_report_timestamp_seconds
    if passed <= 0:
        return ""
    rate = max(0.0, rank.totals.steps - before.totals.steps) / passed
    steps = fixed(rate, 1 if rate < 10 else 0)
    return f"{steps} steps/s in the {fixed(passed, 0)} s up to its last report"


def _phases_html(phases: Mapping[str, float]) -> str:
    colours = {
        name: f"series-{index}" if index < _COLOURS else "rest"
        for index, name in enumerate(TRAINING_PHASES)
    }
    begin, rects, keys = 0.0, "", ""
    for name, share in phases.items():
        colour, width = colours[name], 100 * share
        rects += _RECT.format(colour=colour, x=begin, width=width)
        keys += _KEY.format(colour=colour, name=plain(name), share=percent(share))
        begin += width
    return (
        '<svg class="bar thick" viewBox="0 0 100 10" preserveAspectRatio="none" '
        f'aria-hidden="true">{rects}</svg><ul class="legend">{keys}</ul>'
    )


def _job(rank: Rank, before: Rank | None, name: str, stall: str) -> str:
    title, shown = escape(cut(rank.job, MOST_NAME)), escape(f"{cut(name)} rank {rank.rank}")
    whose = "" if rank.owner is None else f" of {escape(cut(rank.owner))}"
    phases = job_phases(rank, before)
    words = escape(", ".join(filter(None, (stall, job_rate(rank, before)))))
    return (
        f'<p><b title="{title}">{shown}</b>{whose} {words}</p>'
        f"{_phases_html(phases) if phases else ''}{_degraded_html(rank.degraded)}\n"
    )


def _degraded_html(reasons: Iterable[str]) -> str:
    lines = "".join(
        f"<li>{plain(reason)}: {escape(TRAINING_DEGRADATIONS[reason])}</li>" for reason in reasons
    )
    return f'<ul class="degraded">{lines}</ul>' if lines else ""


def _identity(rank: Rank) -> tuple[object, ...]:
    return rank.job, rank.rank, rank.gpu_uuid, rank.gpu_instance


def gpu_jobs(
    ranks: Sequence[Rank],
    earlier: Iterable[Rank],
    uuid: str,
    gpu_instance: int | None,
    share: Share | None = None,
    now: float | None = None,
) -> str:
    """Return the jobs on a GPU or instance as HTML; empty if there are none.

    Unverified ranks come last, so that they push no other rank out. A rank is compared with its
    oldest of `earlier`, which has the newest first. The stall of an only rank is left out: the live
    row above shows it.
    """
    live = waits.live_ranks(ranks).get(Place(uuid, gpu_instance), [])
    here = sorted(live, key=lambda rank: rank.verified is False)
    if not here:
        return ""
    before = {_identity(rank): rank for rank in earlier}
    names = display_names({rank.job for rank in ranks})
    jobs = "".join(
        _job(
            rank,
            before.get(_identity(rank)),
            names[rank.job],
            job_stall(rank, share, now) if len(here) > 1 else "",
        )
        for rank in here[:SHOWN_RANKS]
    )
    more = len(here) - SHOWN_RANKS
    return (
        '<section class="card" aria-labelledby="jobs-title"><h2 id="jobs-title">Training jobs on '
        f"it: where a step goes</h2>\n{jobs}{f'<p>and {more} more ranks</p>' if more > 0 else ''}"
        "</section>"
    )
