# SPDX-License-Identifier: Apache-2.0
"""The rows of the page of one GPU: units, work, clocks, links, health."""

from __future__ import annotations

from dashboards import palette
from dashboards.model import (
    OF_SHARE,
    Lines,
    Override,
    Panel,
    Query,
    Row,
    Step,
    Values,
    colored,
)
from dashboards.numbers import Number, numbers
from dashboards.promql import (
    activity,
    flops_by_precision,
    rate,
    roof,
    select,
    throttled,
)
from dashboards.tables import Column, table
from dashboards.workload_tables import of_one_gpu

FAULT: tuple[Step, ...] = ((None, palette.GREEN), (1, palette.RED))
NO_READING, NO_COUNTERS = "no reading", "no reading of hardware counters"


def _lines(
    title: str,
    description: str,
    values: Values,
    *queries: Query,
    chart: Lines = Lines(width=1),  # noqa: B008  frozen
    width: int = 8,
    overrides: tuple[Override, ...] = (),
) -> Panel:
    return Panel(title, description, chart, values, queries, width=width, overrides=overrides)


UNITS = (
    _lines(
        "Pipes and memory",
        "How busy each kind of unit was, as a share of the cycles of its clock. Saturation is that "
        "of the busiest unit of each moment, at least the highest line; the others show how much "
        "room is left elsewhere.",
        Values("percentunit", 0, 1, no_value=NO_COUNTERS),
        Query(activity("gpu_pipe_active_seconds_total"), f"{{{{pipe}}}}{OF_SHARE}"),
        Query(activity("gpu_dram_active_seconds_total"), f"DRAM{OF_SHARE}"),
        overrides=colored(palette.UNITS),
    ),
    _lines(
        "Engine and SMs",
        "Engine: share of time with any work at all. SM: share of the clock's cycles with work, "
        "averaged over the SMs; above the engine where the clock falls in between. Engine far "
        "above SM: kernels too small for the GPU. SM far above the pipes on the left: latency, "
        "not work.",
        Values("percentunit", 0, 1, no_value=NO_COUNTERS),
        Query(activity("gpu_sm_active_seconds_total"), f"SM{OF_SHARE}"),
        Query(activity("gpu_engine_active_seconds_total"), f"engine{OF_SHARE}"),
        overrides=colored(palette.UNITS),
    ),
    _lines(
        "Fraction of the roof",
        "Distance to the roof in three measures: the datasheet, the datasheet at the clock of the "
        "moment (saturation), and what the best public kernels reach. Current clock far above "
        "datasheet: throttled. No line of achievable: nobody has published a measurement for this "
        "GPU model and precision.",
        Values(
            "percentunit",
            0,
            steps=((None, "transparent"), (1.0, palette.GREEN)),
            no_value=NO_COUNTERS,
        ),
        Query(roof("achievable"), f"achievable{OF_SHARE}"),
        Query(roof("clock"), f"current clock{OF_SHARE}"),
        Query(roof("spec"), f"datasheet{OF_SHARE}"),
        chart=Lines(width=1, thresholds_drawn=True, soft_maximum=1.05),
        overrides=colored(
            {
                "datasheet": palette.PALE,
                "current clock": palette.SATURATION,
                "achievable": palette.ROOF,
            }
        ),
    ),
)
WORK = (
    _lines(
        "Throughput",
        "Operations per second by the precision that they are counted as. Tensor work counts as "
        "FP64 or INT8 where the counters show that, else at the precision the job reports, else "
        "bf16; vector work as if every instruction were an FMA.",
        Values("si:FLOP/s", 0, no_value=NO_COUNTERS),
        Query(flops_by_precision(), f"{{{{precision}}}}{OF_SHARE}"),
        overrides=colored(palette.PRECISIONS),
    ),
    _lines(
        "Memory traffic",
        "Bytes per second between device memory and GPU, under the bandwidth of the datasheet.",
        Values("Bps", 0),
        Query(activity("gpu_dram_bytes_total"), f"traffic{OF_SHARE}"),
        Query(
            select("gpu_peak_memory_bandwidth_bytes_per_second", basis="spec"),
            f"datasheet{OF_SHARE}",
        ),
        overrides=colored({"traffic": palette.BLUE, "datasheet": palette.PALE}),
    ),
    _lines(
        "Memory used",
        "Device memory allocated. Near the total: the next larger batch does not fit; low beside "
        "low saturation: a larger batch does.",
        Values("bytes", 0),
        Query(select("gpu_memory_used_bytes"), f"used{OF_SHARE}"),
        Query(select("gpu_memory_total_bytes"), f"total{OF_SHARE}"),
        overrides=colored({"used": palette.PURPLE, "total": palette.PALE}),
    ),
)
CLOCKS = (
    _lines(
        "Clocks",
        "Current clocks beside the clock of the datasheet's tensor peak. Below it under load: the "
        "next chart says why.",
        Values("hertz", 0),
        Query(select("gpu_clock_hertz", clock="sm|memory"), "{{clock}}"),
        Query(select("gpu_peak_clock_hertz", unit="tensor"), f"datasheet, tensor{OF_SHARE}"),
        overrides=colored(
            {"sm": palette.ORANGE, "memory": palette.BLUE, "datasheet, tensor": palette.PALE},
            "/^{name}/",
        ),
    ),
    _lines(
        "Throttling",
        "Share of time in which each reason held the clocks down; reasons can overlap. "
        "Software power cap: the power limit. Hardware power brake: the server's power supply. "
        "Thermal: cooling.",
        Values("percentunit", 0, 1),
        Query(throttled(), "{{reason}}"),
        chart=Lines(width=1, fill=20),
    ),
    _lines(
        "Power",
        "Power drawn against the limit in force and the default limit. A limit below the default: "
        "somebody lowered it.",
        Values("watt", 0),
        Query(rate("gpu_energy_joules_total"), "drawn"),
        Query(select("gpu_power_limit_watts"), "limit"),
        Query(select("gpu_power_default_limit_watts"), "default limit"),
        overrides=colored(
            {"drawn": palette.ORANGE, "limit": palette.RED, "default limit": palette.PALE}
        ),
    ),
)
LINKS = (
    _lines(
        "Temperature",
        "Die and memory, with the temperature from which the driver slows the GPU down.",
        Values("celsius"),
        Query(select("gpu_temperature_celsius"), "{{sensor}}"),
        Query(select("gpu_temperature_threshold_celsius", threshold="slowdown"), "slowdown"),
        overrides=colored({"gpu": palette.ORANGE, "memory": palette.BLUE, "slowdown": palette.RED}),
    ),
    _lines(
        "PCIe",
        "Traffic between host and GPU. Near the peak of the link while data is waited for: pin "
        "memory, or move less.",
        Values("Bps", 0, no_value="not readable"),
        Query(rate("gpu_pcie_receive_bytes_total"), "received"),
        Query(rate("gpu_pcie_transmit_bytes_total"), "sent"),
        overrides=colored({"received": palette.TEAL, "sent": palette.PURPLE}),
    ),
    _lines(
        "NVLink",
        "Traffic between GPUs. High while pipes and memory idle: communication limits the job.",
        Values("Bps", 0, no_value="not readable"),
        Query(rate("gpu_nvlink_receive_bytes_total"), "received"),
        Query(rate("gpu_nvlink_transmit_bytes_total"), "sent"),
        overrides=colored({"received": palette.TEAL, "sent": palette.PURPLE}),
    ),
)


