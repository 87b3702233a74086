# SPDX-License-Identifier: Apache-2.0
"""Reports as training jobs send them."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from exporter.model.training import TrainingReport
from exporter.sources.training import TrainingSource

MISSING = object()
"""Given for a key that is left out."""

LEAST: dict[str, Any] = {
    "version": 1,
    "id": "00112233445566778899aabbccddeeff",
    "sequence": 17,
    "pid": os.getpid(),
    "job": "resnet",
    "rank": 0,
    "steps": 100,
    "batches": 100,
    "step_seconds": 2.5,
    "phase_seconds": {"data": 1.5, "checkpoint": 0.4},
}
FULL: dict[str, Any] = {
    **LEAST,
    "world_size": 8,
    "device": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "framework": "torch 2.13.0",
    "precision": "bf16",
    "instrumentation": "auto",
    "samples": 25600,
    "phase_gpu_idle_seconds": {"data": 0.7, "checkpoint": 0, "logging": 0},
    "model_flops": 1.2e18,
    "model_flops_launched": True,
    "loader_start_seconds": 0.3,
    "checkpoints": 2,
    "host": {
        "seconds": 10.0,
        "workers": 4,
        "worker_running_ratio": 0.9,
        "worker_blocked_ratio": 0.05,
        "cores": 16.0,
        "cores_busy": 4.5,
        "read_size_bytes": 2e5,
    },
    "loader": {
        "workers": 4,
        "prefetch_factor": 2,
        "pin_memory": True,
        "persistent_workers": False,
        "ready_batches": 3,
    },
    "memory_bytes": {"allocated": 1, "reserved": 2, "peak": 3},
    "degraded": ["helper_thread", "loader_details"],
    "in": "data",
    "errors": 0,
    "error": None,
    "exit": False,
}


def message(**changes: Any) -> dict[str, Any]:
    """Return the smallest report with these changes."""
    return {key: value for key, value in {**LEAST, **changes}.items() if value is not MISSING}


def datagram(**changes: Any) -> bytes:
    """Return the smallest report with these changes, as it is sent."""
    return json.dumps(message(**changes)).encode()


def numbered(number: int) -> str:
    """Return a report id."""
    return f"{number:032x}"


def send(path: str | None, data: bytes) -> None:
    """Send a datagram, and wait where the queue is full."""
    assert path is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, path)


def only(source: TrainingSource) -> TrainingReport:
    """Return the one report that there is."""
    (report,) = source.reports()
    return report
