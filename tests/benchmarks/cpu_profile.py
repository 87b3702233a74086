# SPDX-License-Identifier: Apache-2.0
"""What a Prometheus spends its CPU time on, from the profile that it takes of itself.

The format is pprof's, https://github.com/google/pprof/blob/main/proto/profile.proto: gzip around
protobuf. A sample names the locations of its stack, the innermost first; its second value is CPU
time in nanoseconds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from exporter.sources.workload.kubernetes.kubelet_api import varint

PARTS = (
    ("garbage collection", ("runtime.gcBgMarkWorker", "runtime.gcAssist", "runtime.bgsweep")),
    ("texts of alerts", ("prometheus/template.",)),
    ("expressions of rules", ("rules.EngineQueryFunc", "storage.(*mergeGenericQuerier).Select.")),
    ("the rest of rules", ("prometheus/rules.",)),
    ("scrapes", ("prometheus/scrape.",)),
    ("compaction", ("tsdb.(*DB).Compact", "tsdb.(*DB).run", "tsdb.(*LeveledCompactor)")),
    ("requests", ("net/http.(*conn).serve",)),
)
"""Each part with functions, by a part of their name, of which one is on the stack; the first part
counts."""
OTHER = "other"
_NANOSECONDS = 1e9


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        else:  # all others in this format have a length
            yield tag >> 3, data[at : at + value]
            at += value


def _numbers(packed: int | bytes) -> list[int]:
    """Return a repeated number, which is alone or packed."""
    if isinstance(packed, int):
        return [packed]
    found, at = [], 0
    while at < len(packed):
        value, at = varint(packed, at)
        found.append(value)
    return found


def stacks(profile: bytes) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the functions of each stack, the innermost first, with its CPU seconds."""
    texts: list[str] = []
    samples: list[tuple[list[int], int]] = []
    lines: dict[int, list[int]] = {}
    names: dict[int, int] = {}
    for number, content in _fields(gzip.decompress(profile)):
        if number == 6 and isinstance(content, bytes):
            texts.append(content.decode())
        if number not in (2, 4, 5) or not isinstance(content, bytes):
            continue
        fields = list(_fields(content))
        if number == 2:
            locations = [each for key, value in fields if key == 1 for each in _numbers(value)]
            values = [each for key, value in fields if key == 2 for each in _numbers(value)]
            samples.append((locations, values[1]))
            continue
        one = {key: value for key, value in fields if isinstance(value, int)}
        if number == 5:
            names[one[1]] = one[2]
        else:
            inlined = [dict(_fields(v)) for k, v in fields if k == 4 and isinstance(v, bytes)]
            lines[one[1]] = [each for line in inlined for each in _numbers(line[1])]
    for locations, nanoseconds in samples:
        functions = [texts[names[each]] for location in locations for each in lines[location]]
        yield tuple(functions), nanoseconds / _NANOSECONDS


def part_of(stack: tuple[str, ...]) -> str:
    """Return which of `PARTS` a stack belongs to, else `OTHER`."""
    for part, marks in PARTS:
        if any(mark in function for function in stack for mark in marks):
            return part
    return OTHER


def seconds_by_part(profile: bytes) -> dict[str, float]:
    """Return CPU seconds by part."""
    found = dict.fromkeys([*(part for part, _ in PARTS), OTHER], 0.0)
    for stack, seconds in stacks(profile):
        found[part_of(stack)] += seconds
    return found
