# SPDX-License-Identifier: Apache-2.0
"""How many GPUs do useful work, what holds the others back, and which ones to look at first."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.fleet_tables import NOTHING, exporters, inventory, worst
from dashboards.model import (
    SHARE,
    Bars,
    Dashboard,
    Lines,
    Override,
    Panel,
    Query,
    Row,
    States,
    Values,
    colored,
)
from dashboards.numbers import Number, numbers
from dashboards.owners import lost_hours_by_owner
from dashboards.promql import (
    DEVICE,
    flops_per_joule,
    free,
    held_idle_for,
    idle,
    limited,
    limiter_number,
    lost_hours,
    near_its_roof,
    rate,
    saturation,
    saturation_bound,
    select,
    time_parts,
    unopened,
    utilization,
)
from dashboards.serving_row import SERVING
from dashboards.workload_tables import of_the_fleet

STARVED = 0.2
"""Above this share of time without data a job counts as starved."""


def _counted(state: str, meaning: str, expression: str) -> Number:
    steps = ((None, palette.GREY), (1, palette.STATES[state]))
    return Number(state, meaning, expression, steps=steps)


COUNTS = numbers(
    "GPUs now",
    "What the chosen GPUs do; one GPU can be counted more than once.",
    (
        Number(
            "all",
            "known to the exporters that answer, including those that are lost.",
            f"count({select('gpu_up')})",
        ),
        _counted(
            "near its roof",
            "saturation of 80 % or more, whatever the GPU model, and not throttled. This is what "
            "GPUs are bought for. Only GPUs with hardware counters can be.",
            f"sum({near_its_roof()})",
        ),
        _counted(
            "busy",
            "not idle most of the time. Many more than are near their roof: look at what limits "
            "them, not at their utilization.",
            f"sum(({idle()}) < bool 0.5)",
        ),
        _counted(
            "starved",
            "without data more than 20 % of the time. Their jobs are on the training dashboard.",
            f"sum(({limited('input')}) > bool {STARVED})",
        ),
        _counted(
            "held idle",
            "a process holds the GPU, which has done nothing for half a minute or longer. Ask its "
            "owner, who is on the dashboard of idle GPUs.",
            f"count({held_idle_for()}) or sum(0 * {select('gpu_held')})",
        ),
        _counted(
            "unopened",
            "a scheduler has given the GPU away, and no process holds it: kept from others and not "
            "used. To whom is on the dashboard of idle GPUs. No reading: no scheduler says.",
            f"sum({unopened()})",
        ),
        _counted(
            "free",
            "nobody holds the GPU or, as far as a scheduler says, was given it. While jobs queue, "
            "this is the scheduler's business.",
            f"sum({free()})",
        ),
        _counted(
            "lost",
            "does not answer. See the Xids of that GPU, and the runbook.",
            f"sum({select('gpu_up')} == bool 0)",
        ),
        Number(
            "GPU-hours lost",
            "of the range shown: somebody held a GPU and no unit of it was the limit. Below, by "
            "limiter and by owner.",
            f"sum({lost_hours()})",
            unit="suffix:h",
            decimals=1,
        ),
    ),
    max_points=120,
)

LIMITER_TEXTS = tuple(
    (str(number), name, color) for number, (name, color) in enumerate(palette.NUMBERED.items())
)
TIMELINE = Panel(
    "What limits each GPU",
    "For each GPU the limiter that held more than half of each moment; mixed where none did. "
    "Green and blue are good: the GPU itself is the limit. Grey is idle, pink waits for data, "
    "amber runs kernels that fill no unit, orange is throttled, purple waits for other GPUs, red "
    "does not answer. A gap: its exporter was down.",
    States(rows=16),
    Values("none", texts=LIMITER_TEXTS, links=(navigation.gpu_of_series(),)),
    (Query(limiter_number(), f"{{{{instance}}}} {SHARE}"),),
    height=12,
)
SHARES = Panel(
    "What the fleet's time goes to",
    "Observed time of all chosen GPUs by what limited it. The green and blue part is what the "
    "fleet delivers; the largest other colour is the first thing to work on.",
    Lines(fill=80, width=0, stacked="percent"),
    Values("percentunit", minimum=0),
    (
        Query(
            f"sum by (limiter) ({rate('gpu_limited_seconds_total')})"
            f" / on () group_left () (sum({rate('gpu_limited_seconds_total')}) > 0)",
            "{{limiter}}",
        ),
    ),
    height=12,
    overrides=colored(palette.LIMITERS),
)


def _mean_saturation(bound: str) -> str:
    of_all = f"{saturation()} or {saturation_bound(bound)}"
    return f"avg(({of_all}) and on ({DEVICE}) {utilization()}) or avg({of_all})"


TWO_VIEWS = Panel(
    "Utilization beside saturation",
    "Means over the chosen GPUs whose utilization the driver reports (MIG instances have none); if "
    "it reports none, saturation is of all. Utilization says that some kernel ran, saturation how "
    "close the busiest unit was to its limit: between the lines is work that GPUs look busy with "
    "and do not do. Where saturation is only known in bounds, the lines bracket it.",
    Lines(),
    Values("percentunit", minimum=0, maximum=1),
    (
        Query(f"avg({utilization()})", "utilization"),
        Query(_mean_saturation("upper"), "saturation, at most"),
        Query(_mean_saturation("lower"), "saturation, at least"),
    ),
    overrides=(
        *colored(
            {"utilization": palette.UTILIZATION, "saturation": palette.SATURATION}, "/^{name}/"
        ),
        Override(
            "byName",
            "saturation, at most",
            (("custom.lineStyle", {"fill": "dash", "dash": [6, 4]}),),
        ),
    ),
)
PARTS = Panel(
    "Where time goes inside the GPUs",
    "Observed time in five parts: at its limit, lost to clocks, unsaturated (SMs occupied, no unit "
    "at its limit), narrow (kernels too small for all SMs), idle. Only GPUs whose counters are "
    "complete. Much amber: fuse or enlarge kernels; much grey: feed the GPU or give it back.",
    Lines(fill=80, width=0, stacked="percent"),
    Values("percentunit", minimum=0),
    (
        Query(
            f"{time_parts()} / on () group_left () (sum({rate('gpu_time_seconds_total')}) > 0)",
            "{{part}}",
        ),
    ),
    overrides=colored(palette.TIME_PARTS),
)
BY_LIMITER = Panel(
    "GPU-hours lost, by limiter",
    "Time in which somebody held a GPU and no unit of it was the limit, by what was, over the "
    "range shown.",
    Bars(),
    Values("suffix:h", decimals=2, minimum=0, no_value="nothing lost"),
    (
        Query(
            f"sort_desc(sum by (limiter) ({lost_hours()}) > {NOTHING})",
            "{{limiter}}",
            instant=True,
        ),
    ),
    overrides=colored(palette.LIMITERS),
    max_points=120,
)
BY_OWNER = Panel(
    "GPU-hours lost, by owner",
    "The same time by who held the GPU at each moment of the range shown: its pod, Slurm job or "
    "container where one is known, else the user. An empty name is a process that the exporter "
    "cannot see.",
    Bars(),
    Values("suffix:h", decimals=2, minimum=0, color=palette.ORANGE, no_value="nothing lost"),
    (
        Query(
            f"sort_desc(sum by (owner) ({lost_hours_by_owner()}) > {NOTHING})",
            "{{owner}}",
            instant=True,
        ),
    ),
    max_points=120,
)
POWER = Panel(
    "Power",
    "Power drawn by all chosen GPUs, and by those that are idle while somebody holds them.",
    Lines(fill=10),
    Values("watt", minimum=0),
    (
        Query(f"sum({rate('gpu_energy_joules_total')})", "all GPUs"),
        Query(
            f"sum({rate('gpu_energy_joules_total')} and on ({DEVICE}) "
            f"{held_idle_for()}) or sum(0 * {select('gpu_held')})",
            "held idle",
        ),
    ),
    overrides=colored({"all GPUs": palette.BLUE, "held idle": palette.ORANGE}),
)
EFFICIENCY = Panel(
    "Work per energy",
    "Operations per joule over the chosen GPUs whose operations are measured; the energy of others "
    "does not count. It falls when GPUs idle at full clocks and when work turns from tensor cores "
    "to vector units.",
    Lines(),
    Values("si:FLOP/J", minimum=0, color=palette.GREEN, no_value="no reading of hardware counters"),
    (Query(flops_per_joule(), "FLOP per joule"),),
)


PAGE = Dashboard(
    navigation.FLEET,
    "GPU fleet",
    "How many GPUs do useful work, what holds the others back, and which to look at first.",
    (*navigation.SCOPE, navigation.NAMESPACE),
    (COUNTS, TIMELINE, SHARES, worst()),
    (
        Row("Busy or useful", (TWO_VIEWS, PARTS)),
        Row("What is lost", (BY_LIMITER, BY_OWNER)),
        Row("Whose work", (of_the_fleet(),)),
        SERVING,
        Row("Power", (POWER, EFFICIENCY)),
        Row("Exporters", (exporters(), inventory())),
    ),
)
