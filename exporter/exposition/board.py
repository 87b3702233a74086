# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that carry what the driver says of the board: power, clocks, links."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, counter, gauge
from exporter.model.reading import THROTTLE_REASONS

CLOCK = Label("clock", ("sm", "memory", "graphics", "video"), full_values=("graphics", "video"))
LINK = Label("link", ("pcie", "nvlink", "c2c"))
NVLINK_ERROR_KIND = Label("kind", ("crc_flit", "crc_data", "replay", "recovery"))
THRESHOLD = Label("threshold", ("shutdown", "slowdown", "memory_max", "gpu_max"))

BOARD: tuple[Family, ...] = (
    gauge(
        "gpu_bar1_used_bytes",
        "bytes",
        "board",
        "full",
        "BAR1 aperture in use, through which the host maps device memory.",
        "nvmlDeviceGetBAR1MemoryInfo, at the slow cadence",
    ),
    gauge(
        "gpu_bar1_total_bytes",
        "bytes",
        "board",
        "full",
        "Size of the BAR1 aperture.",
        "nvmlDeviceGetBAR1MemoryInfo, at the slow cadence",
    ),
    gauge(
        "gpu_power_watts",
        "watts",
        "board",
        "core",
        "Power drawn: a 1 s average on most parts since Ampere, else instantaneous; prefer the "
        "rate of gpu_energy_joules_total.",
        "nvmlDeviceGetPowerUsage",
    ),
    gauge(
        "gpu_power_limit_watts",
        "watts",
        "board",
        "core",
        "The power limit in force: the lowest of all that apply.",
        "nvmlDeviceGetEnforcedPowerLimit, at the slow cadence",
    ),
    gauge(
        "gpu_power_default_limit_watts",
        "watts",
        "board",
        "full",
        "The power limit after the driver is loaded.",
        "nvmlDeviceGetPowerManagementDefaultLimit",
    ),
    gauge(
        "gpu_power_max_limit_watts",
        "watts",
        "board",
        "full",
        "The highest power limit that can be set.",
        "nvmlDeviceGetPowerManagementLimitConstraints",
    ),
    gauge(
        "gpu_module_power_watts",
        "watts",
        "board",
        "full",
        "Power of the whole module, CPU included, where GPU and CPU share one (Grace).",
        "field 186 with the module scope",
    ),
    counter(
        "gpu_energy_joules_total",
        "joules",
        "board",
        "core",
        "Energy used since the driver was loaded; its rate is the exact mean power.",
        "nvmlDeviceGetTotalEnergyConsumption, field 83 (Volta and newer)",
    ),
    gauge(
        "gpu_temperature_celsius",
        "celsius",
        "board",
        "core",
        "Temperature of the GPU die and of its memory.",
        "nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; memory from field 82",
        Label("sensor", ("gpu", "memory")),
    ),
    gauge(
        "gpu_temperature_threshold_celsius",
        "celsius",
        "board",
        "full",
        "Temperatures at which the GPU slows down or shuts down, or that it should not exceed.",
        "nvmlDeviceGetTemperatureThreshold",
        THRESHOLD,
    ),
    gauge(
        "gpu_temperature_margin_celsius",
        "celsius",
        "board",
        "full",
        "Degrees left before the GPU slows down.",
        "nvmlDeviceGetMarginTemperature, at the slow cadence",
    ),
    gauge(
        "gpu_clock_hertz",
        "hertz",
        "board",
        "core",
        "Current clocks: sm and memory at the poll interval, graphics and video at the slow "
        "cadence.",
        "nvmlDeviceGetClockInfo",
        CLOCK,
    ),
    gauge(
        "gpu_clock_max_hertz",
        "hertz",
        "board",
        "full",
        "The highest clocks that the driver allows; they can lie above the clock of the spec "
        "ceilings.",
        "nvmlDeviceGetMaxClockInfo",
        CLOCK,
    ),
    counter(
        "gpu_throttle_seconds_total",
        "seconds",
        "board",
        "core",
        "Time in which a reason held the clocks down; idle and requested clocks do not count, and "
        "reasons can overlap.",
        "the driver's time counters (fields 74-77, 79 and 269-271) since it was loaded, else "
        "nvmlDeviceGetCurrentClocksEventReasons integrated over the poll",
        Label(
            "reason",
            THROTTLE_REASONS,
            full_values=("sync_boost", "board_limit", "reliability"),
        ),
    ),
    gauge(
        "gpu_fan_speed_ratio",
        "ratio",
        "board",
        "full",
        "Intended fan speed as a share of its maximum.",
        "nvmlDeviceGetFanSpeed_v2, at the slow cadence",
        Label("fan", meaning="number of the fan, from 0"),
    ),
    gauge(
        "gpu_performance_state",
        "",
        "board",
        "full",
        "Performance state: 0 is the fastest, 15 the slowest.",
        "nvmlDeviceGetPerformanceState, at the slow cadence",
    ),
    counter(
        "gpu_pcie_transmit_bytes_total",
        "bytes",
        "board",
        "full",
        "Bytes sent over PCIe since the exporter started.",
        "GPM counter 255, else GPM rate 20 integrated, else field 197 where a wrap cannot be "
        "missed",
    ),
    counter(
        "gpu_pcie_receive_bytes_total",
        "bytes",
        "board",
        "full",
        "Bytes received over PCIe since the exporter started.",
        "GPM counter 256, else GPM rate 21 integrated, else field 198 where a wrap cannot be "
        "missed",
    ),
    counter(
        "gpu_pcie_replays_total",
        "",
        "board",
        "full",
        "PCIe packets sent again, by the driver's own count.",
        "nvmlDeviceGetPcieReplayCounter, at the slow cadence",
    ),
    counter(
        "gpu_pcie_errors_total",
        "",
        "board",
        "full",
        "PCIe errors, by the driver's own count.",
        "fields 173-183, at the slow cadence",
        Label(
            "kind", meaning="correctable, non_fatal, fatal, ... as the driver's fields name them"
        ),
    ),
    counter(
        "gpu_pcie_link_recoveries_total",
        "",
        "board",
        "full",
        "Times the PCIe link went from L0 to recovery, by the driver's own count.",
        "field 169, at the slow cadence",
    ),
    gauge(
        "gpu_pcie_link_generation",
        "",
        "board",
        "core",
        "PCIe generation of the link now; it drops when the GPU is idle.",
        "nvmlDeviceGetCurrPcieLinkGeneration, at the slow cadence",
    ),
    gauge(
        "gpu_pcie_link_generation_max",
        "",
        "board",
        "full",
        "PCIe generation that GPU and slot can reach.",
        "nvmlDeviceGetMaxPcieLinkGeneration",
    ),
    gauge(
        "gpu_pcie_link_width",
        "",
        "board",
        "full",
        "PCIe lanes of the link now.",
        "nvmlDeviceGetCurrPcieLinkWidth, at the slow cadence",
    ),
    gauge(
        "gpu_pcie_link_width_max",
        "",
        "board",
        "full",
        "PCIe lanes that GPU and slot can use.",
        "nvmlDeviceGetMaxPcieLinkWidth",
    ),
    counter(
        "gpu_nvlink_transmit_bytes_total",
        "bytes",
        "board",
        "full",
        "Data bytes sent over all NVLinks.",
        "the driver's counter (field 138, all links; NVLink 5: field 202), else GPM rate 61 "
        "integrated",
    ),
    counter(
        "gpu_nvlink_receive_bytes_total",
        "bytes",
        "board",
        "full",
        "Data bytes received over all NVLinks.",
        "the driver's counter (field 139, all links; NVLink 5: field 204), else GPM rate 60 "
        "integrated",
    ),
    counter(
        "gpu_nvlink_errors_total",
        "",
        "board",
        "full",
        "NVLink errors over all links, by the driver's own count.",
        "fields 32-59, 96-119 and 161-163, at the slow cadence",
        NVLINK_ERROR_KIND,
    ),
    counter(
        "gpu_c2c_transmit_bytes_total",
        "bytes",
        "board",
        "full",
        "Bytes sent to the CPU over NVLink-C2C (Grace).",
        "GPM C2C transmit rate integrated",
    ),
    counter(
        "gpu_c2c_receive_bytes_total",
        "bytes",
        "board",
        "full",
        "Bytes received from the CPU over NVLink-C2C (Grace).",
        "GPM C2C receive rate integrated",
    ),
    gauge(
        "gpu_peak_link_bandwidth_bytes_per_second",
        "bytes_per_second",
        "board",
        "full",
        "Highest data rate of a kind of link per direction, all links of the kind together.",
        "spec file, else link generation, width and count from NVML",
        LINK,
    ),
)
