# SPDX-License-Identifier: Apache-2.0
"""The slow readings of one GPU's board: limits, fans, links, ECC, repairs, fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import byref
from functools import partial
from typing import Any

import pynvml

from exporter.model.reading import Board, Health
from exporter.sources.nvml import links, plausible
from exporter.sources.nvml.fields import FieldBatch
from exporter.sources.nvml.plausible import COUNT, SMALL_COUNT, DriverTotals
from exporter.sources.nvml.probe import Outcome, Probe, code_of, outcome_of, probe_of
from exporter.sources.reading_state import Journal

SEVERITIES: Mapping[str, int] = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
COUNTERS: Mapping[str, int] = {
    "volatile": pynvml.NVML_VOLATILE_ECC,
    "aggregate": pynvml.NVML_AGGREGATE_ECC,
}
"""Since driver load, and over the board's lifetime."""
SRAM_STATUS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("volatile", "corrected"): ("volatileCor",),
    ("volatile", "uncorrected"): ("volatileUncParity", "volatileUncSecDed"),
    ("aggregate", "corrected"): ("aggregateCor",),
    ("aggregate", "uncorrected"): ("aggregateUncParity", "aggregateUncSecDed"),
}
"""Parity and SEC-DED errors occur in different memories; the struct's buckets are their sum."""
SRAM_PARTS = (
    pynvml.NVML_MEMORY_LOCATION_L1_CACHE,
    pynvml.NVML_MEMORY_LOCATION_L2_CACHE,
    pynvml.NVML_MEMORY_LOCATION_REGISTER_FILE,
    pynvml.NVML_MEMORY_LOCATION_TEXTURE_MEMORY,
    pynvml.NVML_MEMORY_LOCATION_TEXTURE_SHM,
    pynvml.NVML_MEMORY_LOCATION_CBU,
)
"""Volta and older GPUs count these separately; newer ones count them all as SRAM."""
RECOVERY_ACTION = (230, 0)
NVLINK_STATE = 165
ACTIVE_STATES = (pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP)
"""A sleeping link wakes by itself; the older call answers 1 for active, 0 for inactive."""
FABRIC_CALLS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)
BANKS = ("max", "high", "partial", "low", "none")
RETIREMENT_CAUSES: Mapping[str, int] = {
    "single_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    "double_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
}


