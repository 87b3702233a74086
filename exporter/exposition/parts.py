# SPDX-License-Identifier: Apache-2.0
"""The parts of a snapshot that families read, with their device or rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from exporter.exposition.labels import Label, Scope
from exporter.model.daemon import Daemon
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Health,
    Memory,
    Process,
    Utilization,
    Vitals,
    group_and_instance,
)
from exporter.model.snapshot import (
    BoardTotals,
    Bounds,
    Ceilings,
    Gpu,
    Holder,
    Peer,
    Rank,
    Roofline,
    Saturation,
    Share,
    ShareTotals,
    Snapshot,
    TrainingState,
)
from exporter.model.training import Collectives, Loader, TrainingTotals

Number = float  # an int is welcome wherever a float is, and is written exactly
LabelValues = tuple[str, ...]
Rows = Iterable[tuple[LabelValues, Number]]
T = TypeVar("T")
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Node:
    """The snapshot and the exporter's own state."""

    snapshot: Snapshot | None
    revision: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """By family: series dropped by a limit since the start."""
    daemon: Daemon | None = None
    """None without a daemon, as for the command ``once``."""


@dataclass(frozen=True, slots=True)
class ValueReader:
    """How to read a family's values: from which part, by which labels, with which function.

    A value that is not known has no row.
    """

    part: Part[Any]
    labels: tuple[Label, ...]
    read: Callable[[Any], Rows]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A kind of object in a snapshot that families read."""

    scope: Scope
    pick: Callable[[Any], T | None]
    """Takes the `Gpu`, `Share`, states by group, `Rank` or `Node`, by scope."""

    def one(self, read: Callable[[T], Number | None]) -> ValueReader:
        """Read one value, or None."""

        def rows(subject: T) -> Rows:
            value = read(subject)
            return () if value is None else (((), value),)

        return ValueReader(self, (), rows)

    def by_label(self, label: Label, read: Callable[[T], Mapping[str, Number]]) -> ValueReader:
        """Read values by one label."""
        return ValueReader(
            self,
            (label,),
            lambda subject: [((key,), value) for key, value in read(subject).items()],
        )

    def rows(self, labels: tuple[Label, ...], read: Callable[[T], Rows]) -> ValueReader:
        """Read values, each with the values of all these labels."""
        return ValueReader(self, labels, read)


GPU: Part[Gpu] = Part("gpu", lambda gpu: gpu)

DEVICE: Part[Device] = Part("board", lambda gpu: gpu.device)
PEERS: Part[tuple[Peer, ...]] = Part("board", lambda gpu: gpu.peers)
VITALS: Part[Vitals] = Part("board", lambda gpu: gpu.vitals)
BOARD: Part[Board] = Part("board", lambda gpu: gpu.board)
HEALTH: Part[Health] = Part("board", lambda gpu: gpu.health)
BOARD_TOTALS: Part[BoardTotals] = Part("board", lambda gpu: gpu.totals)
BOARD_CEILINGS: Part[Ceilings] = Part("board", lambda gpu: gpu.ceilings)

SHARE: Part[Share] = Part("share", lambda share: share)
TOTALS: Part[ShareTotals] = Part("share", lambda share: share.totals)
SINCE: Part[float] = Part("share", lambda share: share.totals.since_timestamp_seconds)
UTILIZATION: Part[Utilization] = Part("share", lambda share: share.utilization)
MEMORY: Part[Memory] = Part("share", lambda share: share.memory)
PROCESSES: Part[tuple[Process, ...]] = Part("share", lambda share: share.processes)
HOLDER: Part[Holder] = Part("share", lambda share: share.holder)
ACTIVITY: Part[Activity] = Part("share", lambda share: share.activity)
SATURATION: Part[Saturation] = Part("share", lambda share: share.saturation)
ROOFLINE: Part[Roofline] = Part("share", lambda share: share.roofline)
FLOPS_BOUNDS: Part[Bounds] = Part(
    "share", lambda share: share.roofline and share.roofline.flops_bounds_per_second
)
CEILINGS: Part[Ceilings] = Part("share", lambda share: share.ceilings)

STATES: Part[Mapping[str, str]] = Part("reading", lambda states: states)

RANK: Part[Rank] = Part("rank", lambda rank: rank)
RANK_TOTALS: Part[TrainingTotals] = Part("rank", lambda rank: rank.totals)
RANK_SINCE: Part[float] = Part("rank", lambda rank: rank.since_timestamp_seconds)
LOADER: Part[Loader] = Part("rank", lambda rank: rank.loader)

NODE: Part[Node] = Part("node", lambda node: node)
DAEMON: Part[Daemon] = Part("node", lambda node: node.daemon)
SNAPSHOT: Part[Snapshot] = Part("node", lambda node: node.snapshot)
COLLECTIVES: Part[Collectives] = Part(
    "node", lambda node: None if node.snapshot is None else node.snapshot.collectives
)
TRAINING_STATE: Part[TrainingState] = Part(
    "node", lambda node: None if node.snapshot is None else node.snapshot.training
)


def subjects(
    node: Node,
    parts: Iterable[Part[Any]],
    label: Callable[[Device, int | None], L],
    rank_label: Callable[[Rank], L],
    no_device: L,
) -> list[list[tuple[L, Any]]]:
    """Return the objects of each part, with the label of their GPU or instance, rank, or node."""
    gpus: list[tuple[L, Any]] = []
    boards: list[tuple[L, Any]] = []
    shares: list[tuple[L, Any]] = []
    for gpu in node.snapshot.gpus if node.snapshot is not None else ():
        name = label(gpu.device, None)
        gpus.append((name, gpu))
        if not gpu.up:
            continue
        boards.append((name, gpu))
        for share in gpu.shares:
            instance = share.gpu_instance
            shares.append((name if instance is None else label(gpu.device, instance), share))
    states: list[tuple[L, Any]] = []
    if any(part.scope == "reading" for part in parts):
        states = [
            (label(gpu.device, instance), found)
            for _, gpu in gpus
            for instance, found in _states(gpu)
        ]
    ranks = node.snapshot.ranks if node.snapshot is not None else ()
    owners: dict[Scope, list[tuple[L, Any]]] = {
        "gpu": gpus,
        "board": boards,
        "share": shares,
        "reading": states,
        "rank": [(rank_label(rank), rank) for rank in ranks],
        "node": [(no_device, node)],
    }
    return [
        [
            (name, subject)
            for name, owner in owners[part.scope]
            if (subject := part.pick(owner)) is not None
        ]
        for part in parts
    ]


def _states(gpu: Gpu) -> list[tuple[int | None, dict[str, str]]]:
    """Return the states of absent readings by group, for the GPU and each GPU instance."""
    found: dict[int | None, dict[str, str]] = {}
    for name, state in gpu.states.items():
        if gpu.up or state == "suspended":
            group, instance = group_and_instance(name)
            found.setdefault(instance, {})[group] = state
    return list(found.items())


def is_same(now: list[tuple[L, Any]], before: list[tuple[L, Any]]) -> bool:
    """Return whether both hold the same objects under the same labels, and are not empty."""
    return (
        bool(now)
        and len(now) == len(before)
        and all(
            this is that and name == same_name
            for (name, this), (same_name, that) in zip(now, before, strict=True)
        )
    )
