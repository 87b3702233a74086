# SPDX-License-Identifier: Apache-2.0
"""The default name of a job: from its user, its scheduler, or its script and run."""

from __future__ import annotations

import binascii
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .identity import parent

JOB_BYTES = 128
"""Of a job's name, in UTF-8."""
UNNAMED = "python"
_KERNEL = "ipykernel_launcher"

_RENDEZVOUS = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "PMIX_NAMESPACE", "PMI_JOBID")
"""Variables that all ranks of a run share, on all nodes."""
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_START_TIME = 19
"""Field 22 of /proc/PID/stat, counted from the one behind the name, which is the third."""


def fit(text: str, limit_bytes: int) -> str:
    """Return a label without characters that do not print, cut on a character's border."""
    printable = "".join(char if char.isprintable() else "_" for char in text[:limit_bytes])
    return printable.encode()[:limit_bytes].decode(errors="ignore").strip()


def job_name(name: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the job: as given, else from ROOFLINE_JOB_NAME, else `default_name`."""
    for candidate in (name, environ.get("ROOFLINE_JOB_NAME")):
        fitted = fit(str(candidate), JOB_BYTES) if candidate else ""
        if fitted:
            return fitted
    return default_name(environ)


def default_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return a name that two runs of one script do not share, and all ranks of one run do.

    ``train@20261122T131520-4242`` is train.py, whose first process started then (UTC) as that pid;
    under Slurm it is ``name@slurm-ID``; on several nodes ``train@rdzv-HASH`` of what their ranks
    meet at, which a later run may share. In a Jupyter kernel the script is the notebook.
    """
    run = _run(environ)
    name = environ.get("SLURM_JOB_NAME") or _script(environ)
    return f"{fit(name, JOB_BYTES - len(run) - 1) or UNNAMED}@{run}"


def _script(environ: Mapping[str, str]) -> str:
    """Return the name of the script: train for ``train.py``, pkg.train for ``-m pkg.train``.

    Of a kernel of Jupyter Server it is that of the notebook: tune for ``tune.ipynb``.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and isinstance(spec.name, str):
        name = spec.name.removesuffix(".__main__")
    else:
        argv = getattr(sys, "argv", None) or [""]
        name = Path(str(argv[0])).name.removesuffix(".py")
    if name == _KERNEL:  # the variable reaches what a kernel starts, too
        name = Path(environ.get("JPY_SESSION_NAME") or name).name.removesuffix(".ipynb")
    return "" if name in ("-c", "-") else name


def _run(environ: Mapping[str, str]) -> str:
    slurm = environ.get("SLURM_JOB_ID", "")
    if slurm.isascii() and slurm.isdigit():
        return f"slurm-{slurm}"
    met = [environ.get(name, "") for name in _RENDEZVOUS]
    ranks = next((environ[name] for name in _SIZES if environ.get(name)), "1")
    if ranks in ("1", environ.get("LOCAL_WORLD_SIZE")) or not any(met):
        return _started(_first_pid(environ))
    if environ.get("MASTER_ADDR") in _LOOPBACK:  # one node, whose ranks one process has started
        met += [os.uname().nodename, _started(parent() or os.getppid())]
    return f"rdzv-{binascii.crc32(':'.join(met).encode()):08x}"


def _first_pid(environ: Mapping[str, str]) -> int:
    """Return the pid of the process that started the ranks of this run on this node."""
    own = os.getppid() if "LOCAL_WORLD_SIZE" in environ else os.getpid()
    return parent() or own


def _started(pid: int, procfs: Path = Path("/proc")) -> str:
    """Return when a process started, in UTC, and its pid."""
    try:
        # The name in brackets may hold blanks and brackets itself.
        fields = (procfs / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        lines = (procfs / "stat").read_bytes().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith(b"btime "))
        start = booted + int(fields[_START_TIME]) // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError, StopIteration):  # hidden: every process for itself
        start, pid = int(time.time()), os.getpid()
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(start))}-{pid}"
