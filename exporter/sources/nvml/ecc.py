# SPDX-License-Identifier: Apache-2.0
"""Memory errors of a GPU by severity and location, since driver load and over its lifetime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import byref
from functools import partial
from typing import Any

import pynvml

from exporter.sources.nvml.plausible import COUNT, DriverTotals
from exporter.sources.nvml.probe import Outcome, Probe, code_of, outcome_of
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


class EccReader:
    """Reads the counts by severity (corrected, uncorrected) and location (dram, sram).

    No error is in two counts.
    """

    def __init__(self, handle: Any, journal: Journal) -> None:
        def count(*calls: Callable[[], int]) -> Probe[int]:
            return Probe(journal, "ecc", calls, COUNT)

        self._totals = DriverTotals(lambda: journal.now)

        self._dram = {
            (counter, severity): count(
                _location(handle, counter, severity, pynvml.NVML_MEMORY_LOCATION_DRAM)
            )
            for counter in COUNTERS
            for severity in SEVERITIES
        }
        self._sram_status: Probe[Any] = Probe(
            journal, "sram_status", (lambda: _sram_status(handle),)
        )
        self._sram = {
            (counter, severity): count(
                _location(handle, counter, severity, pynvml.NVML_MEMORY_LOCATION_SRAM),
                _SramParts(handle, counter, severity),
            )
            for counter in COUNTERS
            for severity in SEVERITIES
        }

    def read_status(self) -> Any:
        """Return the driver's report on on-chip memory; None if it is not known.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        return self._sram_status()

    def read(self, counter: str, status: Any) -> dict[str, dict[str, int]]:
        """Return the known counts of a counter (volatile, aggregate); `status` is the SRAM report.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        counts: dict[str, dict[str, int]] = {}
        for severity in SEVERITIES:
            key = (counter, severity)
            dram = self._dram[key]()
            known = {"dram": dram, "sram": self._sram_count(key, status)}
            found = {
                place: count
                for place, count in known.items()
                if count is not None
                and COUNT(count) is not None
                and self._totals.settled((*key, place), count) is not None
            }
            if found:
                counts[severity] = found
        return counts

    def _sram_count(self, key: tuple[str, str], status: Any) -> int | None:
        if status is not None:
            return sum(int(getattr(status, name)) for name in SRAM_STATUS[key])
        # While the newer call may answer again, its count must not be replaced by the older one's.
        return None if self._sram_status.possible else self._sram[key]()


class _SramParts:
    """The sum over the on-chip memories that an older GPU counts separately."""

    def __init__(self, handle: Any, counter: str, severity: str) -> None:
        self._parts = [_location(handle, counter, severity, part) for part in SRAM_PARTS]

    def __call__(self) -> int:
        """Return the sum over the memories that the GPU has.

        Raises:
            pynvml.NVMLError: it has none, or one is not known now: the sum would be too low.
        """
        total = 0
        for part in tuple(self._parts):
            try:
                total += part()
            except pynvml.NVMLError as error:
                if outcome_of(code_of(error)) is not Outcome.NEVER:
                    raise
                self._parts.remove(part)
        if not self._parts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return total


def _location(handle: Any, counter: str, severity: str, location: int) -> Callable[[], int]:
    return partial(
        pynvml.nvmlDeviceGetMemoryErrorCounter,
        handle,
        SEVERITIES[severity],
        COUNTERS[counter],
        location,
    )


def _sram_status(handle: Any) -> Any:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return status
