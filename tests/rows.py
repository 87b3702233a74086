# SPDX-License-Identifier: Apache-2.0
"""The rows that a page of a snapshot has to show, worked out the slow and plain way."""

from __future__ import annotations

import math

from prometheus_client.metrics_core import Metric

from exporter.exposition.catalogue import selected
from exporter.exposition.family import Family
from exporter.exposition.labels import LABELS_OF
from exporter.exposition.parts import Node, subjects
from exporter.exposition.processes import ProcessRows
from exporter.model.reading import Device
from exporter.model.snapshot import Rank

NO_DEVICE: dict[str, str] = {}

Row = tuple[str, frozenset[tuple[str, str]], float]


def label_names(family: Family) -> tuple[str, ...]:
    """Return the labels of a family, in the order of its lines; those that some lines lack too."""
    return (*LABELS_OF[family.scope], *(label.name for label in family.labels))


def _device_labels(device: Device, instance: int | None) -> dict[str, str]:
    labels = {"gpu": str(device.index), "uuid": device.uuid}
    return labels if instance is None else {**labels, "gpu_instance": str(instance)}


def _rank_labels(rank: Rank) -> dict[str, str]:
    labels = {"training_job": rank.job, "rank": str(rank.rank)}
    if rank.gpu_uuid is not None:
        labels["uuid"] = rank.gpu_uuid
    if rank.gpu_instance is not None:
        labels["gpu_instance"] = str(rank.gpu_instance)
    return labels


def expected_rows(node: Node, processes: ProcessRows | None = None) -> list[Row]:
    """Return (exposed name, labels, value) of every series, sorted."""
    rows: list[Row] = []
    for family in selected(rows=processes or ProcessRows()):
        reader = family.reader
        names = tuple(label.name for label in family.labels)
        [found] = subjects(node, [reader.part], _device_labels, _rank_labels, NO_DEVICE)
        for device, subject in found:
            for own, value in reader.read(subject):
                if math.isfinite(value):
                    pairs = {**device, **dict(zip(names, own, strict=True))}
                    rows.append((family.name, frozenset(pairs.items()), float(value)))
    return sorted(rows, key=_order)


def parsed_rows(metrics: list[Metric]) -> list[Row]:
    """Return the same of what one of client_python's parsers read."""
    return sorted(
        (
            (sample.name, frozenset(sample.labels.items()), float(sample.value))
            for metric in metrics
            for sample in metric.samples
        ),
        key=_order,
    )


def _order(row: Row) -> tuple[str, list[tuple[str, str]]]:
    return row[0], sorted(row[1])
