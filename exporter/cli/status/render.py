# SPDX-License-Identifier: Apache-2.0
"""The lines that ``status`` prints: title, notices, the table of GPUs in an order, advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from exporter.cli.terminal.screen import Screen, cells, clip, safe, wrapped
from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell, Column, laid_out
from exporter.model.reading import share_name
from exporter.model.snapshot import Snapshot
from exporter.web.facts import lines_of
from exporter.web.wording import short
from exporter.web.wording.diagnosis import causes
from exporter.web.wording.facts import Facts
from exporter.web.wording.measuring import sentences
from exporter.web.wording.numbers import model_name
from exporter.web.wording.phrases import critical, explained, title, unusual_window
from exporter.web.wording.recorded import notice, recording_ended
from exporter.web.wording.state import UNKNOWN as UNKNOWN_STATE
from exporter.web.wording.state import UNUSED, is_near_its_roof, stall_level, state, tone
from exporter.web.wording.summary import STATE_ORDER, TROUBLES, totals
from exporter.web.wording.whose import owner, unread_words


def _trouble(one: Facts) -> int:
    word = state(one)
    return STATE_ORDER.index(word) if word in STATE_ORDER else len(STATE_ORDER)


ORDERS: Mapping[str, Callable[[Facts], Any]] = {
    "trouble": _trouble,
    "gpu": lambda one: 0,
    "owner": lambda one: (owner(one) is None, owner(one) or ""),
    "utilization": lambda one: -(one.busy_ratio or 0.0),
    "saturation": lambda one: -one.saturation.ratio.lower if one.saturation else 0.0,
    "mfu": lambda one: -(one.mfu_ratio or 0.0),
    "idle": lambda one: (-(one.idle_seconds or 0.0), -(one.idle_ratio or 0.0)),
}
"""By name: what is compared, the least first; of equal ones, the first index."""


def _groups(found: Sequence[Facts]) -> list[list[Facts]]:
    """Return the GPUs; of one with MIG on, its board and then its instances."""
    groups: list[list[Facts]] = []
    for each in found:
        if each.instance is None or not groups:
            groups.append([])
        groups[-1].append(each)
    return groups


def ordered(found: Sequence[Facts], name: str) -> tuple[Facts, ...]:
    """Return the GPUs in an order of `ORDERS`, one with MIG on by the first of its instances."""
    key = ORDERS[name]
    groups = sorted(_groups(found), key=lambda group: min(map(key, group)))
    return tuple(chain.from_iterable(groups))


def fitted(found: Sequence[Facts], most: int) -> tuple[Sequence[Facts], Sequence[Facts]]:
    """Return the GPUs that get one of `most` lines, and those that one more line sums up.

    The calmest are summed up, and no GPU in trouble is, even if that takes more lines.
    """
    shown, summed = _groups(found), list[Facts]()
    calm = [group for group in shown if not {*map(state, group)} & {*TROUBLES}]
    calm.sort(key=lambda group: min(map(_trouble, group)))
    while calm and len(found) - len(summed) > most - bool(summed):
        shown.remove(calm[-1])
        summed += calm.pop()
    return (found, ()) if len(summed) < 2 else (tuple(chain.from_iterable(shown)), summed)


@dataclass(frozen=True, slots=True)
class View:
    """What ``status`` prints."""

    gpus: tuple[Facts, ...]
    """A line for each GPU and each MIG instance."""
    title: str
    window: str | None
    """The window of the means, if it is not 10 s."""
    driver: str | None
    notices: tuple[str, ...]
    causes: tuple[str, ...] = ()
    """Why GPUs are slow, and what to change."""
    measure: tuple[str, ...] = ()
    """Which GPUs could be measured better, and how."""


def view(
    snapshot: Snapshot, notices: Sequence[str] = (), *, since_start: bool = False, sort: str = "gpu"
) -> View:
    """Return the view of one snapshot, in an order of `ORDERS`.

    `since_start` hides idle times, which are not known.
    """
    found = tuple(line.facts for line in lines_of(snapshot))
    if since_start:
        found = tuple(
            replace(each, idle_seconds=None, held_idle_seconds=None, unopened_seconds=None)
            for each in found
        )
    devices = [gpu.device for gpu in snapshot.gpus]
    drivers = {each.driver_version for each in devices if each.driver_version}
    origin = notice({(each.source, each.driver_version) for each in devices})
    unread = () if recording_ended(snapshot.problem) else unread_words(snapshot.sources)
    grave = [f"{title(each)}: {explained(xid)}" for each in found for xid in critical(each)]
    problem = snapshot.problem
    return View(
        ordered(found, sort),
        totals(found),
        unusual_window(found),
        ", ".join(sorted(drivers)) or None,
        tuple(filter(None, (origin, *notices, *unread, *grave, problem))),
        tuple(causes(found, title)),
        tuple(sentences(found, title)),
    )


TONES = {"good": "good", "warn": "warning", "calm": "faint", "bad": "bad"}
"""By tone of a state: the tone in the terminal."""
_FAINT_LIMITERS = ("idle", "often idle", "unknown")


def _cell(text: str | None, painted: str = "") -> Cell:
    return Cell(text, painted) if text and text.strip() else UNKNOWN


def _name(facts: Facts) -> Cell:
    if facts.instance is None:
        return Cell(model_name(facts.name))
    return Cell(f"  {facts.profile or 'MIG'}")


def _state(facts: Facts) -> Cell:
    word = state(facts)
    return UNKNOWN if word == UNKNOWN_STATE else Cell(word, TONES.get(tone(word), ""))


def _saturation(facts: Facts) -> Cell:
    return _cell(short.saturation(facts), "good" if is_near_its_roof(facts.saturation) else "")


def _limiter(facts: Facts) -> Cell:
    text = short.limiter(facts)
    return _cell(text, "faint" if text in _FAINT_LIMITERS else "")


def _data_stall(facts: Facts) -> Cell:
    stall = facts.data_stall
    is_high = stall is not None and stall_level(stall) == "high"
    return _cell(short.data_stall(facts), "warning" if is_high else "")


def _idle(facts: Facts) -> Cell:
    return _cell(short.idle(facts), "warning" if state(facts) in UNUSED else "")


def _of_board(show: Callable[[Facts], str | None]) -> Callable[[Facts], Cell]:
    """Leave the cell of an instance empty."""
    return lambda facts: _cell(show(facts)) if facts.instance is None else NOTHING


def _of_share(column: Column[Facts]) -> Column[Facts]:
    """Leave the cell of a GPU with MIG on empty."""
    show = column.cell
    return replace(column, cell=lambda facts: NOTHING if facts.divided else show(facts))


def _text(show: Callable[[Facts], str | None]) -> Callable[[Facts], Cell]:
    return lambda facts: _cell(show(facts))


def _of_saturation(field: str) -> Callable[[Facts], Cell]:
    return _text(lambda facts: getattr(facts.saturation, field, None))


_COLUMNS: tuple[Column[Facts], ...] = (
    Column("GPU", lambda each: Cell(share_name(each.gpu, each.instance)), 1, most=17),
    Column("NAME", _name, 5, least=8, most=32, shrinks=True, whole_before=13),
    Column("STATE", _state, 9, least=15, most=15),
    Column("UTIL", _text(lambda each: short.ratio(each.busy_ratio)), 2, 5, 7, right=True),
    Column("SAT", _saturation, 3, least=8, most=14, right=True),
    Column("SOURCE", _of_saturation("source"), 10, least=8, most=16),
    Column("UNIT", _of_saturation("unit"), 16, least=6, most=10),
    Column("LIMITER", _limiter, 4, least=7, most=14),
    Column("DATA STALL", _data_stall, 8, least=8, most=10, right=True),
    Column(
        "ROOF", _text(lambda each: short.ratio(each.roof_ratio.get("spec"))), 13, 5, 7, right=True
    ),
    Column("MFU", _text(lambda each: short.ratio(each.mfu_ratio)), 13, 5, 7, right=True),
    Column("MEM GiB", _text(short.memory), 6, least=7, most=15, right=True),
    Column("POWER W", _of_board(short.power), 11, least=7, most=15, right=True),
    Column("TEMP", _of_board(short.temperature), 12, least=5, most=8, right=True),
    Column("IDLE", _idle, 7, least=10, most=14),
    Column("HOLDER", _text(short.holder), 14, 16, 48, shrinks=True, whole_before=15),
    Column("HELD IDLE", _text(short.held_idle), 15, least=6, most=9, right=True),
)
"""In the order of the line. The first ranks answer the exporter's three questions, the others show
what nvidia-smi does."""
_BOARD = ("GPU", "NAME", "POWER W", "TEMP")
"""The columns that a GPU with MIG on has; the others are those of its instances."""
COLUMNS = tuple(each if each.header in _BOARD else _of_share(each) for each in _COLUMNS)


def rendered(view: View, screen: Screen) -> Iterator[str]:
    """Yield the lines: totals, notices, the table, and advice on better counters.

    None is wider than the screen. Where there are more than it has, one line sums up calm GPUs.
    """
    above, below = list(_above(view, screen)), list(_below(view, screen))
    yield from above
    if view.gpus:
        # The table's header and the cursor take a line each.
        most = None if screen.lines is None else screen.lines - len(above) - len(below) - 2
        shown, summed = (view.gpus, ()) if most is None else fitted(view.gpus, most)
        yield from laid_out(
            *(COLUMNS, shown, screen),
            tone=lambda facts: "" if facts.down_reason is None else "faint",
            across=short.down,
        )
        if summed:
            yield screen.painted(clip(f"and {totals(summed)}", screen.columns), "faint")
    yield from below


def _above(view: View, screen: Screen) -> Iterator[str]:
    title = " · ".join(filter(None, (view.title, view.window)))
    driver = f" · driver {safe(view.driver)}" if view.driver else ""
    if cells(title + driver) > screen.columns:
        driver = ""
    *above, last = wrapped(title, screen.columns)
    yield from (screen.painted(line, "strong") for line in above)
    yield screen.painted(last, "strong") + driver
    for text in view.notices:
        yield from screen.paragraph(text, "warning")


def _below(view: View, screen: Screen) -> Iterator[str]:
    for texts, painted in ((view.causes, ""), (view.measure, "faint")):
        for text in texts:
            yield from screen.paragraph(text, painted)
