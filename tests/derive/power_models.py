# SPDX-License-Identifier: Apache-2.0
"""Boards to test bounds by power with, and what is known of them: nothing, or a calibration.

A board's own coefficients are the truth of a simulation, not measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.model.snapshot import Bounds, PowerModel
from exporter.specs.power import CLOCK_EXPONENT, ERROR_RATIO, SHARES, Kind

UNITS = ("tensor", "vector", "dram")


@dataclass(frozen=True, slots=True)
class Board:
    """What a simulated board draws, over its limit; within the ranges of its kind."""

    idle: float
    context: float
    """Idle, with a CUDA context."""
    spin: float
    """What one busy thread adds to it."""
    tensor: float
    vector: float
    dram: float
    exponent: float = 2.2


BOARDS: Mapping[Kind, Board] = {
    "hbm": Board(0.12, 0.16, 0.03, 0.95, 0.60, 0.40),
    "geforce": Board(0.05, 0.10, 0.06, 0.75, 0.70, 0.25),
    "gddr": Board(0.08, 0.20, 0.05, 1.60, 1.20, 0.30),
    "small": Board(0.15, 0.35, 0.05, 2.00, 1.40, 0.45),
}
"""A usual one of each kind."""


def wide(
    kind: Kind, capability: tuple[int, int], limit_watts: float, reference_hertz: float
) -> PowerModel:
    """What is known of a board that nobody has calibrated."""
    shares = SHARES[kind, capability]
    ranges: dict[str, Any] = {
        f"{name}_watts": Bounds(bounds.lower * limit_watts, bounds.upper * limit_watts)
        for name in ("idle", "busy", *UNITS)
        for bounds in (getattr(shares, name),)
    }
    return PowerModel(
        **ranges,
        clock_exponent=CLOCK_EXPONENT,
        reference_clock_hertz=reference_hertz,
        error_watts=ERROR_RATIO * (limit_watts - ranges["idle_watts"].lower),
    )


def calibrated(board: Board, limit_watts: float, reference_hertz: float) -> PowerModel:
    """What a calibration finds of it: kernels with zeros draw 30 % less than with random operands,
    reads from caches draw 0.3 of the limit, each end is 15 % wider, and integers draw half of what
    FP32 does."""
    found = {
        "idle": (board.idle, board.context),
        "busy": (board.spin / 1.15, 0.3 * 1.15),
        "tensor": (0.7 * board.tensor / 1.15, board.tensor * 1.15),
        "vector": (0.5 * 0.7 * board.vector / 1.15, board.vector * 1.15),
        "dram": (0.7 * board.dram / 1.15, board.dram * 1.15),
    }
    ranges: dict[str, Any] = {
        f"{name}_watts": Bounds(low * limit_watts, high * limit_watts)
        for name, (low, high) in found.items()
    }
    return PowerModel(
        **ranges,
        clock_exponent=CLOCK_EXPONENT,
        reference_clock_hertz=reference_hertz,
        error_watts=0.05 * limit_watts,
        memory_margin_ratio=0.06,
        calibrated=True,
    )


def narrow(limit_watts: float, reference_hertz: float, **means: float) -> PowerModel:
    """A board that is known within 10 % of each coefficient, or 3 % of the limit.

    `means` are over the limit.
    """
    found = {"idle": 0.12, "busy": 0.10, "tensor": 0.75, "vector": 0.60, "dram": 0.30} | means
    ranges: dict[str, Any] = {}
    for name, ratio in found.items():
        spread = max(0.1 * ratio, 0.03)
        low, high = max(0.0, ratio - spread) * limit_watts, (ratio + spread) * limit_watts
        ranges[f"{name}_watts"] = Bounds(low, high)
    return PowerModel(
        **ranges,
        clock_exponent=Bounds(1.5, 2.5),
        reference_clock_hertz=reference_hertz,
        error_watts=0.05 * limit_watts,
        memory_margin_ratio=0.08,
        calibrated=True,
    )
