# SPDX-License-Identifier: Apache-2.0
"""Power, clock and traffic of one GPU model under a load, each with its wobble.

    P = TDP x (0.10 + 0.06 while a context is open + 0.84 x w x (f / f_max)^2),   w = sum of
        weight x activity over the units

and f is the highest clock up to f_max at which P is below the power limit: power falls with the
square of the clock, since voltage falls with it. It serves demonstrations and is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from exporter.sources.simulate.waves import Phase, Rates
from exporter.specs import GpuModel
from exporter.specs.gpu_model import pcie_bytes_per_second

IDLE_POWER_RATIO = 0.10
CONTEXT_POWER_RATIO = 0.06
DYNAMIC_POWER_RATIO = 1.0 - IDLE_POWER_RATIO - CONTEXT_POWER_RATIO
POWER_WEIGHTS: Mapping[str, float] = {
    "sm": 0.30,
    "tensor": 0.80,
    "dram": 0.33,
    "fp64": 0.60,
    "fp32": 0.25,
    "fp16": 0.25,
    "integer": 0.12,
}
"""By activity: the part of the dynamic power that a full unit draws at full clock. They add up to
more than 1: no board can feed all units at once."""
IDLE_CLOCK_RATIO = 0.17
"""SM clock without a context, of the highest (345 of 1980 MHz on an H100)."""
IDLE_GRAPHICS_MEMORY_HERTZ = 405e6
"""GDDR memory is clocked down without a context; HBM is not."""
CYCLE_UNITS = ("sm", "occupancy", "tensor", "fp64", "fp32", "fp16", "integer")
"""The activities whose counters count cycles of the SM clock."""
WOBBLE_RATIO = 0.015
CAP_MARGIN_RATIO = 0.995
"""The power of a capped board, relative to its limit."""
FIRST_WITH_COUNTERS = (9, 0)
"""GPM: Hopper and newer."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a story on a GPU: activities, and link traffic as a share of the link's peak."""

    engine: float = 0.0
    sm: float = 0.0
    occupancy: float = 0.0
    dram: float = 0.0
    tensor: float = 0.0
    fp64: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    integer: float = 0.0
    pcie_transmit: float = 0.0
    pcie_receive: float = 0.0
    nvlink: float = 0.0
    """Each direction; over PCIe where there is no NVLink."""
    waits: bool = False
    """Whether nothing runs but kernels that wait for other GPUs."""


QUIET = Load()


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of a story with its parameters."""

    beat: tuple[tuple[float, Load], ...]
    """Seconds and load of each phase; repeated."""
    memory: float = 0.0
    """Share of the usable memory that is allocated."""
    awake: bool = True
    """True while a process keeps a context open, which keeps the clocks high."""
    limit_ratio: float = 1.0
    """The power limit over the default one."""
    wobble_ratio: float = WOBBLE_RATIO


@dataclass(frozen=True, slots=True)
class Hardware:
    """The figures of one GPU model that the simulation needs, all known."""

    power_watts: float
    """The default power limit."""
    sm_count: int
    clock_hertz: float
    memory_clock_hertz: float
    memory_bytes: int
    pcie_bytes_per_second: float
    nvlink_bytes_per_second: float
    """Each direction; 0 without NVLink."""
    stacked_memory: bool
    has_counters: bool


def hardware(model: GpuModel) -> Hardware | None:
    """Return the figures of `model`, or None if its row lacks one that is needed."""
    pcie = pcie_bytes_per_second(model.pcie_generation, model.pcie_lanes)
    clock = model.peak_clock_hertz.get("vector")
    memory_clock = model.peak_clock_hertz.get("memory")
    if (
        model.tdp_watts is None
        or model.sm_count is None
        or model.memory_bytes is None
        or model.memory_bus_width_bits is None
        or clock is None
        or memory_clock is None
    ):
        return None
    return Hardware(
        power_watts=model.tdp_watts,
        sm_count=model.sm_count,
        clock_hertz=clock,
        memory_clock_hertz=memory_clock,
        memory_bytes=round(model.memory_bytes / 1e9 * 2**30),
        pcie_bytes_per_second=pcie or 0.0,
        nvlink_bytes_per_second=model.nvlink_bandwidth_bytes_per_second or 0.0,
        stacked_memory=(model.memory_type or "").startswith("HBM"),
        has_counters=model.compute_capability >= FIRST_WITH_COUNTERS,
    )


def phase(
    board: Hardware, behaviour: Behaviour, seconds: float, load: Load, *, trains: bool
) -> Phase:
    """Return one phase of the beat of a behaviour on `board`.

    `trains` is whether it is the load of a training job, which waits for data while the engine is
    idle. Where the power limit is hit the clock wobbles and the power does not; elsewhere
    activities, traffic and dynamic power wobble together, and an engine that is always busy stays
    so.
    """
    awake, wobble_ratio = behaviour.awake, behaviour.wobble_ratio
    weight = sum(share * getattr(load, unit) for unit, share in POWER_WEIGHTS.items())
    floor = IDLE_POWER_RATIO + (CONTEXT_POWER_RATIO if awake else 0.0)
    dynamic = DYNAMIC_POWER_RATIO * weight
    limit = behaviour.limit_ratio * CAP_MARGIN_RATIO
    capped = floor + dynamic * (1.0 + wobble_ratio) > limit
    clock_ratio = 1.0 if awake else IDLE_CLOCK_RATIO
    power, power_swing, clock_swing = floor + dynamic, dynamic * wobble_ratio, 0.0
    if capped:
        # At the highest clock, and just below it, there is no room for the whole wobble.
        clock_ratio = min(sqrt((limit - floor) / dynamic), 1.0)
        room = 1.0 / clock_ratio - 1.0
        power, power_swing, clock_swing = limit, 0.0, -min(wobble_ratio / 2, room)
    clock = board.clock_hertz * clock_ratio
    pcie = 0.0 if board.nvlink_bytes_per_second else load.nvlink
    rates = Rates(
        engine=load.engine,
        dram=load.dram,
        pcie_transmit=(load.pcie_transmit + pcie) * board.pcie_bytes_per_second,
        pcie_receive=(load.pcie_receive + pcie) * board.pcie_bytes_per_second,
        nvlink=load.nvlink * board.nvlink_bytes_per_second,
        power=power * board.power_watts,
        cycles=clock,
        busy_cycles=clock * load.engine,
        **{f"{unit}_cycles": clock * getattr(load, unit) for unit in CYCLE_UNITS},
        capped=1.0 if capped else 0.0,
        trained=1.0 if trains else 0.0,
        stalled=1.0 - load.engine if trains else 0.0,
        waited=load.engine if trains and load.waits else 0.0,
    )
    relative = {
        **dict.fromkeys(Rates._fields, wobble_ratio),
        **dict.fromkeys(("engine", "capped", "trained", "stalled", "waited"), 0.0),
        "power": power_swing / power,
        **dict.fromkeys(("cycles", "busy_cycles"), clock_swing),
        **{f"{unit}_cycles": wobble_ratio + clock_swing for unit in CYCLE_UNITS},
    }
    swings = Rates(**{name: getattr(rates, name) * relative[name] for name in Rates._fields})
    return Phase(seconds, rates, swings)


def memory_clock_hertz(board: Hardware, *, awake: bool) -> float:
    """Return the memory clock of a board with or without an open context."""
    if awake or board.stacked_memory:
        return board.memory_clock_hertz
    return min(board.memory_clock_hertz, IDLE_GRAPHICS_MEMORY_HERTZ)
