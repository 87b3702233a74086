# SPDX-License-Identifier: Apache-2.0
"""The processes on a GPU or MIG instance as HTML, the largest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from exporter.model.reading import Process
from exporter.model.snapshot import Share
from exporter.web.page.document import table
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


def _words(listed: Sequence[Process], share: Share, *, divided: bool) -> dict[str, str | None]:
    """Return the words of a process by heading, None for what is not known; the driver lists it
    once for each kind, with the same memory."""
    one, *_ = listed
    workload, used = share.work.of_process.get(one.pid), one.used_bytes
    sm_time, cores = one.sm_utilization_ratio, one.cpu_cores
    return {
        "PID": str(one.pid),
        "MIG instance": str(share.gpu_instance) if divided else None,
        "Kind": ", ".join(each.kind for each in listed),
        "Owner": one.owner,
        "Command": one.command,
        "Memory": None if used is None else f"{fixed(used / 2**20, 0)} MiB",
        "SM time": None if sm_time is None else percent(sm_time),
        "CPU": None if cores is None else percent(cores),
        "Workload": "" if workload is None else workload_words(workload),
    }


def gpu_processes(shares: Sequence[Share]) -> str:
    """Return the processes on these shares of a GPU; a GPU that is down has none."""
    found: dict[tuple[int, int], list[Process]] = {}
    for at, share in enumerate(shares):
        for process in share.processes or ():
            found.setdefault((at, process.pid), []).append(process)
    largest = sorted(
        found.items(), key=lambda item: (-(item[1][0].used_bytes or 0), item[1][0].pid)
    )
    rows = [
        _words(listed, shares[at], divided=len(shares) > 1)
        for (at, _), listed in largest[:MOST_ROWS]
    ]
    more = len(found) - MOST_ROWS
    is_known = any(each.processes is not None for each in shares)
    nothing = (_NONE if is_known else _UNKNOWN) if shares else "Not readable."
    body = _table(rows) if rows else f"<p>{nothing}</p>"
    # Scripts renew what scrolls from within, so that it stays where it is.
    return (
        '<section class="card wide" aria-labelledby="processes-title"><h2 id="processes-title">'
        'Processes on it</h2>\n<div class="scroll" id="processes" tabindex="0" role="group" '
        f'aria-labelledby="processes-title">{body}{f"<p>and {more} more</p>" if more > 0 else ""}'
        "</div></section>"
    )


def _table(rows: Sequence[Mapping[str, str | None]]) -> str:
    """Return the table, without the columns that are not known of any."""
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    cells = [
        [NOT_KNOWN if (word := row[name]) is None else escape(cut(word)) for name in shown]
        for row in rows
    ]
    return f"{table(shown, cells)}<p><small>{_NOTE}</small></p>"
