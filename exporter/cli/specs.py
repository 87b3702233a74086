# SPDX-License-Identifier: Apache-2.0
"""``specs``: which ceilings the spec file gives to which product, and where they come from."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.cli import config
from exporter.cli.terminal.screen import Screen, encodable, pad, safe, screen_of, wrapped
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.errors import ConfigError
from exporter.specs import Product, SpecBook, assumed_precision, load_specs
from exporter.specs.book import bare_name
from exporter.web.api.convert import product_json
from exporter.web.api.models.roofline import CeilingJson
from exporter.web.api.models.specs import ProductJson, SpecsAnswer
from exporter.web.api.write import json_text

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
MOST_CANDIDATES = 8
RIDGE_DIGITS = 4
MARGIN = 24
"""Width of the names before the values of a sheet."""


def specs(override: Path | None, name: str | None, form: str, environ: Mapping[str, str]) -> int:
    """Print one product or all of them; return the exit code.

    Raises ConfigError where the spec file is bad, or no product, or more than one, has the name.
    """
    if form not in ("table", "json"):
        raise ConfigError(f"--format: expected table or json, got {config.shown(form)}")
    book = load_specs(override)
    products = tuple(book.products.values()) if name is None else (find(book, name),)
    if form == "json":
        lines: Iterable[str] = [as_json(products, book)]
    else:
        screen = screen_of(sys.stdout, environ)
        lines = listing(products, screen) if name is None else sheet(products[0], book, screen)
    for line in lines:
        print(encodable(line, sys.stdout.encoding))
    return 0


# Which product is meant.


def find(book: SpecBook, name: str) -> Product:
    """Return the product of this key or NVML name, or the only one that it is a part of.

    Case, spaces and dashes do not matter in a part. Raises ConfigError, in one line that names
    those that it may have been, if there is none or more than one.
    """
    if name in book.products:
        return book.products[name]
    bare = bare_name(name)
    part = _letters(name)
    found = []
    for product in book.products.values():
        if any(bare_name(each) == bare for each in product.names):
            return product
        texts = (product.key, product.product, *product.names)
        if part and any(part in _letters(text) for text in texts):
            found.append(product)
    if len(found) == 1:
        return found[0]
    what = f"specs: {config.shown(name)}"
    if not found:
        nearest = config.did_you_mean(name.lower(), book.products)
        raise ConfigError(f"{what}: no product has this key or name{nearest}")
    keys = [product.key for product in found[:MOST_CANDIDATES]]
    more = len(found) - len(keys)
    others = f" or {more} more" if more else ""
    raise ConfigError(f"{what}: expected one product, may be {', '.join(keys)}{others}")


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


# JSON.


def as_json(products: Sequence[Product], book: SpecBook) -> str:
    """Return what the API answers at /api/v1/specs, of these products."""
    answer = SpecsAnswer(
        products=[product_json(product) for product in products], sources=dict(book.sources)
    )
    return json_text(answer, indent=2)


# All products, a line each.


def _scaled(value: float | None, scale: float, digits: int = 6) -> Cell:
    return UNKNOWN if value is None else Cell(_number(value / scale, digits))


def _number(value: float, digits: int = 6) -> str:
    """Return a number with so many significant digits at most, and never an exponent."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def _peak(precision: str | None, product: Product) -> Cell:
    """Mark what was computed instead of published."""
    if precision is None or precision not in product.peak_flops_per_second:
        return NOTHING
    peak = _number(product.peak_flops_per_second[precision] / TERA)
    return Cell(peak + "*" if precision in product.derived_precisions else peak)


def _assumed(product: Product) -> str | None:
    """Return the precision that work is counted in: of the tensor cores, else FP32."""
    peaks = product.peak_flops_per_second
    return assumed_precision(peaks) or ("fp32" if "fp32" in peaks else None)


def _ridge(product: Product) -> Cell:
    peak = product.peak_flops_per_second.get(_assumed(product) or "")
    bandwidth = product.memory_bandwidth_bytes_per_second
    return (
        UNKNOWN if peak is None or not bandwidth else Cell(_number(peak / bandwidth, RIDGE_DIGITS))
    )


_LISTING: tuple[Column[Product], ...] = (
    Column(
        "KEY",
        lambda product: Cell(safe(product.key)),
        1,
        least=12,
        most=64,
        shrinks=True,
        whole_before=4,
    ),
    Column("NAME", lambda product: Cell(safe(product.product)), 8, least=12, most=40, shrinks=True),
    Column("ARCH", lambda product: Cell(safe(product.architecture)), 7, most=16),
    Column("FP32", lambda product: _peak("fp32", product), 6, most=10, right=True),
    Column("16-BIT TENSOR", lambda product: _tensor(product), 2, most=13, right=True),
    Column("FP8 TENSOR", lambda product: _peak("fp8_tensor", product), 5, most=10, right=True),
    Column(
        "GB/s",
        lambda product: _scaled(product.memory_bandwidth_bytes_per_second, GIGA),
        3,
        most=10,
        right=True,
    ),
    Column("RIDGE FLOP/B", _ridge, 4, most=12, right=True),
    Column("TDP W", lambda product: _scaled(product.tdp_watts, 1), 9, most=10, right=True),
)


