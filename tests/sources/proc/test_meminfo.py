# SPDX-License-Identifier: Apache-2.0
"""How much memory the host has."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.model.reading import Memory
from exporter.sources.proc.procfs import host_memory

SPARK = """\
MemTotal:       125509308 kB
MemFree:         1873664 kB
MemAvailable:   62594076 kB
HugePages_Total:       0
"""


def test_used_is_what_is_not_available(tmp_path: Path) -> None:
    """The page cache is available, though it is not free."""
    (tmp_path / "meminfo").write_text(SPARK)

    assert host_memory(str(tmp_path)) == Memory(
        125509308 * 1024, (125509308 - 62594076) * 1024, 62594076 * 1024, unified=True
    )


@pytest.mark.parametrize("text", [None, "", "MemTotal: 5 kB\n", SPARK.replace("62594076", "many")])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str | None) -> None:
    """No file, no number (before Linux 3.14 none of what is available) or no number at all."""
    if text is not None:
        (tmp_path / "meminfo").write_text(text)

    assert host_memory(str(tmp_path)) is None


def test_this_machine() -> None:
    """The kernel's own file, as it is."""
    found = host_memory("/proc")

    assert found is not None
    assert 0 < found.used_bytes < found.total_bytes
