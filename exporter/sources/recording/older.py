# SPDX-License-Identifier: Apache-2.0
"""Lines of the format before this one, as they would be written today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from exporter.sources.recording.lines import is_overflowing

_CLASS_BEFORE, _CLASS = "workload", "work_class"
"""How version 2 called the class of a process, and how it is called now."""


def upgraded(line: bytes) -> bytes:
    """Return a tick of version 2 as one of version 3; what is no tick stays as it is."""
    if f'"{_CLASS_BEFORE}"'.encode() not in line or is_overflowing(line):
        return line
    try:
        tick = json.loads(line)
    except (ValueError, RecursionError):
        return line
    for process in _processes(tick):
        if _CLASS_BEFORE in process and _CLASS not in process:
            process[_CLASS] = process.pop(_CLASS_BEFORE)
    return json.dumps(tick).encode()


def _processes(tick: Any) -> Iterator[dict[str, Any]]:
    for report in _items(tick, "gpus"):
        reading = report.get("reading") if isinstance(report, dict) else None
        for share in _items(reading, "shares"):
            for process in _items(share, "processes"):
                if isinstance(process, dict):
                    yield process


def _items(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
