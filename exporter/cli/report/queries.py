# SPDX-License-Identifier: Apache-2.0
"""The queries to Prometheus: amounts in steps of minutes, summed in buckets of the range.

A counter does not remember who held the GPU, so each step goes to whose the GPU was in the middle
of it. What is divided by each other is of the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from exporter.cli.http_get import DaemonAddress, get
from exporter.errors import SourceError, one_line

HOUR, DAY = 3600, 86400
FINE_SECONDS, COARSE_SECONDS = 120, 600
"""Of a step: as the windows of the recording rules, in which Prometheus has to scrape twice; and in
ranges of days, where a fleet has too many of those."""
ANSWER_SECONDS, MOST_BYTES = 150.0, 256 * 1024 * 1024
"""Prometheus itself ends a query after two minutes."""

_SHARE, _GPU = "instance, uuid, gpu_instance", "instance, gpu, uuid, gpu_instance, name"
_STEP = "STEP"
"""In place of the seconds of a step."""
_HALF = "HALF"
_W = f"[{_STEP}s]"
_OBSERVED = f"sum without (limiter) (increase(gpu_limited_seconds_total{_W}))"
_MEASURED = f"(sum without (part) (increase(gpu_time_seconds_total{_W})) > 0)"
_VERIFIED = "unless on (instance, training_job, rank, uuid, gpu_instance) gpu_training_verified"
_JOULES = f"increase(gpu_energy_joules_total{_W})"


def _saturated(bound: str) -> str:
    """Return saturation x time: as measured, else its bound x the observed time."""
    return (
        f"increase(gpu_saturation_seconds_total{_W}) and {_MEASURED}"
        f" or avg_over_time(gpu_saturation_{bound}_ratio{_W}) * {_OBSERVED}"
    )


def _stalled(bound: str, tightest: str) -> str:
    """Return the idle time in each phase of the rank that waits longest, else the inferred one."""
    inferred = f"increase(gpu_inferred_data_stall_{bound}_seconds_total{_W})"
    idle = f"increase(gpu_training_phase_gpu_idle_seconds_total{{uuid!=''}}{_W})"
    return (
        f"max by ({_SHARE}, phase) ({idle} {_VERIFIED} == 0) or on ({_SHARE}, phase)"
        f" label_replace({tightest} by ({_SHARE}) ({inferred}), 'phase', 'data', '', '')"
    )


FIGURES: Mapping[str, tuple[str, str]] = {
    "limited": (f"increase(gpu_limited_seconds_total{_W})", "limiter, name, gpu_instance"),
    "idle": (f"increase(gpu_idle_seconds_total{_W})", "name, gpu_instance"),
    "held_idle": (f"increase(gpu_held_idle_seconds_total{_W})", _GPU),
    "unopened": (f"increase(gpu_allocated_unopened_seconds_total{_W})", _GPU),
    "saturated_lower": (_saturated("lower"), ""),
    "saturated_upper": (_saturated("upper"), ""),
    "judged": (f"{_MEASURED} or {_OBSERVED} and avg_over_time(gpu_saturation_upper_ratio{_W})", ""),
    "stalled_lower": (_stalled("lower", "max"), "phase"),
    "stalled_upper": (_stalled("upper", "min"), "phase"),
    # The share of the scrapes that showed it.
    "caused": (
        f"{_STEP} * sum_over_time(gpu_diagnosis{_W}) / on (instance, uuid) group_left ()"
        f" max by (instance, uuid) (count_over_time(gpu_up{_W}))",
        "cause",
    ),
    "joules": (_JOULES, ""),
    "joules_from_power": (
        f"{_JOULES} and on (instance, uuid) gpu_energy_source_info{{source='power'}}",
        "",
    ),
}
"""GPU-seconds and joules in one step, and the labels by which they are kept apart, by name."""
STEPS = f"count(increase(gpu_limited_seconds_total{_W})) > bool 0"
"""1 in each step in which any GPU was observed."""
RULES = "count(gpu:gpu_lost:max)"
"""Of a recorded series that is there whenever the recording rules are evaluated."""
PRICES = "max by (name, currency) (model:gpu_price_per_hour:max)"
_WHOSE: Mapping[str, Mapping[str, str]] = {
    "owner": {"gpu:gpu_workload_owner:info@": "owner", "gpu:gpu_holder:info@": "owner"},
    "namespace": {"gpu_workload_info{workload_namespace!=''}@": "workload_namespace"},
    "user": {
        "gpu_workload_info{workload_user!=''}@": "workload_user",
        "gpu_holder_info{owner!=''}@": "owner",
    },
    "job": {
        "gpu_workload_info{workload_job!=''}@": "workload_job",
        f"gpu_training_info{{uuid!=''}}@ {_VERIFIED}@ == 0": "training_job",
    },
}
"""The series that say whose a GPU is, the first one that does, and the label; @ is the offset."""
LABEL = {**dict.fromkeys(_WHOSE, "of"), "node": "instance", "model": "name"}
"""The label of the answers that says whose the time is."""
_EACH = (
    f"(max by ({_SHARE}) (gpu_limited_seconds_total{{limiter='idle'}})"
    f" or max by ({_SHARE}) (gpu_up)) * 0 + 1"
)
_MODEL = (
    "((topk by (instance, uuid) (1, max by (instance, uuid, name) (gpu_info))"
    " or on (instance, uuid) max by (instance, uuid) (gpu_up)) * 0 + 1)"
)


def _whose(by: str, offset: str) -> str:
    """Return one series for each GPU with an owner, with the label `of`."""
    found = f" or on ({_SHARE}) ".join(
        f"max by ({_SHARE}, of) (label_replace({series}, 'of', '$1', '{label}', '(.+)'))"
        for series, label in _WHOSE[by].items()
    ).replace("@", offset)
    if by == "owner":
        return found
    several = f"count by ({_SHARE}) ({found}) > 1"
    named = f"label_replace(({several}) * 0 + 1, 'of', 'several {by}s', '', '')"
    return f"({found}) unless on ({_SHARE}) {several} or {named}"


def expression(amount: str, labels: str, by: str) -> str:
    """Return the PromQL of a figure in one step, by owner; `ask` knows the length of the step."""
    names, kept = _EACH, [LABEL[by], *filter(None, labels.split(", "))]
    if by in _WHOSE:
        middle = _whose(by, f" offset {_HALF}s")
        names = f"({middle}) or on ({_SHARE}) ({_whose(by, '')}) or on ({_SHARE}) ({names})"
    if by == "model":
        kept.append("gpu_instance")
    if "name" in kept:
        names = f"({names}) * on (instance, uuid) group_left (name) {_MODEL}"
    joined = f"({amount}) * on ({_SHARE}) group_left (of, name) ({names})"
    apart = ", ".join(dict.fromkeys(kept))
    return f"sum by ({apart}) ({joined} or on ({_SHARE}) ({amount}))"


class Range(NamedTuple):
    """Whole buckets between two Unix times, the last one a multiple of the step."""

    start: int
    end: int
    bucket_seconds: int
    step_seconds: int


def range_of(seconds: float, now: float) -> Range:
    """Return the range of so many seconds, at least an hour, in hours, days or weeks."""
    bucket = HOUR if seconds < 2 * DAY else DAY if seconds <= 31 * DAY else 7 * DAY
    step = FINE_SECONDS if bucket == HOUR else COARSE_SECONDS
    end = int(now) // step * step
    return Range(end - int(seconds) // bucket * bucket, end, bucket, step)


class Sample(NamedTuple):
    """A value of one bucket, whose label `end` is the Unix time at which it ends."""

    labels: Mapping[str, str]
    value: float


def ask(server: DaemonAddress, amount: str, at: Range) -> list[Sample]:
    """Return the sums of an amount over the steps of each bucket, or raise SourceError.

    What Prometheus refuses to load at once is asked in halves.
    """
    start, end, bucket, step = at
    amount = amount.replace(_STEP, str(step)).replace(_HALF, str(step // 2))
    # A millisecond less than the bucket: Prometheus 2 takes the step at its beginning, too.
    query = f"sum_over_time(({amount})[{bucket * 1000 - 1}ms:{step}s])"
    fields = urlencode({"query": query, "start": start + bucket, "end": end, "step": bucket})
    path = f"/api/v1/query_range?{fields}"
    answer = get(server, path, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES)
    where = f"{server.url}: status {answer.status}"
    try:
        said = json.loads(answer.body)
        if said["status"] == "success":
            return [
                Sample({**row["metric"], "end": str(int(when))}, float(value))
                for row in said["data"]["result"]
                for when, value in row["values"]
            ]
        problem = one_line(str(said["error"]))[:200]
    except (ValueError, LookupError, TypeError) as error:
        raise SourceError(f"{where}, expected the API of a Prometheus (--prometheus)") from error
    middle = start + (end - start) // bucket // 2 * bucket
    if start < middle and any(words in problem for words in ("too many samples", "timed out")):
        halves = (at._replace(end=middle), at._replace(start=middle))
        return [sample for half in halves for sample in ask(server, amount, half)]
    raise SourceError(f"{where}: {problem}")
