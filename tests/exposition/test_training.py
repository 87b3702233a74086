# SPDX-License-Identifier: Apache-2.0
"""What training jobs report appears under the contract's names, and nothing that is not known.

The golden page holds the value of each series.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.exposition.catalogue import CATALOGUE
from exporter.exposition.parts import Node
from exporter.model.snapshot import Rank, Snapshot
from exporter.model.training import TRAINING_DEGRADATIONS, Loader, TrainingTotals
from tests import snapshots
from tests.rows import Row, expected_rows

GPU = "GPU-11111111-2222-3333-4444-000000000000"


def rows_of(*ranks: Rank, node: Snapshot = snapshots.NO_DRIVER) -> list[Row]:
    return expected_rows(Node(snapshots.with_training(node, *ranks)))


def series(rows: list[Row], name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: value for family, labels, value in rows if family == name}


def one(rows: list[Row], name: str, **labels: str) -> float | None:
    found = {"training_job": "resnet", "rank": "0", "uuid": GPU, **labels}
    return series(rows, name).get(frozenset(found.items()))


def test_every_family_of_a_rank_is_in_the_example() -> None:
    """A rank that says all has every family of its kind."""
    names = {name for name, _, _ in rows_of(snapshots.rank_on_gpu())}
    assert {family.name for family in CATALOGUE.values() if family.scope == "rank"} <= names


def test_a_phase_that_is_not_measured_is_absent() -> None:
    """Host times are there from the start where they were reported; nothing is filled up."""
    said = TrainingTotals(phase_seconds={"data": 0.0, "eval": 0.0})
    rows = rows_of(replace(snapshots.rank_on_gpu(), totals=said))
    waits = {
        dict(labels)["phase"]: value
        for labels, value in series(rows, "gpu_training_phase_seconds_total").items()
    }
    assert waits == {"data": 0, "eval": 0}
    assert not series(rows, "gpu_training_phase_gpu_idle_seconds_total")


def test_what_a_job_does_not_say_is_absent() -> None:
    """No samples, FLOPs, loader or memory are made up."""
    rank = replace(
        snapshots.rank_on_gpu(), totals=TrainingTotals(), loader=Loader(), memory_bytes={}
    )
    names = {name for name, _, _ in rows_of(rank)}
    assert not names & {
        "gpu_training_samples_total",
        "gpu_training_model_flops_total",
        "gpu_training_prefetch_batches",
        "gpu_training_dataloader_workers",
        "gpu_training_memory_bytes",
    }


@pytest.mark.parametrize(
    ("rank", "labels"),
    [
        (snapshots.rank_on_gpu(), {"training_job": "resnet", "rank": "0", "uuid": GPU}),
        (
            snapshots.rank_on_instance(0),
            {
                "training_job": snapshots.rank_on_instance().job,
                "rank": "0",
                "uuid": GPU,
                "gpu_instance": "1",
            },
        ),
        (snapshots.rank_on_cpu(), {"training_job": "tiny", "rank": "1"}),
    ],
    ids=["gpu", "instance", "cpu"],
)
def test_labels_name_the_device_where_there_is_one(rank: Rank, labels: dict[str, str]) -> None:
    """A rank without a device has no uuid, one on a whole GPU no gpu_instance."""
    [(found, _)] = series(rows_of(rank), "gpu_training_steps_total").items()
    assert dict(found) == labels


def test_a_rank_says_whether_the_driver_lists_it() -> None:
    """Not of one without a GPU: there is nothing to be listed on."""
    name = "gpu_training_verified"
    rank = snapshots.rank_on_gpu()
    assert one(rows_of(rank), name) == 1
    assert one(rows_of(replace(rank, verified=False)), name) == 0
    assert not series(rows_of(snapshots.rank_on_cpu()), name)


def test_a_rank_outlives_the_readings_of_its_gpu() -> None:
    """A job goes on reporting while its GPU does not answer, or is not watched at all."""
    node = snapshots.snapshot(snapshots.lost(0))
    rank = replace(snapshots.rank_on_gpu(), gpu_uuid=node.gpus[0].device.uuid)
    rows = rows_of(rank, snapshots.rank_on_gpu(7), node=node)
    assert len(series(rows, "gpu_training_steps_total")) == 2


def test_degraded_ranks_are_counted_by_reason() -> None:
    """Those with a live process; every reason is there while reports are taken, else none is."""
    rank = replace(snapshots.rank_on_gpu(), degraded=("helper_thread", "unverified"))
    rows = rows_of(
        rank,
        replace(rank, rank=1, degraded=("unverified",)),
        replace(rank, rank=2, processes=0),
        replace(rank, rank=3, degraded=()),
    )
    counts = {
        dict(labels)["reason"]: value
        for labels, value in series(rows, "roofline_exporter_training_degraded").items()
    }
    expected = dict.fromkeys(TRAINING_DEGRADATIONS, 0) | {"helper_thread": 1, "unverified": 2}
    assert counts == expected
    off = expected_rows(Node(snapshots.EXAMPLES["training"]))
    assert not series(off, "roofline_exporter_training_degraded")
