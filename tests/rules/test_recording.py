# SPDX-License-Identifier: Apache-2.0
"""Recorded series have the values that docs/rules.md promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.cases import (
    BY_UUID,
    GPU,
    HOLDER,
    NODE,
    counter,
    gauge,
    held,
    held_by,
    observed,
    rank,
    rank_labels,
)
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Interruption,
    Labels,
    Series,
    Value,
    between,
    check,
    total,
    value,
)

AT = 20 * MINUTE
OTHER: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
INSTANCE: Labels = {**GPU, "gpu_instance": "2"}
REMOTE: Labels = {**GPU, "instance": "node-2:19400", "uuid": "GPU-c"}
JOB: Labels = {"job": NODE["job"]}
RANK_0: Labels = {**rank_labels(0), "uuid": "GPU-a"}
MFU = ("rank:gpu_training_mfu:ratio_rate5m", "rank:gpu_model_flops_utilization:ratio_rate5m")
"""For own queries, and for the dashboards at scale."""


def record(
    tmp_path: Path, series: Sequence[Series], name: str, *rows: tuple[Labels, float]
) -> None:
    """Check the value of a recorded series after 20 minutes, to a millionth."""
    recorded(tmp_path, series, name, AT, *rows)


def recorded(
    tmp_path: Path,
    series: Sequence[Series],
    name: str,
    at: float,
    *rows: tuple[Labels, float],
    to: float = 1e-6,
    event: Interruption | None = None,
) -> None:
    """Check it at another time, or to another multiple."""
    check(tmp_path, [name], series, [value(name, at, *rows, to=to)], event)


def test_shares_are_of_observed_time(tmp_path: Path) -> None:
    """Half observed and all of it busy is 1; one that was observed for less counts less."""
    rows = [
        counter("gpu_observed_seconds_total", 0.5, reading="utilization"),
        counter("gpu_busy_seconds_total", 0.5),
        counter("gpu_observed_seconds_total", 0.125, REMOTE, reading="utilization"),
        counter("gpu_busy_seconds_total", 0, REMOTE),
    ]
    record(tmp_path, rows, "gpu:gpu_busy:ratio_rate5m", (GPU, 1), (REMOTE, 0))
    record(tmp_path, rows, "job:gpu_busy:ratio_rate5m", (JOB, 0.8))


def test_pipes_and_mig_instances_keep_their_labels(tmp_path: Path) -> None:
    """One series for each."""
    rows = [
        *observed(INSTANCE, "activity"),
        counter("gpu_pipe_active_seconds_total", 0.25, INSTANCE, pipe="tensor"),
        counter("gpu_pipe_active_seconds_total", 0.125, INSTANCE, pipe="fp32"),
    ]
    record(
        tmp_path,
        rows,
        "gpu:gpu_pipe_active:ratio_rate5m",
        ({**INSTANCE, "pipe": "fp32"}, 0.125),
        ({**INSTANCE, "pipe": "tensor"}, 0.25),
    )


@pytest.mark.parametrize(
    ("family", "label", "name"),
    [
        ("gpu_limited_seconds_total", "limiter", "gpu:gpu_limited:ratio_rate5m"),
        ("gpu_time_seconds_total", "part", "gpu:gpu_time:ratio_rate5m"),
    ],
)
def test_partitions_add_up_to_one(family: str, label: str, name: str, tmp_path: Path) -> None:
    """Whatever part of the time was observed."""
    values = {"idle": 0.125, "clock": 0.375}
    rows = [counter(family, value, **{label: key}) for key, value in values.items()]
    record(
        tmp_path, rows, name, *(({**GPU, label: key}, 2 * value) for key, value in values.items())
    )


@pytest.mark.parametrize(
    ("rows", "lower", "upper"),
    [
        (
            [
                counter("gpu_limited_seconds_total", 0.5, limiter="unknown"),
                counter("gpu_time_lower_seconds_total", 0.125, part="idle"),
                counter("gpu_time_upper_seconds_total", 0.25, part="idle"),
                counter("gpu_time_lower_seconds_total", 0, part="saturated"),
                counter("gpu_time_upper_seconds_total", 0.375, part="saturated"),
            ],
            {"idle": 0.25, "saturated": 0.0},
            {"idle": 0.5, "saturated": 0.75},
        ),
        (
            [
                *observed(GPU, "utilization"),
                counter("gpu_time_seconds_total", 0.25, part="saturated"),
                counter("gpu_time_upper_seconds_total", 0.375, part="saturated"),
            ],
            {},
            {"saturated": 0.5},
        ),
        (
            [
                *observed(GPU, "activity"),
                counter("gpu_time_seconds_total", 1, part="idle"),
                counter("gpu_time_lower_seconds_total", 0, part="idle"),
                counter("gpu_time_upper_seconds_total", 0, part="idle"),
            ],
            {},
            {},
        ),
    ],
    ids=["of the observed time", "of the time without parts", "that stand still"],
)
def test_bounds_are_shares_of_the_time_without_parts(
    rows: Sequence[Series], lower: dict[str, float], upper: dict[str, float], tmp_path: Path
) -> None:
    """All of the time has a limiter; a bound may be 0, but one that stands still is no bound."""
    for which, shares in (("lower", lower), ("upper", upper)):
        expected = [({**GPU, "part": part}, share) for part, share in shares.items()]
        record(tmp_path, rows, f"gpu:gpu_time_{which}:ratio_rate5m", *expected)


@pytest.mark.parametrize("late", ["gpu_time_seconds_total", "gpu_time_upper_seconds_total"])
def test_a_window_in_which_bounds_or_parts_begin_has_no_bounds(late: str, tmp_path: Path) -> None:
    """What was counted before the first scrape is not in a rate: an upper bound would be less."""
    rates = {"gpu_time_seconds_total": 0.875, "gpu_time_upper_seconds_total": 0.125}
    rows = observed(GPU, "activity")
    for name, rate in rates.items():
        since = AT - 2 * MINUTE if name == late else 0.0
        value = between(since, 2 * AT, total((since - 20, rate)))
        rows.append(counter(name, value, part="saturated"))
    record(tmp_path, rows, "gpu:gpu_time_upper:ratio_rate5m")
    recorded(
        tmp_path,
        rows,
        "gpu:gpu_time_upper:ratio_rate5m",
        AT + 4 * MINUTE,
        ({**GPU, "part": "saturated"}, 1.0),
    )


def test_saturation_is_of_the_time_that_has_parts(tmp_path: Path) -> None:
    """A unit was left out for half of the time; the counters of the other are not complete."""
    rows = [
        *observed(GPU, "activity"),
        counter("gpu_saturation_seconds_total", 0.125),
        counter("gpu_time_seconds_total", 0.375, part="idle"),
        counter("gpu_time_seconds_total", 0.125, part="saturated"),
        *observed(REMOTE, "activity"),
    ]
    record(tmp_path, rows, "gpu:gpu_saturation:ratio_rate5m", (GPU, 0.25))
    record(tmp_path, rows, "job:gpu_saturation:ratio_rate5m", (JOB, 0.25))


def test_counters_that_leave_out_a_unit_have_no_intensity(tmp_path: Path) -> None:
    """A GPU whose source changed: what was complete before stands still now, and is not less."""
    rows = [
        *observed(GPU, "activity"),
        counter("gpu_flops_total", 100, precision="bf16_tensor"),
        counter("gpu_dram_bytes_total", 50),
    ]
    partly = gauge("gpu_saturation_source_info", 1, source="dcgm", complete="no")
    wholly = gauge("gpu_saturation_source_info", 1, source="cupti", complete="yes")
    silent = gauge("gpu_saturation_source_info", 1, source="estimate", complete="no")
    name = "gpu:gpu_flops_per_dram_byte:ratio_rate5m"
    record(tmp_path, [*rows, partly], name)
    record(tmp_path, [*rows, wholly], name, (GPU, 2))
    record(tmp_path, [*rows, silent], name, (GPU, 2))


def test_intensity_and_efficiency(tmp_path: Path) -> None:
    """FLOPs of all precisions over bytes; over joules of the board, also of MIG instances."""
    other: Labels = {**GPU, "gpu_instance": "1"}
    rows = [
        *observed(INSTANCE, "activity"),
        *observed(other, "activity"),
        counter("gpu_flops_total", 300, INSTANCE, precision="bf16_tensor"),
        counter("gpu_flops_total", 100, INSTANCE, precision="fp32"),
        counter("gpu_flops_total", 200, other, precision="fp32"),
        counter("gpu_dram_bytes_total", 200, INSTANCE),
        counter("gpu_energy_joules_total", 50),
    ]
    record(tmp_path, rows, "gpu:gpu_flops_per_dram_byte:ratio_rate5m", (INSTANCE, 2))
    record(tmp_path, rows, "gpu:gpu_flops_per_joule:ratio_rate5m", (GPU, 12))


SILENT: Labels = {**GPU, "gpu": "2", "uuid": "GPU-d"}
PARTLY_COUNTED = [
    *observed(GPU, "activity"),
    counter("gpu_flops_total", 300, precision="bf16_tensor"),
    counter("gpu_flops_total", 100, precision="fp32"),
    counter("gpu_energy_joules_total", 50),
    # Idle, and known to be.
    *observed(REMOTE, "activity"),
    counter("gpu_flops_total", 0, REMOTE, precision="fp32"),
    counter("gpu_energy_joules_total", 30, REMOTE),
    # Without counters; with counters that answer no more; without energy.
    *observed(OTHER, "utilization"),
    counter("gpu_energy_joules_total", 400, OTHER),
    counter("gpu_observed_seconds_total", 0, SILENT, reading="activity"),
    counter("gpu_flops_total", 0, SILENT, precision="fp32"),
    counter("gpu_energy_joules_total", 700, SILENT),
    *observed({**REMOTE, "uuid": "GPU-e"}, "activity"),
    counter("gpu_flops_total", 1e6, {**REMOTE, "uuid": "GPU-e"}, precision="fp32"),
]
"""GPUs that do 400 FLOP/s for the 80 W of those whose work is known."""


def test_energy_of_gpus_without_counters_does_not_count(tmp_path: Path) -> None:
    """Work over the energy of the GPUs whose work is known, and of them alone."""
    record(tmp_path, PARTLY_COUNTED, "job:gpu_flops_per_joule:ratio_rate5m", (JOB, 5))
    name = "gpu:gpu_flops_per_joule:ratio_rate5m"
    record(tmp_path, PARTLY_COUNTED, name, (GPU, 8), (REMOTE, 0))


def test_a_job_is_as_slow_as_its_slowest_rank(tmp_path: Path) -> None:
    """Over the nodes."""
    rows = [*rank(0, stall=0.125), *rank(1, stall=0.5, instance="node-2:19400")]
    record(
        tmp_path,
        rows,
        "training_job:gpu_training_phase_gpu_idle:ratio_max_rate5m",
        ({**JOB, "training_job": "resnet", "phase": "data"}, 0.5),
    )
    record(
        tmp_path,
        rows,
        "rank:gpu_training_phase_gpu_idle:ratio_rate5m",
        ({**rank_labels(1, "node-2:19400"), "phase": "data"}, 0.5),
        ({**rank_labels(0), "phase": "data"}, 0.125),
    )
    record(
        tmp_path,
        rank(0),
        "rank:gpu_training_step_seconds_per_step:ratio_rate5m",
        (rank_labels(0), 0.25),
    )


def test_a_phase_that_is_not_measured_is_absent(tmp_path: Path) -> None:
    """The others are not in need of it, and no share is made up."""
    rows = [*rank(0, waited=0.125), *rank(1, stall=0.5)]
    for name, phase, labels, share in (
        ("rank:gpu_training_phase:ratio_rate5m", "checkpoint", rank_labels(0), 0.125),
        ("rank:gpu_training_phase_gpu_idle:ratio_rate5m", "data", rank_labels(1), 0.5),
    ):
        record(tmp_path, rows, name, ({**labels, "phase": phase}, share))
        of_job = name.replace("rank:", "training_job:").replace("ratio_", "ratio_max_")
        job = {**JOB, "training_job": "resnet", "phase": phase}
        record(tmp_path, rows, of_job, (job, share))


def test_ranks_that_are_not_there_do_not_count_for_a_job(tmp_path: Path) -> None:
    """Another's rank under its name takes nothing from it; where all are not, all count."""
    job = {**JOB, "training_job": "resnet"}
    alike = [
        row
        for number in range(2)
        for row in rank(number, stall=0.5, waited=0.5, instance="node-2:19400", verified=False)
    ]
    stall = "training_job:gpu_training_phase_gpu_idle:ratio_max_rate5m"
    wait = "training_job:gpu_training_phase:ratio_max_rate5m"
    count = "training_job:gpu_training_ranks:count"
    own: dict[str, Any] = {"stall": 0.125, "waited": 0.125}
    for rows, share, ranks in (
        (rank(0, **own), 0.125, 1),
        (rank(0, **own, verified=None), 0.125, 1),
        ([*rank(0, **own), *alike], 0.125, 1),
        (alike, 0.5, 2),
    ):
        record(tmp_path, rows, stall, ({**job, "phase": "data"}, share))
        record(tmp_path, rows, wait, ({**job, "phase": "checkpoint"}, share))
        record(tmp_path, rows, count, (job, ranks))


