# SPDX-License-Identifier: Apache-2.0
"""Traffic and errors of PCIe and NVLink, from field values, and where the NVLinks lead."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from ctypes import byref
from functools import lru_cache
from typing import Any

import pynvml

from exporter.model.reading import NVSWITCH
from exporter.sources.nvml.fields import ALL_LINKS, Field
from exporter.specs.gpu_model import pcie_bytes_per_second

KIB = 1024
NVLINK_BYTES: Mapping[str, tuple[Field, int]] = {
    "nvlink_transmit_bytes_total": ((138, ALL_LINKS), 202),
    "nvlink_receive_bytes_total": ((139, ALL_LINKS), 204),
}
"""By member of `Vitals`: KiB of all links, and bytes of each from NVLink 5 on."""
PCIE_BYTES: Mapping[str, Field] = {
    "pcie_transmit_bytes": (197, 0),
    "pcie_receive_bytes": (198, 0),
}
PCIE_COUNTER_WRAP = 2**32
"""The width of the PCIe byte counters is not documented; 32 bits is the least that it can be."""
PEAK_MARGIN = 1.25
"""Bytes above a link's peak by this factor are left out: clocks do not differ so much."""
PCIE_REPLAYS: Field = (94, 0)
PCIE_LINK_RECOVERIES: Field = (169, 0)
PCIE_ERRORS: Mapping[str, Field] = {
    "correctable": (173, 0),
    "nak_received": (174, 0),
    "receiver": (175, 0),
    "bad_tlp": (176, 0),
    "nak_sent": (177, 0),
    "bad_dllp": (178, 0),
    "non_fatal": (179, 0),
    "fatal": (180, 0),
    "unsupported_request": (181, 0),
    "lcrc": (182, 0),
    "lane": (183, 0),
}
NVLINK_ERRORS: Mapping[str, Field] = {
    "crc_flit": (38, 0),
    "crc_data": (45, 0),
    "replay": (52, 0),
    "recovery": (59, 0),
}
"""Totals over all links; answered up to Ampere."""
NVLINK_LINK_ERRORS: Mapping[str, int] = {"replay": 161, "recovery": 162, "crc_flit": 163}
"""Per link (the scope); answered from Hopper on."""


@lru_cache  # the GPUs of a node share the tuples
def link_fields(field_id: int, links: int) -> tuple[Field, ...]:
    """Return one field per link."""
    return tuple((field_id, link) for link in range(links))


def nvlink_ends(
    handle: Any, links: int, known: dict[int, str], progress: Callable[[], None]
) -> dict[str, int]:
    """Return how many of the first `links` NVLinks are active, by what is at their other end.

    `known` keeps the end of each link, which does not change; `progress` is called for each.
    A call that names two GPUs (nvmlDeviceGetTopologyCommonAncestor) would hang or fail where
    either of them does.

    Raises:
        pynvml.NVMLError: a link does not say so.
    """
    ends = []
    for link in range(links):
        progress()
        if pynvml.nvmlDeviceGetNvLinkState(handle, link):
            if link not in known:
                known[link] = _end(handle, link)
            ends.append(known[link])
    return dict(Counter(ends))


def _end(handle: Any, link: int) -> str:
    kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return NVSWITCH
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_READY)
    return str(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)


def nvlink_traffic_fields(links: int) -> tuple[Field, ...]:
    """Return every field that may have the NVLink bytes of a GPU with `links` NVLinks."""
    if not links:
        return ()
    totals, per_link = zip(*NVLINK_BYTES.values(), strict=True)
    return (*totals, *(field for number in per_link for field in link_fields(number, links)))


def nvlink_bytes(
    values: Mapping[Field, float], all_links: Field, per_link: int, links: int
) -> float | None:
    """Return a direction's cumulative bytes: the total in KiB, else the sum over the links, where
    every link answered, so that it never falls when one does not."""
    total = values.get(all_links)
    return _sum_over_links(values, per_link, links) if total is None else total * KIB


def _sum_over_links(values: Mapping[Field, float], field_id: int, links: int) -> float | None:
    parts = [values[field] for field in link_fields(field_id, links) if field in values]
    return float(sum(parts)) if links and len(parts) == links else None


