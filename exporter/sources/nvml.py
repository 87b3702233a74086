# SPDX-License-Identifier: Apache-2.0
"""What NVML tells about one GPU: its board, its utilization, its memory and its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pynvml

from exporter.reading import Board, Device, Memory, Process, Vitals
from exporter.sources import links
from exporter.sources.fields import Field, FieldBatch
from exporter.sources.identity import CLOCKS, STATIC_FIELDS, Identity, MigSlot, mig_layout
from exporter.sources.probe import IDENTITY, Journal, Probe
from exporter.sources.processes import ProcessLists
from exporter.sources.utilization import UtilizationReader

T = TypeVar("T")

ENERGY_MILLIJOULES: Field = (83, 0)
MEMORY_TEMPERATURE: Field = (82, 0)
POWER_MILLIWATTS: Field = (185, 0)
MODULE_POWER_MILLIWATTS: Field = (185, 1)
THROTTLE_NANOSECONDS: Mapping[str, Field] = {
    "sw_power_cap": (74, 0),
    "sync_boost": (76, 0),
    "board_limit": (77, 0),
    "reliability": (79, 0),
    "sw_thermal": (269, 0),
    "hw_thermal": (270, 0),
    "hw_power_brake": (271, 0),
}
THROTTLE_BITS: Mapping[int, str] = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Idle (0x1), requested clocks (0x2) and display clocks (0x100) are no throttling."""
FAST_FIELDS = (
    ENERGY_MILLIJOULES,
    MEMORY_TEMPERATURE,
    POWER_MILLIWATTS,
    MODULE_POWER_MILLIWATTS,
    *THROTTLE_NANOSECONDS.values(),
    links.PCIE_TRANSMIT_BYTES,
    links.PCIE_RECEIVE_BYTES,
)
UNKNOWN_PERFORMANCE_STATE = 32
MEDIA_ENGINES: Mapping[str, str] = {
    "encoder": "nvmlDeviceGetEncoderUtilization",
    "decoder": "nvmlDeviceGetDecoderUtilization",
    "jpeg": "nvmlDeviceGetJpgUtilization",
    "ofa": "nvmlDeviceGetOfaUtilization",
}


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """One fast round of this source; memory and processes by share."""

    vitals: Vitals
    board: Board
    memory: Mapping[int | None, Memory | None]
    processes: Mapping[int | None, tuple[Process, ...]] | None


class MigChanged(Exception):
    """The GPU's MIG layout is not the one that it was identified with."""


