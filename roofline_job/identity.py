# SPDX-License-Identifier: Apache-2.0
"""Who this process is: its rank, framework and GPU, without a call that the job would notice.

Nothing here imports a framework: what the job has not imported itself is looked up in
``sys.modules`` and not found.

Imported at the start of every Python of the job, like ``imports``.
"""

from __future__ import annotations

import os
import sys

from .exact_types import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FRAMEWORKS = ("torch", "jax", "tensorflow", "paddle", "mxnet")
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers name the rank."""
MOST_RANK = 1_000_000
NO_DEVICE = "none"
BATCHES_BEFORE_NO_DEVICE = 3
"""A job that has not touched its GPU by then does not use one."""

WORLD_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_HIDDEN = {"", "-1", "void", "none", "nodevfiles"}
"""Values of CUDA_VISIBLE_DEVICES that show no GPU."""
_DIGITS_OF_UUID = [8, 4, 4, 4, 12]


def number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """Return the first of these variables that holds a rank or a world size."""
    texts = [environ.get(name, "") for name in names]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10]
    return next((number for number in numbers if number <= MOST_RANK), None)


def _distributed() -> Any:
    """Return torch.distributed if the job has initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return None
    initialized = distributed.is_available() and distributed.is_initialized()
    return distributed if initialized else None


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank: torch's own, the launcher's, or 0."""
    distributed = _distributed()
    if distributed is not None:
        return max(0, int(distributed.get_rank()))
    return number(environ, RANKS) or 0


def world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks there are; None if that is not known."""
    distributed = _distributed()
    if distributed is not None:
        size = int(distributed.get_world_size())
    else:
        size = number(environ, WORLD_SIZES) or 0
    return size if size > 0 else None


def framework() -> str | None:
    """Return name and version of the framework that the job has imported."""
    for name in FRAMEWORKS:
        version = attribute(sys.modules.get(name), "__version__")
        if version is not None:
            return f"{name} {str(version).partition('+')[0]}"
    return None


def cuda() -> Any:
    """Return torch.cuda if the job has initialised it; it must not be used before."""
    module = sys.modules.get("torch.cuda")
    return module if module is not None and module.is_initialized() else None


def is_loader_worker() -> bool:
    """Return whether this process only loads data for another one."""
    data = sys.modules.get("torch.utils.data")
    get_worker_info = getattr(data, "get_worker_info", None)
    return get_worker_info is not None and get_worker_info() is not None


def parent() -> int | None:
    """Return the pid of the process that made this one by multiprocessing; None if none did."""
    process: Any = sys.modules.get("multiprocessing.process")
    made_by = None if process is None else process.parent_process()
    return None if made_by is None else int(made_by.pid)


def device(
    batches: int,
    environ: Mapping[str, str] = os.environ,
    maps: str = "/proc/self/maps",
) -> str | None:
    """Return the UUID of this process's GPU, ``none``, or None: not known after so many batches."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().lower() in _HIDDEN:
        return NO_DEVICE
    torch = sys.modules.get("torch")
    if attribute(torch, "version") is not None:
        return _torch_device(torch, visible, batches)
    if batches >= BATCHES_BEFORE_NO_DEVICE and not _has_driver(maps):
        return NO_DEVICE
    listed = _listed(visible)
    # Which of several is used, only the framework knows.
    return listed[0] if len(listed) == 1 and _has_driver(maps) else None


def _torch_device(torch: Any, visible: str | None, batches: int) -> str | None:
    if torch.version.cuda is None:
        return NO_DEVICE
    module = cuda()
    if module is None:
        return NO_DEVICE if batches >= BATCHES_BEFORE_NO_DEVICE else None
    index = int(module.current_device())
    listed = _listed(visible)
    known = listed[index] if index < len(listed) else None
    if known is not None and known.startswith("MIG-"):
        return known
    # Older versions of torch do not have the UUID.
    uuid = getattr(module.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else known


def _listed(visible: str | None) -> list[str | None]:
    """Return the devices of CUDA_VISIBLE_DEVICES; None for an entry that is not a whole UUID."""
    entries = [entry.strip() for entry in (visible or "").split(",")]
    return [entry if _is_whole(entry) else None for entry in entries if entry]


def _is_whole(entry: str) -> bool:
    """Return whether this is GPU-uuid, MIG-uuid or MIG-GPU-uuid/instance/instance, not a prefix."""
    kind, _, rest = entry.upper().partition("-")
    uuid, *instances = rest.removeprefix("GPU-").split("/")
    is_old_mig = kind == "MIG" and rest.startswith("GPU-")
    is_known = kind in ("GPU", "MIG") and len(instances) == 2 * is_old_mig
    return is_known and [*map(len, uuid.split("-"))] == _DIGITS_OF_UUID


def _has_driver(maps: str) -> bool:
    try:
        with open(maps, "rb") as file:
            return b"libcuda.so" in file.read()
    except OSError:
        return False
