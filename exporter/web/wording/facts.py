# SPDX-License-Identifier: Apache-2.0
"""What is known of a GPU, as far as words are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Range(NamedTuple):
    """A closed interval that holds the true ratio; both ends are equal where it is measured."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a GPU."""

    owner: str | None = None
    command: str | None = None
    workload: str | None = None
    """training, serving, notebook …"""


@dataclass(frozen=True, slots=True)
class Saturation:
    """How close a GPU is to its limit, and how that is known."""

    ratio: Range
    measured: bool = True
    source: str | None = None
    """Name of the counter source, such as gpm, or estimate."""
    unit: str | None = None
    """The unit that gives the ratio: tensor, fp64, fma, int or dram."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One GPU, or one MIG instance of it; what is None is not known.

    A GPU with MIG on has facts of its own, about its board, beside those of its instances.
    """

    gpu: int
    """Its index."""
    name: str = "GPU"
    """The GPU model, as the driver names it."""
    digits: str | None = None
    """The last of its UUID, where another GPU has the same index."""
    instance: int | None = None
    """The MIG instance that these facts are about."""
    profile: str | None = None
    """Of the MIG instance: 3g.40gb."""
    divided: bool = False
    """Whether MIG is on: the work is in the facts of the instances."""
    down_reason: str | None = None
    """Why it cannot be read; None while it is up."""
    busy_ratio: float | None = None
    """Share of time in which something ran."""
    saturation: Saturation | None = None
    limiter: str | None = None
    roof_ratio: Mapping[str, float] = field(default_factory=dict)
    """By basis: spec, clock, achievable."""
    data_stall: Range | None = None
    """Share of time in which it was idle because its job waited for data."""
    data_wait_ratio: float | None = None
    """Share of time in which the host of its job waited for data; the stall is not longer."""
    idle: bool | None = None
    idle_seconds: float | None = None
    """For how long it was seen to be idle without a break; 0 while it is not."""
    held: bool | None = None
    held_idle_seconds: float | None = None
    """Altogether since the exporter started."""
    holder: Holder | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: tuple[str, ...] = ()
