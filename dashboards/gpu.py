# SPDX-License-Identifier: Apache-2.0
"""Everything about one GPU: what it does, what limits it, and how it is."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.gpu_details import NO_COUNTERS, NO_READING, ROWS
from dashboards.model import (
    OF_SHARE,
    Dashboard,
    Lines,
    Numbers,
    Override,
    Panel,
    Query,
    States,
    Step,
    Values,
    colored,
)
from dashboards.numbers import Number, numbers
from dashboards.owners import holder, whose
from dashboards.promql import (
    DEVICE,
    limiter_number,
    rate,
    roof,
    saturation,
    saturation_bound,
    select,
    time_parts,
    utilization,
)

LIMITER_TEXTS = tuple(
    (str(number), name, color) for number, (name, color) in enumerate(palette.NUMBERED.items())
)
ROOF_STEPS: tuple[Step, ...] = (
    (None, palette.GREY),
    (0.3, palette.AMBER),
    (0.6, palette.GREEN),
)


GIVEN = f"{select('gpu_allocated')} == 1"
HOLDER = " or ".join(
    (
        f'label_join({holder("owner, command, class")}, "who", ", ", "owner", "command", "class")',
        f"label_replace({whose()} and on ({DEVICE}) ({GIVEN} and {select('gpu_held')} == 0), "
        '"who", "given to $1", "owner", "(.*)")',
        f"label_replace({select('gpu_held')} == 0 unless on ({DEVICE}) {GIVEN}, "
        '"who", "nobody", "", "")',
        f'label_replace({select("gpu_up")} == 0, "who", "{NO_READING}", "", "")',
    )
)


def _text(title: str, description: str, expression: str, legend: str) -> Panel:
    return Panel(
        title,
        description,
        Numbers(text="name", size=20),
        Values("none"),
        (Query(expression, legend, instant=True),),
        width=4,
        height=4,
    )


HEAD = (
    _text(
        "GPU model",
        "What this GPU is. Its ceilings come from the spec file's row of this GPU model.",
        select("gpu_info"),
        "{{name}}",
    ),
    _text(
        "Held by",
        "Who holds this GPU: its pod, Slurm job or container where one is known, else the user; of "
        "its processes the one with the most memory, and its class. Given to: a scheduler has "
        "given it away, and no process holds it.",
        HOLDER,
        "{{who}}",
    ),
    Panel(
        "Limited by",
        "What limits this GPU for more than half of the time. Lost: it does not answer; "
        "see its Xids below.",
        Numbers(size=38),
        Values("none", texts=LIMITER_TEXTS, color="text", no_value=NO_READING),
        (Query(limiter_number(), "limiter", instant=True),),
        width=4,
        height=4,
    ),
    numbers(
        "Now",
        "What this GPU does.",
        (
            Number(
                "utilization",
                "share of time with any kernel resident: only that something ran.",
                utilization(),
                unit="percentunit",
                color=palette.UTILIZATION,
            ),
            Number(
                "saturation",
                "how close the busiest unit was to its limit: how much the GPU gives. Where it is "
                "not measured it lies between the next two.",
                saturation(),
                unit="percentunit",
                color=palette.SATURATION,
            ),
            Number(
                "saturation, at least",
                "shown only where it is not measured.",
                saturation_bound("lower"),
                unit="percentunit",
                color=palette.SATURATION,
            ),
            Number(
                "saturation, at most",
                "the same. Far above the lower bound: all that is known is that something ran.",
                saturation_bound("upper"),
                unit="percentunit",
                color=palette.SATURATION,
            ),
            Number(
                "achievable roof",
                "how close to what the best public kernels reach on this GPU model. Green from "
                "60 %: well-tuned training of large models is there. Not shown where nobody has "
                "published a measurement for the precision.",
                roof("achievable"),
                unit="percentunit",
                steps=ROOF_STEPS,
            ),
            Number(
                "datasheet roof",
                "how close to the datasheet, dense, at the clock that it states; the best kernels "
                "end below it.",
                roof("spec"),
                unit="percentunit",
            ),
            Number(
                "power", "mean from the energy counter.", rate("gpu_energy_joules_total"), "watt"
            ),
        ),
        width=12,
        size=28,
    ),
)

TWO_VIEWS = Panel(
    "Utilization beside saturation",
    "Blue: some kernel was resident. Orange: how close the busiest unit came to its limit, as a "
    "band where only bounds are known. A wide gap between blue and orange is time in which "
    "the GPU looks busy and gives little: small kernels, waiting, low clocks.",
    Lines(width=2),
    Values("percentunit", 0, 1),
    (
        Query(utilization(), f"utilization{OF_SHARE}"),
        Query(saturation(), f"saturation{OF_SHARE}"),
        Query(saturation_bound("upper"), f"at most{OF_SHARE}"),
        Query(saturation_bound("lower"), f"at least{OF_SHARE}"),
    ),
    height=9,
    overrides=(
        *colored(
            {
                "utilization": palette.UTILIZATION,
                "saturation": palette.SATURATION,
                "at most": palette.SATURATION,
                "at least": palette.SATURATION,
            }
        ),
        Override(
            "byRegexp",
            "/^at most/",
            (("custom.fillBelowTo", "at least"), ("custom.fillOpacity", 25)),
        ),
    ),
)
PARTS = Panel(
    "Time parts",
    "Where the time of this GPU goes: at its limit (a unit is full), clock (lost to lower clocks), "
    "unsaturated (SMs occupied, no unit full: latency, unfused kernels, collectives), narrow "
    "(kernels too small for all SMs), idle. Only where the counters are complete.",
    Lines(fill=80, width=0, stacked="percent"),
    Values("percentunit", 0, no_value=NO_COUNTERS),
    (Query(time_parts(), "{{part}}"),),
    height=9,
    overrides=colored(palette.TIME_PARTS),
)
TIMELINE = Panel(
    "Limiter",
    "What held more than half of each moment. Changes that follow a rhythm are phases of the job: "
    "evaluation, checkpoints, the start of an epoch.",
    States(),
    Values("none", texts=LIMITER_TEXTS),
    (Query(limiter_number(), f"limiter{OF_SHARE}"),),
    width=24,
    height=6,
)


PAGE = Dashboard(
    navigation.ONE_GPU,
    "GPU",
    "One GPU: utilization beside saturation, what limits it, clocks, power, links and health.",
    navigation.ONE,
    (*HEAD, TWO_VIEWS, PARTS, TIMELINE),
    ROWS,
)
