# SPDX-License-Identifier: Apache-2.0
"""The processes on a GPU or MIG instance as HTML, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from exporter.model.reading import Process
from exporter.model.snapshot import Share
from exporter.model.workload import Workload
from exporter.web.wording.numbers import cut, fixed, percent
from exporter.web.wording.phrases import NOT_KNOWN
from exporter.web.wording.whose import workload_words

MOST_ROWS = 64
"""More processes are only counted."""
_NONE = "The driver lists no process on it."
_UNKNOWN = (
    "Not known: the driver does not list them here. In a container it takes the host's process ids."
)
_NOTE = "Largest first. CPU: 100 % is one core, without the process's children."


class _Listed(NamedTuple):
    process: Process
    kinds: Sequence[str]
    instance: int | None
    workload: Workload | None


def _said(value: float | None, words: Callable[[float], str]) -> str | None:
    return None if value is None else words(value)


_COLUMNS: Mapping[str, Callable[[_Listed], str | None]] = {
    "PID": lambda one: str(one.process.pid),
    "MIG instance": lambda one: None if one.instance is None else str(one.instance),
    "Kind": lambda one: ", ".join(one.kinds),
    "Owner": lambda one: one.process.owner,
    "Command": lambda one: one.process.command,
    "Memory": lambda one: _said(one.process.used_bytes, lambda it: f"{fixed(it / 2**20, 0)} MiB"),
    "SM time": lambda one: _said(one.process.sm_utilization_ratio, percent),
    "CPU": lambda one: _said(one.process.cpu_cores, percent),
    "Workload": lambda one: "" if one.workload is None else workload_words(one.workload),
}
"""By heading: the words of a process; a column that is not known of any is left out."""


def _listed(share: Share, instance: int | None) -> list[_Listed]:
    """Return each process once: the driver lists it for each kind, with the same memory."""
    same: dict[int, list[Process]] = {}
    for process in share.processes or ():
        same.setdefault(process.pid, []).append(process)
    return [
        _Listed(each[0], [one.kind for one in each], instance, share.work.of_process.get(pid))
        for pid, each in same.items()
    ]


def gpu_processes(shares: Sequence[Share]) -> str:
    """Return the processes on these shares of a GPU; a GPU that is down has none."""
    divided = len(shares) > 1
    found = [each for one in shares for each in _listed(one, one.gpu_instance if divided else None)]
    found.sort(key=lambda one: (-(one.process.used_bytes or 0), one.process.pid))
    more = len(found) - MOST_ROWS
    is_known = any(each.processes is not None for each in shares)
    nothing = (_NONE if is_known else _UNKNOWN) if shares else "Not readable."
    body = _table(found[:MOST_ROWS]) if found else f"<p>{nothing}</p>"
    # Scripts renew what scrolls from within, so that it stays where it is.
    return (
        '<section class="card wide" aria-labelledby="processes-title"><h2 id="processes-title">'
        'Processes on it</h2>\n<div class="scroll" id="processes" tabindex="0" role="group" '
        f'aria-labelledby="processes-title">{body}{f"<p>and {more} more</p>" if more > 0 else ""}'
        "</div></section>"
    )


def _table(found: Sequence[_Listed]) -> str:
    columns = {name: list(map(words, found)) for name, words in _COLUMNS.items()}
    shown = {name: words for name, words in columns.items() if any(words)}
    heads = "".join(f'<th scope="col">{name}</th>' for name in shown)
    rows = "".join(
        f'<tr><th scope="row">{pid}</th>'
        + "".join(f"<td>{NOT_KNOWN if word is None else escape(cut(word))}</td>" for word in rest)
        + "</tr>\n"
        for pid, *rest in zip(*shown.values(), strict=True)
    )
    return (
        f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody></table>"
        f"<p><small>{_NOTE}</small></p>"
    )
