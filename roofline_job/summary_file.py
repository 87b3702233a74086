# SPDX-License-Identifier: Apache-2.0
"""The file of ``roofline-exporter run --summary``: the line at the end, as JSON.

docs/compare.md describes it; what is not known is absent. No failure here reaches the job.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from errno import EINVAL
from functools import cache
from importlib import metadata

from . import identity, names
from .account import Account
from .degraded import FOUND
from .peak import peak_flops_per_second
from .reporter import ERROR_BYTES
from .switches import say

_PLACES = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *sys.path]
_SECOND = 1_000_000_000
VARIABLE = "ROOFLINE_JOB_SUMMARY_FILE"
"""As in ``summary``."""
_STARTED = "ROOFLINE_JOB_STARTED"
_say_once = cache(say)


def begin(path: str) -> dict[str, str]:
    """Remove an earlier job's file, in the first rank; return the variables for this job."""
    with suppress(OSError):  # nothing is there
        path = os.path.abspath(path)
        is_first_rank = not identity.number(os.environ, identity.RANKS)
        if is_first_rank and stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)
    return {VARIABLE: path, _STARTED: str(time.time())}


def write_file(path: str, account: Account, ranks: int) -> None:
    """Write an account, unless the file is of a trainer whose loop ran longer."""
    temporary = f"{path}.{os.urandom(4).hex()}"
    try:
        if _loop_seconds_of(path) > account.wall_ns / _SECOND:
            return
        text = json.dumps(content(account, ranks), indent=2, allow_nan=False) + "\n"
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except Exception as error:
        with suppress(OSError):
            os.unlink(temporary)
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        _say_once(f"--summary {names.fit(path, 4096)} is not written: {reason}")


def content(account: Account, ranks: int) -> dict[str, object]:
    """Return the known values of an account, by the keys of the file."""
    idles_ns, phases_ns, wall_ns = account.times_ns()
    steps, _, samples, _ = account.counts.totals()
    flops_per_second = account.flops_per_second()
    peak = flops_per_second and peak_flops_per_second(account.precision)
    return _known(
        format="roofline-exporter-summary",
        version=1,
        job=account.job,
        started_unix_seconds=_found(lambda: float(os.environ[_STARTED])),
        ended_unix_seconds=time.time(),
        ranks=ranks,
        steps=steps,
        samples=samples,
        loop_seconds=wall_ns / _SECOND,
        steps_per_second=steps * _SECOND / wall_ns,
        data_wait_ratio=_share(phases_ns.get("data"), wall_ns),
        data_stall_ratio=_share(idles_ns.get("data"), wall_ns),
        phase_seconds={phase: time_ns / _SECOND for phase, time_ns in phases_ns.items()},
        phase_gpu_idle_seconds={phase: time_ns / _SECOND for phase, time_ns in idles_ns.items()},
        flops_per_second=flops_per_second,
        mfu_ratio=flops_per_second / peak if flops_per_second and peak else None,
        precision=account.precision,
        gpu=_found(lambda: identity.cuda().get_device_name()),
        loader=_known(**{**account.loader, "ready_batches": None}),
        versions=_known(
            roofline_exporter=_found(_own_version),
            python=sys.version.split()[0],
            framework=identity.framework(),
            cuda=_found(lambda: sys.modules["torch"].version.cuda),
        ),
        degraded={reason: names.fit(found, ERROR_BYTES) for reason, found in FOUND.items()},
    )


def _share(part_ns: int | None, whole_ns: int) -> float | None:
    return None if part_ns is None else min(1.0, part_ns / whole_ns)


def _known(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value not in (None, {})}


def _found(find: Callable[[], object]) -> object:
    """Return the value found; None where the job has none, or finding it failed."""
    try:
        return find()
    except Exception:
        return None


def _own_version() -> str:
    return next(iter(metadata.distributions(name="roofline-exporter", path=_PLACES))).version


def _loop_seconds_of(path: str) -> float:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(EINVAL, "not a regular file")
        with open(path, "rb") as file:
            return float(json.load(file)["loop_seconds"])
    except (FileNotFoundError, LookupError, TypeError, ValueError, RecursionError):
        return 0.0  # nothing is there, or no summary
