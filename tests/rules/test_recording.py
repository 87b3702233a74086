# SPDX-License-Identifier: Apache-2.0
"""Recorded series have the values that docs/rules.md promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rules.cases import GPU, HOLDER, NODE, counter, gauge, held, observed, rank, rank_labels
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    Expected,
    Interruption,
    Labels,
    Series,
    between,
    check,
    selector,
    total,
)

AT = 20 * MINUTE
OTHER: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
INSTANCE: Labels = {**GPU, "gpu_instance": "2"}
REMOTE: Labels = {**GPU, "instance": "node-2:19400", "uuid": "GPU-c"}
JOB: Labels = {"job": NODE["job"]}


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
    event: Interruption | None = None,
) -> None:
    rounded = f"round({name}, 0.000001)"
    expected = [(selector("", dict(sorted(labels.items()))), value) for labels, value in rows]
    check(tmp_path, [name], series, [Expected(rounded, at, expected)], event)


def test_shares_are_of_observed_time(tmp_path: Path) -> None:
    """Busy and observed are both counters: half observed and all of it busy is 1."""
    rows = [
        counter("gpu_observed_seconds_total", 0.5, reading="utilization"),
        counter("gpu_busy_seconds_total", 0.5),
    ]
    record(tmp_path, rows, "gpu:gpu_busy:ratio_rate5m", (GPU, 1))


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


def test_intensity_and_efficiency(tmp_path: Path) -> None:
    """FLOPs of all precisions over bytes; over joules of the board, also of MIG instances."""
    rows = [
        counter("gpu_flops_total", 300, INSTANCE, precision="bf16_tensor"),
        counter("gpu_flops_total", 100, INSTANCE, precision="fp32"),
        counter("gpu_flops_total", 200, {**GPU, "gpu_instance": "1"}, precision="fp32"),
        counter("gpu_dram_bytes_total", 200, INSTANCE),
        counter("gpu_energy_joules_total", 50),
    ]
    record(tmp_path, rows, "gpu:gpu_flops_per_dram_byte:ratio_rate5m", (INSTANCE, 2))
    record(tmp_path, rows, "gpu:gpu_flops_per_joule:ratio_rate5m", (GPU, 12))


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


def _mfu(numbers: Sequence[int], uuids: Sequence[str], precision: str) -> list[Series]:
    rows = []
    for number, uuid in zip(numbers, uuids, strict=True):
        labels = {**rank_labels(number), "uuid": uuid}
        rows.append(counter("gpu_training_model_flops_total", 100, labels))
        rows.append(gauge("gpu_training_info", 1, labels, precision=precision, framework="torch"))
    for uuid in sorted(set(uuids)):
        device = {**GPU, "uuid": uuid}
        for name, peak, basis in (
            ("bf16_tensor", 400, "spec"),
            ("bf16_tensor", 300, "achievable"),
            ("fp32", 50, "spec"),
        ):
            rows.append(
                gauge("gpu_peak_flops_per_second", peak, device, precision=name, basis=basis)
            )
    return rows


def test_mfu_is_against_the_peak_of_the_precision(tmp_path: Path) -> None:
    """bf16 is computed by the tensor pipe, fp32 is not; an unknown one has no peak."""
    name = "rank:gpu_training_mfu:ratio_rate5m"
    labels = {**rank_labels(0), "uuid": "GPU-a"}
    record(tmp_path, _mfu([0], ["GPU-a"], "bf16"), name, (labels, 0.25))
    record(tmp_path, _mfu([0], ["GPU-a"], "fp32"), name, (labels, 2))
    record(tmp_path, _mfu([0], ["GPU-a"], ""), name)


def test_ranks_that_share_a_gpu_share_its_peak(tmp_path: Path) -> None:
    """Two ranks on one GPU and one on another: 300 of 800."""
    rows = _mfu([0, 1, 2], ["GPU-a", "GPU-a", "GPU-b"], "bf16")
    record(
        tmp_path,
        rows,
        "training_job:gpu_training_mfu:ratio_rate5m",
        ({**JOB, "training_job": "resnet"}, 0.375),
    )


def test_no_free_gpu_is_none_and_not_absent(tmp_path: Path) -> None:
    """A node whose GPUs are all held has 0 free ones."""
    rows = [gauge("gpu_held", 1), gauge("gpu_held", 1, OTHER)]
    record(tmp_path, rows, "node:gpu_free:count", (NODE, 0))
    rows = [gauge("gpu_held", 0), gauge("gpu_held", 1, OTHER), gauge("gpu_held", 0, REMOTE)]
    record(tmp_path, rows, "job:gpu_free:count", (JOB, 2))
    rows = [gauge("gpu_up", 0), gauge("gpu_up", 1, OTHER)]
    record(tmp_path, rows, "job:gpu_lost:count", (JOB, 1))


def test_the_fleet_is_a_quotient_of_sums(tmp_path: Path) -> None:
    """A GPU that was observed for less time counts less."""
    rows = [
        *observed(GPU, "utilization"),
        counter("gpu_busy_seconds_total", 1),
        counter("gpu_observed_seconds_total", 0.25, REMOTE, reading="utilization"),
        counter("gpu_busy_seconds_total", 0, REMOTE),
    ]
    record(tmp_path, rows, "job:gpu_busy:ratio_rate5m", (JOB, 0.8))


def test_saturation_of_the_fleet_is_of_those_that_are_measured(tmp_path: Path) -> None:
    """A GPU without complete counters is not counted as unsaturated."""
    rows = [
        *observed(GPU, "activity"),
        counter("gpu_saturation_seconds_total", 0.5),
        *observed(REMOTE, "activity"),
    ]
    record(tmp_path, rows, "job:gpu_saturation:ratio_rate5m", (JOB, 0.5))


def test_hours_go_to_who_held_the_gpu_at_the_time(tmp_path: Path) -> None:
    """Two hours of alice, then one of bob; a restart of the exporter in between costs minutes."""
    change, end = 2 * HOUR, 3 * HOUR
    rows = [one for one in held(1) if one.name != "gpu_holder_info"]
    for owner, start, until in (("alice", 0.0, change), ("bob", change, end + 60)):
        info = between(start, until, lambda _: 1.0)
        labels = {**HOLDER, "owner": owner, "command": "python3"}
        rows.append(gauge("gpu_holder_info", info, **labels))
    event = Interruption(HOUR, HOUR + 2 * MINUTE, restart=True)
    name = "owner:gpu_held_idle_seconds:hours1d"
    expected = [
        (selector("", {"class": "training", "job": NODE["job"], "owner": owner}), value)
        for owner, value in (("alice", 1.9), ("bob", 1.0))
    ]
    check(tmp_path, [name], rows, [Expected(f"round({name}, 0.1)", end, expected)], event)


def test_hours_by_limiter(tmp_path: Path) -> None:
    """Of the fleet, and of an owner's GPUs."""
    rows = [
        *held(0),
        counter("gpu_limited_seconds_total", 0.75, limiter="input"),
        counter("gpu_limited_seconds_total", 0.25, limiter="compute"),
        counter("gpu_limited_seconds_total", 1, OTHER, limiter="idle"),
    ]
    for name, values in (
        ("job:gpu_limited_seconds:hours1d", {"input": 1.5, "idle": 2.0, "compute": 0.5}),
        ("owner:gpu_limited_seconds:hours1d", {"input": 1.5, "compute": 0.5}),
    ):
        more = HOLDER if name.startswith("owner") else {}
        expected = [
            (selector("", dict(sorted({**JOB, **more, "limiter": limiter}.items()))), value)
            for limiter, value in values.items()
        ]
        query = Expected(f"round({name}, 0.1)", 2 * HOUR, expected)
        check(tmp_path, [name], rows, [query])


