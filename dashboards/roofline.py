# SPDX-License-Identifier: Apache-2.0
"""Where each GPU's work lies under the ceilings of its GPU model, now and over time."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.model import (
    SHARE,
    Dashboard,
    Lines,
    Panel,
    Query,
    Row,
    Values,
)
from dashboards.promql import NODES, activity, measured_flops, roof, select
from dashboards.roofline_chart import (
    BASIS,
    GPU_COLORS,
    INTENSITY,
    PRECISION,
    SHOWN,
    TOP,
    with_model,
)
from dashboards.tables import Column, table

ROOF_STEPS = ((None, "transparent"), (0.6, palette.AMBER), (1.0, palette.GREEN))
ONE_LINE = f"{{{{instance}}}} {SHARE}"


def _of_models(expression: str) -> str:
    return f"({expression}) and on (job, instance, uuid) {select('gpu_info', name='$model')}"


def _trend(title: str, description: str, metric: str, unit: str, width: int = 8) -> Panel:
    return Panel(
        title,
        description,
        Lines(width=1),
        Values(unit, minimum=0, links=(navigation.gpu_of_series(),)),
        (Query(_of_models(metric), ONE_LINE),),
        width=width,
        overrides=GPU_COLORS,
    )


def _distance(title: str, description: str, basis: str) -> Panel:
    return Panel(
        title,
        description,
        Lines(thresholds_drawn=True, width=1, soft_maximum=1.05),
        Values(
            "percentunit",
            minimum=0,
            steps=ROOF_STEPS,
            no_value="not known",
            links=(navigation.gpu_of_series(),),
        ),
        (Query(_of_models(roof(basis)), ONE_LINE),),
        width=8,
        overrides=GPU_COLORS,
    )


ROOFS = (
    _distance(
        "Fraction of the achievable roof",
        "How close each GPU is to what the best public kernels reach on it: on the green line "
        "nothing is left to gain on this GPU at this work. Above it the clocks exceed those of the "
        "measurement. A GPU that is low here for long: look at its limiter. No line: nobody has "
        "published a measurement for its GPU model and precision; see the datasheet beside it.",
        "achievable",
    ),
    _distance(
        "Fraction of the roof at the current clock",
        "The distance to the datasheet roof scaled to the clocks of the moment, which is the "
        "saturation. Much higher here than against the datasheet: the clocks are down, see the "
        "throttle reasons of that GPU.",
        "clock",
    ),
    _distance(
        "Fraction of the datasheet roof",
        "How close each GPU is to its datasheet, dense, at the clock that the datasheet states. "
        "Above the green line the clocks exceed it. The best kernels of a GPU model end below it.",
        "spec",
    ),
)


def _peak(basis: str) -> str:
    flops = select("gpu_peak_flops_per_second", NODES, basis=basis, precision="$precision")
    return f"max by (model, precision) ({with_model(flops)})"


def _ridge() -> str:
    bandwidth = select("gpu_peak_memory_bandwidth_bytes_per_second", NODES, basis="spec")
    return f"{_peak('spec')} / on (model) group_left () max by (model) ({with_model(bandwidth)})"


def _ceiling_table() -> Panel:
    chart, queries, steps, overrides = table(
        (
            Column("GPU model", label="model"),
            Column("Precision", label="precision"),
            Column("Datasheet", expression=_peak("spec"), unit="si:FLOP/s"),
            Column("Achievable", expression=_peak("achievable"), unit="si:FLOP/s"),
            Column("Ridge", expression=_ridge(), unit="suffix:FLOP/B", decimals=1),
        ),
        sort_by="Datasheet",
    )
    return Panel(
        "Ceilings",
        "The ceilings of the chosen GPU models and precisions, dense. Work with an intensity below "
        "the ridge is limited by memory bandwidth, above it by compute. Achievable is - where "
        "nobody has published a measurement.",
        chart,
        Values("none"),
        queries,
        width=24,
        height=6,
        overrides=overrides,
        transformations=steps,
    )


PAGE = Dashboard(
    navigation.ROOFLINE,
    "GPU roofline",
    "Each GPU's work against the ceilings of its GPU model: how far it is from which roof.",
    (*navigation.SCOPE, navigation.MODEL, PRECISION, BASIS, SHOWN),
    TOP,
    (
        Row("Fraction of the roof over time", ROOFS),
        Row(
            "Work",
            (
                _trend(
                    "Throughput",
                    "Operations per second. Vector work is counted as if every instruction were "
                    "an FMA: an upper estimate where tensor cores idle.",
                    measured_flops(),
                    "si:FLOP/s",
                ),
                _trend(
                    "Memory traffic",
                    "Bytes per second between device memory and GPU. Flat at the bandwidth of the "
                    "GPU model: limited by memory, more FLOP/s come only with less traffic.",
                    activity("gpu_dram_bytes_total"),
                    "Bps",
                ),
                _trend(
                    "Arithmetic intensity",
                    "Operations per byte of memory traffic. Compare it with the ridge below: "
                    "higher is limited by compute, lower by memory.",
                    INTENSITY,
                    "suffix:FLOP/B",
                ),
            ),
        ),
        Row("Ceilings", (_ceiling_table(),)),
    ),
)
