# SPDX-License-Identifier: Apache-2.0
"""A board whose power follows the model exactly, and what it draws under each load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.cli.calibrate.fit import Measured
from exporter.cli.calibrate.loads import IDLE, LOADS, Load
from exporter.model.snapshot import Ceilings

HERTZ = 1500e6
"""The clock of the peaks, and the reference of the true coefficients."""

CEILINGS = Ceilings(
    spec="h100-sxm5-80gb",
    peak_flops_per_second={"bf16_tensor": 1000e12, "fp32": 60e12},
    peak_clock_hertz={"tensor": HERTZ, "vector": HERTZ},
    memory_bandwidth_bytes_per_second=3000e9,
    assumed_precision="bf16_tensor",
)


@dataclass(frozen=True)
class Active:
    """What a load does: shares of time, and how much the operands draw of what random ones do."""

    utilization: float = 0.0
    tensor: float = 0.0
    vector: float = 0.0
    dram: float = 0.0
    operands: float = 1.0
    cache: float = 0.0


@dataclass(frozen=True)
class Board:
    """The true coefficients, in watts at HERTZ."""

    idle: float = 70.0
    context: float = 120.0
    busy: float = 25.0
    cache: float = 150.0
    tensor: float = 500.0
    vector: float = 350.0
    dram: float = 180.0
    exponent: float = 2.4
    zeros: float = 0.55
    """What zeros draw of what random operands do."""
    memory_offset: float = 0.05
    """How far the driver's memory utilization is above DRAM activity."""
    clocks: Mapping[str, float] = field(default_factory=dict)
    """By load; HERTZ if not listed."""
    gemm_dram: float = 0.2
    strays: float = 0.05
    ceilings: Ceilings = CEILINGS

    def active(self, load: Load) -> Active:
        """What a load does on this board."""
        operands = self.zeros if load.zeros else 1.0
        if load.kernel is None:
            return Active()
        if load.kernel == "spin":
            return Active(1.0)
        if load.kernel == "cache":
            return Active(1.0, cache=1.0)
        if load.kernel == "copy":
            share = 0.9 * load.duty
            return Active(load.duty, 0.0, self.strays * load.duty, share, operands)
        if load.kernel == "gemm":
            return Active(1.0, 0.9, self.strays, self.gemm_dram, operands)
        return Active(1.0, 0.0, 0.85, self.gemm_dram, operands)

    def hertz(self, load: Load) -> float:
        """The SM clock under a load."""
        return self.clocks.get(load.name, HERTZ)

    def watts(self, active: Active, hertz: float, *, context: bool = True) -> float:
        """What it draws, by the model."""
        pipes = self.tensor * active.tensor + self.vector * active.vector
        by_clock: float = (hertz / HERTZ) ** self.exponent
        return (
            (self.context if context else self.idle)
            + self.busy * active.utilization
            + self.cache * active.cache
            + pipes * active.operands * by_clock
            + self.dram * active.operands * active.dram
        )

    def memory_utilization(self, active: Active) -> float:
        """What the driver says of the memory."""
        return min(1.0, max(0.0, active.dram + self.memory_offset)) if active.dram else 0.0

    def flops_per_second(self, load: Load) -> float:
        """The work that a load does, as its program counts it."""
        peaks, clocks = self.ceilings.peak_flops_per_second, self.ceilings.peak_clock_hertz
        active, hertz = self.active(load), self.hertz(load)
        if load.kernel == "gemm":
            return active.tensor * peaks["bf16_tensor"] * hertz / clocks["tensor"]
        if load.kernel == "fp32":
            return active.vector * peaks["fp32"] * hertz / clocks["vector"]
        return 0.0

    def bytes_per_second(self, load: Load) -> float:
        """The traffic that a load makes, as its program counts it."""
        bandwidth = self.ceilings.memory_bandwidth_bytes_per_second or 0.0
        return self.active(load).dram * bandwidth if load.kernel == "copy" else 0.0

    def measured(self, load: Load, off_watts: float = 0.0, noise_watts: float = 0.0) -> Measured:
        """A measurement of a load."""
        active, hertz = self.active(load), self.hertz(load)
        return Measured(
            watts=self.watts(active, hertz, context=load is not IDLE) + off_watts,
            noise_watts=noise_watts,
            utilization=active.utilization,
            memory_utilization=self.memory_utilization(active),
            sm_clock_hertz=hertz,
            flops_per_second=self.flops_per_second(load),
            bytes_per_second=self.bytes_per_second(load),
        )

    def all_measured(self) -> dict[str, Measured]:
        """Every load, without noise."""
        return {load.name: self.measured(load) for load in (IDLE, *LOADS)}
