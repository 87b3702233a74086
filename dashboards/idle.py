# SPDX-License-Identifier: Apache-2.0
"""Who holds GPUs and does nothing with them, for how long, and what that costs."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.model import (
    Dashboard,
    Lines,
    Panel,
    Query,
    Row,
    Step,
    Values,
    Variable,
    colored,
)
from dashboards.numbers import Number, numbers
from dashboards.owners import TEAM, WORKLOAD, Naming, divided, holder, of_owner
from dashboards.promql import (
    DEVICE,
    LABELS,
    free,
    held_idle_for,
    increase,
    rate,
    select,
    unopened,
)
from dashboards.tables import WHICH_GPU, Column, table
from dashboards.workload_tables import unopened_now

PRICE = Variable(
    "price",
    "Price of a GPU-hour",
    "2.50",
    kind="textbox",
    many=False,
    current=("2.50",),
    description="In your currency; costs are GPU-hours times this.",
)
NOTHING = 0.001
"""GPU-hours that are not worth a row."""
JOULES_PER_KWH = 3_600_000

HELD_IDLE = rate("gpu_held_idle_seconds_total")
KNOWN_IDLE = rate("gpu_idle_seconds_total")
HELD_HOURS = f"({increase('gpu_held_idle_seconds_total')} / 3600)"
ALL_HOURS = f"({increase('gpu_idle_seconds_total')} / 3600)"
HELD_WATTS = rate("gpu_held_idle_energy_joules_total")
HELD_KWH = f"({increase('gpu_held_idle_energy_joules_total')} / {JOULES_PER_KWH})"
IDLE_FOR = held_idle_for()
USED_HOURS = (
    f"(((sum without (limiter) ({increase('gpu_limited_seconds_total')}) "
    f"and on ({DEVICE}) {increase('gpu_idle_seconds_total')}) "
    f"- on ({DEVICE}) {increase('gpu_idle_seconds_total')}) / 3600)"
)
IN_USE = (
    f"((sum without (limiter) ({rate('gpu_limited_seconds_total')}) "
    f"and on ({DEVICE}) {HELD_IDLE}) - on ({DEVICE}) {KNOWN_IDLE})"
)
UNOPENED = rate("gpu_allocated_unopened_seconds_total")
UNOPENED_HOURS = f"({increase('gpu_allocated_unopened_seconds_total')} / 3600)"


def _either(held: str, never: str) -> str:
    """Return the sum of both; where only one is known, that."""
    both = f"{held} + on ({DEVICE}) {never}"
    return f"({both} or on ({DEVICE}) {held} or on ({DEVICE}) {never})"


LOST = _either(HELD_IDLE, UNOPENED)
LOST_HOURS = _either(HELD_HOURS, UNOPENED_HOURS)
"""Held idle or never opened: what is paid for."""
LOST_BY_GPU = f"{HELD_HOURS} + {UNOPENED_HOURS} or {HELD_HOURS} or {UNOPENED_HOURS}"
"""The same with all labels of the GPU."""
IDLE_FREE = f"({KNOWN_IDLE} - on ({DEVICE}) {HELD_IDLE})"
"""The idle time in which nobody held a GPU: given away, or free."""
IDLE_UNOPENED = (
    f"(({UNOPENED} < on ({DEVICE}) {IDLE_FREE}) "
    f"or on ({DEVICE}) ({IDLE_FREE} and on ({DEVICE}) {UNOPENED}))"
)
"""The part of it in which a scheduler had given it away: never more than all of it."""


def _above(least: float) -> tuple[Step, ...]:
    """Return the colours of a loss: grey while it is written as 0."""
    return ((None, palette.GREY), (least, palette.ORANGE))


UNOPENED_NOW = f"sum({unopened()})"
HEAD = numbers(
    "Held idle",
    "GPUs that somebody holds and that do nothing: now, and in the range shown.",
    (
        Number(
            "GPUs now",
            "held and without any work for half a minute or longer.",
            f"count({IDLE_FOR}) or sum(0 * {select('gpu_held')})",
            steps=((None, palette.GREY), (1, palette.ORANGE)),
        ),
        Number(
            "longest now",
            "for how long the first of them has done nothing. The alert GpuHeldIdle follows after "
            "about half an hour, and after hours for notebooks and servers.",
            f"max({IDLE_FOR}) or max(0 * {select('gpu_held')})",
            unit="s",
            steps=((None, palette.GREY), (1800, palette.ORANGE), (7200, palette.RED)),
        ),
        Number(
            "GPU-hours",
            "kept from others and not used.",
            f"sum({HELD_HOURS})",
            unit="suffix:h",
            decimals=1,
            steps=_above(0.05),
        ),
        Number(
            "cost",
            "these GPU-hours times the price of one, in your currency.",
            f"sum({HELD_HOURS}) * $price",
            decimals=2,
            steps=_above(0.005),
        ),
        Number(
            "energy",
            "what GPUs drew meanwhile.",
            f"sum({HELD_KWH})",
            unit="kwatth",
            decimals=2,
            steps=_above(0.005),
        ),
        Number(
            "of all GPU time",
            "of the GPUs of which it can be known; a few percent are normal: jobs start and end.",
            f"sum({increase('gpu_held_idle_seconds_total')}) / "
            f"(sum(sum without (limiter) ({increase('gpu_limited_seconds_total')}) "
            f"and on ({DEVICE}) {increase('gpu_held_idle_seconds_total')}) > 0)",
            unit="percentunit",
            decimals=1,
            steps=_above(0.0005),
        ),
    ),
    max_points=120,
)


def _hours(title: str, header: str, description: str, naming: Naming, *more: Column) -> Panel:
    """Return the table of GPU-hours by state and what they cost, by an owner."""

    def of_owners(total: str, weight: str) -> str:
        return f"(sum by (owner) ({divided(total, weight, naming)}) > {NOTHING})"

    chart, queries, steps, overrides = table(
        (
            Column(header, label="owner"),
            *(
                Column(state, expression=of_owners(*of), unit="suffix:h", decimals=2, width=width)
                for state, width, of in (
                    ("In use", 85, (USED_HOURS, IN_USE)),
                    ("Held idle", 90, (HELD_HOURS, HELD_IDLE)),
                    ("Never opened", 120, (UNOPENED_HOURS, UNOPENED)),
                )
            ),
            Column(
                "Cost",
                expression=f"{of_owners(LOST_HOURS, LOST)} * $price",
                unit="none",
                decimals=2,
                width=85,
            ),
            *more,
        ),
        sort_by="Cost",
    )
    return Panel(
        title,
        description,
        chart,
        Values("none", no_value="nobody held a GPU"),
        queries,
        width=12,
        height=10,
        overrides=overrides,
        transformations=steps,
        max_points=120,
    )


STATES = (
    "GPU-hours in use, held idle, and given away but never opened, in the range shown, with what "
    "the last two cost. Divided among owners by up to 120 moments of the range and now."
)
OWNERS = _hours(
    "GPU-hours by owner",
    "Owner",
    f"{STATES} An owner is a pod, a Slurm job or a container where one is known, else the user of "
    "the process; several on one GPU are a number of workloads. Owner -: a process that the "
    "exporter cannot see. The energy is that drawn while held idle.",
    WORKLOAD,
    Column(
        "Energy",
        expression=f"sum by (owner) ({divided(HELD_KWH, HELD_WATTS)}) > 0",
        unit="kwatth",
        decimals=2,
        width=100,
    ),
)
TEAMS = _hours(
    "GPU-hours by namespace or user",
    "Namespace or user",
    f"{STATES} By the namespace of a pod, the user of a Slurm job, else as by owner.",
    TEAM,
)


def _now() -> Panel:
    who = holder("owner, command, class")
    idle_for = f"max by ({LABELS}) ({IDLE_FOR})"
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Owner", label="owner"),
            Column("Command", label="command"),
            Column("Class", label="class", width=85),
            Column(
                "Idle for",
                width=105,
                expression=f"{idle_for} * on ({DEVICE}) group_left (owner, command, class) {who}",
                unit="dtdurations",
                decimals=0,
            ),
            Column(
                "Memory held",
                width=110,
                expression=f"max by ({LABELS}) ({select('gpu_memory_used_bytes')}) "
                f"and on ({DEVICE}) {idle_for}",
                unit="bytes",
                decimals=0,
            ),
        ),
        sort_by="Idle for",
    )
    return Panel(
        "Held idle now",
        "GPUs that somebody holds and that have done nothing for half a minute or longer, "
        "longest first. Ask the owner to end the process: a notebook's kernel runs on until it is "
        "shut down, even if the browser is closed.",
        chart,
        Values("none", no_value="nobody holds an idle GPU"),
        queries,
        width=14,
        height=9,
        overrides=overrides,
        transformations=steps,
    )


UNOPENED_HEAD = numbers(
    "Never opened",
    "GPUs that a scheduler has given away and that no process holds: now, and in the range shown. "
    "No reading: no scheduler says to whom GPUs are given.",
    (
        Number(
            "GPUs now",
            "given away and not opened. The alert GpuAllocatedUnopened follows after about half an "
            "hour.",
            UNOPENED_NOW,
            steps=((None, palette.GREY), (1, palette.ORANGE)),
        ),
        Number(
            "GPU-hours",
            "kept from others and not opened; to tools that look at processes such a GPU is free.",
            f"sum({UNOPENED_HOURS})",
            unit="suffix:h",
            decimals=1,
            steps=_above(0.05),
        ),
        Number(
            "cost",
            "these GPU-hours times the price of one, in your currency.",
            f"sum({UNOPENED_HOURS}) * $price",
            decimals=2,
            steps=_above(0.005),
        ),
        Number(
            "free GPUs now",
            "neither held nor given away: what others can have.",
            f"sum({free()})",
        ),
    ),
    max_points=120,
)
OVER_TIME = Panel(
    "GPUs held idle, by owner",
    "How many GPUs each owner held idle at each moment. A block that begins every evening and "
    "ends every morning is a notebook that stays open.",
    Lines(fill=60, width=0, stacked="normal"),
    Values("none", minimum=0, no_value="none up to the last step"),
    (Query(f"sum by (owner) ({of_owner(HELD_IDLE)}) > 0.01", "{{owner}}"),),
)
SPLIT = Panel(
    "What the GPUs do",
    "The chosen GPUs at each moment: in use, held idle, given away but not opened, and free; "
    "without those of which it is not known. Held idle and not opened while jobs queue is paid for "
    "and kept from others. Where no scheduler says, what is not opened shows as free.",
    Lines(fill=60, width=0, stacked="normal"),
    Values("none", minimum=0),
    (
        Query(f"sum({IN_USE})", "in use"),
        Query(f"sum({HELD_IDLE})", "held idle"),
        Query(f"sum({IDLE_UNOPENED})", "not opened"),
        Query(
            f"sum({IDLE_FREE} - on ({DEVICE}) {IDLE_UNOPENED} or on ({DEVICE}) {IDLE_FREE})",
            "free",
        ),
    ),
    overrides=colored(
        {
            "in use": palette.STATES["busy"],
            "held idle": palette.STATES["held idle"],
            "not opened": palette.STATES["unopened"],
            "free": palette.STATES["free"],
        }
    ),
)


def _nodes() -> Panel:
    hours = f"sum by (instance) ({HELD_HOURS})"
    never = f"sum by (instance) ({UNOPENED_HOURS})"
    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("Held idle", expression=hours, unit="suffix:h", decimals=2, width=100),
            Column("Never opened", expression=never, unit="suffix:h", decimals=2, width=120),
            Column(
                "Cost",
                expression=f"({hours} + {never} or {hours} or {never}) * $price",
                unit="none",
                decimals=2,
                width=90,
            ),
            Column(
                "Energy",
                expression=f"sum by (instance) ({HELD_KWH})",
                unit="kwatth",
                decimals=2,
                width=110,
            ),
        ),
        sort_by="Cost",
    )
    return Panel(
        "By node",
        "GPU-hours held idle and never opened, what they cost, and the energy drawn while held "
        "idle, by node, in the range shown. One node far above the others: look for the one user "
        "or service that is only there.",
        chart,
        Values("none"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


def _gpus() -> Panel:
    def rows(expression: str) -> str:
        some = f"({ALL_HOURS} > 0 or {UNOPENED_HOURS} > 0)"
        return f"max by ({LABELS}) ({expression}) and on ({DEVICE}) {some}"

    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Idle", expression=rows(ALL_HOURS), unit="suffix:h", decimals=2, width=75),
            Column("Held idle", expression=rows(HELD_HOURS), unit="suffix:h", decimals=2, width=90),
            Column(
                "Never opened",
                expression=rows(UNOPENED_HOURS),
                unit="suffix:h",
                decimals=2,
                width=110,
            ),
            Column(
                "Cost",
                expression=rows(f"({LOST_BY_GPU}) * $price"),
                unit="none",
                decimals=2,
                width=75,
            ),
            Column("Energy", expression=rows(HELD_KWH), unit="kwatth", decimals=2, width=90),
        ),
        sort_by="Cost",
    )
    return Panel(
        "By GPU",
        "GPU-hours idle, the parts of them in which somebody held the GPU or had it without "
        "opening it, what these cost, and the energy drawn while held idle, in the range shown. "
        "Much idle and neither: there are more GPUs than work.",
        chart,
        Values("none", no_value="no GPU was idle"),
        queries,
        overrides=overrides,
        transformations=steps,
        max_points=120,
    )


PAGE = Dashboard(
    navigation.IDLE,
    "GPU idle and cost",
    "GPUs that somebody holds and does not use: who, where, for how long, at what cost.",
    (*navigation.SCOPE, PRICE),
    (HEAD, UNOPENED_HEAD, _now(), unopened_now(), OWNERS, TEAMS, OVER_TIME, SPLIT),
    (Row("Where", (_nodes(), _gpus())),),
    time_from="now-24h",
    refresh="1m",
)
