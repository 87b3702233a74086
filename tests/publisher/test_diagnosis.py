# SPDX-License-Identifier: Apache-2.0
"""The publisher attaches causes that come of several GPUs, processes and ranks together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from exporter.model.reading import Activity, Process, Utilization
from exporter.model.snapshot import Diagnosis
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.publisher import Publisher, Rules
from tests.clocks import ManualClock
from tests.publisher.test_tick import BUSY, H100, QUIET, SPECS, Script
from tests.publisher.test_training import Jobs

SECONDS = 75
HALF = dataclasses.replace(BUSY, engine=0.5, sm=0.4, tensor=0.3)


class One(NamedTuple):
    """A GPU of the node, and the rank on it."""

    activity: Activity = BUSY
    pid: int | None = None
    """Its process; one of its own if not given."""
    command: str = "python3"
    cpu_cores: float = 0.1
    waits: float | None = None
    """Share of time in which its rank waits for data and its GPU idles; None without a rank."""
    steps: float = 1.0
    sm_hertz: float = 1.8e9
    orphaned_at: int = 0
    """The second from which on its command is what is listed; before that python3 is."""
    stray: int | None = None
    """A process that works elsewhere and has a small context here, as ranks often have on GPU 0."""


def shown(gpus: Sequence[One]) -> list[list[Diagnosis]]:
    """Return the diagnoses of each GPU of a node after `SECONDS`."""
    clock = ManualClock()
    script, jobs = Script(clock), Jobs()
    publisher = Publisher(script, SPECS, Rules(), clock, training=[jobs])
    for second in range(1, SECONDS + 1):
        clock.advance(1.0)
        reports = []
        for index, one in enumerate(gpus):
            device = dataclasses.replace(H100, index=index, uuid=f"GPU-{index}")
            pid, engine = one.pid or 4000 + index, one.activity.engine or 0.0
            command = one.command if second >= one.orphaned_at else "python3"
            process = Process(pid, "compute", 2**30, command, "ada", "training")
            script.read(
                device,
                activity=one.activity,
                processes=tuple(
                    dataclasses.replace(process, pid=of, used_bytes=used, cpu_cores=one.cpu_cores)
                    for of, used in ((pid, 2**30), (one.stray, 2**28))
                    if of is not None
                ),
                utilization=Utilization(engine, engine, 1.0, 0.1, 0.1),
                clock_hertz={"sm": one.sm_hertz},
                throttle_reasons=frozenset(),
            )
            if one.waits is not None:
                waited = one.waits * second
                totals = TrainingTotals(
                    steps=one.steps * second,
                    step_seconds=float(second),
                    phase_seconds={"data": 1.5 * waited},
                    phase_gpu_idle_seconds={"data": waited},
                )
                reports.append(
                    TrainingReport(
                        report_id=f"{index:032x}",
                        job="resnet",
                        rank=index,
                        received_monotonic_seconds=clock.monotonic(),
                        received_timestamp_seconds=clock.time(),
                        totals=totals,
                        device=device.uuid,
                        host_pids=(pid,),
                    )
                )
        jobs.sent = tuple(reports)
        snapshot = publisher.tick()
    return [list(gpu.shares[0].diagnoses) for gpu in snapshot.gpus]


def slugs(gpus: Sequence[One]) -> list[list[str]]:
    return [[each.cause for each in found] for found in shown(gpus)]


STEPS_ALONE = One(HALF, waits=0.4, steps=0.5)
CASES: dict[str, tuple[list[One], list[list[One]]]] = {
    "idle_sibling": (
        [One(waits=0.0), One(QUIET, waits=0.0)],
        [[One(waits=0.0), One(QUIET)], [One(waits=0.0), One(waits=0.0)]],
    ),
    "straggler_rank": (
        [One(HALF, waits=0.4), One(waits=0.0), One(waits=0.0)],
        [
            [One(HALF, waits=0.4)] * 3,
            [STEPS_ALONE, One(waits=0.0), One(waits=0.0)],
            [One(HALF, waits=0.4)],
        ],
    ),
    "fail_slow_gpu": (
        [One(sm_hertz=1.4e9, waits=0.0), *[One(waits=0.0)] * 3],
        [
            [One(sm_hertz=1.7e9, waits=0.0), *[One(waits=0.0)] * 3],
            [One(sm_hertz=1.4e9, waits=0.0), *[One(waits=0.0)] * 2],
            [One(sm_hertz=1.4e9), *[One(waits=0.0)] * 3],
        ],
    ),
    "orphan_processes": (
        [One(QUIET, command="pt_data_worker")],
        [
            [One(QUIET)],
            [One(command="pt_data_worker")],
            [One(QUIET, command="pt_data_worker", orphaned_at=SECONDS - 25)],
        ],
    ),
    "launch_bound": (
        [One(HALF, waits=0.0, cpu_cores=1.0)],
        [[One(HALF, waits=0.0)], [One(HALF, waits=0.4, cpu_cores=1.0)]],
    ),
    "data_parallel_one_process": (
        [One(HALF, pid=77, cpu_cores=1.0), One(HALF, pid=77, cpu_cores=1.0)],
        [
            [One(HALF, cpu_cores=1.0), One(HALF, cpu_cores=1.0)],
            [One(HALF, pid=77, cpu_cores=1.0, stray=78), One(HALF, pid=78, cpu_cores=1.0)],
            [One(HALF, pid=77, cpu_cores=0.4), One(HALF, pid=77, cpu_cores=0.4)],
        ],
    ),
}
MISSES = [(cause, number) for cause, (_, misses) in CASES.items() for number in range(len(misses))]


@pytest.mark.parametrize("cause", CASES)
def test_a_cause_of_several_is_shown(cause: str) -> None:
    """On the first GPU; GPUs that are no part of it do not show it."""
    first, *others = slugs(CASES[cause][0])
    assert cause in first
    if cause != "data_parallel_one_process":
        assert all(cause not in other for other in others)


@pytest.mark.parametrize(("cause", "number"), MISSES)
def test_a_near_miss_shows_no_cause_of_several(cause: str, number: int) -> None:
    """Other work, other numbers, or too few to compare with."""
    assert all(cause not in found for found in slugs(CASES[cause][1][number]))


def test_what_is_recoverable_lies_between_stall_and_wait() -> None:
    """S and W of the rank since its first report."""
    (found,) = [
        each for each in shown(CASES["straggler_rank"][0])[0] if each.cause == "straggler_rank"
    ]
    assert found.job == "resnet"
    assert found.recoverable_lower_seconds == pytest.approx(0.4 * SECONDS, abs=1.0)
    assert found.recoverable_upper_seconds == pytest.approx(0.6 * SECONDS)
