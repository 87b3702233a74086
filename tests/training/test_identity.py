# SPDX-License-Identifier: Apache-2.0
"""Who a training process says it is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.sources.training.decode import MOST_NAME_BYTES
from roofline_job import identity
from roofline_job.identity import device
from roofline_job.reporter import WORD_BYTES

UUID = "12345678-9abc-def0-1234-56789abcdef0"


def test_words_are_cut_where_the_daemon_would_refuse_them() -> None:
    """The limit is the daemon's."""
    assert WORD_BYTES == MOST_NAME_BYTES


@pytest.mark.parametrize(
    ("environ", "rank", "world_size"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "5"}, 3, 8),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, 5, 6),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"RANK": "abc", "WORLD_SIZE": "-1"}, 0, None),
        ({"RANK": "abc", "SLURM_PROCID": "2", "WORLD_SIZE": "0"}, 2, None),
        ({"RANK": "9" * 30, "WORLD_SIZE": "999999999"}, 0, None),
        ({"RANK": "²"}, 0, None),
        ({}, 0, None),
    ],
)
@pytest.mark.usefixtures("no_torch")
def test_the_rank_is_the_launchers(
    environ: dict[str, str], rank: int, world_size: int | None
) -> None:
    """The first variable that holds a number; nonsense is passed over."""
    assert (identity.rank(environ), identity.world_size(environ)) == (rank, world_size)


def _torch(**parts: Any) -> dict[str, Any]:
    """Return modules that stand in for torch, as far as they are looked at."""
    properties = SimpleNamespace(uuid=parts.get("uuid"))
    if parts.get("uuid") is None:
        del properties.uuid
    cuda = SimpleNamespace(
        is_initialized=lambda: parts.get("initialized", False),
        current_device=lambda: parts.get("index", 0),
        get_device_properties=lambda _: properties,
    )
    torch = SimpleNamespace(
        __version__="2.13.0+cu130", version=SimpleNamespace(cuda=parts.get("cuda")), cuda=cuda
    )
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: "rank" in parts,
        get_rank=lambda: parts["rank"],
        get_world_size=lambda: parts["world_size"],
    )
    return {"torch": torch, "torch.cuda": cuda, "torch.distributed": distributed}


def _install(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    for name, module in _torch(**parts).items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("no_torch")
def test_torch_knows_the_rank_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """An initialised process group is asked before the environment."""
    _install(monkeypatch, rank=4, world_size=5)

    assert identity.rank({"RANK": "1"}) == 4
    assert identity.world_size({"WORLD_SIZE": "2"}) == 5
    assert identity.framework() == "torch 2.13.0"


@pytest.mark.parametrize(
    ("parts", "visible", "batches", "expected"),
    [
        ({"cuda": None}, None, 0, "none"),
        ({"cuda": "13.0"}, "", 0, "none"),
        ({"cuda": "13.0"}, "-1", 0, "none"),
        ({"cuda": "13.0"}, "void", 0, "none"),
        ({"cuda": "13.0"}, None, 2, None),
        ({"cuda": "13.0"}, None, 3, "none"),
        ({"cuda": "13.0", "initialized": True, "uuid": UUID}, "3", 9, f"GPU-{UUID}"),
        ({"cuda": "13.0", "initialized": True, "uuid": UUID}, f"MIG-{UUID}", 0, f"MIG-{UUID}"),
        ({"cuda": "12.0", "initialized": True, "index": 1}, f"0,GPU-{UUID}", 0, f"GPU-{UUID}"),
        ({"cuda": "12.0", "initialized": True}, "0", 9, None),
    ],
)
@pytest.mark.usefixtures("no_torch")
def test_the_device_is_a_uuid_and_known_when_it_is(
    parts: dict[str, Any],
    visible: str | None,
    batches: int,
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is asked of CUDA before the job has initialised it; an index is never reported."""
    _install(monkeypatch, **parts)

    assert device(batches, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == expected


@pytest.mark.parametrize(
    ("maps", "visible", "batches", "expected"),
    [
        ("libc.so.6", None, 2, None),
        ("libc.so.6", None, 3, "none"),
        ("libcuda.so.1", None, 3, None),
        ("libcuda.so.1", f"GPU-{UUID}", 3, f"GPU-{UUID}"),
        ("libcuda.so.1", "0", 3, None),
        ("libcuda.so.1", f"GPU-{UUID},GPU-{UUID}", 3, None),
    ],
)
@pytest.mark.usefixtures("no_torch")
def test_without_torch_the_driver_library_tells_whether_there_is_a_device(
    maps: str, visible: str | None, batches: int, expected: str | None, tmp_path: Path
) -> None:
    """JAX and TensorFlow: which GPU it is, only a single UUID says."""
    path = tmp_path / "maps"
    path.write_text(f"7f00-7f01 r-xp 0 0:0 1 /usr/lib/{maps}\n", encoding="utf-8")
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert device(batches, environ, str(path)) == expected


@pytest.mark.usefixtures("no_torch")
def test_a_job_without_a_framework_has_none() -> None:
    """And neither CUDA nor a loader worker."""
    assert identity.framework() is None
    assert identity.cuda() is None
    assert not identity.is_loader_worker()
