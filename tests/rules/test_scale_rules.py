# SPDX-License-Identifier: Apache-2.0
"""What the dashboards at scale add up from has the values that docs/rules.md promises."""

from __future__ import annotations

from pathlib import Path

from tests.rules.cases import GPU, HOLDER, NODE, counter, gauge, held, pod
from tests.rules.promtool import (
    MINUTE,
    Labels,
    Series,
    between,
    by_version,
    check,
    piecewise,
    total,
    value,
)

AT = 20 * MINUTE
OTHER: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
THIRD: Labels = {**GPU, "gpu": "2", "uuid": "GPU-c"}
INSTANCE: Labels = {**GPU, "gpu_instance": "2"}
JOB: Labels = {"job": NODE["job"]}
CODE = "gpu:gpu_limiter:code_rate5m"
CODES = {
    "idle": 1,
    "input": 2,
    "communication": 3,
    "latency": 4,
    "memory": 5,
    "compute": 6,
    "clock": 7,
    "unknown": 8,
}


def _limited(labels: Labels = GPU, /, **shares: float) -> list[Series]:
    """A GPU of which each limiter is known, as the exporter publishes it."""
    return [
        counter("gpu_limited_seconds_total", shares.get(name, 0.0), labels, limiter=name)
        for name in CODES
    ]


def test_a_limiter_that_held_more_than_half_has_its_number(tmp_path: Path) -> None:
    """Also of a MIG instance, and of a GPU that was observed for a tenth of the time."""
    shares: dict[str, dict[str, float]]
    shares = {name: {name: 0.06, "idle": 0.04} for name in CODES} | {"idle": {"idle": 0.1}}
    instances = {name: {**INSTANCE, "uuid": name} for name in CODES}
    rows = [row for name in CODES for row in _limited(instances[name], **shares[name])]
    codes = [(instances[name], code) for name, code in CODES.items()]
    check(tmp_path, [CODE], rows, [value(CODE, AT, *codes)])


def test_none_held_more_than_half(tmp_path: Path) -> None:
    """Mixed, also where it was not observed; a GPU that does not answer is lost."""
    up = [gauge("gpu_up", 1), gauge("gpu_up", 1, OTHER), gauge("gpu_up", 0, THIRD)]
    rows = [
        *_limited(GPU, idle=0.5, compute=0.5),
        *_limited(OTHER),
        *_limited(THIRD, compute=1.0),
        *up,
    ]
    check(tmp_path, [CODE], rows, [value(CODE, AT, (GPU, 0), (OTHER, 0), (THIRD, 9))])


def test_a_gpu_that_goes_has_no_limiter(tmp_path: Path) -> None:
    """It is gone from the node's sums as well once the window is over; one that comes has one after
    two scrapes."""
    late = [
        counter(
            "gpu_limited_seconds_total", between(AT, 1e9, total((AT, 1))), OTHER, limiter="idle"
        )
    ]
    early = [
        counter("gpu_limited_seconds_total", between(0, AT, total((0, 1))), GPU, limiter="compute")
    ]
    node = "node:gpu_limited:sum_rate5m"
    check(
        tmp_path,
        [CODE, node],
        [*early, *late],
        [
            value(CODE, AT - MINUTE, (GPU, 6)),
            value(CODE, AT + MINUTE, (GPU, 6), (OTHER, 1)),
            value(CODE, AT + 6 * MINUTE, (OTHER, 1)),
            value(node, AT + 6 * MINUTE, ({**NODE, "limiter": "idle"}, 1), to=1e-3),
        ],
    )


def test_gpus_are_counted_by_fifths_of_saturation(tmp_path: Path) -> None:
    """By the upper edge, which belongs to it; 0 is in the lowest, more than 1 in the highest."""
    saturations = {"0": 0.0, "1": 0.125, "2": 0.25, "3": 0.4375, "4": 0.9375, "5": 1.125}
    rows = [
        counter(name, seconds, {**NODE, "gpu": gpu, "uuid": f"GPU-{gpu}"}, **more)
        for gpu, share in saturations.items()
        for name, seconds, more in (
            ("gpu_saturation_seconds_total", share / 2, {}),
            ("gpu_time_seconds_total", 0.5, {"part": "idle"}),
        )
    ]
    name = "node:gpu_saturation:count"
    bands = {"0.2": 2, "0.4": 1, "0.6": 1, "1": 2}
    check(
        tmp_path,
        [name],
        rows,
        [value(name, AT, *(({**NODE, "band": band}, count) for band, count in bands.items()))],
    )