def test_mfu_of_a_job_is_that_of_the_ranks_that_count(tmp_path: Path) -> None:
    """One that is not on its GPU adds neither its FLOPs nor that GPU's peak."""
    rows = _mfu([0, 1], ["GPU-a", "GPU-b"], "bf16")
    for number, uuid, listed in ((0, "GPU-a", 1), (1, "GPU-b", 0)):
        labels = {**rank_labels(number), "uuid": uuid}
        rows.append(gauge("gpu_training_verified", listed, labels))
        rate = 50 * (number + 1)
        rows.append(counter("gpu_training_samples_total", rate, labels))
    job = {**JOB, "training_job": "resnet"}
    record(tmp_path, rows, "training_job:gpu_training_mfu:ratio_rate5m", (job, 0.25))
    record(tmp_path, rows, "training_job:gpu_training_samples:sum_rate5m", (job, 50))


def _mfu(numbers: Sequence[int], uuids: Sequence[str], precision: str) -> list[Series]:
    rows = []
    for number, uuid in zip(numbers, uuids, strict=True):
        labels = {**rank_labels(number), "uuid": uuid}
        rows.append(counter("gpu_training_model_flops_total", 100, labels))
        rows.append(counter("gpu_training_step_seconds_total", 1, labels))
        rows.append(gauge("gpu_training_info", 1, labels, precision=precision, framework="torch"))
    for uuid in sorted(set(uuids)):
        rows.append(_peak(400, "bf16_tensor", uuid=uuid))
        rows.append(_peak(300, "bf16_tensor", "achievable", uuid))
        rows.append(_peak(50, "fp32", uuid=uuid))
    return rows


