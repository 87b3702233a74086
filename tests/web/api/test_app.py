# SPDX-License-Identifier: Apache-2.0
"""The JSON API says what the snapshot says, by its schema, and nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from exporter.model.snapshot import Ceilings
from exporter.model.training import Loader, TrainingTotals
from exporter.specs import SpecBook
from exporter.web.api.models.diagnosis import DiagnosisAnswer
from exporter.web.api.models.gpus import GpuAnswer, GpusAnswer
from exporter.web.api.models.json import Json, json_text
from exporter.web.api.models.roofline import RooflineAnswer, SpecsAnswer
from exporter.web.api.models.training import TrainingAnswer
from tests import snapshots
from tests.web.api.schema import Problem
from tests.web.conftest import Daemon

H100 = "GPU-11111111-2222-3333-4444-000000000000"


def nulls(value: Any, path: str = "") -> list[str]:
    """The places at which a null stands."""
    if isinstance(value, dict):
        return [place for key, each in value.items() for place in nulls(each, f"{path}.{key}")]
    if isinstance(value, list):
        return [place for i, each in enumerate(value) for place in nulls(each, f"{path}[{i}]")]
    return [path] if value is None else []


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/api/v1/gpus", GpusAnswer),
        (f"/api/v1/gpus/{H100}", GpuAnswer),
        ("/api/v1/roofline", RooflineAnswer),
        ("/api/v1/specs", SpecsAnswer),
        ("/api/v1/training", TrainingAnswer),
        ("/api/v1/diagnosis", DiagnosisAnswer),
    ],
)
def test_answers_follow_the_schema_without_nulls(
    client: TestClient, path: str, model: type[Json]
) -> None:
    """Each answer has a schema version, validates, and leaves out what is not known."""
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["schema_version"] == 1
    assert nulls(answer.json()) == []
    assert json.loads(json_text(TypeAdapter(model).validate_python(answer.json()))) == answer.json()


def test_only_the_holder_is_named(client: TestClient) -> None:
    """Commands and owners of all processes are opt-in, so the API does not give them away."""
    text = client.get("/api/v1/gpus").text
    assert "Xorg" not in text
    assert "root" not in text
    shares = [gpu["shares"][0] for gpu in json.loads(text)["gpus"] if gpu["shares"]]
    assert [share.get("holder") for share in shares] == [
        {"owner": "ada", "command": "python3", "class": "training"},
        {"owner": "bob", "command": "python", "class": "other"},
        {"owner": "ada", "command": "python3", "class": "training"},
        None,
    ]


def test_down_gpu_hides_readings_that_are_still_there(daemon: Daemon) -> None:
    """Stale readings of a GPU that went down are not served."""
    gpu = replace(snapshots.h100_training(), up=False, down_reason="hung")
    daemon.publish(snapshots.snapshot(gpu))
    found = daemon.client.get("/api/v1/gpus/0").json()["gpu"]
    assert found["shares"] == []
    assert "board" not in found
    assert daemon.client.get("/api/v1/roofline").json()["rooflines"] == []


def test_what_is_no_number_is_left_out(daemon: Daemon) -> None:
    """JSON has neither NaN nor infinity, and one of them does not cost the others."""
    gpu = snapshots.h100_training()
    assert gpu.vitals is not None
    clocks = {"sm": float("inf"), "memory": 1e9}
    vitals = replace(gpu.vitals, power_watts=float("nan"), clock_hertz=clocks)
    daemon.publish(snapshots.snapshot(replace(gpu, vitals=vitals)))
    board = daemon.client.get("/api/v1/gpus/0").json()["gpu"]["board"]
    assert "power_watts" not in board
    assert board["clock_hertz"] == {"memory": 1e9}
    assert board["temperature_celsius"]


def test_one_gpu_by_uuid_or_index(client: TestClient) -> None:
    """A GPU is found by either name."""
    by_uuid = client.get(f"/api/v1/gpus/{H100}").json()
    assert by_uuid == client.get("/api/v1/gpus/0").json()
    assert by_uuid["gpu"]["uuid"] == H100


@pytest.mark.parametrize("key", ["9", "GPU-nope", "-1", "%0A<b>"])
def test_unknown_gpu(client: TestClient, key: str) -> None:
    """An unknown GPU is a 404 with one line."""
    answer = client.get(f"/api/v1/gpus/{key}")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("no GPU has the UUID or index")
    assert "\n" not in answer.json()["error"]
    assert TypeAdapter(Problem).validate_python(answer.json())


def test_before_the_first_snapshot(daemon: Daemon) -> None:
    """Lists are empty, with the reason; there is no GPU to find."""
    answer = daemon.client.get("/api/v1/gpus").json()
    assert answer == {
        "schema_version": 1,
        "problem": "no snapshot yet",
        "source_states": {},
        "gpus": [],
    }
    assert daemon.client.get("/api/v1/roofline").json() == {"schema_version": 1, "rooflines": []}
    assert daemon.client.get("/api/v1/gpus/0").status_code == 404


def test_ceilings_without_bandwidth_have_no_ridge(daemon: Daemon) -> None:
    """What is not known of the memory is not made up."""
    ceilings = Ceilings("derived", {"fp32": 1e12}, {}, None, {"fp32": 0.9})
    gpu = snapshots.bare()
    gpu = replace(gpu, shares=(replace(gpu.shares[0], ceilings=ceilings),))
    daemon.publish(snapshots.snapshot(gpu))
    [row] = daemon.client.get("/api/v1/roofline").json()["rooflines"]
    assert row["memory_bandwidth_bytes_per_second"] == {}
    assert row["ceilings"] == [
        {
            "precision": "fp32",
            "spec_flops_per_second": 1e12,
            "achievable_flops_per_second": 9e11,
        }
    ]


def test_specs_follow_a_reload(daemon: Daemon, book: SpecBook) -> None:
    """After a reload the new spec file is shown."""
    key = "h100-sxm5-80gb"
    daemon.book = SpecBook({key: book.models[key]}, {})
    answer = daemon.client.get("/api/v1/specs").json()
    assert [model["key"] for model in answer["products"]] == [key]


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


def test_training_source_off(daemon: Daemon) -> None:
    """Without the source there are no jobs and no counts; before any snapshot nothing is known."""
    assert daemon.client.get("/api/v1/training").json() == {"schema_version": 1, "jobs": []}
    daemon.publish(snapshots.EXAMPLES["training"])
    assert daemon.client.get("/api/v1/training").json() == {
        "schema_version": 1,
        "timestamp_seconds": snapshots.NOW,
        "enabled": False,
        "jobs": [],
    }
