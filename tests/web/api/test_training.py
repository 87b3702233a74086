# SPDX-License-Identifier: Apache-2.0
"""/api/v1/training and the GPUs' JSON say what training jobs waited for, and what that cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from exporter.model.training import TRAINING_DEGRADATIONS, Loader, TrainingTotals
from tests import snapshots
from tests.web.conftest import Daemon

H100 = "GPU-11111111-2222-3333-4444-000000000000"


def test_jobs_and_their_ranks(client: TestClient) -> None:
    """Jobs are in the order of the snapshot, each with its ranks and their devices."""
    answer = client.get("/api/v1/training").json()
    assert answer["timestamp_seconds"] == snapshots.NOW
    found = [
        (job["job"], [(rank["rank"], rank.get("device")) for rank in job["ranks"]])
        for job in answer["jobs"]
    ]
    instance = {"gpu": 2, "uuid": f"{H100[:-1]}2", "gpu_instance": 1}
    assert found == [
        (snapshots.rank_on_instance().job, [(0, instance)]),
        ("resnet", [(0, {"gpu": 0, "uuid": H100})]),
        ("tiny", [(1, None)]),
    ]


def test_ranks_of_one_job_stand_together(daemon: Daemon) -> None:
    """A job is listed once; a GPU that this node does not show has no index."""
    ranks = [snapshots.rank_on_gpu(number) for number in (0, 1)]
    node = snapshots.snapshot(snapshots.h100_training(0))
    daemon.publish(snapshots.with_training(node, *ranks))
    [job] = daemon.client.get("/api/v1/training").json()["jobs"]
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1]
    assert [rank["device"].get("gpu") for rank in job["ranks"]] == [0, None]


def test_a_rank_that_says_all(client: TestClient) -> None:
    """Totals, shares of the wall time, settings of the loader, memory and age."""
    _, job, _ = client.get("/api/v1/training").json()["jobs"]
    [rank] = job["ranks"]
    phases = rank.pop("phases")
    assert (job["display_name"], job["owner"]) == ("resnet", "ada")
    assert rank == {
        "rank": 0,
        "owner": "ada",
        "verified": True,
        "degraded": [],
        "device": {"gpu": 0, "uuid": H100},
        "world_size": 8,
        "framework": "torch 2.13.0",
        "precision": "bf16",
        "instrumentation": "client",
        "processes": 1,
        "last_report_timestamp_seconds": snapshots.NOW - 0.75,
        "last_report_age_seconds": 0.75,
        "steps_total": 1000,
        "batches_total": 4000,
        "samples_total": 1_024_000,
        "step_seconds_total": 500,
        "run_seconds": 400,
        "model_flops_total": 1.26e19,
        "data_wait_ratio": 0.31,
        "data_stall_ratio": 0.24,
        "loader": {
            "workers": 4,
            "prefetch_factor": 2,
            "pin_memory": True,
            "persistent_workers": False,
            "ready_batches": 3,
        },
        "memory_bytes": {
            "allocated": 41_000_000_000,
            "reserved": 52_000_000_000,
            "peak": 49_500_000_000,
        },
    }
    assert set(phases) == {"data", "checkpoint", "logging", "h2d"}
    assert phases["data"] == {
        "wait_seconds_total": 155,
        "wait_ratio": pytest.approx(0.31),
        "gpu_idle_seconds_total": 120,
        "gpu_idle_ratio": pytest.approx(0.24),
    }
    assert phases["logging"]["gpu_idle_ratio"] == 0
    assert phases["h2d"] == {"wait_seconds_total": 5, "wait_ratio": pytest.approx(0.01)}


def test_a_rank_that_has_done_nothing_yet(daemon: Daemon) -> None:
    """Without wall time there is no share of it; nothing is measured on a CPU."""
    totals = TrainingTotals(phase_seconds={"data": 0.0})
    cpu = replace(snapshots.rank_on_cpu(), totals=totals)
    daemon.publish(snapshots.with_training(snapshots.NO_DRIVER, cpu))
    [job] = daemon.client.get("/api/v1/training").json()["jobs"]
    [rank] = job["ranks"]
    assert rank["processes"] == 0
    assert rank["last_report_age_seconds"] == 240
    assert rank["loader"] == {}
    assert rank["phases"] == {"data": {"wait_seconds_total": 0}}
    unknown = {"samples_total", "model_flops_total", "device", "data_wait_ratio", "verified"}
    assert not (unknown | {"owner"}) & set(rank)


def test_what_is_not_measured_or_not_believed(daemon: Daemon) -> None:
    """In words, beside the name that the metric counts it under."""
    rank = replace(
        snapshots.rank_on_gpu(), verified=False, degraded=("helper_thread", "unverified")
    )
    node = snapshots.snapshot(snapshots.h100_training(0))
    daemon.publish(snapshots.with_training(node, rank))
    [job] = daemon.client.get("/api/v1/training").json()["jobs"]
    [shown] = job["ranks"]
    assert shown["verified"] is False
    assert shown["degraded"] == [
        {"reason": reason, "meaning": TRAINING_DEGRADATIONS[reason]}
        for reason in ("helper_thread", "unverified")
    ]
    [gpu] = daemon.client.get("/api/v1/gpus").json()["gpus"]
    assert gpu["ranks"][0]["verified"] is False


def test_jobs_have_short_names_where_these_tell_them_apart(daemon: Daemon) -> None:
    """Two runs of one script keep theirs."""
    names = ("main@20261122T131520-4242", "eval@slurm-7", "eval@slurm-8")
    ranks = [replace(snapshots.rank_on_gpu(), job=name) for name in names]
    node = snapshots.snapshot(snapshots.h100_training(0))
    daemon.publish(snapshots.with_training(node, *ranks))
    jobs = daemon.client.get("/api/v1/training").json()["jobs"]
    assert [job["job"] for job in jobs] == list(names)
    short = ["main", "eval@slurm-7", "eval@slurm-8"]
    assert [job["display_name"] for job in jobs] == short
    [gpu] = daemon.client.get("/api/v1/gpus").json()["gpus"]
    assert [rank["display_name"] for rank in gpu["ranks"]] == short


def test_a_clock_that_steps_back_makes_no_negative_age(daemon: Daemon) -> None:
    """A report from the future is new, not of a negative age."""
    rank = replace(
        snapshots.rank_on_cpu(),
        last_report_timestamp_seconds=snapshots.NOW + 60,
        loader=Loader(pin_memory=False),
    )
    daemon.publish(snapshots.with_training(snapshots.NO_DRIVER, rank))
    [job] = daemon.client.get("/api/v1/training").json()["jobs"]
    assert job["ranks"][0]["last_report_age_seconds"] == 0
    assert job["ranks"][0]["loader"] == {"pin_memory": False}


def test_reports_and_refusals_are_counted(client: TestClient) -> None:
    """While reports are taken, every reason for a refusal is listed."""
    answer = client.get("/api/v1/training").json()
    assert answer["enabled"] is True
    assert answer["reports_total"] == 4321
    assert answer["rejected_total"] == snapshots.TRAINING_STATE.rejected_total


def test_source_off(daemon: Daemon) -> None:
    """Without the source there are no jobs and no counts; before any snapshot nothing is known."""
    assert daemon.client.get("/api/v1/training").json() == {"schema_version": 1, "jobs": []}
    daemon.publish(snapshots.EXAMPLES["training"])
    assert daemon.client.get("/api/v1/training").json() == {
        "schema_version": 1,
        "timestamp_seconds": snapshots.NOW,
        "enabled": False,
        "jobs": [],
    }


def test_gpus_name_the_ranks_on_them(client: TestClient) -> None:
    """Each GPU has those of its own UUID, with the instance where there is one."""
    gpus = client.get("/api/v1/gpus").json()["gpus"]
    assert [len(gpu["ranks"]) for gpu in gpus] == [1, 0, 1, 0, 0]
    assert gpus[0]["ranks"] == [
        {
            "job": "resnet",
            "display_name": "resnet",
            "owner": "ada",
            "rank": 0,
            "verified": True,
            "processes": 1,
            "last_report_timestamp_seconds": snapshots.NOW - 0.75,
            "data_wait_ratio": 0.31,
            "data_stall_ratio": 0.24,
            "waiting_for_data": False,
        }
    ]
    assert gpus[2]["ranks"][0]["gpu_instance"] == 1
    assert "data_stall_ratio" not in gpus[2]["ranks"][0]
    assert client.get("/api/v1/gpus/2").json()["gpu"]["ranks"] == gpus[2]["ranks"]


def test_bounds_by_method(client: TestClient) -> None:
    """Where the job does not measure, its GPU has bounds; elsewhere there are none."""
    gpus = client.get("/api/v1/gpus").json()["gpus"]
    assert gpus[1]["shares"][0]["data_stall"] == {
        "client": {"lower_ratio": 0.125, "upper_ratio": 0.3125}
    }
    assert gpus[0]["shares"][0]["data_stall"] == {}
