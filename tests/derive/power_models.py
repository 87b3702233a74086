# SPDX-License-Identifier: Apache-2.0
"""Power models to test with: wide ones by class of GPU, and narrow ones as a calibration gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.model.snapshot import Bounds, PowerModel

Ranges = Mapping[str, tuple[float, float]]

WIDE: Mapping[str, Ranges] = {
    "data_center": {
        "idle_watts": (0.04, 0.25),
        "busy_watts": (0.01, 0.35),
        "tensor_watts": (0.20, 2.2),
        "vector_watts": (0.12, 1.3),
        "dram_watts": (0.12, 0.55),
    },
    "geforce": {
        "idle_watts": (0.01, 0.25),
        "busy_watts": (0.01, 0.35),
        "tensor_watts": (0.15, 1.3),
        "vector_watts": (0.10, 1.2),
        "dram_watts": (0.08, 0.45),
    },
    "other": {
        "idle_watts": (0.02, 0.40),
        "busy_watts": (0.01, 0.40),
        "tensor_watts": (0.20, 2.6),
        "vector_watts": (0.12, 2.0),
        "dram_watts": (0.10, 0.80),
    },
}
"""Proposed defaults where nothing is calibrated, over the board's default power limit and at the
vector clock of its datasheet; docs/saturation.md has the reasons. `other`: workstation and laptop
GPUs, and every board below 150 W (T4, L4, A2)."""

WIDE_EXPONENT = (1.0, 3.0)
WIDE_ERROR = 0.05


def wide(kind: str, limit_watts: float, reference_hertz: float) -> PowerModel:
    """The wide model of a class, for a board with this default limit."""
    ranges: dict[str, Any] = {
        name: Bounds(a * limit_watts, b * limit_watts) for name, (a, b) in WIDE[kind].items()
    }
    return PowerModel(
        **ranges,
        clock_exponent=Bounds(*WIDE_EXPONENT),
        reference_clock_hertz=reference_hertz,
        error_watts=WIDE_ERROR * limit_watts,
    )


def narrow(limit_watts: float, reference_hertz: float, **means: float) -> PowerModel:
    """A calibrated model: each coefficient within 10 %, or as much as 3 % of the limit.

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
