# SPDX-License-Identifier: Apache-2.0
"""The source nvml: one GPU's identity, board, utilization, memory and processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

from exporter.errors import DeviceGone, LibraryUnavailable
from exporter.model.reading import Board, Memory, Process, Vitals, share_group
from exporter.sources.nvml import links, plausible
from exporter.sources.nvml.board import BoardReader
from exporter.sources.nvml.fields import Field, FieldBatch
from exporter.sources.nvml.identity import CLOCKS, STATIC_FIELDS, IdentityReader
from exporter.sources.nvml.layout import MIG, MigLayout
from exporter.sources.nvml.plausible import DriverTotals
from exporter.sources.nvml.probe import Probe, probe_of
from exporter.sources.nvml.processes import ProcessLists
from exporter.sources.nvml.utilization import UtilizationReader
from exporter.sources.proc.procfs import host_memory
from exporter.sources.reading_state import IDENTITY, Journal
from exporter.specs.gpu_class import SYSTEM_MEMORY_CAPABILITIES

FIRST_WITH_FP8 = (8, 9)
"""The compute capability of Ada."""

ENERGY_MILLIJOULES: Field = (83, 0)
MEMORY_TEMPERATURE: Field = (82, 0)
POWER_MILLIWATTS: Field = (185, 0)
MODULE_POWER_MILLIWATTS: Field = (185, 1)
THROTTLE_NANOSECONDS: Mapping[str, Field] = {
    "sw_power_cap": (74, 0),
    "thermal": (75, 0),
    "sync_boost": (76, 0),
    "board_limit": (77, 0),
    "low_utilization": (78, 0),
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
"""Idle (0x1), requested clocks (0x2) and display clocks (0x100) do not count as throttling."""
FAST_FIELDS = (
    ENERGY_MILLIJOULES,
    MEMORY_TEMPERATURE,
    POWER_MILLIWATTS,
    MODULE_POWER_MILLIWATTS,
    *THROTTLE_NANOSECONDS.values(),
    *links.PCIE_BYTES.values(),
)
MEDIA_ENGINES: Mapping[str, str] = {
    "encoder": "nvmlDeviceGetEncoderUtilization",
    "decoder": "nvmlDeviceGetDecoderUtilization",
    "jpeg": "nvmlDeviceGetJpgUtilization",
    "ofa": "nvmlDeviceGetOfaUtilization",
}


DYING = "dying"
"""The member of a memory group that is absent while the handle of its instance is dead."""


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """One fast round of this source; memory and processes are by share."""

    vitals: Vitals
    board: Board
    memory: Mapping[int | None, Memory | None]
    processes: Mapping[int | None, tuple[Process, ...]] | None
    answered: bool
    """Whether any fast reading answered in this round."""


class DeviceChanged(Exception):
    """Another GPU answers than the one that was opened, or its MIG layout has changed."""


def _memory_calls(handle: Any) -> tuple[Callable[[], Memory | None], ...]:
    """Return the calls that give the memory of a GPU or MIG device, the newest first."""

    def version_2() -> Memory | None:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return plausible.memory(info.total, info.used, info.free, info.reserved)

    def version_1() -> Memory | None:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return plausible.memory(info.total, info.used, info.free)

    return version_2, version_1


HOSTS_TOLERANCE = 0.1
"""By how much the memory that a driver reports may differ from the host's, to be the host's."""


def _shared_memory_calls(handle: Any, procfs: str) -> tuple[Callable[[], Memory | None], ...]:
    """Return the calls for a GPU that shares the CPU's memory: its own, else the host's."""
    host_call = partial(host_memory, procfs)

    def own(call: Callable[[], Memory | None]) -> Memory | None:
        found, host = call(), host_call()
        if found is None or host is None:
            return found
        totals = found.total_bytes, host.total_bytes
        return host if math.isclose(*totals, rel_tol=HOSTS_TOLERANCE) else found

    return *(partial(own, call) for call in _memory_calls(handle)), host_call


class NvmlSource:
    """Reads one GPU through `handle`: fast, slow and static readings."""

    def __init__(
        self,
        handle: Any,
        index: int,
        procfs: str,
        journal: Journal,
        *,
        owners: bool = True,
        process_utilization: bool = False,
        sysfs: str = "/sys",
    ) -> None:
        self._journal = journal
        probe = partial(probe_of, journal, handle)
        self._identity = IdentityReader(handle, index, journal, sysfs)
        self._static_fields = FieldBatch(handle, STATIC_FIELDS, journal, IDENTITY)
        self._layout = MigLayout(handle, journal)
        self._mig = self._layout.slots
        self._totals = DriverTotals(journal)
        self._facts = probe(IDENTITY, self._static_fields.read)
        self.device = self._identity.read(self._facts() or {}, self._layout.instances)
        self._links = self.device.nvlink_count or 0
        self._board = Board()
        self._slow_clocks: dict[str, float] = {}
        self._processes: dict[int | None, tuple[Process, ...]] | None = None
        self._fast_fields = FieldBatch(
            handle, (*FAST_FIELDS, *links.nvlink_traffic_fields(self._links)), journal, "fields"
        )
        self._board_reader = BoardReader(handle, self._links, journal)
        self._pcie = links.PcieTraffic(self.device.pcie_generation_max, self.device.pcie_width_max)
        capability = self.device.compute_capability
        self.utilization = None
        if self._mig is None:
            has_memory = capability not in SYSTEM_MEMORY_CAPABILITIES
            self.utilization = UtilizationReader(handle, journal, has_memory=has_memory)
        else:
            journal.absent("utilization", MIG)
        self._process_lists = ProcessLists(
            handle,
            journal,
            procfs,
            owners=owners,
            has_fp8=capability is not None and capability >= FIRST_WITH_FP8,
            utilization=process_utilization,
        )
        self._fields = probe("fields", self._fast_fields.read)
        self._energy = probe(
            "energy", "nvmlDeviceGetTotalEnergyConsumption", check=plausible.ENERGY_MILLIJOULES
        )
        self._power = probe("power", "nvmlDeviceGetPowerUsage", check=plausible.POWER_MILLIWATTS)
        self._temperature = probe(
            "temperature",
            lambda: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
            lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            check=plausible.TEMPERATURE_CELSIUS,
        )
        self._reasons = probe(
            "throttle",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            check=plausible.THROTTLE_MASK,
        )
        self._clocks: dict[str, Probe[int]] = {
            name: probe(
                f"{name}_clock",
                partial(pynvml.nvmlDeviceGetClockInfo, handle, clock),
                check=plausible.CLOCK_MEGAHERTZ,
            )
            for name, clock in CLOCKS.items()
        }
        shares = self.device.coherent_memory
        self._whole_memory = probe(
            "memory", *(_shared_memory_calls(handle, procfs) if shares else _memory_calls(handle))
        )
        self._instance_memory = {
            number: probe(share_group("memory", number), *_memory_calls(slot.handle))
            for slot in reversed(self._mig or ())
            for number in (slot.instance.gpu_instance,)
        }
        self._media: dict[str, Probe[Any]] = {
            engine: probe(engine, call, check=_possible_percent)
            for engine, call in MEDIA_ENGINES.items()
        }

    @property
    def gpu_instances(self) -> tuple[int | None, ...]:
        """The shares to read: the GPU instances while MIG is on, else the whole GPU (None)."""
        if self._mig is None:
            return (None,)
        return tuple(sorted({slot.instance.gpu_instance for slot in self._mig}))

    def read_static(self) -> None:
        """Read the identity again, which hardly ever changes.

        Raises:
            DeviceChanged: another GPU answers, or the number of NVLinks has become known.
        """
        device = self._identity.read(self._facts() or {}, self._layout.instances)
        if device.uuid != self.device.uuid or device.nvlink_count not in (None, self._links):
            raise DeviceChanged
        self.device = device

    def look(self) -> None:
        """Find out whether the MIG layout has changed.

        Raises:
            DeviceChanged: it has.
        """
        if self._layout.possible and self._layout.has_changed():
            raise DeviceChanged

    def read_slow(self) -> None:
        """Read what changes rarely or is expensive to read; `read_fast` returns it.

        Raises:
            DeviceChanged: the MIG layout has changed.
        """
        if self._layout.has_changed():
            raise DeviceChanged
        self._board = self._board_reader.read()
        self._slow_clocks = self._read_clocks("graphics", "video")
        self.read_processes()

    def read_processes(self) -> Mapping[int | None, tuple[Process, ...]] | None:
        """Read which processes the driver lists; `read_fast` returns them from now on."""
        shares = None if self._mig is None else self.gpu_instances
        self._processes = self._process_lists.read(shares)
        return self._processes

    def _read_clocks(self, *names: str) -> dict[str, float]:
        read = {name: self._clocks[name]() for name in names}
        return {name: value * 1e6 for name, value in read.items() if value is not None}

    def read_fast(
        self, monotonic_seconds: float, unix_seconds: float, counted_engines: frozenset[str]
    ) -> NvmlReading:
        """Return the fast readings, and the last slow ones. `counted_engines` are the media engines
        that hardware counters measure: NVML is not asked."""
        memory = self._read_memory()
        clocks = self._read_clocks("sm", "memory")
        temperature = self._temperature()
        values = self._fields() or {}
        totals = self._totals
        energy = values[ENERGY_MILLIJOULES] if ENERGY_MILLIJOULES in values else self._energy()
        power = values[POWER_MILLIWATTS] if POWER_MILLIWATTS in values else self._power()
        module_power = values.get(MODULE_POWER_MILLIWATTS)
        memory_celsius = values.get(MEMORY_TEMPERATURE)
        reasons = self._reasons()
        utilization = busy_hertz = mean_hertz = None
        fresh = False
        if self.utilization is not None:
            utilization, busy_hertz, mean_hertz = self.utilization.read(
                monotonic_seconds, unix_seconds
            )
            fresh = self.utilization.fresh
        media = {} if self._mig is not None else self._read_media(counted_engines)
        own_memory = (each for each in memory.values() if each is not None and not each.unified)
        answers = (energy, power, temperature, reasons, *own_memory)
        answered = any(each is not None for each in answers) or bool(values or clocks or media)
        throttled = {
            reason: values[field] / 1e9
            for reason, field in THROTTLE_NANOSECONDS.items()
            if field in values
        }
        vitals = Vitals(
            utilization=utilization,
            **media,
            power_watts=plausible.thousandth(power),
            module_power_watts=plausible.thousandth(module_power or None),
            energy_joules=plausible.thousandth(
                totals.settled("energy", energy, plausible.MILLIJOULES_PER_SECOND)
            ),
            temperature_celsius=None if temperature is None else float(temperature),
            memory_temperature_celsius=float(memory_celsius) if memory_celsius else None,
            clock_hertz=clocks | self._slow_clocks,
            busy_sm_clock_hertz=busy_hertz,
            mean_sm_clock_hertz=mean_hertz,
            throttle_reasons=(
                None
                if reasons is None
                else frozenset(name for bit, name in THROTTLE_BITS.items() if reasons & bit)
            ),
            throttle_seconds=totals.all_settled(
                "throttle", throttled, plausible.THROTTLE_SECONDS_PER_SECOND
            ),
            **{
                name: self._pcie.moved(field, values, monotonic_seconds)
                for name, field in links.PCIE_BYTES.items()
            },
            **{
                name: self._nvlink_total(values, *fields)
                for name, fields in links.NVLINK_BYTES.items()
            },
        )
        return NvmlReading(vitals, self._board, memory, self._processes, answered or fresh)

    def _nvlink_total(
        self, values: Mapping[Field, float], kib: Field, by_link: int
    ) -> float | None:
        total = links.nvlink_bytes(values, kib, by_link, self._links)
        return self._totals.settled(f"nvlink {by_link}", total, plausible.NVLINK_BYTES_PER_SECOND)

    def _read_memory(self) -> dict[int | None, Memory | None]:
        if self._mig is None:
            return {None: self._whole_memory()}
        found: dict[int | None, Memory | None] = {}
        for share, read in self._instance_memory.items():
            group = share_group("memory", share)
            try:
                found[share] = read()
                self._journal.answered(group, DYING)
            except (DeviceGone, LibraryUnavailable):  # of the instance, not of the board
                found[share] = None
                self._journal.absent(group, "unreachable", DYING)
        return found

    def _read_media(self, covered: frozenset[str]) -> dict[str, Any]:
        """Return the busy ratio of each engine not in `covered`, by its name in `Vitals`."""
        asked = {name: probe() for name, probe in self._media.items() if name not in covered}
        return {f"{name}_ratio": read[0] / 100 for name, read in asked.items() if read is not None}


def _possible_percent(answer: Any) -> Any:
    """Return what the driver answers of an engine, percent and period, if the first can be."""
    return None if plausible.ENGINE_PERCENT(answer[0]) is None else answer
