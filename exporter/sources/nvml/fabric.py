# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU's registration with the NVSwitch fabric."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from ctypes import byref
from dataclasses import dataclass
from typing import Any

import pynvml

FABRIC_SUMMARY: Mapping[int, bool] = {1: True, 2: False, 3: False}
"""Healthy, unhealthy, limited capacity; 0 is "not supported"."""
FABRIC_MASK: tuple[tuple[int, int, frozenset[int]], ...] = (
    (0, 0x3, frozenset({2})),  # degraded bandwidth: no
    (2, 0x3, frozenset({2})),  # route recovery: no
    (4, 0x3, frozenset({2})),  # route unhealthy: no
    (6, 0x3, frozenset({2})),  # access timeout recovery: no
    (8, 0xF, frozenset({1})),  # incorrect configuration: none
)
"""Shift, mask and the good answers of each part of the health mask; 0 is "not supported"."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """What the driver reports; health, cluster and clique are known once the state is completed."""

    state: int | None = None
    """1 not started, 2 in progress, 3 completed."""
    healthy: bool | None = None
    cluster_uuid: str | None = None
    clique: int | None = None


def read_fabric(call: Callable[[Any, Any], object], handle: Any, info: Any) -> Fabric:
    """Return the state of this GPU's registration with the NVSwitch fabric.

    Raises:
        pynvml.NVMLError: the driver refused, or the GPU is on no fabric.
    """
    call(handle, byref(info))
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return Fabric(int(info.state))
    if info.status != pynvml.NVML_SUCCESS:  # valid only once the registration is complete
        return Fabric(int(info.state), healthy=False)
    return Fabric(
        int(info.state),
        fabric_health(getattr(info, "healthSummary", 0), getattr(info, "healthMask", 0)),
        str(uuid.UUID(bytes=bytes(info.clusterUuid))),
        int(info.cliqueId),
    )


def fabric_health(summary: int, mask: int) -> bool | None:
    """Return whether the fabric is healthy, by the summary, else by the mask; None if unknown."""
    if summary in FABRIC_SUMMARY:
        return FABRIC_SUMMARY[summary]
    parts = [(mask >> shift & width, good) for shift, width, good in FABRIC_MASK]
    answers = [value in good for value, good in parts if value]
    return all(answers) if answers else None
