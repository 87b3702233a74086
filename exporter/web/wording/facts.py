# SPDX-License-Identifier: Apache-2.0
"""The facts about a GPU that words are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.model.snapshot import Diagnosis, Holder

OBSERVED_RATIO = 0.9
"""An idle GPU was idle for this share of the window; the clocks of both never agree exactly."""

WIDEST_BAND_RATIO = 0.9
"""Bounds that are further apart say nothing: what they bound is not known."""


class Range(NamedTuple):
    """Bounds of a ratio; equal where it is measured."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Saturation:
    """How close a GPU is to its limit, and the source of the number."""

    ratio: Range
    measured: bool = True
    source: str | None = None
    """Name of the counter source, such as gpm, or estimate."""
    unit: str | None = None
    """The unit that gives the ratio: tensor, fp64, fma, int or dram."""


@dataclass(frozen=True, slots=True)
class Counting:
    """Which hardware counters of a GPU are read, and why others are not."""

    source: str | None = None
    """Name of the source (gpm, dcgm, cupti); None without counters."""
    complete: bool = False
    """Whether every unit that the saturation needs is counted."""
    unmeasured: tuple[str, ...] = ()
    """The resources that are only bounded: sm, tensor, fma, fp64, int, dram."""
    old: bool = False
    """Whether the counters are too old to be integrated."""
    states: Mapping[str, str] = field(default_factory=dict)
    """By source: why it gives nothing; the states of ``roofline_exporter_reading_state``."""


def is_idle(idle_seconds: float | None, window_seconds: float | None) -> bool | None:
    """Return whether a GPU was idle for the whole window; None if not known.

    `idle_seconds` is the length of the current pause: a GPU that works in bursts is not idle in its
    pauses. `window_seconds` is how much of the last 10 s was observed.
    """
    if idle_seconds is None:
        return None
    return idle_seconds > 0 and idle_seconds >= OBSERVED_RATIO * (window_seconds or 0.0)


@dataclass(frozen=True, slots=True)
class XidSeen:
    """An Xid, and how long ago it came last."""

    code: int
    ago_seconds: float


@dataclass(frozen=True, slots=True)
class Facts:
    """One GPU, or one MIG instance of it; None is "not known".

    Ratios, saturation and limiter are of `window_seconds`. With MIG on there are facts about the
    board and about each instance.
    """

    gpu: int
    """Its index."""
    name: str = "GPU"
    """The GPU model, as the driver names it."""
    digits: str | None = None
    """The last digits of its UUID, if another GPU has the same index."""
    instance: int | None = None
    """The MIG instance that these facts are about."""
    profile: str | None = None
    """Of the MIG instance: 3g.40gb."""
    divided: bool = False
    """Whether MIG is on: the work is in the facts of the instances."""
    down_reason: str | None = None
    """Why it cannot be read; None while it is up."""
    architecture: str | None = None
    virtual: bool = False
    """Whether it is a vGPU, in a guest."""
    counting: Counting | None = None
    """None for a GPU with MIG on."""
    measuring: bool = False
    """Whether its first interval has not ended yet."""
    window_seconds: float | None = None
    """How much of the last 10 s was observed; None where that is not known."""
    busy_ratio: float | None = None
    """Share of time in which something ran."""
    idle_ratio: float | None = None
    """Share of time in which nothing ran."""
    clock_ratio: float | None = None
    """Share of time that was lost to lower clocks."""
    saturation: Saturation | None = None
    """None also where it is only known to be between 0 and nearly 1."""
    memory_busy: Range | None = None
    """Measured DRAM activity, or where it likely is."""
    limiter: str | None = None
    """What limited it for most of the time."""
    input_ratio: float | None = None
    """Share of time in which it was limited by its input."""
    mfu_ratio: float | None = None
    """FLOP/s that its jobs state, over the peak of their precision."""
    roof_ratio: Mapping[str, float] = field(default_factory=dict)
    """By basis: spec, clock, achievable."""
    data_stall: Range | None = None
    """Share of time in which it was idle because its job waited for data."""
    data_wait_ratio: float | None = None
    """Share of time in which the host of its job waited for data; the stall is not longer."""
    waiting_for_data: bool = False
    """Whether its job's last report says that it waits for data."""
    job: str | None = None
    """The training job on it that waits most for data."""
    idle: bool | None = None
    """Whether it did nothing for all of the last 10 s."""
    idle_seconds: float | None = None
    """For how long it was seen to be idle without a break; 0 while it is not."""
    held: bool | None = None
    held_idle_seconds: float | None = None
    """Altogether since the exporter started."""
    holder: Holder | None = None
    workloads: tuple[str, ...] = ()
    """Names of the workloads that it is allocated to, or that have a process on it."""
    allocated: bool | None = None
    """Whether a scheduler has allocated it; None without a scheduler."""
    unopened_seconds: float | None = None
    """For how long it has been allocated without a process on it."""
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    memory_unified: bool = False
    """Whether it is the host's memory."""
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    """The known causes that it shows now."""
    missing_evidence: tuple[str, ...] = ()
    xids: tuple[XidSeen, ...] = ()