def _peak(flops: float, precision: str, basis: str = "spec", uuid: str = "GPU-a") -> Series:
    labels = {**GPU, "uuid": uuid}
    return gauge("gpu_peak_flops_per_second", flops, labels, precision=precision, basis=basis)


@pytest.mark.parametrize(
    ("precision", "mfu"), [("bf16", [0.25]), ("fp32", [2.0]), ("", []), ("mxfp8", [0.125])]
)
def test_mfu_is_against_the_peak_of_the_precision(
    precision: str, mfu: list[float], tmp_path: Path
) -> None:
    """bf16 is computed by the tensor pipe, fp32 is not; an unknown one has no peak."""
    rows = [*_mfu([0], ["GPU-a"], precision), _peak(800, "fp8_tensor")]
    of_rank = [(RANK_0, share) for share in mfu]
    check(tmp_path, MFU, rows, [value(name, AT, *of_rank) for name in MFU])


def fp32_work(tensor: float) -> list[Series]:
    """A job that states FP32, and of whose GPU's work so much is TF32."""
    return [
        *_mfu([0], ["GPU-a"], "fp32"),
        _peak(200, "tf32_tensor"),
        counter("gpu_flops_total", tensor, precision="tf32_tensor"),
        counter("gpu_flops_total", 10, precision="fp32"),
    ]