def _tensor(product: Product) -> Cell:
    return _peak(assumed_precision(product.peak_flops_per_second), product)


def listing(products: Sequence[Product], screen: Screen) -> Iterator[str]:
    """Yield one line a product."""
    yield from laid_out(_LISTING, products, screen)
    for note in (
        "Dense peaks in TFLOP/s (FMA = 2 operations), * computed from SMs and clock. The ridge is "
        "16-bit tensor peak (bf16; fp16 where there is none), or FP32 without tensor cores, over "
        "memory bandwidth. specs NAME shows one product with its sources.",
    ):
        yield from (screen.painted(line, "faint") for line in wrapped(note, screen.columns))


# One product.


def _ceiling_columns(product: ProductJson) -> tuple[Column[CeilingJson], ...]:
    ratios, derived = product.achievable_ratio, product.derived_precisions

    def reached(ceiling: CeilingJson) -> Cell:
        ratio = ratios.get(ceiling.precision)
        return NOTHING if ratio is None else Cell(f"{100 * ratio:.1f} %")

    return (
        Column("PRECISION", lambda each: Cell(each.precision), 1, most=24),
        Column(
            "PEAK TFLOP/s",
            lambda each: _scaled(each.spec_flops_per_second, TERA),
            2,
            most=14,
            right=True,
        ),
        Column(
            "RIDGE FLOP/B",
            lambda each: _scaled(each.spec_ridge_flops_per_byte, 1, RIDGE_DIGITS),
            3,
            most=14,
            right=True,
        ),
        Column("ACHIEVABLE", reached, 4, most=10, right=True),
        Column(
            "TFLOP/s",
            lambda each: _known(each.achievable_flops_per_second, TERA, 4),
            6,
            most=14,
            right=True,
        ),
        Column(
            "FLOP/B",
            lambda each: _known(each.achievable_ridge_flops_per_byte, 1, RIDGE_DIGITS),
            7,
            most=14,
            right=True,
        ),
        Column(
            "FROM",
            lambda each: Cell("SMs x clock" if each.precision in derived else "published"),
            5,
            most=11,
        ),
    )


def _known(value: float | None, scale: float, digits: int) -> Cell:
    return NOTHING if value is None else _scaled(value, scale, digits)


def sheet(product: Product, book: SpecBook, screen: Screen) -> Iterator[str]:
    """Yield everything that is known of one product, and who says so."""
    row = product_json(product)
    title = f"{safe(row.key)}: {safe(row.product)}"
    yield from (screen.painted(line, "strong") for line in wrapped(title, screen.columns))
    yield from _facts(_identity(row), screen)
    yield ""
    yield from laid_out(_ceiling_columns(row), row.ceilings, screen)
    yield ""
    yield from _facts(_limits(row), screen)
    yield ""
    yield from _facts(_origin(row, book), screen)


def _identity(row: ProductJson) -> Iterator[tuple[str, str]]:
    yield "names by NVML", ", ".join(row.names)
    yield "PCI ids", ", ".join(row.pci_ids)
    chip = "" if row.chip is None else f" {row.chip}"
    capability = f"compute capability {row.compute_capability}"
    yield "architecture", f"{row.architecture}{chip}, {capability}"
    cores = "" if row.core_count is None else f", {row.core_count} cores"
    yield "SMs", "" if row.sm_count is None else f"{row.sm_count}{cores}"


def _limits(row: ProductJson) -> Iterator[tuple[str, str]]:
    bandwidth = row.memory_bandwidth_bytes_per_second
    reached = row.achievable_ratio.get("memory")
    size = "" if row.memory_bytes is None else f"{row.memory_bytes / GIGA:.4g} GB"
    bus = "" if row.memory_bus_width_bits is None else f"{row.memory_bus_width_bits} bits"
    rate = "" if bandwidth is None else f"{_number(bandwidth / GIGA)} GB/s"
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
            "" if per_second is None else f"{_number(per_second / GIGA)} GB/s per direction",
        )
    lanes = "" if row.pcie_lanes is None else f"{row.pcie_lanes} lanes"
    generation = "" if row.pcie_generation is None else f"generation {row.pcie_generation}"
    yield "PCIe", _listed(generation, lanes)
    yield "TDP", "" if row.tdp_watts is None else f"{_number(row.tdp_watts)} W"


def _origin(row: ProductJson, book: SpecBook) -> Iterator[tuple[str, str]]:
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
    """Yield the facts that are known, named, wrapped beside their names where there is room."""
    for name, text in facts:
        if not text:
            continue
        if screen.columns < 2 * MARGIN:
            yield from wrapped(safe(f"{name}: {text}" if name else text), screen.columns)
            continue
        body = list(wrapped(safe(text), screen.columns - MARGIN))
        yield screen.painted(pad(name, MARGIN), "faint") + body[0]
        yield from (" " * MARGIN + line for line in body[1:])
