# SPDX-License-Identifier: Apache-2.0
"""The line at the end of a job under ``roofline-exporter run``: its waits and its FLOP/s.

`run` has become the job by then, so the job's own processes write it: rank 0, each trainer without
a rank, or, if nothing trained, the first process, unless it started others that may have measured.

Imported at the start of every Python of the job, like ``imports``.
"""

from __future__ import annotations

import os
import sys

from .identity import FRAMEWORKS, RANKS, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .account import Account

VARIABLE = "ROOFLINE_JOB_SUMMARY"
"""In the job's environment: the process id of its first process; `run --quiet` leaves it out."""
FILE_VARIABLE = "ROOFLINE_JOB_SUMMARY_FILE"
"""In the job's environment: the path of `run --summary`."""
NOTHING = (
    "nothing was measured: no loop over a PyTorch data loader was seen; "
    "put watch() around what the training loop reads"
)
TOO_SHORT = "it ended before one of its steps was counted"
_SECOND = 1_000_000_000
_SCALES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))

_is_written = False


def is_first() -> bool:
    """Return whether this process is the one that `run` became."""
    return os.environ.get(VARIABLE) == str(os.getpid())


def is_wanted() -> bool:
    """Return whether `run` started the job, and is to leave a line or a file as it ends."""
    return bool(os.environ.get(VARIABLE) or os.environ.get(FILE_VARIABLE))


def write_summary(accounts: Iterable[Account], rank: int, ranks: int) -> None:
    """Write the line on the busiest of these accounts, if this one of `ranks` is the first.

    Trainers that multiprocessing has started without ranks have a line each, with their process id.
    """
    busiest = max(accounts, key=lambda account: account.wall_ns, default=None)
    if busiest is not None and busiest.wall_ns and rank == 0:
        if os.environ.get(VARIABLE):
            _write(_measured(busiest, ranks))
        if path := os.environ.get(FILE_VARIABLE):
            from .summary_file import write_file

            write_file(path, busiest, ranks)


def write_nothing_measured() -> None:
    """Write that nothing was measured, in a process that has imported a framework, unless something
    was, perhaps in another process.

    Where optimizers stepped in this one, it is known of this one.
    """
    if not any(name in sys.modules for name in FRAMEWORKS):
        return
    times = os.times()
    is_first_rank = all(os.environ.get(name, "0") == "0" for name in RANKS)
    has_children = bool(times.children_user or times.children_system)
    if is_first_rank and (not has_children or _has_trained()):
        _write(f"process {os.getpid()}: {NOTHING}" if has_children else NOTHING)


def _has_trained() -> bool:
    """Return whether an optimizer stepped in this process; the client may not be loaded."""
    process = sys.modules.get(f"{__package__}.process")
    return process is not None and process.PROCESS.stepped


def _measured(account: Account, ranks: int) -> str:
    from . import diagnosis
    from .degraded import FOUND, REASONS

    idles_ns, phases_ns, wall_ns = account.times_ns()
    steps = account.counts.totals()[0]
    did = f"{steps:,} {'step' if steps == 1 else 'steps'}"
    waits, computed = [], [*_computed(account)]
    if "data" in phases_ns:
        waits.append(f"waited {_time(phases_ns['data'], wall_ns, ' of the loop')} for data")
    if "data" in idles_ns:
        waits.append(f"GPU idle meanwhile {_time(idles_ns['data'], wall_ns)}")
    why = diagnosis.why(account)
    if not waits and "helper_thread" in FOUND:
        why = f": {REASONS['helper_thread']}{why}"
    parts = [did, *computed, *waits] if why.startswith(":") else [did, *waits, *computed]
    whose = f"rank 0 of {ranks}: " if ranks > 1 else ""
    if not whose and parent() is not None:
        whose = f"process {os.getpid()}: "
    return whose + ", ".join(parts) + why


def _computed(account: Account) -> Iterator[str]:
    """Yield the FLOP/s since they were counted, if they were, or why not, if they should be."""
    from . import switches
    from .degraded import FOUND
    from .peak import peak_flops_per_second

    rate = account.flops_per_second()
    if rate is not None:
        peak = peak_flops_per_second(account.precision)
        of_peak = ""
        if peak is not None:
            of_peak = f" (MFU {100 * rate / peak:.0f} % of {_rate(peak)} {account.precision})"
        yield _rate(rate) + of_peak
    elif switches.COUNT_FLOPS:
        yield f"FLOPs not counted ({FOUND.get('flops', TOO_SHORT)})"


def _rate(flops_per_second: float) -> str:
    scale, unit = next((each for each in _SCALES if flops_per_second >= each[0]), _SCALES[-1])
    shown = flops_per_second / scale
    return f"{shown:,.0f} {unit}" if shown >= 100 else f"{shown:.1f} {unit}"


def _time(part_ns: int, whole_ns: int, of: str = "") -> str:
    seconds = part_ns / _SECOND
    shown = f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"
    return f"{shown} s ({100 * part_ns / whole_ns:.0f} %{of})"


def _write(line: str) -> None:
    global _is_written
    if _is_written:
        return
    _is_written = True
    try:
        sys.stderr.write(f"roofline-exporter: {line}\n")
        sys.stderr.flush()
    except Exception:  # closed, missing, or something of the job's that raises
        return
