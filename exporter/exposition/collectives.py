# SPDX-License-Identifier: Apache-2.0
"""The processes that compute together, as NCCL sees them."""

from __future__ import annotations

from exporter.exposition.family import Family, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import COLLECTIVES
from exporter.model.collectives import RAS_STATES

FAMILIES: tuple[Family, ...] = (
    gauge(
        "gpu_nccl_ras_ranks",
        "",
        "core",
        "Ranks of the NCCL job that answers on this node, on all its nodes, each by its worst "
        "state in any communicator: responding, missing from it, unresponsive (about 5 s), dead "
        "(about 60 s).",
        "NCCL's RAS every 15 s, with --source.nccl-ras",
        COLLECTIVES.by_label(Label("state", RAS_STATES), lambda c: c.ranks),
    ),
    gauge(
        "gpu_nccl_ras_communicators",
        "",
        "full",
        "Communicators of the NCCL job that answers on this node.",
        "NCCL's RAS every 15 s, with --source.nccl-ras",
        COLLECTIVES.one(lambda c: c.communicators),
    ),
)
