# SPDX-License-Identifier: Apache-2.0
"""Traffic and bandwidth of a board's links: PCIe, NVLink and NVLink-C2C."""

from __future__ import annotations

from exporter.exposition.family import Family, counter, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import BOARD, BOARD_CEILINGS, BOARD_TOTALS, DEVICE

LINK = Label("link", ("pcie", "nvlink", "c2c"))
NVLINK_ERROR_KIND = Label("kind", ("crc_flit", "crc_data", "replay", "recovery"))
PCIE_ERROR_KIND = Label(
    "kind", meaning="correctable, non_fatal, fatal, ... as the driver's fields name them"
)

FAMILIES: tuple[Family, ...] = (
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
