# SPDX-License-Identifier: Apache-2.0
"""/api/v1/training and the GPUs' JSON say what training jobs waited for, and what that cost."""

from __future__ import annotations

from dataclasses import replace

from exporter.model.training import Loader, TrainingTotals
from tests import snapshots
from tests.web.conftest import Daemon


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
