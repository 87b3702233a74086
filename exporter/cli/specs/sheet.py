# SPDX-License-Identifier: Apache-2.0
"""What ``specs`` prints: all GPU models, one line each, or one with the source of each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from exporter.cli.terminal.screen import Screen, pad, safe, wrapped
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.specs import GpuModel, SpecBook, assumed_precision
from exporter.web.api.convert import gpu_model_json
from exporter.web.api.models.roofline import CeilingJson, GpuModelJson

T = TypeVar("T")

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
RIDGE_DIGITS = 4
"""Significant digits of a ridge point."""
MARGIN = 24
"""Width of the names before the values."""


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


def _ceiling_columns(model: GpuModelJson) -> tuple[Column[CeilingJson], ...]:
    ratios, derived = model.achievable_ratio, model.derived_precisions

    def reached(ceiling: CeilingJson) -> Cell:
        ratio = ratios.get(ceiling.precision)
        return NOTHING if ratio is None else Cell(f"{100 * ratio:.1f} %")

    def origin(ceiling: CeilingJson) -> Cell:
        return Cell("SMs x clock" if ceiling.precision in derived else "published")

    return (
        Column("PRECISION", lambda each: Cell(each.precision), 1, most=24),
        figures("PEAK TFLOP/s", lambda each: each.spec_flops_per_second, 2, TERA),
        figures(
            "RIDGE FLOP/B", lambda each: each.spec_ridge_flops_per_byte, 3, digits=RIDGE_DIGITS
        ),
        Column("ACHIEVABLE", reached, 4, most=10, right=True),
        figures(
            *("TFLOP/s", lambda each: each.achievable_flops_per_second, 6, TERA),
            digits=4,
            absent=NOTHING,
        ),
        figures(
            *("FLOP/B", lambda each: each.achievable_ridge_flops_per_byte, 7),
            digits=RIDGE_DIGITS,
            absent=NOTHING,
        ),
        Column("FROM", origin, 5, most=11),
    )


def sheet(model: GpuModel, book: SpecBook, screen: Screen) -> Iterator[str]:
    """Yield every known figure of one GPU model, with its sources."""
    row = gpu_model_json(model)
    yield from screen.paragraph(f"{safe(row.key)}: {safe(row.product)}", "strong")
    yield from _facts(_identity(row), screen)
    yield ""
    yield from laid_out(_ceiling_columns(row), row.ceilings, screen)
    yield ""
    yield from _facts(_limits(row), screen)
    yield ""
    yield from _facts(_origin(row, book), screen)


def _identity(row: GpuModelJson) -> Iterator[tuple[str, str]]:
    yield "names by NVML", ", ".join(row.names)
    yield "PCI ids", ", ".join(row.pci_ids)
    chip = "" if row.chip is None else f" {row.chip}"
    capability = f"compute capability {row.compute_capability}"
    yield "architecture", f"{row.architecture}{chip}, {capability}"
    cores = "" if row.core_count is None else f", {row.core_count} cores"
    yield "SMs", "" if row.sm_count is None else f"{row.sm_count}{cores}"


def _limits(row: GpuModelJson) -> Iterator[tuple[str, str]]:
    bandwidth = row.memory_bandwidth_bytes_per_second
    reached = row.achievable_ratio.get("memory")
    size = "" if row.memory_bytes is None else f"{row.memory_bytes / GIGA:.4g} GB"
    bus = "" if row.memory_bus_width_bits is None else f"{row.memory_bus_width_bits} bits"
    rate = "" if bandwidth is None else f"{number(bandwidth / GIGA)} GB/s"
    best = "" if reached is None else f"{100 * reached:.1f} % of it achievable"
    yield "memory", _listed(" ".join(filter(None, (size, row.memory_type or ""))), bus)
    yield "memory bandwidth", _listed(rate, best)
    for unit, hertz in row.peak_clock_hertz.items():
        yield f"{unit} clock", f"{hertz / MEGA:.0f} MHz"
    for link, per_second in (
        ("NVLink", row.nvlink_bandwidth_bytes_per_second),
        ("NVLink-C2C", row.c2c_bandwidth_bytes_per_second),
    ):
        yield (
            link,
            "" if per_second is None else f"{number(per_second / GIGA)} GB/s per direction",
        )
    lanes = "" if row.pcie_lanes is None else f"{row.pcie_lanes} lanes"
    generation = "" if row.pcie_generation is None else f"generation {row.pcie_generation}"
    yield "PCIe", _listed(generation, lanes)
    yield "TDP", "" if row.tdp_watts is None else f"{number(row.tdp_watts)} W"


def _origin(row: GpuModelJson, book: SpecBook) -> Iterator[tuple[str, str]]:
    yield "confidence", _CONFIDENCE.get(row.confidence or "", "")
    yield "note", row.note or ""
    for title, codes in (("sources", row.sources), ("achievable by", row.achievable_sources)):
        for code in codes:
            text = book.sources.get(code)
            yield title, code if text is None else f"{code}: {text}"
            title = ""


_CONFIDENCE = {
    "A": "A: ids from the driver and two independent sources that agree, or a datasheet and a log",
    "B": "B: two sources",
    "C": "C: one source, or sources that disagree",
}


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _facts(facts: Iterable[tuple[str, str]], screen: Screen) -> Iterator[str]:
    """Yield the known facts with their names, wrapped beside these where there is room."""
    for name, text in facts:
        if not text:
            continue
        if screen.columns < 2 * MARGIN:
            yield from wrapped(safe(f"{name}: {text}" if name else text), screen.columns)
            continue
        body = list(wrapped(safe(text), screen.columns - MARGIN))
        yield screen.painted(pad(name, MARGIN), "faint") + body[0]
        yield from (" " * MARGIN + line for line in body[1:])