@pytest.mark.parametrize(("tensor", "mfu"), [(80, 0.5), (5, 2)])
def test_fp32_in_tensor_cores_is_tf32(tensor: float, mfu: float, tmp_path: Path) -> None:
    """As long as the GPU does most of its work there; else the vector units' peak counts."""
    check(tmp_path, MFU, fp32_work(tensor), [value(name, AT, (RANK_0, mfu)) for name in MFU])


def test_ranks_that_share_a_gpu_share_its_peak(tmp_path: Path) -> None:
    """Two ranks on one GPU and one on another: 300 of 800; labels of a target are said of it."""
    target = {"cluster": "berlin"}
    rows = [
        replace(one, labels={**one.labels, **target})
        for one in _mfu([0, 1, 2], ["GPU-a", "GPU-a", "GPU-b"], "bf16")
    ]
    ranks = [
        ({**rank_labels(number), "uuid": uuid, **target}, 0.25)
        for number, uuid in ((1, "GPU-a"), (0, "GPU-a"), (2, "GPU-b"))
    ]
    check(tmp_path, MFU, rows, [value(name, AT, *ranks) for name in MFU])
    job = {**JOB, "training_job": "resnet", **target}
    record(tmp_path, rows, "training_job:gpu_training_mfu:ratio_rate5m", (job, 0.375))


