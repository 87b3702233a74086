# SPDX-License-Identifier: Apache-2.0
"""The history over HTTP: columns by GPU and instance, trails of all, else one line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from exporter.model.reading import THROTTLE_REASONS
from exporter.web.columns import COLUMNS
from tests import snapshots
from tests.web.api.schema import HistoryAnswer, TrailsAnswer
from tests.web.at_work import at_work
from tests.web.conftest import Daemon

H100 = snapshots.h100_training().device.uuid
MIG = snapshots.h100_mig(2).device.uuid


def test_columns(daemon: Daemon) -> None:
    """Each point has a time, and a number or null in each column; it follows the schema."""
    for seconds, node in enumerate(("training", "no_driver", "training")):
        snapshot = snapshots.EXAMPLES[node]
        daemon.publish(replace(snapshot, timestamp_seconds=snapshots.NOW + seconds))
    answer = daemon.client.get(f"/api/v1/gpus/{H100}/history")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    found = TypeAdapter(HistoryAnswer).validate_python(answer.json())
    assert found.uuid == H100
    assert found.throttle_reasons == list(THROTTLE_REASONS)
    assert found.timestamps == [snapshots.NOW, snapshots.NOW + 1, snapshots.NOW + 2]
    assert found.columns["power"] == [641.4, None, 641.4]
    assert found.columns["memory"] == [6.12e10, None, 6.12e10]
    assert set(found.columns) <= set(COLUMNS)
    assert {len(points) for points in found.columns.values()} == {3}
    assert "gpu_instance" not in answer.json()


def test_by_index_and_since(daemon: Daemon) -> None:
    """An index stands for the UUID; only points after a time are given if that is asked for."""
    for seconds in range(3):
        snapshot = replace(
            snapshots.EXAMPLES["training"], timestamp_seconds=snapshots.NOW + seconds
        )
        daemon.publish(snapshot)
    path = f"/api/v1/gpus/{H100}/history"
    assert daemon.client.get("/api/v1/gpus/0/history").json() == daemon.client.get(path).json()
    answer = daemon.client.get(path, params={"since": snapshots.NOW + 1}).json()
    assert answer["timestamps"] == [snapshots.NOW + 2]
    assert len(answer["columns"]["power"]) == 1


def test_instances(client: TestClient) -> None:
    """An instance has its own; without one it is the board."""
    instance = client.get(f"/api/v1/gpus/{MIG}/history?instance=1").json()
    assert (instance["uuid"], instance["gpu_instance"]) == (MIG, 1)
    assert "power" not in instance["columns"]
    board = client.get("/api/v1/gpus/2/history").json()
    assert list(board["columns"]) == [
        *("power", "power_limit", "sm_clock", "temperature", "throttled")
    ]


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("GPU-nope", 404, "there is no history of a GPU 'GPU-nope'"),
        ("2", 200, None),
        ("2?instance=7", 404, "there is no history of a GPU '2/7'"),
        ("0?instance=0", 404, "there is no history of a GPU '0/0'"),
        ("2?instance=one", 400, "instance: expected a whole number, got 'one'"),
        ("0?since=yesterday", 400, "since: expected a number, got 'yesterday'"),
        ("0?since=nan", 400, "since: expected a number, got 'nan'"),
        ("0?since=1e308", 200, None),
        ("0?instance=1e308", 400, "instance: expected a whole number, got '1e308'"),
        ("0?since=", 400, "since: expected a number, got ''"),
    ],
)
def test_refusals(client: TestClient, path: str, status: int, error: str | None) -> None:
    """What is not there or not understood is one line."""
    key, _, query = path.partition("?")
    answer = client.get(f"/api/v1/gpus/{key}/history?{query}")
    assert answer.status_code == status
    if error is not None:
        assert answer.json()["error"] == error


TRAILS = "/api/v1/roofline/trails"


def trails(daemon: Daemon) -> TrailsAnswer:
    answer = daemon.client.get(TRAILS)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    return TypeAdapter(TrailsAnswer).validate_python(answer.json())


def test_trails(daemon: Daemon) -> None:
    """Means of five seconds of the last three minutes, of all GPUs and instances at once."""
    for second in range(200):
        busy = at_work(1e12 * (1 + second % 5), 1e9)
        node = snapshots.snapshot(busy, snapshots.h100_mig(2), snapshots.t4_estimate(4))
        daemon.publish(replace(node, timestamp_seconds=snapshots.NOW + second))
    found = trails(daemon)
    assert set(found.trails) == {H100, f"{MIG}/1"}
    assert len(found.timestamps) == 36
    assert found.timestamps[-1] == snapshots.NOW + 197
    assert found.trails[H100].flops == [3e12] * 36
    assert found.trails[H100].bytes == [1e9] * 36


def test_trails_know_holes(daemon: Daemon) -> None:
    """While nothing is known of a GPU its trail is null, and so it is where a hole begins."""
    nothing = snapshots.snapshot(snapshots.lost(0))
    for second in (*range(10), *range(60, 70)):
        node = nothing if 60 <= second < 65 else snapshots.snapshot(at_work(2e12, 1e10))
        daemon.publish(replace(node, timestamp_seconds=snapshots.NOW + second))
    found = trails(daemon)
    assert found.timestamps == [snapshots.NOW + second for second in (2, 7, 10, 62, 67)]
    assert found.trails[H100].flops == [2e12, 2e12, None, None, 2e12]
