# SPDX-License-Identifier: Apache-2.0
"""The JSON API says what the snapshot says, by its schema, and nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from exporter.model.reading import Device
from exporter.model.snapshot import Ceilings, Holder, SourceState
from exporter.specs import SpecBook
from exporter.web.api.models.gpus import GpuAnswer, GpusAnswer
from exporter.web.api.models.json import Json, Problem, json_text
from exporter.web.api.models.roofline import RooflineAnswer, SpecsAnswer
from exporter.web.api.models.training import TrainingAnswer
from exporter.web.api.read import read
from tests import snapshots
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
    assert json.loads(json_text(read(model, answer.json()))) == answer.json()


def test_gpus(client: TestClient) -> None:
    """The list has every GPU with identity, readings and what is derived."""
    answer = client.get("/api/v1/gpus").json()
    assert answer["timestamp_seconds"] == snapshots.NOW
    assert [gpu["index"] for gpu in answer["gpus"]] == [0, 1, 2, 3, 4]
    gpu = answer["gpus"][0]
    assert gpu["uuid"] == H100
    assert gpu["identity"]["compute_capability"] == "9.0"
    assert gpu["identity"]["spec"] == "h100-sxm5-80gb"
    assert gpu["board"]["power_watts"] == 641.37
    assert gpu["board"]["throttle_reasons"] == ["sw_power_cap"]
    assert gpu["absent_readings"] == {"ecc": "unsupported", "fabric": "no_permission"}
    [share] = gpu["shares"]
    assert share["held"] is True
    assert share["limiter"] == "compute"
    assert share["utilization_ratio"] == 0.993
    assert share["memory"]["used_bytes"] == 61_203_283_968
    assert share["processes"] == {"compute": 1, "graphics": 1, "mps": 0}
    assert share["activity"]["pipe_ratio"]["tensor"] == 0.561
    assert share["saturation"]["ratio"] == 0.561
    assert share["saturation"]["unit"] == "tensor"
    assert share["time_parts"]["saturated"] == 0.5338
    assert share["roofline"]["flops_per_second"] == pytest.approx(541.2e12)
    assert share["roofline"]["roof_ratio"]["clock"] == 0.561
    assert share["idle"]["held_idle_seconds_total"] == 49.5


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


def test_whose_work_it_is(client: TestClient) -> None:
    """Every workload with what is known of it, also of an instance that nobody has opened."""
    [whole, first, second] = [
        share
        for gpu in client.get("/api/v1/gpus").json()["gpus"]
        for share in gpu["shares"]
        if gpu["index"] in (0, 2)
    ]
    assert "allocated" not in whole
    assert whole["workloads"] == []
    assert first["workloads"][0] == {
        "scheduler": "kubernetes",
        "namespace": "team-a",
        "pod": "train-0",
        "container": "main",
        "id": "5d1b2b0e-3f77-4d3a-9a39-0c6a3a0a5b11",
    }
    assert second["workloads"] == [{"scheduler": "slurm", "job": "4711", "user": "ada"}]
    assert (first["allocated"], second["allocated"], second["held"]) == (True, True, False)
    assert second["idle"] == {
        "allocated_unopened_seconds_total": 61.5,
        "unopened_for_seconds": 61.5,
    }


def test_the_holder_has_the_words_for_its_workload(daemon: Daemon) -> None:
    """As the page names it; and every source says how old its word is."""
    gpu = snapshots.h100_training(0)
    holder = Holder("root", "python3", "training", workload=snapshots.TRAIN_POD)
    node = snapshots.snapshot(replace(gpu, shares=(replace(gpu.shares[0], holder=holder),)))
    kubelet = SourceState(up=False, failures_total=3, age_seconds=61.0)
    daemon.publish(replace(node, sources={"kubernetes": kubelet}))
    answer = daemon.client.get("/api/v1/gpus").json()
    assert answer["gpus"][0]["shares"][0]["holder"]["workload"] == "team-a/train-0"
    assert answer["source_states"] == {"kubernetes": {"up": False, "age_seconds": 61.0}}


def test_estimates_are_bounds(client: TestClient) -> None:
    """A GPU without hardware counters has bounds and no ratio."""
    [share] = client.get("/api/v1/gpus/1").json()["gpu"]["shares"]
    assert share["saturation"]["source"] == "estimate"
    assert (share["saturation"]["lower_ratio"], share["saturation"]["upper_ratio"]) == (0.0, 0.43)
    assert "ratio" not in share["saturation"]
    assert share["saturation"]["unmeasured"]["dram"]["upper_ratio"] == 0.43
    assert "activity" not in share
    assert "time_parts" not in share
    assert "flops_per_second" not in share["roofline"]


def test_mig_and_down_gpus(client: TestClient) -> None:
    """MIG instances are shares of their GPU; a GPU that is down has no readings."""
    _, _, mig, lost, _ = client.get("/api/v1/gpus").json()["gpus"]
    assert [share["gpu_instance"] for share in mig["shares"]] == [1, 2]
    assert [each["profile"] for each in mig["instances"]] == ["1c.3g.40gb", "2c.3g.40gb", "3g.40gb"]
    assert (lost["up"], lost["down_reason"]) == (False, "lost")
    assert lost["shares"] == []
    assert "board" not in lost


def test_down_gpu_hides_readings_that_are_still_there(daemon: Daemon) -> None:
    """Stale readings of a GPU that went down are not served."""
    gpu = replace(snapshots.h100_training(), up=False, down_reason="hung")
    daemon.publish(snapshots.snapshot(gpu))
    found = daemon.client.get("/api/v1/gpus/0").json()["gpu"]
    assert found["shares"] == []
    assert "board" not in found
    assert daemon.client.get("/api/v1/roofline").json()["rooflines"] == []


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
    assert read(Problem, answer.json())


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


def test_without_a_driver_the_reason_is_given(daemon: Daemon) -> None:
    """No GPU is invented; the problem is the snapshot's."""
    daemon.publish(snapshots.NO_DRIVER)
    answer = daemon.client.get("/api/v1/gpus").json()
    assert answer["gpus"] == []
    assert "cannot be loaded" in answer["problem"]


