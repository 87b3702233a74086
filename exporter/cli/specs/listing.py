# SPDX-License-Identifier: Apache-2.0
"""All GPU models, one line each, and how figures of the spec file are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from exporter.cli.terminal.screen import Screen, safe
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.specs import GpuModel, assumed_precision

T = TypeVar("T")

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
RIDGE_DIGITS = 4
"""Significant digits of a ridge point."""


def number(value: float, digits: int = 6) -> str:
    """Return a number with at most this many significant digits, and without an exponent."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def figures(
    header: str,
    value: Callable[[T], float | None],
    rank: int,
    scale: float = 1,
    *,
    digits: int = 6,
    absent: Cell = UNKNOWN,
) -> Column[T]:
    """Return a column of figures in multiples of `scale`."""

    def cell(row: T) -> Cell:
        found = value(row)
        return absent if found is None else Cell(number(found / scale, digits))

    return Column(header, cell, rank, most=14, right=True)


def _peak(precision: str | None, model: GpuModel) -> Cell:
    """Mark what was computed instead of published."""
    if precision is None or precision not in model.peak_flops_per_second:
        return NOTHING
    peak = number(model.peak_flops_per_second[precision] / TERA)
    return Cell(peak + "*" if precision in model.derived_precisions else peak)


def _assumed(model: GpuModel) -> str | None:
    """Return the precision that work is counted in: of the tensor cores, else FP32."""
    peaks = model.peak_flops_per_second
    return assumed_precision(peaks) or ("fp32" if "fp32" in peaks else None)


def _ridge(model: GpuModel) -> float | None:
    peak = model.peak_flops_per_second.get(_assumed(model) or "")
    bandwidth = model.memory_bandwidth_bytes_per_second
    return None if peak is None or not bandwidth else peak / bandwidth


def _tensor(model: GpuModel) -> Cell:
    return _peak(assumed_precision(model.peak_flops_per_second), model)


_LISTING: tuple[Column[GpuModel], ...] = (
    Column(
        "KEY",
        lambda model: Cell(safe(model.key)),
        1,
        least=12,
        most=64,
        shrinks=True,
        whole_before=4,
    ),
    Column("NAME", lambda model: Cell(safe(model.product)), 8, least=12, most=40, shrinks=True),
    Column("ARCH", lambda model: Cell(safe(model.architecture)), 7, most=16),
    Column("FP32", lambda model: _peak("fp32", model), 6, most=10, right=True),
    Column("16-BIT TENSOR", _tensor, 2, most=13, right=True),
    Column("FP8 TENSOR", lambda model: _peak("fp8_tensor", model), 5, most=10, right=True),
    figures("GB/s", lambda model: model.memory_bandwidth_bytes_per_second, 3, GIGA),
    figures("RIDGE FLOP/B", _ridge, 4, digits=RIDGE_DIGITS),
    figures("TDP W", lambda model: model.tdp_watts, 9),
)


def listing(models: Sequence[GpuModel], screen: Screen) -> Iterator[str]:
    """Yield one line for each GPU model."""
    yield from laid_out(_LISTING, models, screen)
    yield from screen.paragraph(_NOTE, "faint")


_NOTE = (
    "Dense peaks in TFLOP/s (FMA = 2 operations), * computed from SMs and clock. The ridge is "
    "16-bit tensor peak (bf16; fp16 where there is none), or FP32 without tensor cores, over "
    "memory bandwidth. specs NAME shows one GPU model with its sources."
)
