# SPDX-License-Identifier: Apache-2.0
"""What the driver reports of a board: apertures, power, temperatures, clocks, fans, links."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, core_info, counter, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import BOARD, BOARD_CEILINGS, BOARD_TOTALS, DEVICE, VITALS
from exporter.model.reading import THROTTLE_REASONS

CLOCK = Label("clock", ("sm", "memory", "graphics", "video"), full_values=("graphics", "video"))
THRESHOLD = Label("threshold", ("shutdown", "slowdown", "memory_max", "gpu_max"))
SENSOR = Label("sensor", ("gpu", "memory"))
THROTTLE_REASON = Label(
    "reason", THROTTLE_REASONS, full_values=("sync_boost", "board_limit", "reliability")
)
FAN = Label("fan", meaning="number of the fan, from 0")
LINK = Label("link", ("pcie", "nvlink", "c2c"))
NVLINK_ERROR_KIND = Label("kind", ("crc_flit", "crc_data", "replay", "recovery"))
PCIE_ERROR_KIND = Label(
    "kind", meaning="correctable, non_fatal, fatal, ... as the driver's fields name them"
)

FAMILIES: tuple[Family, ...] = (
    gauge(
        "gpu_bar1_used_bytes",
        "BAR1 aperture in use, through which the host maps device memory.",
        "nvmlDeviceGetBAR1MemoryInfo, at the slow cadence",
        BOARD.one(lambda b: b.bar1_used_bytes),
    ),
    gauge(
        "gpu_bar1_total_bytes",
        "Size of the BAR1 aperture.",
        "nvmlDeviceGetBAR1MemoryInfo, at the slow cadence",
        BOARD.one(lambda b: b.bar1_total_bytes),
    ),
    core_gauge(
        "gpu_power_watts",
        "Power drawn: a 1 s average on most parts since Ampere, else instantaneous; prefer the "
        "rate of gpu_energy_joules_total.",
        "field 185, else nvmlDeviceGetPowerUsage",
        VITALS.one(lambda v: v.power_watts),
    ),
    core_gauge(
        "gpu_power_limit_watts",
        "The power limit in force: the lowest of all that apply.",
        "nvmlDeviceGetEnforcedPowerLimit, at the slow cadence",
        BOARD.one(lambda b: b.power_limit_watts),
    ),
    gauge(
        "gpu_power_default_limit_watts",
        "The power limit after the driver is loaded.",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        DEVICE.one(lambda d: d.power_default_limit_watts),
    ),
    gauge(
        "gpu_power_max_limit_watts",
        "The highest power limit that can be set.",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        DEVICE.one(lambda d: d.power_max_limit_watts),
    ),
    gauge(
        "gpu_module_power_watts",
        "Power of the whole module, CPU included, where GPU and CPU share one (Grace): a 1 s "
        "average.",
        "field 185 with scope 1, the module",
        VITALS.one(lambda v: v.module_power_watts),
    ),
    core_counter(
        "gpu_energy_joules_total",
        "Energy used since the driver was loaded, or where it does not count, power x time since "
        "the exporter started; its rate is the mean power.",
        "nvmlDeviceGetTotalEnergyConsumption, field 83 (Volta and newer), else the power",
        BOARD_TOTALS.one(lambda t: t.energy_joules),
    ),
    core_info(
        "gpu_energy_source_info",
        "Where gpu_energy_joules_total is power x time because the driver has no energy counter.",
        "whether the driver has one",
        BOARD_TOTALS.rows(
            (Label("source", ("power",)),), lambda t: [(("power",), 1)] if t.energy_is_power else ()
        ),
    ),
    core_gauge(
        "gpu_temperature_celsius",
        "Temperature of the GPU die and of its memory.",
        "nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; memory from field 82",
        VITALS.by_label(SENSOR, lambda v: v.temperatures_celsius),
    ),
    gauge(
        "gpu_temperature_threshold_celsius",
        "Temperatures at which the GPU slows down or shuts down, or that it should not exceed.",
        "nvmlDeviceGetTemperatureThreshold",
        DEVICE.by_label(THRESHOLD, lambda d: d.temperature_threshold_celsius),
    ),
    gauge(
        "gpu_temperature_margin_celsius",
        "Degrees left before the GPU slows down.",
        "nvmlDeviceGetMarginTemperature, at the slow cadence",
        BOARD.one(lambda b: b.temperature_margin_celsius),
    ),
    core_gauge(
        "gpu_clock_hertz",
        "Current clocks: sm and memory at the poll interval, graphics and video at the slow "
        "cadence.",
        "nvmlDeviceGetClockInfo",
        VITALS.by_label(CLOCK, lambda v: v.clock_hertz),
    ),
    gauge(
        "gpu_clock_max_hertz",
        "The highest clocks that the driver allows; they can lie above the clock of the spec "
        "ceilings.",
        "nvmlDeviceGetMaxClockInfo",
        DEVICE.by_label(CLOCK, lambda d: d.clock_max_hertz),
    ),
    core_counter(
        "gpu_throttle_seconds_total",
        "Time in which a reason held the clocks down; idle and requested clocks do not count, and "
        "reasons overlap (some drivers count two by one counter): they are not to be added.",
        "the driver's time counters (fields 74-77, 79 and 269-271) since it was loaded, else "
        "nvmlDeviceGetCurrentClocksEventReasons integrated over the poll",
        BOARD_TOTALS.by_label(THROTTLE_REASON, lambda t: t.throttle_seconds),
    ),
    gauge(
        "gpu_fan_speed_ratio",
        "Intended fan speed as a share of its maximum.",
        "nvmlDeviceGetFanSpeed_v2, at the slow cadence",
        BOARD.by_label(
            FAN, lambda b: {str(fan): ratio for fan, ratio in enumerate(b.fan_speed_ratios)}
        ),
    ),
    gauge(
        "gpu_performance_state",
        "Performance state: 0 is the fastest, 15 the slowest.",
        "nvmlDeviceGetPerformanceState, at the slow cadence",
        BOARD.one(lambda b: b.performance_state),
    ),
    counter(
        "gpu_pcie_transmit_bytes_total",
        "Bytes sent over PCIe since the exporter started.",
        "GPM counter 255, else GPM rate 20 integrated, else field 197 where a wrap cannot be "
        "missed",
        BOARD_TOTALS.one(lambda t: t.pcie_transmit_bytes),
    ),
    counter(
        "gpu_pcie_receive_bytes_total",
        "Bytes received over PCIe since the exporter started.",
        "GPM counter 256, else GPM rate 21 integrated, else field 198 where a wrap cannot be "
        "missed",
        BOARD_TOTALS.one(lambda t: t.pcie_receive_bytes),
    ),
    counter(
        "gpu_pcie_replays_total",
        "PCIe packets sent again, by the driver's own count.",
        "nvmlDeviceGetPcieReplayCounter, at the slow cadence",
        BOARD.one(lambda b: b.pcie_replays_total),
    ),
    counter(
        "gpu_pcie_errors_total",
        "PCIe errors, by the driver's own count.",
        "fields 173-183, at the slow cadence",
        BOARD.by_label(PCIE_ERROR_KIND, lambda b: b.pcie_errors_total),
    ),
    counter(
        "gpu_pcie_link_recoveries_total",
        "Times the PCIe link went from L0 to recovery, by the driver's own count.",
        "field 169, at the slow cadence",
        BOARD.one(lambda b: b.pcie_link_recoveries_total),
    ),
    gauge(
        "gpu_pcie_link_generation",
        "PCIe generation of the link now; it drops when the GPU is idle.",
        "nvmlDeviceGetCurrPcieLinkGeneration, at the slow cadence",
        BOARD.one(lambda b: b.pcie_generation),
    ),
    gauge(
        "gpu_pcie_link_generation_max",
        "PCIe generation that GPU and slot can reach.",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        DEVICE.one(lambda d: d.pcie_generation_max),
    ),
    gauge(
        "gpu_pcie_link_width",
        "PCIe lanes of the link now.",
        "nvmlDeviceGetCurrPcieLinkWidth, at the slow cadence",
        BOARD.one(lambda b: b.pcie_width),
    ),
    gauge(
        "gpu_pcie_link_width_max",
        "PCIe lanes that GPU and slot can use.",
        "nvmlDeviceGetMaxPcieLinkWidth",
        DEVICE.one(lambda d: d.pcie_width_max),
    ),
    counter(
        "gpu_nvlink_transmit_bytes_total",
        "Data bytes sent over all NVLinks.",
        "the driver's counter (field 138, all links; NVLink 5: field 202), else GPM rate 61 "
        "integrated",
        BOARD_TOTALS.one(lambda t: t.nvlink_transmit_bytes),
    ),
    counter(
        "gpu_nvlink_receive_bytes_total",
        "Data bytes received over all NVLinks.",
        "the driver's counter (field 139, all links; NVLink 5: field 204), else GPM rate 60 "
        "integrated",
        BOARD_TOTALS.one(lambda t: t.nvlink_receive_bytes),
    ),
    counter(
        "gpu_nvlink_errors_total",
        "NVLink errors over all links, by the driver's own count.",
        "fields 32-59, 96-119 and 161-163, at the slow cadence",
        BOARD.by_label(NVLINK_ERROR_KIND, lambda b: b.nvlink_errors_total),
    ),
    counter(
        "gpu_c2c_transmit_bytes_total",
        "Bytes sent to the CPU over NVLink-C2C (Grace).",
        "GPM C2C transmit rate integrated",
        BOARD_TOTALS.one(lambda t: t.c2c_transmit_bytes),
    ),
    counter(
        "gpu_c2c_receive_bytes_total",
        "Bytes received from the CPU over NVLink-C2C (Grace).",
        "GPM C2C receive rate integrated",
        BOARD_TOTALS.one(lambda t: t.c2c_receive_bytes),
    ),
    gauge(
        "gpu_peak_link_bandwidth_bytes_per_second",
        "Highest data rate of a kind of link per direction, all links of the kind together.",
        "spec file, else link generation, width and count from NVML",
        BOARD_CEILINGS.by_label(LINK, lambda c: c.link_bandwidth_bytes_per_second),
    ),
)
