# SPDX-License-Identifier: Apache-2.0
"""All GPU models, one line each, and how figures of the spec file are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exporter.cli.terminal.screen import Screen, safe, wrapped
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.specs import GpuModel, assumed_precision

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
RIDGE_DIGITS = 4
"""Significant digits of a ridge point."""


def scaled(value: float | None, scale: float, digits: int = 6) -> Cell:
    """Return a figure in multiples of `scale`, or that it is not known."""
    return UNKNOWN if value is None else Cell(number(value / scale, digits))


def number(value: float, digits: int = 6) -> str:
    """Return a number with at most this many significant digits, and without an exponent."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def known(value: float | None, scale: float, digits: int) -> Cell:
    """Return a figure in multiples of `scale`, or nothing where there is none."""
    return NOTHING if value is None else scaled(value, scale, digits)


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


def _ridge(model: GpuModel) -> Cell:
    peak = model.peak_flops_per_second.get(_assumed(model) or "")
    bandwidth = model.memory_bandwidth_bytes_per_second
    return (
        UNKNOWN if peak is None or not bandwidth else Cell(number(peak / bandwidth, RIDGE_DIGITS))
    )


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
    Column("16-BIT TENSOR", lambda model: _tensor(model), 2, most=13, right=True),
    Column("FP8 TENSOR", lambda model: _peak("fp8_tensor", model), 5, most=10, right=True),
    Column(
        "GB/s",
        lambda model: scaled(model.memory_bandwidth_bytes_per_second, GIGA),
        3,
        most=10,
        right=True,
    ),
    Column("RIDGE FLOP/B", _ridge, 4, most=12, right=True),
    Column("TDP W", lambda model: scaled(model.tdp_watts, 1), 9, most=10, right=True),
)


def _tensor(model: GpuModel) -> Cell:
    return _peak(assumed_precision(model.peak_flops_per_second), model)


def listing(models: Sequence[GpuModel], screen: Screen) -> Iterator[str]:
    """Yield one line for each GPU model."""
    yield from laid_out(_LISTING, models, screen)
    for note in (
        "Dense peaks in TFLOP/s (FMA = 2 operations), * computed from SMs and clock. The ridge is "
        "16-bit tensor peak (bf16; fp16 where there is none), or FP32 without tensor cores, over "
        "memory bandwidth. specs NAME shows one GPU model with its sources.",
    ):
        yield from (screen.painted(line, "faint") for line in wrapped(note, screen.columns))
