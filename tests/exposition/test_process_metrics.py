# SPDX-License-Identifier: Apache-2.0
"""The exporter's own use of CPU and memory is shown, without reading /proc too often."""

from __future__ import annotations

import os
import re
from pathlib import Path

from exporter.exposition.pages import ProcessMetrics


def names(metrics: ProcessMetrics) -> list[str]:
    return [block.names[0] for block in metrics.blocks()]


def test_families_of_this_process() -> None:
    """The usual process families are there, with believable values."""
    metrics = ProcessMetrics()
    assert set(names(metrics)) >= {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    }
    [rss] = [block.lines for block in metrics.blocks() if "resident" in block.names[0]]
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    assert float(rss.split()[1]) > 0.5 * pages * os.sysconf("SC_PAGESIZE")


def test_read_at_most_once_a_second() -> None:
    """Within a second the same blocks are handed out; after it they are read anew."""
    now = [5.0]
    metrics = ProcessMetrics(clock=lambda: now[0])
    first = metrics.blocks()
    now[0] = 5.9
    assert metrics.blocks() is first
    now[0] = 6.0
    assert metrics.blocks() is not first


def test_exclude() -> None:
    """--metrics.exclude holds for process metrics too, by their exposed name."""
    assert "process_cpu_seconds_total" not in names(
        ProcessMetrics(exclude=re.compile("process_cpu_seconds_total"))
    )


def test_without_proc_there_are_none(tmp_path: Path) -> None:
    """Where /proc cannot be read the page has no process metrics, and no error."""
    assert names(ProcessMetrics(procfs=str(tmp_path))) == []
