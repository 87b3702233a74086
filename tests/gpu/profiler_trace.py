# SPDX-License-Identifier: Apache-2.0
"""How long a trace of PyTorch's profiler shows a data loader waiting beside an idle GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BUSY_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""What comes before DataLoader in the profiler's own breakdown of a step, on the GPU."""

Spans = list[tuple[float, float]]


def exposed_loading_seconds(trace: Mapping[str, Any]) -> float:
    """Return how long a DataLoader's next() ran while the GPU did nothing at all.

    The profiler's breakdown counts every instant once, by priority: Kernel, Memcpy, Memset and so
    on down to DataLoader.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    busy = merged(_span(event) for event in events if event.get("cat") in BUSY_CATEGORIES)
    waiting = merged(
        _span(event) for event in events if event["name"].startswith("enumerate(DataLoader)")
    )
    return (length(waiting) - length(common(waiting, busy))) / 1e6


def _span(event: Mapping[str, Any]) -> tuple[float, float]:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])


def merged(spans: Iterable[tuple[float, float]]) -> Spans:
    """Return the union, in order."""
    union: Spans = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def common(one: Spans, other: Spans) -> Spans:
    """Return the intersection of two unions."""
    shared: Spans = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            shared.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def length(spans: Spans) -> float:
    """Return the sum of their lengths."""
    return sum(end - begin for begin, end in spans)