def test_idle_energy_and_hours_of_a_day(tmp_path: Path) -> None:
    """From the counters themselves."""
    rows = [*held(0.5), counter("gpu_idle_energy_joules_total", 30)]
    end = 2 * HOUR
    for name, labels, value in (
        ("gpu:gpu_held_idle_seconds:hours1d", GPU, 1.0),
        ("node:gpu_idle_seconds:hours1d", NODE, 1.0),
        ("gpu:gpu_idle_energy_joules:increase1d", GPU, 216000),
    ):
        expected = [(selector("", dict(sorted(labels.items()))), value)]
        query = Expected(f"round({name}, 0.1)", end, expected)
        check(tmp_path, [name], rows, [query])


def test_two_holders_at_a_time_are_nobody(tmp_path: Path) -> None:
    """A join on who holds a GPU never fails: while it is not clear, there is none."""
    twice = [
        *held(1),
        gauge("gpu_holder_info", 1, **{**HOLDER, "owner": "bob"}, command="bash"),
        *held(1, HOLDER, OTHER),
    ]
    holder = {"instance": NODE["instance"], "uuid": "GPU-b", **HOLDER}
    record(tmp_path, twice, "gpu:gpu_holder:info", (holder, 1))
    record(tmp_path, twice, "holder:gpu_held_idle:ratio_rate2m", ({**OTHER, **HOLDER}, 1))


def test_two_jobs_that_read_one_exporter_cost_no_join(tmp_path: Path) -> None:
    """Both have their series; who holds the GPU is known once."""
    second = {**GPU, "job": "gpus"}
    rows = [*held(1), *held(1, HOLDER, second)]
    record(
        tmp_path,
        rows,
        "holder:gpu_held_idle:ratio_rate2m",
        ({**GPU, **HOLDER}, 1),
        ({**second, **HOLDER}, 1),
    )


def test_a_command_that_changes_is_the_same_holder(tmp_path: Path) -> None:
    """Two commands of one owner, for a moment at once."""
    rows = [*held(1), gauge("gpu_holder_info", 1, **HOLDER, command="bash")]
    record(tmp_path, rows, "holder:gpu_held_idle:ratio_rate2m", ({**GPU, **HOLDER}, 1))


def test_the_ratio_of_a_window_is_absent_until_it_says_something(tmp_path: Path) -> None:
    """At once if the GPU was busy, after most of the window if it was not, never while away."""
    name = "gpu:gpu_held_idle:ratio_warning"
    late = 40 * MINUTE
    recorded(tmp_path, held(1), name, 20 * MINUTE)
    recorded(tmp_path, held(0.5), name, 3 * MINUTE, (GPU, 0.5))
    recorded(tmp_path, held(1), name, late, (GPU, 1))
    recorded(tmp_path, held(1), name, late, event=Interruption(late - MINUTE, 1e9))
    changed = held(total((0, 1), (late - 3 * MINUTE, 0)))
    recorded(tmp_path, changed, name, late, (GPU, 0.9))
