# SPDX-License-Identifier: Apache-2.0
"""The catalogue keeps the rules that Prometheus, OpenMetrics and the contract set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.exposition.catalogue import CATALOGUE, SECTIONS, selected
from exporter.exposition.family import Family
from exporter.exposition.processes import PER_PROCESS, ProcessRows
from exporter.exposition.roofline import COUNTED_PRECISION, PEAK_PRECISION
from exporter.model.snapshot import PRECISIONS
from exporter.specs import assumed_precision
from tests.exposition.docs import updated
from tests.rows import label_names

ROOT = Path(__file__).parents[2]


ENABLED = ProcessRows(memory=True, utilization=True)

OWNED_BY_PROMETHEUS = {"job", "instance", "pod", "namespace", "container", "node", "cluster", "le"}

ALL = pytest.mark.parametrize("family", CATALOGUE.values(), ids=lambda family: family.name)


def test_level_core_lists_fewer_label_values() -> None:
    """What is rarely asked for goes, so that a GPU stays within 100 series; sums stay whole."""
    core = {family.name: family for family in selected("core")}
    clocks = core["gpu_clock_hertz"].labels[0]
    assert clocks.values == ("sm", "memory")
    assert not core["gpu_clock_hertz"].lists(("video",))
    assert CATALOGUE["gpu_clock_hertz"].lists(("video",))
    assert core["roofline_exporter_reading_state"].lists(("gpu", "suspended"))
    assert not core["roofline_exporter_reading_state"].lists(("gpm", "old_driver"))
    assert CATALOGUE["roofline_exporter_reading_state"].lists(("gpm", "old_driver"))
    for name in ("gpu_flops_total", "gpu_limited_seconds_total", "gpu_time_seconds_total"):
        assert core[name].labels == CATALOGUE[name].labels


def test_names_are_unique_in_openmetrics() -> None:
    """No two families share a name after _total or _info is taken off."""
    names = [family.base_name for families in SECTIONS.values() for family in families]
    assert len(names) == len(set(names))


@ALL
def test_name_shape(family: Family) -> None:
    """Lower case; the suffix says counter, info or neither; no percentages, no multiples."""
    assert re.fullmatch(r"(gpu|roofline_exporter)_[a-z0-9_]*[a-z0-9]", family.name)
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert (family.kind == "info") == family.name.endswith("_info")
    assert not re.search(r"_(sum|count|bucket|created)$", family.base_name)
    other = r"percent|mib|mebi|kilo|mega|milli|micro|mhz|minutes|hours|(?<!per)_(ms|mb|gb|w|c)$"
    assert not re.search(other, family.name)


@ALL
def test_labels_are_free_to_use(family: Family) -> None:
    """No family uses a label of Prometheus, one twice, or one that names its own total."""
    labels = label_names(family)
    assert not OWNED_BY_PROMETHEUS.intersection(labels)
    assert len(labels) == len(set(labels))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in labels)
    for label in family.labels:
        assert len(label.values) == len(set(label.values))
        assert not {"all", "total", ""}.intersection(label.values)


@ALL
def test_help_is_one_plain_line_with_the_origin(family: Family) -> None:
    """HELP needs no escaping in any format and says where the value comes from."""
    text = family.help
    assert text.isascii()
    assert text.isprintable()
    assert not set('"\\') & set(text)
    assert f" Source: {family.origin}." in text
    assert family.meaning.endswith(".")
    assert text == " ".join(text.split())


def test_what_has_a_series_for_each_process_is_served_only_if_enabled() -> None:
    """Whoever wants them says so."""
    assert set(CATALOGUE) - {family.name for family in selected()} == set(PER_PROCESS)
    assert [family.name for family in selected(rows=ENABLED)] == list(CATALOGUE)


def test_peaks_have_the_precisions_of_the_spec_file() -> None:
    """A peak that the spec file can hold has a listed label value."""
    assert PEAK_PRECISION.values == PRECISIONS


def test_counted_precisions_are_those_that_can_be_counted() -> None:
    """The vector pipes that counters measure, and whatever tensor work can be assumed to be."""
    every_peak = dict.fromkeys(PRECISIONS, 1.0)
    assumed = {assumed_precision(every_peak, precision) for precision in PRECISIONS}
    assert set(COUNTED_PRECISION.values) == {"fp64", "fp32", "fp16"} | assumed


def test_exclude_matches_whole_names() -> None:
    """--metrics.exclude drops a family only if the whole name matches."""
    some = selected("full", re.compile("gpu_pcie_.*|gpu_up"), ENABLED)
    names = {family.name for family in some}
    assert "gpu_up" not in names
    assert not [name for name in names if name.startswith("gpu_pcie_")]
    assert len(selected("full", re.compile("gpu"), ENABLED)) == len(CATALOGUE)


def test_docs_are_up_to_date() -> None:
    """The tables of docs/metrics.md are what the catalogue says now."""
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == updated(written), "run: make docs"
