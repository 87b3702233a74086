# SPDX-License-Identifier: Apache-2.0
"""The PromQL that several panels share: selectors, rates, shares of time, joins."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.palette import AT_ITS_LIMIT, LIMITERS, NUMBERED
from exporter.web.wording.phrases import THROTTLE_WORDS

GPUS = 'job=~"$job", instance=~"$instance", gpu=~"$gpu"'
"""Selects device series."""
NODES = 'job=~"$job", instance=~"$instance"'
"""Selects series of an exporter."""
RANKS = f'{NODES}, training_job=~"$training_job", rank=~"$rank"'
"""Selects series of training jobs."""
WINDOW = "$__rate_interval"
DEVICE = "job, instance, uuid, gpu_instance"
"""What identifies a GPU, or a MIG instance, in joins."""
LABELS = "job, instance, gpu, gpu_instance, uuid"
"""What a chart needs of it: its name, and what its link leads to."""
NUMBERS = list(NUMBERED)
USEFUL = "compute|memory"
"""Limiters under which the GPU gives what it can."""
NEAR_ROOF_SATURATION = 0.8
"""From this on a GPU is near its roof, whatever GPU model it is, as on the exporter's own page."""
MIN_IDLE_SECONDS = 30
"""A GPU that did nothing for less than this is not called idle."""
LOSS = "idle|input|communication|latency|clock"
"""Limiters that count as a loss; an unknown one does not."""


def select(metric: str, /, scope: str = GPUS, **labels: str) -> str:
    """Return a selector; a label value that is a regular expression has `|`, `.` or `$` in it."""
    wanted = [
        f'{label}{"=~" if set(value) & set("|.$") else "="}"{value}"'
        for label, value in labels.items()
    ]
    return f"{metric}{{{', '.join([scope, *wanted])}}}"


def rate(metric: str, /, scope: str = GPUS, window: str = WINDOW, **labels: str) -> str:
    """Return the rate of a counter: of seconds, the share of time."""
    return f"rate({select(metric, scope, **labels)}[{window}])"


def increase(metric: str, /, scope: str = GPUS, **labels: str) -> str:
    """Return how much a counter grew over the dashboard's range."""
    return f"increase({select(metric, scope, **labels)}[$__range])"


def observed() -> str:
    """Return the share of time in which it was judged what a GPU did; nothing if it never was."""
    return f"(sum without (limiter) ({rate('gpu_limited_seconds_total')}) > 0)"


def activity(metric: str, /, **labels: str) -> str:
    """Return the mean of what the hardware counters give over the time in which they were read.

    Nothing without any, and of what was left out at any time in the window: its counter was not on
    the page then.
    """
    samples = f"count_over_time({select(metric, **labels)}[{WINDOW}])"
    return _while_read(rate(metric, **labels), "", samples)


def _while_read(amount: str, match: str, samples: str) -> str:
    read = select("gpu_observed_seconds_total", reading="activity")
    seconds, all_samples = (
        f"sum by ({DEVICE}) ({of}({read}[{WINDOW}]))" for of in ("rate", "count_over_time")
    )
    return (
        f"{amount} / on ({DEVICE}) group_left () ({seconds} > 0) "
        f"unless {match}{samples} < on ({DEVICE}) group_left () {all_samples}"
    )


def utilization() -> str:
    """Return the share of time with any kernel resident."""
    busy = rate("gpu_busy_seconds_total")
    read = rate("gpu_observed_seconds_total", reading="utilization")
    return f"{busy} / ignoring (reading) ({read} > 0)"


def worded(expression: str, label: str, words: Mapping[str, str]) -> str:
    """Return series whose label, which becomes a legend, says these words instead of its values."""
    for value, word in words.items():
        expression = f'label_replace({expression}, "{label}", "{word}", "{label}", "{value}")'
    return expression


def time_parts() -> str:
    """Return the seconds per second of each time part, named as on the exporter's page."""
    parts = rate("gpu_time_seconds_total")
    parts = f"(sum by (part) ({parts}) and on () sum({parts}) > 0)"
    return worded(parts, "part", {"saturated": AT_ITS_LIMIT})


