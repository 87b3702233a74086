# SPDX-License-Identifier: Apache-2.0
"""``specs``: the ceilings of each GPU model in the spec file, and where they come from."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.cli import config
from exporter.cli.command import Invocation
from exporter.cli.terminal.screen import Screen, encodable, pad, safe, screen_of, wrapped
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.errors import ConfigError
from exporter.specs import GpuModel, SpecBook, assumed_precision, load_specs
from exporter.specs.book import bare_name
from exporter.web.api.convert import gpu_model_json
from exporter.web.api.models.roofline import CeilingJson
from exporter.web.api.models.specs import GpuModelJson, SpecsAnswer
from exporter.web.api.write import json_text

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
MOST_CANDIDATES = 8
RIDGE_DIGITS = 4
MARGIN = 24
"""Width of the names before the values of a sheet."""


def specs(override: Path | None, name: str | None, form: str, environ: Mapping[str, str]) -> int:
    """Print one GPU model or all of them; return the exit code.

    Raises ConfigError where the spec file is bad, or no GPU model, or more than one, has the name.
    """
    if form not in ("table", "json"):
        raise ConfigError(f"--format: expected table or json, got {config.shown(form)}")
    book = load_specs(override)
    models = tuple(book.models.values()) if name is None else (find(book, name),)
    if form == "json":
        lines: Iterable[str] = [as_json(models, book)]
    else:
        screen = screen_of(sys.stdout, environ)
        lines = listing(models, screen) if name is None else sheet(models[0], book, screen)
    for line in lines:
        print(encodable(line, sys.stdout.encoding))
    return 0


# Which GPU model is meant.


def find(book: SpecBook, name: str) -> GpuModel:
    """Return the GPU model of this key or NVML name, or the only one that it is a part of.

    Case, spaces and dashes do not matter in a part. Raises ConfigError, in one line that names
    those that may be meant, if no GPU model or more than one has it.
    """
    if name in book.models:
        return book.models[name]
    bare = bare_name(name)
    part = _letters(name)
    found = []
    for model in book.models.values():
        if any(bare_name(each) == bare for each in model.names):
            return model
        texts = (model.key, model.product, *model.names)
        if part and any(part in _letters(text) for text in texts):
            found.append(model)
    if len(found) == 1:
        return found[0]
    what = f"specs: {config.shown(name)}"
    if not found:
        nearest = config.did_you_mean(name.lower(), book.models)
        raise ConfigError(f"{what}: no GPU model has this key or name{nearest}")
    keys = [model.key for model in found[:MOST_CANDIDATES]]
    more = len(found) - len(keys)
    others = f" or {more} more" if more else ""
    raise ConfigError(f"{what}: expected one GPU model, may be {', '.join(keys)}{others}")


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


# JSON.


def as_json(models: Sequence[GpuModel], book: SpecBook) -> str:
    """Return the answer of the API at /api/v1/specs for these GPU models."""
    answer = SpecsAnswer(
        products=[gpu_model_json(model) for model in models], sources=dict(book.sources)
    )
    return json_text(answer, indent=2)


# All GPU models, one line each.


def _scaled(value: float | None, scale: float, digits: int = 6) -> Cell:
    return UNKNOWN if value is None else Cell(_number(value / scale, digits))


def _number(value: float, digits: int = 6) -> str:
    """Return a number with at most this many significant digits, and without an exponent."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def _peak(precision: str | None, model: GpuModel) -> Cell:
    """Mark what was computed instead of published."""
    if precision is None or precision not in model.peak_flops_per_second:
        return NOTHING
    peak = _number(model.peak_flops_per_second[precision] / TERA)
    return Cell(peak + "*" if precision in model.derived_precisions else peak)


def _assumed(model: GpuModel) -> str | None:
    """Return the precision that work is counted in: of the tensor cores, else FP32."""
    peaks = model.peak_flops_per_second
    return assumed_precision(peaks) or ("fp32" if "fp32" in peaks else None)


def _ridge(model: GpuModel) -> Cell:
    peak = model.peak_flops_per_second.get(_assumed(model) or "")
    bandwidth = model.memory_bandwidth_bytes_per_second
    return (
        UNKNOWN if peak is None or not bandwidth else Cell(_number(peak / bandwidth, RIDGE_DIGITS))
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
        lambda model: _scaled(model.memory_bandwidth_bytes_per_second, GIGA),
        3,
        most=10,
        right=True,
    ),
    Column("RIDGE FLOP/B", _ridge, 4, most=12, right=True),
    Column("TDP W", lambda model: _scaled(model.tdp_watts, 1), 9, most=10, right=True),
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


# One GPU model.


def _ceiling_columns(model: GpuModelJson) -> tuple[Column[CeilingJson], ...]:
    ratios, derived = model.achievable_ratio, model.derived_precisions

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


def sheet(model: GpuModel, book: SpecBook, screen: Screen) -> Iterator[str]:
    """Yield everything that is known of one GPU model, with its sources."""
    row = gpu_model_json(model)
    title = f"{safe(row.key)}: {safe(row.product)}"
    yield from (screen.painted(line, "strong") for line in wrapped(title, screen.columns))
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


# The command.


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="One GPU model: its key, its name by NVML, or a part of either.",
    )
    parser.own.add_argument(
        "--format", default="table", metavar="FORMAT", help="table or json. (default: table)"
    )


def run(invocation: Invocation) -> int:
    """Run the command; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    return specs(settings.specs, given.name, given.format, invocation.environ)