def test_no_free_gpu_is_none_and_not_absent(tmp_path: Path) -> None:
    """A node whose GPUs are all held has 0 free ones."""
    rows = [gauge("gpu_held", 1), gauge("gpu_held", 1, OTHER)]
    record(tmp_path, rows, "node:gpu_free:count", (NODE, 0))
    rows = [gauge("gpu_held", 0), gauge("gpu_held", 1, OTHER), gauge("gpu_held", 0, REMOTE)]
    record(tmp_path, rows, "job:gpu_free:count", (JOB, 2))
    rows = [gauge("gpu_up", 0), gauge("gpu_up", 1, OTHER)]
    record(tmp_path, rows, "job:gpu_lost:count", (JOB, 1))


def of(owner: str, **more: str) -> Labels:
    return {**JOB, **HOLDER, "owner": owner, **more}


ALICE_THEN_BOB = held_by(("alice", 0, 2 * HOUR), ("bob", 2 * HOUR, 1e9))
PAUSES = [("alice" if i % 2 else "bob", i * 15 * MINUTE, (i * 15 + 10) * MINUTE) for i in range(24)]
TURNS = [("bob" if i % 2 else "alice", i * 10 * MINUTE, (i + 1) * 10 * MINUTE) for i in range(36)]
IDLE_TURNS = [(start, float(who == "alice")) for who, start, _ in TURNS]


@pytest.mark.parametrize(
    ("rows", "end", "alice", "bob", "to", "event"),
    [
        (ALICE_THEN_BOB, 3, 2.0, 1.0, 0.1, Interruption(HOUR, HOUR + 2 * MINUTE, restart=True)),
        (held_by(*PAUSES), 6, 2.0, 2.0, 0.01, None),
        (held_by(*TURNS, idle=IDLE_TURNS), 6, 2.9, 0.1, 0.1, None),
    ],
    ids=["over a restart", "of short holdings, all idle", "of whom alice idles and bob works"],
)
def test_hours_go_to_who_held_the_gpu_at_the_time(
    rows: Sequence[Series],
    end: int,
    alice: float,
    bob: float,
    to: float,
    event: Interruption | None,
    tmp_path: Path,
) -> None:
    """To the minute, with nobody in between or not; a restart of the exporter costs minutes."""
    name = "owner:gpu_held_idle_seconds:hours1d"
    hours = [(of("alice"), alice), (of("bob"), bob)]
    recorded(tmp_path, rows, name, end * HOUR, *hours, to=to, event=event)
    whole = "node:gpu_held_idle_seconds:hours1d"
    recorded(tmp_path, rows, whole, end * HOUR, (NODE, alice + bob), to=to)


def unjudged(rows: Sequence[Series]) -> list[Series]:
    """These series without the limiter that `observed` has for all of the time."""
    return [one for one in rows if one.name != "gpu_limited_seconds_total"]


FREE = [
    piece for i in range(24) for piece in ((i * 15 * MINUTE, 0.0), ((i * 15 + 10) * MINUTE, 1.0))
]


@pytest.mark.parametrize(
    ("rows", "limiters", "end", "hours"),
    [
        (
            held_by(*(("alice", start, end) for _, start, end in PAUSES), idle=FREE),
            {"idle": total(*FREE), "compute": total(*((at, 1 - idle) for at, idle in FREE))},
            6,
            {"compute": 4.0},
        ),
        (
            held_by(("alice", 0, HOUR)),
            {"idle": total((0, 0.5), (HOUR, 1)), "input": total((0, 0.5), (HOUR, 0))},
            3,
            {"idle": 0.5, "input": 0.5},
        ),
    ],
    ids=["works, with pauses of nobody", "waits for data half of the time"],
)
def test_time_of_a_holder_is_charged_by_limiter(
    rows: Sequence[Series],
    limiters: dict[str, Value],
    end: int,
    hours: dict[str, float],
    tmp_path: Path,
) -> None:
    """Nothing is charged for when nobody is there."""
    series = unjudged(rows)
    for name, seconds in limiters.items():
        series.append(counter("gpu_limited_seconds_total", seconds, limiter=name))
    charged = [(of("alice", limiter=name), each) for name, each in hours.items()]
    recorded(tmp_path, series, "owner:gpu_limited_seconds:hours1d", end * HOUR, *charged, to=0.01)