def throttled() -> str:
    """Return the share of time in which each reason held the clocks down, in words."""
    return worded(rate("gpu_throttle_seconds_total"), "reason", THROTTLE_WORDS)


def idle() -> str:
    """Return the share of time in intervals that were idle as a whole."""
    return f"{rate('gpu_idle_seconds_total')} / {observed()}"


def limited(limiter: str) -> str:
    """Return the share of time that these limiters (a regular expression) held."""
    chosen = f"sum without (limiter) ({rate('gpu_limited_seconds_total', limiter=limiter)})"
    return f"{chosen} / (sum without (limiter) ({rate('gpu_limited_seconds_total')}) > 0)"


def limiter_number() -> str:
    """Return, by GPU, the number of the limiter that held more than half of the window.

    Where none did it is mixed, and a GPU that does not answer is lost.
    """
    half = f"(0.5 * sum by ({DEVICE}) ({rate('gpu_limited_seconds_total')}))"
    arms = [f"0 * sum without (limiter) ({rate('gpu_limited_seconds_total')})"]
    for name in LIMITERS:
        share = rate("gpu_limited_seconds_total", limiter=name)
        number = NUMBERS.index(name)
        arms.append(f"{number} + 0 * ({share} > on ({DEVICE}) group_left () {half})")
    arms.append(f"{NUMBERS.index('lost')} + 0 * ({select('gpu_up')} == 0)")
    return f"max by ({LABELS}) ({' or '.join(arms)})"


def partly_read() -> str:
    """Return the GPUs whose counters left out a unit: some of their counters stood still."""
    source = select("gpu_saturation_source_info", complete="no", source="gpm|dcgm|cupti")
    return f"count_over_time({source}[{WINDOW}])"


def saturation() -> str:
    """Return measured saturation over the time that has parts: it is known then."""
    parts = f"sum by ({DEVICE}) ({rate('gpu_time_seconds_total')})"
    return f"{rate('gpu_saturation_seconds_total')} / on ({DEVICE}) group_left () ({parts} > 0)"


def saturation_bound(which: str) -> str:
    """Return the `lower` or `upper` bound of GPUs whose saturation is not measured."""
    # Over the same window, or a GPU that is lost would turn into one that is not measured. Not of
    # the counter: where counters answer no more, it stays.
    measured = f"last_over_time({select('gpu_saturation_ratio')}[{WINDOW}])"
    bound = f"avg_over_time({select(f'gpu_saturation_{which}_ratio')}[{WINDOW}])"
    return f"{bound} unless on ({DEVICE}) {measured}"


def measured_flops() -> str:
    """Return the FLOP/s of each GPU, of all precisions together."""
    return flops_by_precision(f"sum without (precision) ({rate('gpu_flops_total')})")


def flops_by_precision(flops: str = rate("gpu_flops_total")) -> str:
    """Return the FLOP/s of each GPU by precision: a new one has done nothing before."""
    samples = f"count_over_time({select('gpu_flops_total')}[{WINDOW}])"
    return _while_read(flops, f"on ({DEVICE}) ", f"max by ({DEVICE}) ({samples})")


def flops_per_joule() -> str:
    """Return the operations per joule of all GPUs whose operations and energy are both known."""
    board = "job, instance, uuid"
    flops, watts = f"({measured_flops()})", rate("gpu_energy_joules_total")
    return f"sum({flops} and on ({board}) {watts}) / (sum({watts} and on ({board}) {flops}) > 0)"


def roof(basis: str) -> str:
    """Return the mean of `gpu_roof_ratio`: how close each GPU is to its roof in a basis."""
    return activity("gpu_roof_seconds_total", basis=basis)


def near_its_roof() -> str:
    """Return 1 for each GPU near its roof and 0 for the others, by the words of the page."""
    throttled = f"({limited('clock')}) > bool 0.5"
    near = f"max by ({DEVICE}) ({saturation()} >= bool {NEAR_ROOF_SATURATION})"
    return f"{near} * on ({DEVICE}) (1 - ({throttled}))"


