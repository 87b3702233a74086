# SPDX-License-Identifier: Apache-2.0
"""The slow readings of one GPU's board: power limit, fans, PCIe, link errors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pynvml

from exporter.model.reading import Board
from exporter.sources.nvml import links, plausible
from exporter.sources.nvml.fields import FieldBatch
from exporter.sources.nvml.plausible import DriverTotals
from exporter.sources.nvml.probe import Probe, probe_of
from exporter.sources.reading_state import Journal


class BoardReader:
    """Reads one GPU's board through `handle`."""

    def __init__(self, handle: Any, link_count: int, journal: Journal) -> None:
        """Prepare the readings of a GPU with `link_count` NVLinks."""
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
            "performance_state",
            "nvmlDeviceGetPerformanceState",
            check=plausible.PERFORMANCE_STATE,
        )
        self._bar1 = probe("bar1", "nvmlDeviceGetBAR1MemoryInfo", check=_possible_bar1)
        self._generation = probe(
            "pcie_link", "nvmlDeviceGetCurrPcieLinkGeneration", check=plausible.PCIE_GENERATION
        )
        self._width = probe(
            "pcie_link", "nvmlDeviceGetCurrPcieLinkWidth", check=plausible.PCIE_WIDTH
        )
        self._replays = probe(
            "pcie_replays", "nvmlDeviceGetPcieReplayCounter", check=plausible.SMALL_COUNT
        )

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

    def _fan(self, fan: int) -> Probe[int]:
        speed = partial(pynvml.nvmlDeviceGetFanSpeed_v2, self._handle, fan)
        return self._probe("fans", speed, check=plausible.FAN_PERCENT)

    def _fan_speeds(self) -> tuple[float, ...]:
        if self._fans is None and (count := self._fan_count()) is not None:
            self._fans = [self._fan(number) for number in range(count)]
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