def test_roofline(client: TestClient) -> None:
    """Each share has ceilings, ridge points in both bases, and its point or bounds."""
    rows = client.get("/api/v1/roofline").json()["rooflines"]
    assert [(row["gpu"], row.get("gpu_instance")) for row in rows] == [
        (0, None),
        (1, None),
        (2, 1),
        (2, 2),
        (4, None),
    ]
    h100, t4, mig, unknown, _ = rows
    ceilings = {row["precision"]: row for row in h100["ceilings"]}
    bf16 = ceilings["bf16_tensor"]
    assert bf16["spec_flops_per_second"] == 989.4e12
    assert bf16["spec_ridge_flops_per_byte"] == pytest.approx(295.3, abs=0.05)
    assert bf16["achievable_flops_per_second"] == pytest.approx(791.52e12)
    assert bf16["achievable_ridge_flops_per_byte"] == pytest.approx(262.5, abs=0.05)
    assert "achievable_flops_per_second" not in ceilings["fp32"]
    assert h100["memory_bandwidth_bytes_per_second"]["achievable"] == pytest.approx(3015e9)
    assert h100["point"]["intensity_flops_per_byte"] == 426.14
    assert h100["point"]["roof_ratio"]["achievable"] == 0.672
    assert t4["point"]["flops_upper_per_second"] == 28e12
    assert "intensity_flops_per_byte" not in t4["point"]
    assert mig["ceilings"][0]["spec_flops_per_second"] == 449.7e12
    assert mig["link_bandwidth_bytes_per_second"] == {}
    assert "point" not in unknown


def test_ridge_of_v100_tensor(daemon: Daemon, book: SpecBook) -> None:
    """The ridge point of a V100 SXM2 for tensor work is 138.9 FLOP/B."""
    device = Device(0, "GPU-v", "Tesla V100-SXM2-16GB", compute_capability=(7, 0))
    ceilings = book.ceilings(device)
    assert ceilings is not None
    gpu = replace(
        snapshots.bare(),
        device=device,
        shares=(replace(snapshots.bare().shares[0], ceilings=ceilings),),
    )
    daemon.publish(snapshots.snapshot(gpu))
    [row] = daemon.client.get("/api/v1/roofline").json()["rooflines"]
    ridges = {each["precision"]: each["spec_ridge_flops_per_byte"] for each in row["ceilings"]}
    assert ridges["fp16_tensor"] == pytest.approx(138.9, abs=0.05)


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


def test_specs(client: TestClient, book: SpecBook) -> None:
    """Every GPU model of the spec file is listed, in readable form."""
    answer = client.get("/api/v1/specs").json()
    assert [model["key"] for model in answer["products"]] == list(book.models)
    by_key = {model["key"]: model for model in answer["products"]}
    h100 = by_key["h100-sxm5-80gb"]
    assert h100["compute_capability"] == "9.0"
    assert "2330" in h100["pci_ids"]
    assert h100["core_count"] == 16896
    assert h100["peak_flops_per_second"]["bf16_tensor"] == pytest.approx(989.4e12, rel=1e-3)
    assert answer["sources"] == dict(book.sources)


def test_specs_follow_a_reload(daemon: Daemon, book: SpecBook) -> None:
    """After a reload the new spec file is shown."""
    key = "h100-sxm5-80gb"
    daemon.book = SpecBook({key: book.models[key]}, {})
    answer = daemon.client.get("/api/v1/specs").json()
    assert [model["key"] for model in answer["products"]] == [key]