def error_fields(links: int) -> tuple[Field, ...]:
    """Return the fields of the slow cadence."""
    per_link = (
        field for number in NVLINK_LINK_ERRORS.values() for field in link_fields(number, links)
    )
    totals = NVLINK_ERRORS.values() if links else ()
    return (PCIE_REPLAYS, PCIE_LINK_RECOVERIES, *PCIE_ERRORS.values(), *totals, *per_link)


def pcie_errors(values: Mapping[Field, float]) -> dict[str, int]:
    """Return the PCIe error counts by kind."""
    return {kind: int(values[field]) for kind, field in PCIE_ERRORS.items() if field in values}


def nvlink_errors(values: Mapping[Field, float], links: int) -> dict[str, int]:
    """Return the NVLink error counts by kind, over all links."""
    errors = {kind: int(values[field]) for kind, field in NVLINK_ERRORS.items() if field in values}
    for kind, number in NVLINK_LINK_ERRORS.items():
        total = _sum_over_links(values, number, links)
        if kind not in errors and total is not None:
            errors[kind] = int(total)
    return errors


class PcieTraffic:
    """PCIe bytes between two reads, from counters that wrap."""

    def __init__(self, generation: int | None, width: int | None) -> None:
        self._peak = pcie_bytes_per_second(generation, width) or 0.0
        self._last: dict[Field, tuple[float, float]] = {}

    def moved(
        self, field: Field, values: Mapping[Field, float], monotonic_seconds: float
    ) -> float | None:
        """Return the bytes since the last read of `field`; None if a wrap may have been missed."""
        count = values.get(field)
        if count is None:
            return None
        last = self._last.get(field)
        self._last[field] = (count, monotonic_seconds)
        if last is None or not self._peak:
            return None
        most = self._peak * (monotonic_seconds - last[1])
        moved = count - last[0]
        if moved < 0:
            moved += PCIE_COUNTER_WRAP
        # More than the link can carry: this count or the last one was wrong.
        return moved if most < PCIE_COUNTER_WRAP and 0 <= moved <= PEAK_MARGIN * most else None


FABRIC_SUMMARY: Mapping[int, bool] = {1: True, 2: False, 3: False}
"""Healthy, unhealthy, limited capacity; 0 is "not supported"."""
FABRIC_PART_SHIFTS = (0, 2, 4, 6)
"""Degraded bandwidth, route recovery, route unhealthy, access timeout recovery: 2 is "no"."""
FABRIC_CONFIGURATION_SHIFT = 8
"""An incorrect configuration: 1 is "none"."""


def read_fabric(function: str, handle: Any, struct: str) -> dict[str, Any]:
    """Return the members of `Health` that say whether the GPU is registered with the NVSwitches.

    Health, cluster and clique are known once the state is 3 (completed).

    Raises:
        pynvml.NVMLError: the driver refused, or the GPU is on no fabric.
    """
    info = getattr(pynvml, struct)()
    getattr(pynvml, function)(handle, byref(info))
    state = int(info.state)
    if state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return {"fabric_state": state}
    if info.status != pynvml.NVML_SUCCESS:  # valid only once the registration is complete
        return {"fabric_state": state, "fabric_healthy": False}
    summary, mask = getattr(info, "healthSummary", 0), getattr(info, "healthMask", 0)
    return {
        "fabric_state": state,
        "fabric_healthy": fabric_health(summary, mask),
        "fabric_cluster_uuid": str(uuid.UUID(bytes=bytes(info.clusterUuid))),
        "fabric_clique": int(info.cliqueId),
    }


def fabric_health(summary: int, mask: int) -> bool | None:
    """Return whether the fabric is healthy, by the summary, else by the mask; None if unknown."""
    if summary in FABRIC_SUMMARY:
        return FABRIC_SUMMARY[summary]
    parts = [mask >> shift & 0x3 for shift in FABRIC_PART_SHIFTS]
    configuration = mask >> FABRIC_CONFIGURATION_SHIFT & 0xF
    if not any((*parts, configuration)):  # 0 is "not supported"
        return None
    return all(part in (0, 2) for part in parts) and configuration in (0, 1)