class NvmlSource:
    """Reads one GPU through `handle`, by cadence."""

    name = "nvml"

    def __init__(
        self, handle: Any, index: int, procfs: str, journal: Journal, *, owners: bool = True
    ) -> None:
        self._handle = handle
        self._journal = journal
        self._identity = Identity(handle, index, journal)
        self._static_fields = FieldBatch(handle, STATIC_FIELDS, journal, IDENTITY)
        self._layout = self._probe("mig", lambda: (mig_layout(handle),))
        layout = self._layout()
        self._mig = None if layout is None else layout[0]
        self._facts = self._probe(IDENTITY, self._static_fields.read)
        self.device = self._identify()
        self._links = self.device.nvlink_count or 0
        self._board = Board()
        self._slow_clocks: dict[str, float] = {}
        self._processes: dict[int | None, tuple[Process, ...]] | None = None
        self._fast_fields = FieldBatch(
            handle, (*FAST_FIELDS, *links.nvlink_traffic_fields(self._links)), journal, "fields"
        )
        self._slow_fields = FieldBatch(
            handle, links.error_fields(self._links), journal, "slow_fields"
        )
        self._pcie = links.PcieTraffic(self.device.pcie_generation_max, self.device.pcie_width_max)
        self.utilization = UtilizationReader(handle, journal) if self._mig is None else None
        self._process_lists = ProcessLists(handle, journal, procfs, owners=owners)
        self._build_probes()
        if self.utilization is None:
            journal.absent("utilization", "mig")

    def _probe(self, group: str, *calls: Callable[[], T]) -> Probe[T]:
        return Probe(self._journal, self.name, group, calls)

    def _build_probes(self) -> None:
        h = self._handle
        nv = pynvml
        probe = self._probe
        self._fields = probe("fields", self._fast_fields.read)
        self._more_fields = probe("slow_fields", self._slow_fields.read)
        self._energy = probe("energy", lambda: nv.nvmlDeviceGetTotalEnergyConsumption(h))
        self._power = probe("power", lambda: nv.nvmlDeviceGetPowerUsage(h))
        self._temperature = probe(
            "temperature",
            lambda: nv.nvmlDeviceGetTemperatureV(h, nv.NVML_TEMPERATURE_GPU),
            lambda: nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU),
        )
        self._reasons = probe(
            "throttle",
            lambda: nv.nvmlDeviceGetCurrentClocksEventReasons(h),
            lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        )
        self._clocks = {
            name: probe(f"{name}_clock", partial(nv.nvmlDeviceGetClockInfo, h, clock))
            for name, clock in CLOCKS.items()
        }
        self._whole_memory = probe("memory", *self._memory_calls(h))
        self._instance_memory = {
            slot.instance.gpu_instance: probe("memory", *self._memory_calls(slot.handle))
            for slot in reversed(self._mig or ())
        }
        self._media = {
            engine: probe(engine, partial(_media_percent, call, h))
            for engine, call in MEDIA_ENGINES.items()
        }
        fans = probe("fans", lambda: nv.nvmlDeviceGetNumFans(h), lambda: _one_fan(h))() or 0
        self._fans = [
            probe("fans", partial(nv.nvmlDeviceGetFanSpeed_v2, h, fan)) for fan in range(fans)
        ]
        self._limit = probe(
            "power_limit",
            lambda: nv.nvmlDeviceGetEnforcedPowerLimit(h),
            lambda: nv.nvmlDeviceGetPowerManagementLimit(h),
        )
        self._margin = probe("temperature_margin", lambda: nv.nvmlDeviceGetMarginTemperature(h))
        self._state = probe("performance_state", lambda: nv.nvmlDeviceGetPerformanceState(h))
        self._bar1 = probe("bar1", lambda: nv.nvmlDeviceGetBAR1MemoryInfo(h))
        self._generation = probe("pcie_link", lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(h))
        self._width = probe("pcie_link", lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(h))
        self._replays = probe("pcie_replays", lambda: nv.nvmlDeviceGetPcieReplayCounter(h))

    @staticmethod
    def _memory_calls(handle: Any) -> tuple[Callable[[], Memory], Callable[[], Memory]]:
        def version_2() -> Memory:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            return Memory(info.total, info.used, info.free, info.reserved)

        def version_1() -> Memory:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle)
            return Memory(info.total, info.used, info.free)

        return version_2, version_1

    def _identify(self) -> Device:
        fields = self._facts() or {}
        return self._identity.read(fields, self._mig)

    @property
    def gpu_instances(self) -> tuple[int | None, ...]:
        """The shares to read: the GPU instances while MIG is on, else the whole GPU (None)."""
        if self._mig is None:
            return (None,)
        return tuple(sorted({slot.instance.gpu_instance for slot in self._mig}))

    def read_static(self) -> None:
        """Read again what hardly ever changes."""
        self.device = self._identify()

    def read_slow(self) -> None:
        """Read what changes rarely or is dear; `read_fast` hands it over.

        Raises:
            MigChanged: the GPU must be identified anew.
        """
        layout = self._layout()
        if layout is not None and _instances(layout[0]) != _instances(self._mig):
            raise MigChanged
        values = self._more_fields() or {}
        replays = values.get(links.PCIE_REPLAYS)
        limit = self._limit()
        state = self._state()
        bar1 = self._bar1()
        self._board = Board(
            power_limit_watts=limit / 1000 if limit is not None else None,
            temperature_margin_celsius=self._margin(),
            fan_speed_ratios=tuple(
                speed / 100 for speed in (fan() for fan in self._fans) if speed is not None
            ),
            performance_state=state if state != UNKNOWN_PERFORMANCE_STATE else None,
            bar1_used_bytes=bar1.bar1Used if bar1 else None,
            bar1_total_bytes=bar1.bar1Total if bar1 else None,
            pcie_generation=self._generation(),
            pcie_width=self._width(),
            pcie_replays_total=int(replays) if replays is not None else self._replays(),
            pcie_errors_total=links.pcie_errors(values),
            pcie_link_recoveries_total=_whole(values.get(links.PCIE_LINK_RECOVERIES)),
            nvlink_errors_total=links.nvlink_errors(values, self._links),
        )
        self._slow_clocks = self._read_clocks("graphics", "video")
        self._processes = self._process_lists.read(
            None if self._mig is None else self.gpu_instances
        )

    def _read_clocks(self, *names: str) -> dict[str, float]:
        clocks = {}
        for name in names:
            megahertz = self._clocks[name]()
            if megahertz is not None:
                clocks[name] = megahertz * 1e6
        return clocks

    def read_fast(
        self, monotonic_seconds: float, unix_seconds: float, counted_engines: frozenset[str]
    ) -> NvmlReading:
        """Return the fast readings, with the last slow ones.

        `counted_engines` are the media engines that hardware counters tell already.
        """
        memory = self._read_memory()
        values = self._fields() or {}
        energy = values.get(ENERGY_MILLIJOULES)
        if energy is None:
            energy = self._energy()
        power = values.get(POWER_MILLIWATTS)
        if power is None:
            power = self._power()
        module_power = values.get(MODULE_POWER_MILLIWATTS)
        reasons = self._reasons()
        utilization, busy_clock = (
            self.utilization.read(monotonic_seconds, unix_seconds)
            if self.utilization is not None
            else (None, None)
        )
        media = {} if self._mig is not None else self._read_media(counted_engines)
        vitals = Vitals(
            utilization=utilization,
            encoder_ratio=media.get("encoder"),
            decoder_ratio=media.get("decoder"),
            jpeg_ratio=media.get("jpeg"),
            ofa_ratio=media.get("ofa"),
            power_watts=power / 1000 if power is not None else None,
            module_power_watts=module_power / 1000 if module_power else None,
            energy_joules=energy / 1000 if energy is not None else None,
            temperature_celsius=_number(self._temperature()),
            memory_temperature_celsius=_number(values.get(MEMORY_TEMPERATURE) or None),
            clock_hertz=self._read_clocks("sm", "memory") | self._slow_clocks,
            busy_sm_clock_hertz=busy_clock,
            throttle_reasons=(
                None
                if reasons is None
                else frozenset(name for bit, name in THROTTLE_BITS.items() if reasons & bit)
            ),
            throttle_seconds={
                reason: values[field] / 1e9
                for reason, field in THROTTLE_NANOSECONDS.items()
                if field in values
            },
            pcie_transmit_bytes=self._pcie.moved(
                links.PCIE_TRANSMIT_BYTES, values, monotonic_seconds
            ),
            pcie_receive_bytes=self._pcie.moved(
                links.PCIE_RECEIVE_BYTES, values, monotonic_seconds
            ),
            nvlink_transmit_bytes_total=links.nvlink_bytes(
                values, links.NVLINK_DATA_TRANSMIT_KIB, links.NVLINK5_TRANSMIT_BYTES, self._links
            ),
            nvlink_receive_bytes_total=links.nvlink_bytes(
                values, links.NVLINK_DATA_RECEIVE_KIB, links.NVLINK5_RECEIVE_BYTES, self._links
            ),
        )
        return NvmlReading(vitals, self._board, memory, self._processes)

    def _read_memory(self) -> dict[int | None, Memory | None]:
        if self._mig is None:
            return {None: self._whole_memory()}
        return {share: probe() for share, probe in self._instance_memory.items()}

    def _read_media(self, covered: frozenset[str]) -> dict[str, float]:
        """Return the busy ratio of each media engine that no hardware counter covers."""
        ratios = {}
        for engine, probe in self._media.items():
            if engine not in covered:
                percent = probe()
                if percent is not None and 0 <= percent <= 100:
                    ratios[engine] = percent / 100
        return ratios


def _one_fan(handle: Any) -> int:
    """Return 1 if there is a fan to ask; drivers before 495 do not say how many."""
    pynvml.nvmlDeviceGetFanSpeed(handle)
    return 1


def _media_percent(call: str, handle: Any) -> int:
    percent, _sampling_period_us = getattr(pynvml, call)(handle)
    return int(percent)


def _instances(layout: tuple[MigSlot, ...] | None) -> list[Any] | None:
    return None if layout is None else [slot.instance for slot in layout]


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