def test_sums_of_a_node(tmp_path: Path) -> None:
    """Over the time in which a reading was known, like the numbers of the fleet page: a GPU of
    which it is not counts in neither sum that panels divide. Power is from the counters of energy,
    of boards and of MIG instances."""
    rows = [
        # Works; its limiter is known half of the time, and its parts.
        *_limited(GPU, input=0.15, compute=0.35),
        counter("gpu_idle_seconds_total", 0.1),
        counter("gpu_saturation_seconds_total", 0.25),
        counter("gpu_time_seconds_total", 0.375, part="saturated"),
        counter("gpu_time_seconds_total", 0.125, part="idle"),
        counter("gpu_busy_seconds_total", 0.25),
        counter("gpu_observed_seconds_total", 0.5, reading="utilization"),
        counter("gpu_energy_joules_total", 300),
        counter("gpu_held_idle_energy_joules_total", 100),
        # Idle; parts and utilization are no longer known.
        *_limited(OTHER, idle=1),
        counter("gpu_idle_seconds_total", 1, OTHER),
        counter("gpu_saturation_seconds_total", 0.0, OTHER),
        counter("gpu_time_seconds_total", 0.0, OTHER, part="idle"),
        counter("gpu_busy_seconds_total", 0.0, OTHER),
        counter("gpu_observed_seconds_total", 0.0, OTHER, reading="utilization"),
        counter("gpu_energy_joules_total", 500, OTHER),
        # Works, and is starved for less than the other.
        *_limited(THIRD, input=0.1, compute=0.9),
        counter("gpu_idle_seconds_total", 0, THIRD),
    ]
    sums = {
        "node:gpu_working:count": 2,
        "node:gpu_starved:count": 1,
        "node:gpu_saturation:sum_rate5m": 0.25,
        "node:gpu_busy:sum_rate5m": 0.25,
        "node:gpu_observed:sum_rate5m": 0.5,
        "node:gpu_power_watts:sum_rate5m": 800,
        "node:gpu_held_idle_power_watts:sum_rate5m": 100,
    }
    parts, energy = "node:gpu_time:sum_rate5m", "node:gpu_held_idle_energy_joules:increase5m"
    of_parts = [
        ({**NODE, "part": part}, rate) for part, rate in (("idle", 0.125), ("saturated", 0.375))
    ]
    expected = [value(name, AT, (NODE, one)) for name, one in sums.items()]
    expected += [value(parts, AT, *of_parts), value(energy, AT, (NODE, 30_000), to=1e-3)]
    check(tmp_path, [*sums, parts, energy], rows, expected)


OF_FIVE_MINUTES = {
    "node:gpu_judged_seconds:increase5m": (NODE, 300),
    "node:gpu_idle_seconds:increase5m": (NODE, 75),
    "node:gpu_held_idle_seconds:increase5m": (NODE, 75),
    "node:gpu_lost_seconds:increase5m": ({**NODE, "limiter": "input"}, 150),
    "gpu:gpu_lost_seconds:increase5m": (GPU, 150),
    "owner:gpu_lost_seconds:sum5m": ({**JOB, "owner": "team-a/one"}, 150),
    "owner:gpu_allocated_seconds:sum5m": ({**JOB, "owner": "team-a/one"}, 300),
    "owner:gpu_held_idle_seconds:sum5m": ({**JOB, "owner": "team-a/one"}, 75),
}


def test_five_minutes_are_five_minutes(tmp_path: Path) -> None:
    """Neither the sample at the beginning of the window counts twice, nor one at its end."""
    rows = [
        *(each for each in held(0.25) if "limited" not in each.name),
        *_limited(GPU, input=0.5, compute=0.5),
        gauge("gpu_allocated", 1),
        pod("team-a/one"),
    ]
    expected = [value(name, AT, row, to=1e-3) for name, row in OF_FIVE_MINUTES.items()]
    check(tmp_path, OF_FIVE_MINUTES, rows, expected)


def test_what_is_not_lost_and_not_idle_has_no_series(tmp_path: Path) -> None:
    """Most GPUs work: their owners and GPUs begin no series then."""
    rows = [
        *(each for each in held(0) if "limited" not in each.name),
        *_limited(GPU, compute=1),
    ]
    names = [
        "gpu:gpu_lost_seconds:increase5m",
        "node:gpu_lost_seconds:increase5m",
        "owner:gpu_held_idle_seconds:sum5m",
        "owner:gpu_allocated_unopened_seconds:sum5m",
        "owner:gpu_lost_seconds:sum5m",
    ]
    check(tmp_path, names, rows, [value(name, AT) for name in names])


def test_unopened_time_goes_to_whose_the_gpu_is(tmp_path: Path) -> None:
    """Of a GPU that is given away and not held; by owner and by node."""
    rows = [
        *_limited(GPU, idle=1),
        gauge("gpu_held", 0),
        gauge("gpu_allocated", 1),
        counter("gpu_allocated_unopened_seconds_total", 1),
        pod("team-a/one"),
    ]
    node = "node:gpu_allocated_unopened_seconds:increase5m"
    owner = "owner:gpu_allocated_unopened_seconds:sum5m"
    expected = [
        value(node, AT, (NODE, 300), to=1e-3),
        value(owner, AT, ({**JOB, "owner": "team-a/one"}, 300), to=1e-3),
    ]
    check(tmp_path, [node, owner], rows, expected)


def test_a_holder_that_comes_and_goes_is_charged_for_its_time(tmp_path: Path) -> None:
    """Ten minutes of a GPU add up to those of its owner, whenever they begin; to a scrape each."""
    start, end = 7.5 * MINUTE, 17.5 * MINUTE
    there = between(start, end, lambda _: 1.0)
    rows = [
        gauge("gpu_held", piecewise((0, 0), (start, 1), (end, 0))),
        gauge("gpu_holder_info", there, GPU, command="python3", **HOLDER),
        counter("gpu_limited_seconds_total", 1, limiter="idle"),
        counter("gpu_idle_seconds_total", 1),
        counter("gpu_held_idle_seconds_total", total((0, 0), (start, 1), (end, 0))),
    ]
    name = "owner:gpu_held_idle_seconds:sum5m"
    expected = [
        value(
            f"sum_over_time({name}[30m:5m])",
            30 * MINUTE,
            ({**JOB, "owner": "alice"}, 600),
            to=by_version(30, 60),
        )
    ]
    check(tmp_path, [name], rows, expected)
