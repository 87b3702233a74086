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
from dashboards.promql import (
    DEVICE,
    LABELS,
    by_holder,
    by_holders,
    held_idle_for,
    increase,
    rate,
    select,
)
from dashboards.tables import Column, table

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
HELD_KWH = (
    f"({increase('gpu_idle_energy_joules_total')} * {increase('gpu_held_idle_seconds_total')}"
    f" / ({increase('gpu_idle_seconds_total')} > 0) / {JOULES_PER_KWH})"
)
"""The idle energy, by the part of the idle time in which somebody held the GPU."""
NO_KWH = f"0 * {increase('gpu_idle_energy_joules_total')}"
"""Where no GPU was idle, if energy is counted at all."""
IDLE_FOR = held_idle_for()
BY_OWNER = "owner, class"
OWNER_HOURS = f"(sum by ({BY_OWNER}) ({by_holders(HELD_HOURS, HELD_IDLE, BY_OWNER)}) > {NOTHING})"
OWNER_KWH = f"sum by ({BY_OWNER}) ({by_holders(HELD_KWH, HELD_IDLE, BY_OWNER)}) and {OWNER_HOURS}"


def _above(least: float) -> tuple[Step, ...]:
    """Return the colours of a loss: grey while it is written as 0."""
    return ((None, palette.GREY), (least, palette.ORANGE))


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
            f"sum({HELD_KWH}) or sum({NO_KWH})",
            unit="kwatth",
            decimals=2,
            steps=_above(0.005),
        ),
        Number(
            "of all GPU time",
            "of the GPUs of which it can be known; a few percent are normal: jobs start and end.",
            f"sum({increase('gpu_held_idle_seconds_total')}) / "
            f"(sum(max without (reading) ({increase('gpu_observed_seconds_total')}) "
            f"and on ({DEVICE}) {increase('gpu_held_idle_seconds_total')}) > 0)",
            unit="percentunit",
            decimals=1,
            steps=_above(0.0005),
        ),
    ),
    max_points=120,
)


def _owners() -> Panel:
    chart, queries, steps, overrides = table(
        (
            Column("Owner", label="owner"),
            Column("Class", label="class"),
            Column("GPU-hours", expression=OWNER_HOURS, unit="none", decimals=2, width=120),
            Column("Cost", expression=f"{OWNER_HOURS} * $price", unit="none", decimals=2, width=90),
            Column("Energy", expression=OWNER_KWH, unit="kwatth", decimals=2, width=100),
        ),
        sort_by="GPU-hours",
    )
    return Panel(
        "Held idle, by owner",
        "The GPU-hours, cost and energy of *Held idle* by who held each GPU in the range shown, as "
        "it was at up to 120 moments of it and is now. An empty owner is a process that the "
        "exporter cannot see.",
        chart,
        Values("none", no_value="nobody held an idle GPU"),
        queries,
        width=10,
        height=9,
        overrides=overrides,
        transformations=steps,
        max_points=120,
    )


def _now() -> Panel:
    who = f"max by ({DEVICE}, owner, command, class) ({select('gpu_holder_info')})"
    idle_for = f"max by ({LABELS}) ({IDLE_FOR})"
    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("GPU", label="gpu", width=60, link=navigation.gpu_of_row()),
            Column("Owner", label="owner", width=100),
            Column("Command", label="command"),
            Column("Class", label="class", width=90),
            Column(
                "Idle for",
                width=130,
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


OVER_TIME = Panel(
    "GPUs held idle, by owner",
    "How many GPUs each owner held idle at each moment. A block that begins every evening and "
    "ends every morning is a notebook that stays open.",
    Lines(fill=60, width=0, stacked="normal"),
    Values("none", minimum=0, no_value="none up to the last step"),
    (Query(f"sum by (owner) ({by_holder(HELD_IDLE, 'owner')}) > 0.01", "{{owner}}"),),
)
SPLIT = Panel(
    "What the GPUs do",
    "The chosen GPUs at each moment: in use, held idle, idle and free; without those of which "
    "it is not known. Held idle while jobs queue is paid for and kept from others.",
    Lines(fill=60, width=0, stacked="normal"),
    Values("none", minimum=0),
    (
        Query(
            f"sum((max without (reading) ({rate('gpu_observed_seconds_total')}) "
            f"and on ({DEVICE}) {HELD_IDLE}) - on ({DEVICE}) {KNOWN_IDLE})",
            "in use",
        ),
        Query(f"sum({HELD_IDLE})", "held idle"),
        Query(f"sum({KNOWN_IDLE} - on ({DEVICE}) {HELD_IDLE})", "free"),
    ),
    overrides=colored(
        {
            "in use": palette.STATES["busy"],
            "held idle": palette.STATES["held idle"],
            "free": palette.STATES["free"],
        }
    ),
)


def _nodes() -> Panel:
    hours = f"sum by (instance) ({HELD_HOURS})"
    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("GPU-hours", expression=hours, unit="none", decimals=2, width=110),
            Column("Cost", expression=f"{hours} * $price", unit="none", decimals=2, width=90),
            Column(
                "Energy",
                expression=f"sum by (instance) ({HELD_KWH}) or sum by (instance) ({NO_KWH})",
                unit="kwatth",
                decimals=2,
                width=110,
            ),
        ),
        sort_by="GPU-hours",
    )
    return Panel(
        "Held idle, by node",
        "GPU-hours, cost and energy by node, in the range shown. One node far above the others: "
        "look for the one user or service that is only there.",
        chart,
        Values("none"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


def _gpus() -> Panel:
    def rows(expression: str) -> str:
        return f"max by ({LABELS}) ({expression}) and on ({DEVICE}) ({ALL_HOURS} > 0)"

    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("GPU", label="gpu", width=60, link=navigation.gpu_of_row()),
            Column("Idle", expression=rows(ALL_HOURS), unit="suffix:h", decimals=2, width=90),
            Column(
                "Held idle", expression=rows(HELD_HOURS), unit="suffix:h", decimals=2, width=100
            ),
            Column(
                "Cost", expression=rows(f"{HELD_HOURS} * $price"), unit="none", decimals=2, width=90
            ),
            Column("Energy", expression=rows(HELD_KWH), unit="kwatth", decimals=2, width=100),
        ),
        sort_by="Held idle",
    )
    return Panel(
        "By GPU",
        "GPU-hours idle, the part of them in which somebody held the GPU, its cost and energy, in "
        "the range shown. Much idle and not held: there are more GPUs than work.",
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
    (HEAD, _now(), _owners(), OVER_TIME, SPLIT),
    (Row("Where", (_nodes(), _gpus())),),
    time_from="now-24h",
    refresh="1m",
)
