# SPDX-License-Identifier: Apache-2.0
"""The report at the end of a job: what was seen of its GPUs and ranks, and of nobody else's."""

from __future__ import annotations

import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.cli.job.daemon import watch
from exporter.cli.job.report import report
from exporter.cli.job.seen import Seen, own_shares
from exporter.model.snapshot import Bounds, Diagnosis, Gpu, Snapshot
from exporter.model.workload import ShareWork, Workload
from tests.snapshots import (
    NO_DRIVER,
    h100_idle,
    h100_mig,
    h100_training,
    lost,
    rank_on_cpu,
    rank_on_gpu,
    rank_on_instance,
    snapshot,
    t4_estimate,
    with_training,
)
from tests.web.golden import check_text

NO_WORKERS = Diagnosis(
    cause="no_workers",
    evidence={"workers_count": 0.0, "workers_to_try_count": 4.0},
    recoverable_lower_seconds=600.0,
    recoverable_upper_seconds=1200.0,
)


def _later(gpu: Gpu, joules: float, used: int) -> Gpu:
    """The GPU after a while: its board used energy, its memory fell, and a cause is seen."""
    before = gpu.totals.energy_joules or 0.0
    (share,) = gpu.shares
    assert share.memory is not None
    memory = replace(share.memory, used_bytes=used)
    return replace(
        gpu,
        totals=replace(gpu.totals, energy_joules=before + joules),
        shares=(replace(share, memory=memory, diagnoses=(NO_WORKERS,)),),
    )


def _seen(*snapshots: Snapshot, given: str = "") -> Seen:
    seen = Seen({"CUDA_VISIBLE_DEVICES": given})
    for number, each in enumerate(snapshots):
        began = snapshots[0].timestamp_seconds + 1800.0 * number
        seen.take(replace(each, timestamp_seconds=began), 1800.0 if number else 0.0)
    return seen


def test_a_report_reads_as_it_is_meant() -> None:
    """GPUs by the rank on them or as given; the peak of memory; joules since the start."""
    training, estimate = h100_training(0), t4_estimate(3)
    first = snapshot(training, h100_idle(1), h100_mig(2), estimate)
    last = snapshot(_later(training, 1.8e6, 1 << 30), h100_idle(1), h100_mig(2), estimate)
    ranks = (rank_on_gpu(0), rank_on_instance(2), rank_on_cpu())

    seen = _seen(first, with_training(last, *ranks), given=estimate.device.uuid)

    names = {"job": "4711.0", "name": "resnet", "node": "gpu17"}
    check_text(report(seen, names), "job-report.txt")


def test_nobody_elses_gpu_is_in_it() -> None:
    """One that no rank is on, and that was not given, is left out; so are its causes."""
    busy = h100_training(0)
    seen = _seen(snapshot(busy), snapshot(_later(busy, 1.0, 1)))

    said = report(seen, {"job": None, "node": "gpu17"})

    assert said.startswith("node  gpu17\ntime  ")
    assert said.endswith("\n\nno GPU of this job was seen\n")


def test_what_is_not_known_is_absent() -> None:
    """A node without a driver has its reason; no number stands where none was read."""
    said = report(_seen(NO_DRIVER, NO_DRIVER), {})
    assert said.splitlines()[-1] == f"no GPU of this job was seen: {NO_DRIVER.problem}"

    gone = h100_training(0)
    seen = _seen(snapshot(gone), snapshot(lost(0)), snapshot(lost(0)), given="0")
    (share,) = seen.shares.values()
    assert share.saturated[0] == 0.0
    assert share.energy_joules is None
    assert "ENERGY" not in report(seen, {})


def test_saturation_is_the_mean_of_its_bounds_over_the_time_that_they_were_known() -> None:
    """Equal where it was measured."""
    gpu = h100_training(0)
    (share,) = gpu.shares
    assert share.saturation is not None
    guess = replace(share.saturation, source="estimate", ratio=None, bounds=Bounds(0.0, 0.5))
    guessed = replace(gpu, shares=(replace(share, saturation=guess),))
    measured = share.saturation.bounds.lower

    (seen,) = _seen(snapshot(gpu), snapshot(gpu), snapshot(guessed), given="0").shares.values()

    seconds, lower, upper = seen.saturated
    assert lower / seconds == pytest.approx(measured / 2)
    assert upper / seconds == pytest.approx((measured + 0.5) / 2)


def test_a_summary_gets_what_is_known_and_no_more() -> None:
    """One number where the saturation was measured, else its bounds; nothing without a GPU."""
    measured, bounded = h100_training(0), t4_estimate(0)

    (share,) = measured.shares
    assert share.saturation is not None
    assert _seen(snapshot(measured), snapshot(_later(measured, 9.0, 1)), given="0").known() == {
        "gpu_seconds": 1800.0,
        "saturation_ratio": pytest.approx(share.saturation.bounds.lower),
        "energy_joules": 9.0,
    }
    known = _seen(snapshot(bounded), snapshot(bounded), given="0").known()
    assert isinstance(known["saturation_bounds"], list)
    assert "saturation_ratio" not in known
    assert _seen(snapshot(measured)).known() == {}


def test_the_ranks_of_other_tasks_may_end_later() -> None:
    """When the first task has ended, the daemon still takes their last reports."""
    run, ended = socket.socketpair()
    ended.close()
    rank = rank_on_gpu(0)
    lasts = [
        with_training(snapshot(h100_training(0)), replace(rank, processes=count))
        for count in (1, 1, 0, 0)
    ]
    ticks = iter(lasts)
    parts: Any = SimpleNamespace(
        publisher=SimpleNamespace(tick=lambda: next(ticks)),
        settings=SimpleNamespace(poll_interval_seconds=0.001),
    )
    seen = Seen({})

    watch(run, parts, seen)

    assert seen.last is lasts[2]
    run.close()


OTHER = "GPU-99999999-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1, 2"}, {1}),
        ({"CUDA_VISIBLE_DEVICES": h100_idle(1).device.uuid}, {1}),
        ({"CUDA_VISIBLE_DEVICES": OTHER}, set()),
        ({}, set()),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, {0}),
        ({"SLURM_JOB_ID": "4711"}, set()),  # what runs in the batch script itself
        ({"SLURM_JOB_ID": "4712", "SLURM_STEP_ID": "0"}, set()),
    ],
)
def test_which_gpus_are_the_jobs(environ: dict[str, str], wanted: set[int]) -> None:
    """Those that are named for certain, and those on which its Slurm step has a process."""
    busy, idle = h100_training(0), h100_idle(1)
    work = ShareWork((Workload("slurm", job="4711", step="0"),))
    busy = replace(busy, shares=tuple(replace(each, work=work) for each in busy.shares))
    indexes = {gpu.device.uuid: gpu.device.index for gpu in (busy, idle)}

    found = own_shares(snapshot(busy, idle), environ)

    assert {indexes[str(uuid)] for uuid, _ in found} == wanted


def test_numbers_of_gpus_of_several_models_are_not_trusted() -> None:
    """CUDA puts the fastest first, the driver goes by their addresses."""
    mixed = snapshot(h100_training(0), t4_estimate(1))

    assert own_shares(mixed, {"CUDA_VISIBLE_DEVICES": "0,1"}) == set()