def _xids() -> Panel:
    chart, queries, steps, overrides = table(
        (
            Column("Xid", label="xid"),
            Column(
                "Seen",
                expression=f"max by (xid) ({select('gpu_xid_errors_total')} > 0)",
                unit="none",
                decimals=0,
            ),
            Column(
                "Last seen",
                expression=f"max by (xid) ({select('gpu_xid_last_timestamp_seconds')} * 1000)",
                unit="dateTimeFromNow",
            ),
        ),
        sort_by="Last seen",
    )
    return Panel(
        "Xids",
        "Driver errors since the exporter started. The runbook says what each of the alerting "
        "ones means; 79 is a GPU that fell off the bus.",
        chart,
        Values("none", no_value="none seen"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


HEALTH = numbers(
    "Health",
    "What the driver reports of this GPU; what it does not report is not shown.",
    (
        Number(
            "answers",
            "1 while the driver reads this GPU. 0: it is lost, hung or suspended.",
            select("gpu_up"),
            steps=((None, palette.RED), (1, palette.GREEN)),
        ),
        Number(
            "memory errors",
            "uncorrected ECC errors since the driver was loaded; each cost an application its "
            "data. Above 0: drain and reset the GPU.",
            f"sum({select('gpu_ecc_errors_total', severity='uncorrected')})",
            steps=FAULT,
        ),
        Number(
            "row remap pending",
            "1 while a bad memory row waits to be replaced at the next reset.",
            select("gpu_row_remap_pending"),
            steps=((None, palette.GREEN), (1, palette.AMBER)),
        ),
        Number(
            "recovery action",
            "what the driver asks for: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 "
            "drain and reset.",
            select("gpu_recovery_action"),
            steps=FAULT,
        ),
        Number(
            "NVLinks down",
            "links that carry no traffic. Above 0 on an NVSwitch system: collectives are slow or "
            "fail.",
            select("gpu_nvlink_links", state="inactive"),
            steps=FAULT,
        ),
        Number(
            "PCIe lanes missing",
            "fewer than GPU and slot can use: a bad seat or riser.",
            f"{select('gpu_pcie_link_width_max')} - {select('gpu_pcie_link_width')}",
            steps=FAULT,
        ),
    ),
)
REPLAYS = Panel(
    "Link and memory errors",
    "Rates of errors that cost time, not data: PCIe replays, NVLink errors, corrected memory "
    "errors. A steady rate is a link or board that goes bad.",
    Lines(width=1, soft_maximum=1),
    Values("suffix:/s", 0),
    (
        Query(rate("gpu_pcie_replays_total"), "PCIe replays"),
        Query(f"sum without (kind) ({rate('gpu_nvlink_errors_total')})", "NVLink errors"),
        Query(
            f"sum without (location) ({rate('gpu_ecc_errors_total', severity='corrected')})",
            "corrected memory errors",
        ),
    ),
)

ROWS = (
    Row("Whose work", (of_one_gpu(),)),
    Row("Units", UNITS),
    Row("Work and memory", WORK),
    Row("Clocks, throttling and power", CLOCKS),
    Row("Temperature and links", LINKS),
    Row("Health", (HEALTH, _xids(), REPLAYS)),
)
