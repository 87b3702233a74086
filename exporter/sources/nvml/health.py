# SPDX-License-Identifier: Apache-2.0
"""The health of one GPU as the driver reports it: ECC, repaired memory, links, fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import pynvml

from exporter.model.reading import Health
from exporter.sources.nvml.ecc import EccReader
from exporter.sources.nvml.fabric import Fabric, read_fabric
from exporter.sources.nvml.fields import Field, FieldBatch
from exporter.sources.nvml.links import link_fields
from exporter.sources.nvml.plausible import SMALL_COUNT
from exporter.sources.nvml.probe import Probe
from exporter.sources.reading_state import Journal

T = TypeVar("T")

RECOVERY_ACTION: Field = (230, 0)
NVLINK_STATE = 165
ACTIVE_STATES = (pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP)
"""A sleeping link wakes by itself; the older call answers 1 for active, 0 for inactive."""
BANKS = ("max", "high", "partial", "low", "none")
RETIREMENT_CAUSES: Mapping[str, int] = {
    "single_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    "double_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
}


class HealthReader:
    """Reads the health of one whole GPU; MIG instances have no health of their own."""

    def __init__(self, handle: Any, links: int, journal: Journal) -> None:
        """Prepare the readings of a GPU with `links` NVLinks."""
        self._journal = journal
        self._links = links
        nv = pynvml
        self._ecc = EccReader(handle, journal)
        self._rows = self._probe("row_remap", lambda: _remapped_rows(handle))
        self._banks = self._probe("row_remap", lambda: nv.nvmlDeviceGetRowRemapperHistogram(handle))
        self._unrepairable = self._probe(
            "unrepairable_memory", lambda: nv.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle)
        )
        self._retired = {
            cause: self._probe(
                "retired_pages", partial(nv.nvmlDeviceGetRetiredPages, handle, number)
            )
            for cause, number in RETIREMENT_CAUSES.items()
        }
        self._retirement_pending = self._probe(
            "retired_pages", lambda: nv.nvmlDeviceGetRetiredPagesPendingStatus(handle)
        )
        self._action = self._probe(
            "recovery_action", self._fields(handle, "recovery_action", RECOVERY_ACTION)
        )
        self._link_states = self._probe(
            "nvlink_state",
            self._fields(handle, "nvlink_state", *link_fields(NVLINK_STATE, links)),
            partial(_link_states, handle, links, journal.progress),
        )
        self._fabric = self._probe(
            "fabric",
            lambda: read_fabric(
                nv.nvmlDeviceGetGpuFabricInfoV, handle, nv.c_nvmlGpuFabricInfo_v3_t()
            ),
            lambda: read_fabric(
                nv.nvmlDeviceGetGpuFabricInfoV, handle, nv.c_nvmlGpuFabricInfo_v2_t()
            ),
            lambda: read_fabric(nv.nvmlDeviceGetGpuFabricInfo, handle, nv.c_nvmlGpuFabricInfo_t()),
        )

    def _probe(self, group: str, *calls: Callable[[], T]) -> Probe[T]:
        return Probe(self._journal, group, calls)

    def _fields(self, handle: Any, group: str, *fields: Field) -> Callable[[], list[float]]:
        batch = FieldBatch(handle, fields, self._journal, group)
        return partial(_all_fields, batch, self._journal, group)

    def read(self) -> Health:
        """Return the present readings.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        sram = self._ecc.read_status()
        rows = self._rows()
        banks = self._banks()
        # From Ampere on rows are remapped, and no pages are retired.
        retires = not self._rows.possible
        action = self._action()
        states = self._link_states() if self._links else None
        fabric = self._fabric() or Fabric()
        return Health(
            ecc_errors_total=self._ecc.read("volatile", sram),
            ecc_lifetime_errors=self._ecc.read("aggregate", sram),
            remapped_rows=(
                {} if rows is None else {"correctable": rows[0], "uncorrectable": rows[1]}
            ),
            row_remap_pending=None if rows is None else bool(rows[2]),
            row_remap_failure=None if rows is None else bool(rows[3]),
            row_remap_banks=(
                {} if banks is None else {name: getattr(banks, name) for name in BANKS}
            ),
            retired_pages=self._retired_pages() if retires else {},
            retired_pages_pending=_flag(self._retirement_pending()) if retires else None,
            sram_error_threshold_exceeded=(None if sram is None else bool(sram.bThresholdExceeded)),
            unrepairable_memory=_flag(self._unrepairable()),
            recovery_action=None if action is None else int(action[0]),
            nvlink_links=(
                {}
                if states is None
                else {
                    "active": sum(1 for state in states if state in ACTIVE_STATES),
                    "inactive": sum(1 for state in states if state not in ACTIVE_STATES),
                }
            ),
            nvlink_links_expected=self._links or None,
            fabric_state=fabric.state,
            fabric_healthy=fabric.healthy,
            fabric_cluster_uuid=fabric.cluster_uuid,
            fabric_clique=fabric.clique,
        )

    def _retired_pages(self) -> dict[str, int]:
        pages = {cause: probe() for cause, probe in self._retired.items()}
        return {cause: len(found) for cause, found in pages.items() if found is not None}


def _all_fields(batch: FieldBatch, journal: Journal, group: str) -> list[float]:
    """Return the values of a batch in its order.

    Raises:
        pynvml.NVMLError: none will ever be known, or not all are known now.
    """
    values = batch.read()
    if not batch.fields:
        refused = journal.states.get(group) == "no_permission"
        code = pynvml.NVML_ERROR_NO_PERMISSION if refused else pynvml.NVML_ERROR_NOT_SUPPORTED
        raise pynvml.NVMLError(code)
    if len(values) < len(batch.fields):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
    return [values[field] for field in batch.fields]


def _remapped_rows(handle: Any) -> Any:
    """Return correctable and uncorrectable rows, pending and failure; None for sentinels."""
    rows = pynvml.nvmlDeviceGetRemappedRows(handle)
    return rows if all(SMALL_COUNT(number) is not None for number in rows) else None


def _link_states(handle: Any, links: int, progress: Callable[[], None]) -> list[float]:
    states = []
    for link in range(links):
        progress()
        states.append(pynvml.nvmlDeviceGetNvLinkState(handle, link))
    return states


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
