# SPDX-License-Identifier: Apache-2.0
"""What a daemon has seen of one job's GPUs and ranks, kept when these are gone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from exporter.model.diagnosis import Diagnosis
from exporter.model.reading import Device
from exporter.model.snapshot import Bounds, Gpu, Rank, Share, Snapshot

Key = tuple[str | None, int | None]
"""UUID of a GPU and the GPU instance on it."""


@dataclass(slots=True)
class SeenShare:
    """A GPU or MIG instance: the last reading, and what the totals of a share do not have."""

    device: Device
    share: Share
    joules: list[float] = field(default_factory=list)
    """Of the board: the first and the last reading of its counter."""
    memory_bytes: int = 0
    """The most that was in use."""
    held_seconds: float | None = None
    sources: dict[str, None] = field(default_factory=dict)
    """Of the saturation, in the order of their appearance."""
    saturated: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Seconds in which the saturation was known, and the integrals of its bounds."""
    causes: dict[str, tuple[float, Diagnosis]] = field(default_factory=dict)
    """By slug: for how many seconds it held, and the last word on it."""

    def take(self, gpu: Gpu, share: Share, seconds: float) -> None:
        """Take a picture that holds for so long."""
        self.share, joules = share, gpu.totals.energy_joules
        if joules is not None and share.gpu_instance is None:
            self.joules = [*self.joules[:1], joules]
        if share.memory is not None:
            self.memory_bytes = max(self.memory_bytes, share.memory.used_bytes)
        if share.held is not None:
            self.held_seconds = (self.held_seconds or 0.0) + share.held * seconds
        if share.saturation is not None:
            self.sources[share.saturation.source] = None
            (known, lower, upper), bounds = self.saturated, share.saturation.bounds
            more = (bounds.lower * seconds, bounds.upper * seconds)
            self.saturated = (known + seconds, lower + more[0], upper + more[1])
        for each in share.diagnoses:
            self.causes[each.cause] = (
                self.causes.get(each.cause, (0.0, each))[0] + seconds,
                each,
            )

    @property
    def saturation_bounds(self) -> Bounds | None:
        """Bounds of the mean saturation, equal where it was measured all the time."""
        seconds, lower, upper = self.saturated
        return Bounds(lower / seconds, upper / seconds) if seconds else None

    @property
    def energy_joules(self) -> float | None:
        """Energy of the board since it was first seen; None of a MIG instance."""
        return self.joules[1] - self.joules[0] if len(self.joules) == 2 else None


@dataclass(slots=True)
class Seen:
    """All snapshots of a run, summed up."""

    began: float = 0.0
    ended: float = 0.0
    """Unix times of the first and the last snapshot."""
    problem: str | None = None
    """Why no GPU could be read."""
    ranks: dict[tuple[str, int, Key], Rank] = field(default_factory=dict)
    own: set[Key] = field(default_factory=set)
    """The GPUs of the job."""
    _shares: dict[Key, SeenShare] = field(default_factory=dict)

    def take(self, snapshot: Snapshot, seconds: float, own: Collection[Key]) -> None:
        """Take one more snapshot, which holds for the `seconds` before it; 0 after a gap.

        GPUs are the job's from then on if they are in `own`, or one of its ranks is there.
        """
        self.began = self.began or snapshot.timestamp_seconds
        self.ended, self.problem = snapshot.timestamp_seconds, snapshot.problem
        for rank in snapshot.ranks:
            place = (rank.gpu_uuid, rank.gpu_instance)
            self.ranks[rank.job, rank.rank, place] = rank
            self.own.add(place)
        self.own.update(own)
        for gpu in snapshot.gpus:
            for share in gpu.shares:
                key = (gpu.device.uuid, share.gpu_instance)
                seen = self._shares.setdefault(key, SeenShare(gpu.device, share))
                seen.take(gpu, share, seconds)

    def shares(self) -> list[SeenShare]:
        """Return those of the job, by index."""
        found = [seen for key, seen in self._shares.items() if key in self.own]
        return sorted(found, key=lambda each: (each.device.index, each.share.gpu_instance or 0))
