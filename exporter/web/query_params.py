# SPDX-License-Identifier: Apache-2.0
"""The GPU and the instance that a request names."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from exporter.model.snapshot import Gpu, Snapshot

_MOST_DIGITS = 4


def requested_gpu(snapshot: Snapshot | None, key: str) -> Gpu | None:
    """Return the GPU with this UUID or index; of several one that is up, not one that is lost."""
    gpus = () if snapshot is None else snapshot.gpus
    found = [gpu for gpu in gpus if key in (gpu.device.uuid, str(gpu.device.index))]
    return max(found, key=lambda gpu: gpu.up, default=None)


def requested_instance(request: Request) -> int | None:
    """Return the GPU instance of ``?instance=``; answer 400 if it is no whole number."""
    text = request.query_params.get("instance")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise HTTPException(400, f"instance: expected a whole number, got {text[:40]!r}")
    return int(text)
