# SPDX-License-Identifier: Apache-2.0
"""The daemon of one job: reads GPUs and takes reports until the job ends, then reports.

It has no web listener: any user of the node could connect to a port, and the job needs none.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from contextlib import suppress
from math import inf
from pathlib import Path
from select import select
from time import monotonic

from exporter.cli import config
from exporter.cli.compare.job_summary import with_daemon
from exporter.cli.job import READY, Environment, node_of, say, step_of
from exporter.cli.job.report import report
from exporter.cli.job.seen import Seen
from exporter.cli.wiring import Parts
from exporter.clock import next_due_seconds, stale_after_seconds
from exporter.files import replace_file

DEFAULTS = {"ROOFLINE_POLL_SLOW_INTERVAL": "2s"}
"""Short jobs have processes, too."""
SUMMARY_FILE = "ROOFLINE_JOB_SUMMARY_FILE"
"""As in ``roofline_job.summary_file``."""
OTHERS_SECONDS = 10.0
"""How long it waits for ranks of the step's other tasks, which may end after the first."""


def serve(run: socket.socket, path: str, environ: Environment, given: str | None) -> None:
    """Listen at `path` until `run`, the other end, has ended; then report to `given`.

    It is told when this has started, and when this has reported. Raises what keeps it from that.
    """
    logging.disable()  # standard error is the job's
    flags = (f"--training.socket={path}", "--training.socket-mode=0600")
    parts = Parts(config.load(flags, {**DEFAULTS, **environ}))
    parts.start()
    run.sendall(READY)
    seen = Seen(environ)
    watch(run, parts, seen)
    _write(seen, given, environ)
    _amend(seen, environ.get(SUMMARY_FILE))
    parts.stop()
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    run.sendall(READY)


def watch(run: socket.socket, parts: Parts, seen: Seen) -> None:
    """Tick until the other end of `run` has ended, and for a while until all ranks have."""
    interval = parts.settings.poll_interval_seconds
    due = before = monotonic()
    ends, others_run = inf, True
    while others_run and monotonic() < ends:
        left = max(0.0, due - monotonic())
        if select([run] if ends == inf else [], (), (), left)[0]:  # one more tick, for the last
            ends = monotonic() + OTHERS_SECONDS
        now = monotonic()
        with suppress(Exception):  # one tick costs no report
            snapshot = parts.publisher.tick()
            seen.take(snapshot, min(now - before, stale_after_seconds(interval)))
            others_run = ends == inf or any(rank.processes for rank in snapshot.ranks)
        due, before = next_due_seconds(due, interval, now), now


def _write(seen: Seen, given: str | None, environ: Environment) -> None:
    """Append the report to the given file, or to one in the folder that the job was submitted from.

    Without such a file, it goes to standard error.
    """
    step, node = step_of(environ), node_of(environ)
    text = report(seen, {"job": step, "name": environ.get("SLURM_JOB_NAME"), "node": node})
    path = given or (step and environ.get("SLURM_SUBMIT_DIR"))
    try:
        if not path:
            return say(f"the report:\n{text}")
        if os.path.isdir(path):
            path += f"/roofline-{step or os.getpid()}-{node}.txt"
        with open(path, "ab") as file:
            file.write(text.encode(errors="replace"))
        say(f"the report is in {path}")
    except OSError as error:
        say(f"{path}: {error.strerror}; the report:\n{text}")


def _amend(seen: Seen, summary: str | None) -> None:
    """Add the daemon's values to the file of ``run --summary``, if rank 0 ran on this node."""
    if summary and any(rank == 0 for _, rank, _ in seen.ranks):
        try:
            path = Path(summary)
            replace_file(path, with_daemon(path.read_bytes(), seen.known()))
        except (OSError, ValueError) as error:
            say(f"{summary}: what the daemon knows is not added: {error}")
