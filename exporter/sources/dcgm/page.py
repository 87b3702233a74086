# SPDX-License-Identifier: Apache-2.0
"""Parse a dcgm-exporter's page into the activities of each GPU."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from exporter.model.dcgm import FIELDS, MADE_HERE, MEDIA_FIELDS, ProfilingField
from exporter.model.reading import Activity
from exporter.sources.interface import DCGM

BY_NAME: Mapping[str, ProfilingField] = {
    name: field for field in (*FIELDS, *MEDIA_FIELDS) for name in field.names
}
"""Every field under each of its names on a page."""
MOVING = frozenset(
    f"DCGM_FI_DEV_{name}"
    for name in (
        *("TOTAL_ENERGY_CONSUMPTION", "GPU_ENERGY_JOULES_TOTAL"),
        *("POWER_USAGE", "BOARD_POWER_WATTS"),
        *("GPU_TEMP", "GPU_TEMP_CELSIUS"),
    )
)
"""Readings that change from one sample to the next also on an idle GPU: a page on which these and
the fields stay the same has not been renewed."""
BLANKS = range(0x7FFFFFF0, 0x80000000)
"""What DCGM has instead of a 32-bit value that is unknown, unsupported or not permitted."""

MOST_ROWS = 10_000
"""Of use: sixteen GPUs with seven instances each and several pods on each have fewer."""
LONGEST_LABELS = 8192
"""Characters. Those of a row with every label of its pod are a third; the parser's time grows with
the square."""

_ROW = re.compile(r"^[ \t]*(DCGM_FI_(?:PROF|DEV)_\w+)[ \t]*(?:\{(.*)\})?(.*)$", re.MULTILINE)
"""Name, labels and the rest of a line. No `}` comes after the labels."""
_MADE_HERE = re.compile(f"^{re.escape(MADE_HERE)}$", re.MULTILINE)
_INSTANCE = re.compile(r"[0-9]{0,3}")
_NAMES = MOVING | BY_NAME.keys()


class NotDcgm(Exception):
    """The text is no page of a dcgm-exporter; the reason in one line."""


class PageRow(NamedTuple):
    """One sample of a GPU or of one of its instances."""

    uuid: str
    gpu_instance: int | None
    name: str
    value: float
    timestamp_seconds: float | None
    """Unix time, where the page gives one."""


@dataclass(frozen=True, slots=True)
class GpuRows:
    """The rows of one GPU on a page."""

    activities: Mapping[int | None, Activity]
    """By GPU instance; of 1 s, because the page has rates."""
    signature: frozenset[object]
    """Another one when the page was renewed."""
    blank: bool
    """Whether it has fields of this GPU, and no usable value of any."""
    timestamp_seconds: float | None
    """Unix time of the newest row, where the page gives one."""


def parse(text: str) -> dict[str, GpuRows]:
    """Return the rows of each GPU, by UUID.

    Rows that differ only in what they are labelled with, as one for each pod on a GPU, are one.

    Raises:
        NotDcgm: it is no page in the text format, or of another exporter.
    """
    if _MADE_HERE.search(text):
        raise NotDcgm("its page was made by a roofline-exporter, not by DCGM")
    try:
        rows = list(_rows(text))
    except (ValueError, OverflowError):  # its message quotes a line of the page
        raise NotDcgm("its page is not in the text format of Prometheus") from None
    if not rows:
        raise NotDcgm("its page has no reading of DCGM")
    by_gpu: dict[str, list[PageRow]] = defaultdict(list)
    for row in rows:
        by_gpu[row.uuid].append(row)
    return {uuid: _gpu_rows(own) for uuid, own in by_gpu.items()}


def _rows(text: str) -> Iterator[PageRow]:
    """Yield the usable samples.

    The parser needs ten times as long for labels as for a value. The samples of one GPU have the
    same ones, so those of a page are read once each, and the values without them.
    """
    found = [match.groups(default="") for match in _ROW.finditer(text) if match[1] in _NAMES]
    if len(found) > MOST_ROWS or any(len(labels) > LONGEST_LABELS for _, labels, _ in found):
        raise NotDcgm("its page has more rows or labels than DCGM has")
    shares = {labels: _share(labels) for labels in {labels for _, labels, _ in found}}
    values = _samples(f"{name} {rest}" for name, _, rest in found)
    for (name, labels, _), (_, value, timestamp) in zip(found, values, strict=True):
        share = shares[labels]
        if share is not None:
            yield PageRow(*share, name, value, timestamp)


def _samples(lines: Iterable[str]) -> Iterator[tuple[dict[str, str], float, float | None]]:
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            stamp = sample.timestamp
            yield sample.labels, sample.value, None if stamp is None else float(stamp)


def _share(text: str) -> tuple[str, int | None] | None:
    """Return the UUID and GPU instance of a row with these labels; None if it is of neither."""
    ((labels, _, _),) = _samples([f"labels{{{text}}} 0"])
    uuid = labels.get("UUID") or labels.get("uuid")
    instance = labels.get("GPU_I_ID", "")
    if not uuid or not _INSTANCE.fullmatch(instance):
        return None
    return uuid, int(instance) if instance else None


def _usable(field: ProfilingField, value: float) -> float | None:
    """Return the value, or None if it is one of DCGM's blanks, NaN, or impossible."""
    if not 0 <= value <= field.highest or value in BLANKS:
        return None
    return float(value)


def _gpu_rows(rows: list[PageRow]) -> GpuRows:
    shares: dict[int | None, dict[ProfilingField, float]] = defaultdict(dict)
    blank = False
    for row in rows:
        field = BY_NAME.get(row.name)
        if field is None:
            continue
        value = _usable(field, row.value)
        if value is None:
            blank = True
        elif row.gpu_instance is None or not field.is_rate:
            values = shares[row.gpu_instance]
            values[field] = max(value, values.get(field, 0.0))
    found = {share: _activity(values) for share, values in shares.items()}
    activities = {share: activity for share, activity in found.items() if activity is not None}
    stamps = [row.timestamp_seconds for row in rows if row.timestamp_seconds is not None]
    return GpuRows(
        activities=activities,
        # NaN is not equal to itself: it would renew the page for ever.
        signature=frozenset(row for row in rows if row.value == row.value),
        blank=blank and not activities,
        timestamp_seconds=max(stamps, default=None),
    )


def _activity(values: Mapping[ProfilingField, float]) -> Activity | None:
    """Return the activity of one share; None if only link traffic is known."""
    if all(field.is_rate for field in values):
        return None
    parts: dict[str, list[float]] = defaultdict(list)
    for field, value in values.items():
        parts[field.activity].append(value)
    means: dict[str, Any] = {name: sum(each) / len(each) for name, each in parts.items()}
    return Activity(DCGM, 1.0, **means)