def free() -> str:
    """Return 1 for GPUs that nobody holds and, where a scheduler says, nobody was given; else 0."""
    not_held = f"({select('gpu_held')} == bool 0)"
    return f"({not_held} * ({select('gpu_allocated')} == bool 0) or {not_held})"


def unopened() -> str:
    """Return 1 for GPUs that a scheduler has given away and nobody holds, 0 for the others of it;
    nothing where no scheduler says."""
    return f"(({select('gpu_held')} == bool 0) * ({select('gpu_allocated')} == bool 1))"


def held_idle_for() -> str:
    """Return for how many seconds a GPU has done nothing that somebody holds; at least 30 s."""
    idle_for = f"time() - {select('gpu_last_busy_timestamp_seconds')}"
    held = f"max by ({DEVICE}) ({select('gpu_held')} == 1)"
    return f"(({idle_for} > {MIN_IDLE_SECONDS}) * on ({DEVICE}) group_left () {held})"


def while_held(share: str) -> str:
    """Return a share of time where somebody holds the GPU, else 0."""
    return f"{share} * on ({DEVICE}) group_left () max by ({DEVICE}) ({select('gpu_held')})"


def lost() -> str:
    """Return the share of time, by limiter, in which a held GPU was not the limit itself."""
    return while_held(rate("gpu_limited_seconds_total", limiter=LOSS))


def integral(share: str) -> str:
    """Return a share of time added up at the steps of the range, with each moment's labels."""
    return f"sum_over_time(({share})[$__range:$__interval])"


def hours(share: str, so_far: str, otherwise: str = "or") -> str:
    """Return the hours of a share of time; of what is younger than a step, its seconds so far."""
    return f"({integral(share)} * $__interval_ms / 3600000 {otherwise} {so_far} / 3600)"


def lost_hours() -> str:
    """Return the GPU-hours of `lost`, by limiter."""
    return hours(lost(), lost_so_far())


def lost_so_far() -> str:
    """Return the same over the range, in seconds."""
    return while_held(increase("gpu_limited_seconds_total", limiter=LOSS))


def of_rank(value: str) -> str:
    """Return a rank's seconds per second as a share of its loop's wall time."""
    steps = rate("gpu_training_step_seconds_total", RANKS)
    return f"{value} / on (training_job, rank, {DEVICE}) group_left () ({steps} > 0)"


def phase(name: str, counter: str = "gpu_training_phase_seconds_total") -> str:
    """Return the share of a rank's loop that a phase took."""
    return of_rank(f"sum without (phase) ({rate(counter, RANKS, phase=name)})")


def stalled() -> str:
    """Return S: the share in which a rank's GPU sat idle because its job waited for data."""
    return phase("data", "gpu_training_phase_gpu_idle_seconds_total")


def model_flops_utilization() -> str:
    """Return MFU: the FLOP/s that the job states, against the peak of the precision it states.

    A job that states fp32 and keeps its GPU's tensor cores busy computes in TF32.
    """
    info = "gpu_training_info"
    done_in = {
        name: f"sum by ({DEVICE}) ({rate('gpu_flops_total', NODES, precision=name)})"
        for name in ("tf32_tensor", "fp32")
    }
    tf32 = (
        f"label_replace({select(info, RANKS, precision='fp32')} and on ({DEVICE}) "
        f"{done_in['tf32_tensor']} > on ({DEVICE}) {done_in['fp32']}, "
        '"precision", "tf32_tensor", "", "")'
    )
    stated = (
        f"label_replace({select(info, RANKS)}, "
        '"precision", "${2}_tensor", "precision", "(mx|nv)?(tf32|bf16|fp16|fp8|fp4)")'
    )
    precision = (
        f"max by (training_job, rank, {DEVICE}, precision) "
        f"({tf32} or on (training_job, rank, {DEVICE}) {stated})"
    )
    peak = (
        f"max by ({DEVICE}, precision) ({select('gpu_peak_flops_per_second', NODES, basis='spec')})"
    )
    done = rate("gpu_training_model_flops_total", RANKS)
    return (
        f"{done} * on (training_job, rank, {DEVICE}) group_left (precision) {precision} "
        f"/ on ({DEVICE}, precision) group_left () {peak}"
    )
