# SPDX-License-Identifier: Apache-2.0
"""The columns of the table: what each shows, in which words, and which go first."""

from __future__ import annotations

from dataclasses import replace

from exporter.cli.status.answer import Line
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column

EN_DASH = "\N{EN DASH}"
GIB = 2**30
SATURATED_RATIO = 0.8
"""From here on a value is painted as good."""
LONG_IDLE_SECONDS = 60.0
"""From here on a GPU that is held idle is painted as a warning."""

LONG_STALL_RATIO = 0.1
"""From here on a GPU that waits for data is painted as a warning."""


def duration(seconds: float) -> str:
    """Return a length of time in two units at most: 12s, 5m03s, 1h02m, 3d04h."""
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def _percent(ratio: float | None) -> Cell:
    return UNKNOWN if ratio is None else Cell(f"{100 * ratio:.0f} %")


def _saturation(line: Line) -> Cell:
    """Show a measured value as one number; an estimate as its bounds, even if they are close."""
    ratio, bounds = line.saturation_ratio, line.saturation_bounds
    if ratio is not None:
        return Cell(_percent(ratio).text, "good" if ratio >= SATURATED_RATIO else "")
    if bounds is None:
        return UNKNOWN
    lower, upper = (f"{100 * ratio:.0f}" for ratio in bounds)
    return Cell(f"{lower}{EN_DASH}{upper} %")


def _source(line: Line) -> Cell:
    return UNKNOWN if line.saturation_source is None else Cell(line.saturation_source)


def _unit(line: Line) -> Cell:
    return UNKNOWN if line.saturation_unit is None else Cell(line.saturation_unit)


def _limiter(line: Line) -> Cell:
    if line.limiter is None:
        return UNKNOWN
    if line.limiter == "idle" and line.idle is False:
        return Cell("often idle", "faint")
    return Cell(line.limiter, "faint" if line.limiter in ("idle", "unknown") else "")


def _data_stall(line: Line) -> Cell:
    """Show S, or that it is at most W where the job cannot measure S."""
    stall = line.data_stall
    if stall is None:
        return UNKNOWN
    percent = _percent(stall.ratio).text
    return Cell(
        percent if stall.measured else f"<= {percent}",
        "warning" if stall.measured and stall.ratio >= LONG_STALL_RATIO else "",
    )


def _gibibytes(size: float) -> str:
    gibibytes = size / GIB
    return f"{gibibytes:.1f}" if 0 < gibibytes < 9.95 else f"{gibibytes:.0f}"


def _of(used: str | None, total: str | None) -> Cell:
    """Show one value against its limit, either of which may be unknown."""
    return UNKNOWN if used is None and total is None else Cell(f"{used or '-'}/{total or '-'}")


def _memory(line: Line) -> Cell:
    used, total = line.memory_used_bytes, line.memory_total_bytes
    return _of(
        None if used is None else _gibibytes(used), None if total is None else _gibibytes(total)
    )


def _power(line: Line) -> Cell:
    if not line.is_board:
        return NOTHING
    watts, limit = line.power_watts, line.power_limit_watts
    return _of(None if watts is None else f"{watts:.0f}", None if limit is None else f"{limit:.0f}")


def _temperature(line: Line) -> Cell:
    if not line.is_board:
        return NOTHING
    celsius = line.temperature_celsius
    return UNKNOWN if celsius is None else Cell(f"{celsius:.0f} °C")


def _idle(line: Line) -> Cell:
    """Show for how long it has been idle and whether somebody holds it all the while."""
    if not line.idle:
        return UNKNOWN if line.idle is None else Cell("not idle")
    seconds = line.idle_for_seconds
    length = "idle" if seconds is None else duration(seconds)
    if line.held is None:
        return Cell(length)
    is_waste = line.held and seconds is not None and seconds >= LONG_IDLE_SECONDS
    return Cell(f"{length} {'held' if line.held else 'free'}", "warning" if is_waste else "")


def _held_idle(line: Line) -> Cell:
    seconds = line.held_idle_seconds
    return UNKNOWN if seconds is None else Cell(duration(max(0.0, seconds)))


def _holder(line: Line) -> Cell:
    holder = line.holder
    if holder is None:
        return UNKNOWN
    who = ": ".join(filter(None, (holder.owner, holder.command)))
    return Cell(" ".join(filter(None, (who, f"({holder.kind})" if holder.kind else ""))))


def _of_share(column: Column[Line]) -> Column[Line]:
    """Leave the column empty on the line of a GPU whose work its instances show."""

    def cell(line: Line) -> Cell:
        return column.cell(line) if line.is_share else NOTHING

    return replace(column, cell=cell)


COLUMNS: tuple[Column[Line], ...] = (
    Column("GPU", lambda line: Cell(line.gpu), 1, most=17),
    Column(
        "NAME",
        lambda line: Cell(line.name if line.is_board else f"  {line.name}"),
        6,
        least=8,
        most=32,
        shrinks=True,
        whole_before=12,
    ),
    _of_share(
        Column(
            "UTIL", lambda line: _percent(line.utilization_ratio), 2, least=5, most=7, right=True
        )
    ),
    _of_share(Column("SAT", _saturation, 3, least=8, most=14, right=True)),
    _of_share(Column("SOURCE", _source, 9, least=8, most=16)),
    _of_share(Column("UNIT", _unit, 14, least=6, most=10)),
    _of_share(Column("LIMITER", _limiter, 4, least=7, most=14)),
    _of_share(Column("DATA STALL", _data_stall, 5, least=8, most=10, right=True)),
    _of_share(
        Column("ROOF", lambda line: _percent(line.roof_ratio), 12, least=5, most=7, right=True)
    ),
    _of_share(Column("MEM GiB", _memory, 7, least=7, most=15, right=True)),
    Column("POWER W", _power, 10, least=7, most=15, right=True),
    Column("TEMP", _temperature, 11, least=5, most=8, right=True),
    _of_share(Column("IDLE", _idle, 8, least=10, most=14)),
    _of_share(
        Column(
            "HOLDER",
            _holder,
            13,
            least=16,
            most=48,
            shrinks=True,
        )
    ),
    _of_share(Column("HELD IDLE", _held_idle, 15, least=6, most=9, right=True)),
)
"""In the order of the line. The ranks are by what the three questions of the exporter are about,
then by what nvidia-smi shows."""
