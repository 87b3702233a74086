# SPDX-License-Identifier: Apache-2.0
"""Generates docs/metrics.md from the catalogue: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.exposition.catalogue import SECTIONS
from exporter.exposition.family import Family
from exporter.exposition.labels import LABELS_OF, Label

_INTRODUCTION = """\
# Metrics

<!-- Written by `make docs`; do not edit by hand. -->

Every metric family of the exporter, from the table that the exporter itself works by. A family is
present only where its value is known: what is not known is absent, never 0 or NaN.

- Series of a GPU carry `gpu` (its index) and `uuid`; while MIG is on, what is known of each GPU
  instance also carries `gpu_instance`, and is then not published for the whole GPU. Join
  `gpu_info` on these labels for everything descriptive.
- Series of a training job carry `training_job` and `rank`, and of a rank that uses a GPU also the
  `uuid` of the physical GPU (and `gpu_instance`), so that they join the GPU's own. Nothing is
  published of a rank before its device is known.
- Ratios are 0 to 1; all else is in base units. Counters that the driver keeps (energy, throttle
  time, NVLink bytes, PCIe replays and errors) go on from the driver's total; all others start at
  0 with the exporter. No integral crosses a gap longer than 3 poll intervals, and those of the
  hardware counters, FLOPs and bytes too, skip readings that lack one of them. So divide by
  `rate(gpu_observed_seconds_total[...])` for a share of time, saturation by the sum of
  `gpu_time_seconds_total`, idle time by the sum of `gpu_limited_seconds_total`. A counter of a unit
  that is no longer read is left out ([why](saturation.md#units-that-come-and-go)).
- Level *core*, at most 100 series a GPU and 21 for a training rank on it, is served with
  `--metrics.level=core` too, *full* only with `--metrics.level=full`, the default: at most 200 and
  35. `--metrics.exclude=REGEX` leaves out the families whose whole name matches.
- `/metrics?name[]=NAME` (repeatable) serves only the families named.
- In OpenMetrics an info family is called without `_info` and a counter family without `_total`;
  the series are called the same in every format.
- Besides these, the exporter's own `process_*` families (CPU, memory, file descriptors) are those
  of the Prometheus client library for Python.
"""


def _label(label: Label) -> str:
    if label.values:
        rest = f" (at level core without {', '.join(label.full_values)})"
        return f"`{label.name}`: {', '.join(label.values)}{rest if label.full_values else ''}"
    only = f"; at level core only {', '.join(label.core_values)}" if label.core_values else ""
    return f"`{label.name}`" + (f" ({label.meaning}{only})" if label.meaning else "")


def _row(family: Family) -> str:
    device = ", ".join(f"`{name}`" for name in LABELS_OF[family.scope])
    labels = "; ".join(part for part in (device, *map(_label, family.labels)) if part)
    cells = (
        f"`{family.name}`",
        family.kind,
        family.level,
        labels,
        family.meaning,
        f"{family.origin}.",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _contents() -> str:
    links = (f"- [{section}](#{section.lower().replace(' ', '-')})\n" for section in SECTIONS)
    return "\nOn this page:\n\n" + "".join(links)


def metrics_page() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, _contents()]
    for section, families in SECTIONS.items():
        parts.append(f"\n## {section}\n\n| metric | type | level | labels | meaning | source |\n")
        parts.append("|---|---|---|---|---|---|\n")
        parts.extend(f"{_row(family)}\n" for family in families)
    return "".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(metrics_page(), encoding="utf-8")
