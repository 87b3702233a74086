# SPDX-License-Identifier: Apache-2.0
"""The GPUs and ranks of one job as a daemon saw them, kept when they are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.reading import share_name
from exporter.model.snapshot import Diagnosis, Gpu, Rank, Share, Snapshot

Key = tuple[str | None, int | None]
"""UUID of a GPU and the GPU instance on it."""


def own_shares(snapshot: Snapshot, environ: Mapping[str, str]) -> set[Key]:
    """Return the shares with a rank or process of the Slurm step, or in CUDA_VISIBLE_DEVICES.

    CUDA numbers GPUs as NVML does only where they are of one model.
    """
    named = {*environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")}
    numbered = len({gpu.device.name for gpu in snapshot.gpus}) == 1
    step = (environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID") or "batch")
    found: set[Key] = {(rank.gpu_uuid, rank.gpu_instance) for rank in snapshot.ranks}
    for gpu in snapshot.gpus:
        names = {gpu.device.uuid, str(gpu.device.index) if numbered else gpu.device.uuid}
        for share in gpu.shares:
            is_named = share.gpu_instance is None and not named.isdisjoint(names)
            if is_named or any((each.job, each.step) == step for each in share.work.workloads):
                found.add((gpu.device.uuid, share.gpu_instance))
    return found


@dataclass(slots=True)
class SeenShare:
    """A GPU or MIG instance: the last reading, and sums that its totals do not have."""

    gpu: Gpu
    share: Share
    joules: tuple[float, ...] = ()
    """Of the board: the first and the last reading of its counter."""
    memory_bytes: int = 0
    """The most that was in use."""
    held_seconds: float | None = None
    saturated: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Seconds in which the saturation was known, and the integrals of its bounds."""
    sources: dict[str, None] = field(default_factory=dict)
    """Where it came from."""
    causes: dict[str, tuple[float, Diagnosis]] = field(default_factory=dict)
    """By slug: for how many seconds it held, and the last word on it."""

    def take(self, gpu: Gpu, share: Share, seconds: float) -> None:
        """Add a share of a snapshot that lasted `seconds`."""
        self.share, joules = share, gpu.totals.energy_joules
        if joules is not None and share.gpu_instance is None:
            self.joules = (*self.joules[:1], joules)
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
            before, _ = self.causes.get(each.cause, (0.0, each))
            self.causes[each.cause] = (before + seconds, each)

    @property
    def name(self) -> str:
        """Its GPU's index: 2, or 2/1 of an instance."""
        return share_name(self.gpu.device.index, self.share.gpu_instance)

    @property
    def energy_joules(self) -> float | None:
        """Energy of the board since it was first seen; None of a MIG instance."""
        return self.joules[1] - self.joules[0] if len(self.joules) == 2 else None


@dataclass(slots=True)
class Seen:
    """All snapshots of a run, summed up."""

    environ: Mapping[str, str]
    """Of the job."""
    began: float = 0.0
    """Unix time of the first snapshot."""
    last: Snapshot = field(default_factory=lambda: Snapshot(0.0))
    ranks: dict[tuple[str, int, Key], Rank] = field(default_factory=dict)
    _own: set[Key] = field(default_factory=set)
    _shares: dict[Key, SeenShare] = field(default_factory=dict)
    """Of all GPUs: one may be known to be the job's only later."""

    def take(self, snapshot: Snapshot, seconds: float) -> None:
        """Add one more snapshot, for the `seconds` before it."""
        self.began, self.last = self.began or snapshot.timestamp_seconds, snapshot
        for rank in snapshot.ranks:
            self.ranks[rank.job, rank.rank, (rank.gpu_uuid, rank.gpu_instance)] = rank
        self._own |= own_shares(snapshot, self.environ)
        for gpu in snapshot.gpus:
            for share in gpu.shares:
                key = (gpu.device.uuid, share.gpu_instance)
                self._shares.setdefault(key, SeenShare(gpu, share)).take(gpu, share, seconds)

    @property
    def shares(self) -> dict[Key, SeenShare]:
        """The shares of the job."""
        return {key: each for key, each in self._shares.items() if key in self._own}

    def known(self) -> dict[str, object]:
        """Return the values that only a daemon knows, by the keys of ``run --summary``."""
        shares = [*self.shares.values()]
        seconds, *sums = (sum(each.saturated[place] for each in shares) for place in range(3))
        bounds = sorted({min(each / seconds, 1.0) for each in sums if seconds})
        joules = [each.energy_joules for each in shares]
        lasted = self.last.timestamp_seconds - self.began
        known = {
            "gpu_seconds": len(shares) * lasted if shares else None,
            "saturation_ratio": bounds[0] if len(bounds) == 1 else None,
            "saturation_bounds": bounds if len(bounds) == 2 else None,
            "energy_joules": None if None in joules or not shares else sum(filter(None, joules)),
        }
        return {name: each for name, each in known.items() if each is not None}
