# SPDX-License-Identifier: Apache-2.0
"""Reads a spec file, the bundled one or a user's; neither YAML nor pydantic is loaded before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from exporter.errors import ConfigError, ConfigErrors, shown
from exporter.specs.book import BUS_WIDTH_TOLERANCE, SpecBook, bare_name
from exporter.specs.gpu_model import DERIVED, GpuModel
from exporter.specs.row import parse_gpu_model
from exporter.yaml_lines import Document, KeyPath, load

SAME_MEMORY_CLOCK = 0.01
"""Memory clocks of two rows that differ by less are the same clock, rounded differently."""

_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def read_spec_file(path: Path) -> SpecBook:
    """Read and check one file; raise ConfigError, or ConfigErrors with all that is wrong."""
    document = load(path)
    problems = _Problems(document)
    top = document.value
    if not isinstance(top, dict) or "products" not in top:
        raise ConfigError(
            f"{document.name}:1: key 'products' is missing, expected a mapping of them"
        )
    for key in top:
        if key not in ("products", "sources"):
            problems.add((key,), "not known, expected products or sources")
    models: dict[str, GpuModel] = {}
    for key, entry in problems.mapping("products").items():
        if not _KEY.fullmatch(key) or key == DERIVED:
            expected = f"expected lower-case letters, digits, '-' and '.', and not '{DERIVED}'"
            problems.add(("products", key), expected)
        found = parse_gpu_model(key, entry)
        if isinstance(found, GpuModel):
            models[key] = found
            continue
        for inner, problem in found.items():
            problems.add(("products", key, *inner), problem)
    sources = problems.mapping("sources")
    for code, text in sources.items():
        if not isinstance(text, str):
            problems.add(("sources", code), f"expected text, got {shown(text)}")
    _refuse_twins(problems, models)
    problems.raise_any()
    return SpecBook(models, sources)


class _Problems:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: list[tuple[int, str]] = []

    def add(self, path: KeyPath, problem: str) -> None:
        self._found.append((self._document.line(path), str(self._document.error(path, problem))))

    def mapping(self, key: str) -> dict[str, Any]:
        """Return the mapping under a top-level key; else add a problem and return {}."""
        value = self._document.value.get(key, {})
        if isinstance(value, dict):
            return value
        self.add((key,), f"expected a mapping, got {shown(value)}")
        return {}

    def raise_any(self) -> None:
        if self._found:
            # A stable sort keeps the order within a line.
            raise ConfigErrors([text for _, text in sorted(self._found, key=lambda each: each[0])])


def _refuse_twins(problems: _Problems, models: dict[str, GpuModel]) -> None:
    """Refuse GPU models that share a name or PCI id if no reading of NVML tells them apart."""
    owners: dict[str, list[GpuModel]] = {}
    for key, model in models.items():
        for position, name in enumerate(model.names):
            others = owners.setdefault(bare_name(name), [])
            twins = (each for each in others if each.key != key and not _told_apart(model, each))
            if twin := next(twins, None):
                problems.add(
                    ("products", key, "names", position),
                    f"expected a name of one GPU model only, '{name}' is also that of '{twin.key}'",
                )
            others.append(model)


def _told_apart(one: GpuModel, other: GpuModel) -> bool:
    if one.pci_ids and other.pci_ids and not set(one.pci_ids) & set(other.pci_ids):
        return True
    pairs: tuple[tuple[float | None, float | None, float], ...] = (
        (one.core_count, other.core_count, 0),
        (one.memory_bus_width_bits, other.memory_bus_width_bits, 2 * BUS_WIDTH_TOLERANCE),
        (
            one.peak_clock_hertz.get("memory"),
            other.peak_clock_hertz.get("memory"),
            SAME_MEMORY_CLOCK,
        ),
    )
    return any(
        a is not None and b is not None and abs(a - b) > tolerance * max(a, b)
        for a, b, tolerance in pairs
    )
