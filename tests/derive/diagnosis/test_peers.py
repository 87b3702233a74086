# SPDX-License-Identifier: Apache-2.0
"""A share beside the other ranks of its job, the GPUs of its model and the shares of its work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.derive.diagnosis.peers import LEAST_IDLE_SECONDS, Evidence, peers
from exporter.derive.waits import live_ranks
from exporter.model.reading import Device, Place, Process, Vitals
from exporter.model.snapshot import Gpu, Holder, Rank, Share, ShareTotals
from exporter.model.training import TrainingTotals
from exporter.model.workload import Workload
from tests.derive.ranks import rank_of

POD = Workload("kubernetes", "team-a", "train-0", "main")


def gpu_of(
    index: int, clock: float | None = 1.98e9, name: str = "H100", up: bool = True, **share: Any
) -> Gpu:
    vitals = None if clock is None else Vitals(clock_hertz={"sm": clock})
    totals = share.pop("totals", ShareTotals())
    shares = (Share(None, None, totals, **share),)
    return Gpu(Device(index, f"GPU-{index}", name), up=up, vitals=vitals, shares=shares)


def on(index: int, steps: int = 100, wait: float | None = 0.0, **changes: Any) -> Rank:
    totals = TrainingTotals(steps=steps)
    uuid = f"GPU-{index}"
    return rank_of(index, gpu_uuid=uuid, totals=totals, data_wait_ratio=wait, **changes)


def evidence(gpus: list[Gpu], *ranks: Rank) -> dict[str, Evidence]:
    found = peers(gpus, ranks, live_ranks(ranks))
    assert all(place == Place(place.uuid, None) for place in found)
    return {str(place.uuid): each for place, each in found.items()}


def test_ranks_beside_the_median_of_their_job() -> None:
    gpus = [gpu_of(index) for index in range(4)]
    ranks = [on(0, 100, 0.1), on(1, 100, 0.1), on(2, 80, 0.5)]
    found = evidence(gpus, *ranks, on(3, 10, 0.9, job="another"))
    assert found["GPU-2"]["ranks_count"] == 3
    assert found["GPU-2"]["data_wait_above_median_ratio"] == pytest.approx(0.4)
    assert found["GPU-2"]["steps_of_median_ratio"] == pytest.approx(0.8)
    assert found["GPU-0"]["data_wait_above_median_ratio"] == 0.0
    assert found["GPU-3"]["ranks_count"] == 1


def test_ranks_that_are_not_verified_or_dead_do_not_count() -> None:
    gpus = [gpu_of(0), gpu_of(1)]
    [alone, other] = evidence(gpus, on(0), on(1, verified=False)).values()
    assert alone["ranks_count"] == 1
    assert "ranks_count" not in other
    assert evidence(gpus, on(0), on(1, processes=0))["GPU-0"]["ranks_count"] == 1
    two_jobs = evidence(gpus[:1], on(0), replace(on(0), job="another"))["GPU-0"]
    assert "ranks_count" not in two_jobs


def test_what_is_not_known_is_not_compared() -> None:
    found = evidence([gpu_of(0), gpu_of(1)], on(0, 0, None), on(1, 0, 0.3))
    assert found["GPU-0"]["data_wait_above_median_ratio"] is None
    assert found["GPU-0"]["steps_of_median_ratio"] is None


def test_the_clock_beside_other_gpus_of_the_model_in_the_job() -> None:
    gpus = [gpu_of(0, 1.0e9), gpu_of(1, 2.0e9), gpu_of(2, 1.6e9), gpu_of(3, 3.0e9, name="L4")]
    gpus.append(gpu_of(4, None))
    found = evidence([*gpus, gpu_of(5, 9e9)], *(on(index) for index in range(5)))
    assert found["GPU-0"]["peers_count"] == 3
    assert found["GPU-0"]["clock_of_peers_ratio"] == pytest.approx(1.0 / 1.8)
    assert found["GPU-3"]["peers_count"] == 0
    assert found["GPU-3"]["clock_of_peers_ratio"] is None
    assert found["GPU-4"]["clock_of_peers_ratio"] is None
    busy = replace(gpus[0], vitals=Vitals(clock_hertz={"sm": 1e9}, busy_sm_clock_hertz=1.6e9))
    assert evidence([busy, gpus[2]], on(0), on(2))["GPU-0"]["clock_of_peers_ratio"] == 1.0


def test_gpus_of_the_process_that_holds_it() -> None:
    held = [gpu_of(index, holder=Holder(pid=7)) for index in (0, 1)]
    found = evidence([*held, gpu_of(2, holder=Holder(pid=8)), gpu_of(3)])
    counts = [each["gpus_of_process_count"] for each in found.values()]
    assert counts == [2, 2, 1, None]


@pytest.mark.parametrize(
    ("mine", "theirs", "idle_seconds", "count"),
    [
        ({"processes": (Process(7, "compute"),)}, {"processes": (Process(7, "compute"),)}, 60, 1),
        ({"processes": (Process(7, "compute"),)}, {"processes": (Process(7, "graphics"),)}, 60, 0),
        ({"processes": (Process(7, "compute"),)}, {"processes": (Process(8, "compute"),)}, 60, 0),
        ({"holder": Holder(workload=POD)}, {"holder": Holder(workload=POD)}, 90, 1),
        ({"holder": Holder(workload=POD)}, {"holder": Holder(workload=POD)}, 59, 0),
        ({"holder": Holder(workload=POD)}, {"holder": Holder(workload=POD)}, None, 0),
        ({"holder": Holder()}, {"holder": Holder()}, 90, 0),
    ],
)
def test_siblings_share_work_and_are_held_idle(
    mine: dict[str, Any], theirs: dict[str, Any], idle_seconds: float | None, count: int
) -> None:
    assert LEAST_IDLE_SECONDS == 60.0
    totals = ShareTotals(idle_for_seconds=idle_seconds)
    gpus = [gpu_of(0, **mine), gpu_of(1, held=True, totals=totals, **theirs)]
    assert evidence(gpus)["GPU-0"]["idle_siblings_count"] == count
    unheld = [gpus[0], gpu_of(1, held=False, totals=totals, **theirs)]
    assert evidence(unheld)["GPU-0"]["idle_siblings_count"] == 0


def test_a_job_makes_siblings_and_a_gpu_that_is_down_is_none() -> None:
    idle = gpu_of(1, held=True, totals=ShareTotals(idle_for_seconds=99.0))
    ranks = on(0), on(1)
    assert evidence([gpu_of(0), idle], *ranks)["GPU-0"]["idle_siblings_count"] == 1
    down = evidence([gpu_of(0), replace(idle, up=False)], *ranks)
    assert down.keys() == {"GPU-0"}
    assert down["GPU-0"]["idle_siblings_count"] == 0
