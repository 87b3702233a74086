# SPDX-License-Identifier: Apache-2.0
"""A daemon that is alive is not yet one that has something to show."""

from __future__ import annotations

import pytest

from exporter.model.snapshot import Snapshot
from tests import snapshots
from tests.web.conftest import Daemon


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (None, "no snapshot yet"),
        (snapshots.NO_DRIVER, "the NVIDIA driver library libnvidia-ml.so.1 cannot be loaded"),
        (snapshots.EXAMPLES["lost"], "every GPU is down: GPU 0 is lost"),
        (Snapshot(0.0, problem="two\nlines"), "two lines"),
        (Snapshot(0.0), "no GPU is up"),
    ],
)
def test_not_ready(daemon: Daemon, snapshot: Snapshot | None, reason: str) -> None:
    """Without a GPU that is up the answer is 503 with one line why."""
    if snapshot is not None:
        daemon.publish(snapshot)
    answer = daemon.client.get("/-/ready")
    assert (answer.status_code, answer.text) == (503, f"not ready: {reason}\n")


@pytest.mark.parametrize("first", [None, snapshots.EXAMPLES["training"]], ids=["none", "one"])
@pytest.mark.parametrize(("interval", "limit"), [(0.5, 60.0), (1.0, 60.0), (30.0, 90.0)])
def test_not_healthy_without_ticks(
    daemon: Daemon, first: Snapshot | None, interval: float, limit: float
) -> None:
    """A publisher that died or hangs does not come back by itself, before its first tick or after.

    A minute, and at least three intervals.
    """
    daemon.poll_interval_seconds = interval
    if first is not None:
        daemon.now += 1000
        daemon.publish(first)
    daemon.now += limit
    assert daemon.client.get("/-/healthy").status_code == 200
    daemon.now += 1
    answer = daemon.client.get("/-/healthy")
    reason = f"not healthy: no reading round has ended for {limit + 1:.0f} s\n"
    assert (answer.status_code, answer.text) == (503, reason)
    daemon.publish(snapshots.EXAMPLES["training"])
    assert daemon.client.get("/-/healthy").status_code == 200


@pytest.mark.parametrize(
    "snapshot", [None, snapshots.NO_DRIVER, snapshots.EXAMPLES["lost"], snapshots.EXAMPLES["bare"]]
)
def test_healthy_whatever_the_gpus_do(daemon: Daemon, snapshot: Snapshot | None) -> None:
    """To start the daemon anew would not bring back a driver, a GPU, or the time of a recording."""
    if snapshot is not None:
        for _ in range(200):
            daemon.publish(snapshot)
            daemon.now += 1
    answer = daemon.client.get("/-/healthy")
    assert (answer.status_code, answer.text) == (200, "healthy\n")
    assert daemon.client.head("/-/healthy").status_code == 200


def test_ready_with_one_gpu_up(daemon: Daemon) -> None:
    """One GPU that is up is enough, whatever the others do."""
    daemon.publish(snapshots.EXAMPLES["mixed"])
    answer = daemon.client.get("/-/ready")
    assert (answer.status_code, answer.text) == (200, "ready\n")


@pytest.mark.parametrize(("interval", "limit"), [(0.5, 3.0), (1.0, 3.0), (10.0, 30.0)])
def test_stale_snapshot_is_not_ready(daemon: Daemon, interval: float, limit: float) -> None:
    """A snapshot older than 3 intervals, and at least 3 s, does not count."""
    daemon.poll_interval_seconds = interval
    daemon.publish(snapshots.EXAMPLES["training"])
    daemon.now += limit
    assert daemon.client.get("/-/ready").status_code == 200
    daemon.now += 1
    answer = daemon.client.get("/-/ready")
    assert answer.status_code == 503
    assert answer.text == f"not ready: the last snapshot is {limit + 1:.0f} s old\n"