class BoardReader:
    """Reads one GPU's board through `handle`."""

    def __init__(self, handle: Any, link_count: int, journal: Journal) -> None:
        self._links = link_count
        self._totals = DriverTotals(journal)
        self._handle = handle
        self._probe = probe = partial(probe_of, journal, handle)
        fields = FieldBatch(handle, links.error_fields(link_count), journal, "slow_fields")
        self._fields = probe("slow_fields", fields.read)
        self._fan_count = probe(
            "fans", "nvmlDeviceGetNumFans", lambda: _one_fan(handle), check=plausible.FAN_COUNT
        )
        self._fans: list[Probe[int]] | None = None
        """None until their number is known."""
        self._limit = probe(
            "power_limit",
            *("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
            check=plausible.POWER_LIMIT_MILLIWATTS,
        )
        self._margin = probe(
            "temperature_margin",
            "nvmlDeviceGetMarginTemperature",
            check=plausible.TEMPERATURE_MARGIN_CELSIUS,
        )
        self._state = probe(
            "performance_state", "nvmlDeviceGetPerformanceState", check=plausible.PERFORMANCE_STATE
        )
        self._bar1 = probe("bar1", "nvmlDeviceGetBAR1MemoryInfo", check=_possible_bar1)
        self._generation = probe(
            "pcie_link", "nvmlDeviceGetCurrPcieLinkGeneration", check=plausible.PCIE_GENERATION
        )
        self._width = probe(
            "pcie_link", "nvmlDeviceGetCurrPcieLinkWidth", check=plausible.PCIE_WIDTH
        )
        self._replays = probe("pcie_replays", "nvmlDeviceGetPcieReplayCounter", check=SMALL_COUNT)

    def read(self) -> Board:
        """Return the present readings."""
        values = self._fields() or {}
        replays = values.get(links.PCIE_REPLAYS)
        if replays is None:
            replays = self._replays()
        bar1 = self._bar1()
        totals = self._totals
        return Board(
            power_limit_watts=plausible.thousandth(self._limit()),
            temperature_margin_celsius=self._margin(),
            fan_speed_ratios=self._fan_speeds(),
            performance_state=self._state(),
            bar1_used_bytes=bar1.bar1Used if bar1 else None,
            bar1_total_bytes=bar1.bar1Total if bar1 else None,
            pcie_generation=self._generation(),
            pcie_width=self._width(),
            pcie_replays_total=_whole(totals.settled("replays", replays)),
            pcie_errors_total=totals.all_settled("pcie", links.pcie_errors(values)),
            pcie_link_recoveries_total=_whole(
                totals.settled("recoveries", values.get(links.PCIE_LINK_RECOVERIES))
            ),
            nvlink_errors_total=totals.all_settled(
                "nvlink", links.nvlink_errors(values, self._links)
            ),
        )

    def _fan_speeds(self) -> tuple[float, ...]:
        if self._fans is None and (count := self._fan_count()) is not None:
            calls = (
                partial(pynvml.nvmlDeviceGetFanSpeed_v2, self._handle, n) for n in range(count)
            )
            self._fans = [self._probe("fans", call, check=plausible.FAN_PERCENT) for call in calls]
        speeds = [fan() for fan in self._fans or ()]
        return tuple(min(speed / 100, 1.0) for speed in speeds if speed is not None)


def _one_fan(handle: Any) -> int:
    """Return 1 if the GPU has a fan; drivers before 495 do not report how many."""
    pynvml.nvmlDeviceGetFanSpeed(handle)
    return 1


def _possible_bar1(info: Any) -> Any:
    """Return `info`, or None if it has more used than total memory."""
    whole = plausible.MEMORY_BYTES(info.bar1Total)
    return info if whole is not None and info.bar1Used <= whole else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sram_parts(count: Callable[[int], int], parts: list[int]) -> int:
    """Return the sum over the on-chip memories that an older GPU counts separately, and remove
    those that it lacks; raise NVMLError if it has none, or one is not known now."""
    total = 0
    for part in tuple(parts):
        try:
            total += count(part)
        except pynvml.NVMLError as error:
            if outcome_of(code_of(error)) is not Outcome.NEVER:
                raise
            parts.remove(part)
    if not parts:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return total


def _sram_status(handle: Any) -> Any:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return status


class HealthReader:
    """Reads the health of one whole GPU; MIG instances have no health of their own."""

    def __init__(self, handle: Any, link_count: int, journal: Journal) -> None:
        self._links = link_count
        nv = pynvml
        probe = partial(probe_of, journal, handle)
        self._totals = DriverTotals(journal)
        self._sram_status = probe("sram_status", lambda: _sram_status(handle))
        self._errors: dict[tuple[str, str, str], Probe[int]] = {}
        """By counter, severity and memory."""
        for counter, severity in SRAM_STATUS:
            ids = SEVERITIES[severity], COUNTERS[counter]
            count = partial(nv.nvmlDeviceGetMemoryErrorCounter, handle, *ids)
            parts = partial(_sram_parts, count, list(SRAM_PARTS))
            sram = partial(count, nv.NVML_MEMORY_LOCATION_SRAM), parts
            dram = partial(count, nv.NVML_MEMORY_LOCATION_DRAM)
            self._errors[counter, severity, "dram"] = probe("ecc", dram, check=COUNT)
            self._errors[counter, severity, "sram"] = probe("ecc", *sram, check=COUNT)
        self._rows = probe("row_remap", lambda: _remapped_rows(handle))
        self._banks = probe("row_remap", "nvmlDeviceGetRowRemapperHistogram", check=_possible_banks)
        self._unrepairable = probe("unrepairable_memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1")
        self._retired = {
            cause: probe("retired_pages", partial(nv.nvmlDeviceGetRetiredPages, handle, number))
            for cause, number in RETIREMENT_CAUSES.items()
        }
        self._retirement_pending = probe("retired_pages", "nvmlDeviceGetRetiredPagesPendingStatus")
        action = FieldBatch(handle, [RECOVERY_ACTION], journal, "recovery_action")
        self._action = probe("recovery_action", action.read_all)
        state_fields = links.link_fields(NVLINK_STATE, link_count)
        states = FieldBatch(handle, state_fields, journal, "nvlink_state")
        self._link_states = probe(
            "nvlink_state",
            states.read_all,
            partial(_link_states, handle, link_count, journal.progress),
        )
        self._fabric = probe(
            "fabric",
            *(partial(links.read_fabric, call, handle, info) for call, info in FABRIC_CALLS),
        )

    def read(self) -> Health:
        """Return the present readings."""
        sram = self._sram_status()
        errors = self._read_errors(sram)
        rows = self._rows() or {}
        banks = self._banks()
        # From Ampere on rows are remapped, and no pages are retired.
        retires = not self._rows.possible
        action = self._action()
        states = self._link_states() if self._links else None
        active = sum(1 for state in states or () if state in ACTIVE_STATES)
        return Health(
            ecc_errors_total=errors["volatile"],
            ecc_lifetime_errors=errors["aggregate"],
            **rows,
            row_remap_banks={name: getattr(banks, name) for name in BANKS if banks is not None},
            retired_pages=self._retired_pages() if retires else {},
            retired_pages_pending=_flag(self._retirement_pending()) if retires else None,
            sram_error_threshold_exceeded=(None if sram is None else bool(sram.bThresholdExceeded)),
            unrepairable_memory=_flag(self._unrepairable()),
            recovery_action=None if action is None else int(action[0]),
            nvlink_links=(
                {} if states is None else {"active": active, "inactive": len(states) - active}
            ),
            nvlink_links_expected=self._links or None,
            **(self._fabric() or {}),
        )

    def _read_errors(self, status: Any) -> dict[str, dict[str, dict[str, int]]]:
        """Return the known counts by counter, severity and memory; no error is in two of them.
        `status` is the driver's report on on-chip memory."""
        counts: dict[str, dict[str, dict[str, int]]] = {counter: {} for counter in COUNTERS}
        for key, probe in self._errors.items():
            counter, severity, memory = key
            found = None
            if memory == "sram" and status is not None:
                buckets = SRAM_STATUS[counter, severity]
                found = COUNT(sum(int(getattr(status, name)) for name in buckets))
            elif memory == "dram" or not self._sram_status.possible:
                # While the newer call may answer again, its count is not replaced by the older's.
                found = probe()
            count = self._totals.settled(key, found)
            if count is not None:
                counts[counter].setdefault(severity, {})[memory] = count
        return counts

    def _retired_pages(self) -> dict[str, int]:
        pages = {cause: probe() for cause, probe in self._retired.items()}
        return {cause: len(found) for cause, found in pages.items() if found is not None}


def _remapped_rows(handle: Any) -> dict[str, Any] | None:
    """Return the members of `Health` that tell of remapped rows; None for sentinels."""
    rows = pynvml.nvmlDeviceGetRemappedRows(handle)
    if None in map(SMALL_COUNT, rows):
        return None
    correctable, uncorrectable, pending, failure = rows
    return {
        "remapped_rows": {"correctable": correctable, "uncorrectable": uncorrectable},
        "row_remap_pending": bool(pending),
        "row_remap_failure": bool(failure),
    }


def _possible_banks(banks: Any) -> Any:
    """Return `banks`, or None if one of their counts is a sentinel."""
    return None if None in (SMALL_COUNT(getattr(banks, name)) for name in BANKS) else banks


def _link_states(handle: Any, link_count: int, progress: Callable[[], None]) -> list[float]:
    states = []
    for link in range(link_count):
        progress()
        states.append(pynvml.nvmlDeviceGetNvLinkState(handle, link))
    return states


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