def test_hours_follow_the_gpu_to_another_index(tmp_path: Path) -> None:
    """The holder of a UUID has one series."""
    moved = [
        replace(one, value=between(start, end, one.value))
        for index, start, end in (("0", 0.0, HOUR), ("1", HOUR + MINUTE, 1e9))
        for one in held(1, HOLDER, {**GPU, "gpu": index})
    ]
    name = "holder:gpu_held_idle_seconds:hours1d"
    recorded(tmp_path, moved, name, 3 * HOUR, ({**BY_UUID, **HOLDER}, 3.0), to=0.1)


def test_hours_of_the_fleet_by_limiter(tmp_path: Path) -> None:
    """Whoever holds the GPUs."""
    rows = [
        counter("gpu_limited_seconds_total", 0.75, limiter="input"),
        counter("gpu_limited_seconds_total", 0.25, limiter="compute"),
        counter("gpu_limited_seconds_total", 1, OTHER, limiter="idle"),
    ]
    hours = {"input": 1.5, "idle": 2.0, "compute": 0.5}
    charged = [({**JOB, "limiter": each}, value) for each, value in hours.items()]
    recorded(tmp_path, rows, "job:gpu_limited_seconds:hours1d", 2 * HOUR, *charged, to=0.1)


def test_idle_energy_and_hours_of_a_day(tmp_path: Path) -> None:
    """From the counters themselves."""
    rows = [*held(0.5), counter("gpu_idle_energy_joules_total", 30)]
    end = 2 * HOUR
    for name, labels, total_of_day in (
        ("gpu:gpu_held_idle_seconds:hours1d", GPU, 1.0),
        ("node:gpu_idle_seconds:hours1d", NODE, 1.0),
        ("gpu:gpu_idle_energy_joules:increase1d", GPU, 216000),
    ):
        recorded(tmp_path, rows, name, end, (labels, total_of_day), to=0.1)


def test_the_ratio_of_a_window_is_of_its_holder(tmp_path: Path) -> None:
    """From when it came, of what was observed, and only while it is observed."""
    name = "holder:gpu_held_idle:ratio_warning"
    alice = {**BY_UUID, **HOLDER}
    bob = {**alice, "owner": "bob"}
    late = 40 * MINUTE
    recorded(tmp_path, held(1), name, 3 * MINUTE, (alice, 1))
    recorded(tmp_path, held(0.5), name, late, (alice, 0.5))
    recorded(tmp_path, held(1), name, late, event=Interruption(late - 4 * MINUTE, 1e9))
    came = late - 10 * MINUTE
    rows = held_by(("alice", 0, came - 5 * MINUTE), ("bob", came, 1e9))
    recorded(tmp_path, rows, name, late, (bob, 1))
    windows = "holder:gpu_held_idle:windows_warning"
    recorded(tmp_path, rows, windows, late + 40 * MINUTE, (bob, 1.5), to=0.1)


def test_the_ratio_needs_no_time_without_a_holder(tmp_path: Path) -> None:
    """It is 1 from the first second, also where time without a holder is excluded."""
    name = "holder:gpu_held_idle:ratio_rate2m"
    alice = {**BY_UUID, **HOLDER}
    came = AT - MINUTE
    record(tmp_path, held_by(("alice", came, 1e9)), name, (alice, 1))
    gone = held_by(("alice", 0, came))
    record(tmp_path, gone, name, (alice, 1))
    untold = [one for one in held(1) if one.name != "gpu_idle_seconds_total"]
    record(tmp_path, untold, name, (alice, 1))


def test_names_that_stand_for_several_runs_say_nothing_of_a_job(tmp_path: Path) -> None:
    """Two unrelated runs of one name, each with a rank 0: their own series are all there is."""
    one = rank(0, stall=0.125)
    two = rank(0, stall=0.5, instance="node-2:19400", uuid="GPU-b")
    for name in (
        "training_job:gpu_training_ranks:count",
        "training_job:gpu_training_phase_gpu_idle:ratio_max_rate5m",
    ):
        record(tmp_path, [*one, *two], name)
    job = {**JOB, "training_job": "resnet"}
    ranks = [*one, *rank(1, instance="node-2:19400")]
    record(tmp_path, ranks, "training_job:gpu_training_ranks:count", (job, 2))
