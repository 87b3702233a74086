# SPDX-License-Identifier: Apache-2.0
"""How wide the bounds by power are, on simulated boards: the tables of docs/saturation.md.

python -m tests.derive.power_widths
"""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import NamedTuple

from exporter.derive.power import PowerMeans, estimated_by_power
from exporter.derive.saturation import estimated
from exporter.model.reading import Utilization
from exporter.model.snapshot import Bounds, Ceilings, PowerModel
from exporter.specs.power import SHARES, Kind
from tests.derive.power_models import BOARDS, Board, calibrated, wide

CLOCK = 2e9
ROUNDING = 0.01
PEAKS = {"fp32": 6e13, "bf16_tensor": 3e14}
MANY_FP64 = Ceilings("simulated", PEAKS | {"fp64": 3e13}, {})
FEW_FP64 = Ceilings("simulated", PEAKS | {"fp64": 1e12}, {})
KIND_WORDS: dict[Kind, str] = {
    "hbm": "boards with HBM",
    "geforce": "GeForce",
    "gddr": "other boards",
    "small": "up to 100 W, and laptops",
}


class Load(NamedTuple):
    """What works for which part of a window; the clock gives way at the board's limit."""

    runs: float
    tensor: float
    vector: float
    dram: float

    @property
    def saturation(self) -> float:
        return max(self.tensor, self.vector, self.dram)


LOADS = {
    "idle": Load(0.0, 0.0, 0.0, 0.0),
    "waits": Load(1.0, 0.0, 0.01, 0.0),
    "light": Load(0.9, 0.1, 0.1, 0.2),
    "copies": Load(1.0, 0.0, 0.1, 0.9),
    "matrices": Load(1.0, 0.9, 0.1, 0.4),
}
GRID = [
    Load(runs, runs * tensor, runs * vector, runs * dram)
    for runs, tensor, vector, dram in product(
        (0.25, 0.5, 0.79, 1.0), (0.0, 0.1, 0.4, 0.9), (0.0, 0.1, 0.4, 0.9), (0.0, 0.2, 0.5, 0.9)
    )
]


def drawn(board: Board, load: Load) -> tuple[float, float]:
    """Return the power over the limit and the clock over its reference."""
    base = (board.context if load.runs else board.idle) + board.spin * load.runs
    base += board.dram * load.dram
    pipes = board.tensor * load.tensor + board.vector * load.vector
    clock = 1.0
    if pipes and base + pipes > 1.0:
        clock = (max(0.05, 1.0 - base) / pipes) ** (1 / board.exponent)
    return base + pipes * clock**board.exponent, clock


def means(watts: float, clock: float, runs: float, memory: float) -> PowerMeans:
    """Return what is read of a window of ten seconds; `watts` and `clock` are over their
    references."""
    runs_upper = min(1.0, runs + ROUNDING)
    return PowerMeans(
        power_watts=Bounds(watts, watts),
        utilization=Bounds(max(0.0, runs - ROUNDING - 0.1), runs_upper),
        memory_upper_ratio=min(1.0, memory + ROUNDING),
        clock_hertz=Bounds(0.95 * clock * CLOCK, 1.05 * clock * CLOCK),
    )


def by_power(window: PowerMeans, model: PowerModel, kind: Kind) -> Bounds:
    ceilings = MANY_FP64 if kind == "hbm" else FEW_FP64
    found = estimated_by_power(window, model, ceilings, (8, 9), CLOCK, tensor_cores=True)
    return found.saturation.bounds


def by_utilization(window: PowerMeans) -> Bounds:
    upper = window.utilization.upper
    return estimated(Utilization(upper, upper, 0.0, None, window.memory_upper_ratio)).bounds


def percents(bounds: Bounds) -> str:
    return f"{100 * bounds.lower:.0f} to {100 * bounds.upper:.0f}"


def near_limit(model: PowerModel, kind: Kind) -> Bounds:
    """95 % of the limit at a utilization of 79 %, with the clock a tenth below its reference."""
    return by_power(means(0.95, 0.9, 0.78, 0.4), model, kind)


def mean_width(kind: Kind, model: PowerModel | None) -> float:
    board, widths = BOARDS[kind], []
    for load in GRID:
        window = means(*drawn(board, load), load.runs, load.dram)
        bounds = by_utilization(window) if model is None else by_power(window, model, kind)
        widths.append(bounds.upper - bounds.lower)
    return fmean(widths)


def rows() -> list[str]:
    """Return the rows of the table: one for each kind and architecture, and for a calibration."""
    found = []
    for kind, board in BOARDS.items():
        models: dict[str, PowerModel | None] = {"no power": None}
        for of_kind, capability in SHARES:
            if of_kind == kind:
                models[".".join(map(str, capability))] = wide(kind, capability, 1.0, CLOCK)
        models["calibrated"] = calibrated(board, 1.0, CLOCK)
        for name, model in models.items():
            cells = []
            for load in LOADS.values():
                window = means(*drawn(board, load), load.runs, load.dram)
                bounds = by_utilization(window) if model is None else by_power(window, model, kind)
                cells.append(percents(bounds))
            limit = Bounds(0.0, 0.79) if model is None else near_limit(model, kind)
            cells.append(percents(limit))
            cells.append(f"{100 * mean_width(kind, model):.0f}")
            found.append(f"| {KIND_WORDS[kind]} | {name} | " + " | ".join(cells) + " |")
    return found


if __name__ == "__main__":
    print("\n".join(rows()))
