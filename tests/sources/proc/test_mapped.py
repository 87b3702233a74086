# SPDX-License-Identifier: Apache-2.0
"""Which processes have loaded Transformer Engine, by /proc/PID/maps."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from exporter.sources.proc import procfs
from exporter.sources.proc.procfs import Mapped, maps_transformer_engine
from tests.sources.proc.processes import process

TORCH = "7f00-7f01 r-xp 0000 08:01 12  /venv/lib/python3.11/site-packages/torch/lib/libtorch.so\n"


def maps(library: str) -> str:
    return TORCH * 50 + TORCH.replace("torch/lib/libtorch.so", library)


@pytest.mark.parametrize(
    ("library", "found"),
    [
        ("transformer_engine/libtransformer_engine.so", True),
        ("transformer_engine_torch.cpython-311-x86_64-linux-gnu.so", True),
        ("transformer_engine_jax.cpython-312-x86_64-linux-gnu.so", True),
        ("transformer_engine/__init__.py", False),
        ("torch/lib/libtorch.so", False),
        ("not_transformer_engine_torch.so", False),
    ],
)
def test_libraries(tmp_path: Path, library: str, found: bool) -> None:
    process(tmp_path, 10, maps=maps(library))
    assert maps_transformer_engine(str(tmp_path), 10) is found


def test_what_may_not_be_read_is_not_known(tmp_path: Path) -> None:
    process(tmp_path, 10)
    assert Mapped(str(tmp_path)).of([10, 11], 0.0) == {10: None, 11: None}


def test_a_real_process_that_maps_a_file_of_that_name(tmp_path: Path) -> None:
    assert maps_transformer_engine("/proc", os.getpid()) is False
    library = tmp_path / "libtransformer_engine.so"
    library.write_bytes(b"\0" * mmap.PAGESIZE)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert maps_transformer_engine("/proc", os.getpid()) is True


def test_a_late_import_is_found_and_few_looks_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute; what was found is not looked for again."""
    looks: list[float] = []
    now = 0.0

    def look(procfs: str, pid: int) -> bool | None:
        looks.append(now)
        return maps_transformer_engine(procfs, pid)

    monkeypatch.setattr(procfs, "maps_transformer_engine", look)
    process(tmp_path, 10, maps=maps("torch/lib/libtorch.so"))
    seen = Mapped(str(tmp_path))
    for second in range(0, 200, 10):
        now = float(second)
        if second == 100:
            process(tmp_path, 10, maps=maps("libtransformer_engine.so"))
        assert seen.of([10], now) == {10: second >= 120}
    assert looks == [0.0, 60.0, 120.0]


def test_another_process_with_the_same_pid_is_looked_at_anew(tmp_path: Path) -> None:
    process(tmp_path, 10, maps=maps("libtransformer_engine.so"))
    seen = Mapped(str(tmp_path))
    assert seen.of([10], 0.0) == {10: True}
    process(tmp_path, 10, started=6, maps=maps("torch/lib/libtorch.so"))
    assert seen.of([10], 1.0) == {10: False}
    assert seen.of([], 2.0) == {}
