# SPDX-License-Identifier: Apache-2.0
"""The daemon of one job: reads GPUs and takes reports until the last task ends, then reports.

It has no web listener: any user of the node could connect to a port, and the job needs none.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from contextlib import suppress
from select import select
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic

from exporter.cli import config
from exporter.cli.job.report import report
from exporter.cli.job.seen import Seen, own_shares
from exporter.cli.job.summary import amend
from exporter.cli.job.supervise import (
    REPORT_SECONDS,
    START_SECONDS,
    Environment,
    is_own,
    node_of,
    step_of,
)
from exporter.cli.wiring import Parts
from exporter.clock import next_due_seconds, stale_after_seconds

DEFAULTS = {"ROOFLINE_POLL_SLOW_INTERVAL": "2s"}
"""Short jobs have processes, too."""
LONGEST_FOLDER = 64
"""In bytes: a socket's path has 107."""

log = logging.getLogger(__name__)


def serve(listener: socket.socket, environ: Environment, given: str | None) -> None:
    """Serve the tasks that connect to `listener` until the last has ended, then report to `given`.

    Raises whatever keeps it from starting.
    """
    base = gettempdir()
    base = base if len(os.fsencode(base)) <= LONGEST_FOLDER else "/tmp"  # noqa: S108
    with TemporaryDirectory(prefix="roofline-job-", dir=base) as folder:
        path = f"{folder}/training.sock"
        flags = (f"--training.socket={path}", "--training.socket-mode=0600")
        settings = config.load(flags, {**DEFAULTS, **environ})
        parts, seen = Parts(settings), Seen()
        parts.start()
        tasks = Tasks(listener, path)
        interval = settings.poll_interval_seconds
        due = before = monotonic()
        lasts = True
        while lasts:
            lasts = tasks.wait(due)  # else one more tick takes the last reports
            now = monotonic()
            try:
                snapshot = parts.publisher.tick()
                seconds = min(now - before, stale_after_seconds(interval))
                seen.take(snapshot, seconds, own_shares(snapshot, environ))
            except Exception:
                log.exception("a tick failed")
            due, before = next_due_seconds(due, interval, now), now
        signal.alarm(REPORT_SECONDS)  # a driver that hangs keeps nobody waiting, and no process
        listener.close()
        named = " ".join(filter(None, (step_of(environ), environ.get("SLURM_JOB_NAME"))))
        said = written(report(seen, named, node_of(environ)), given, environ)
        amend(environ, seen)
        parts.stop()
    tasks.end(said)


class Tasks:
    """The tasks of a step, each by its connection: it is there until that ends."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        """Take the first one, which has started this process; each is told this path."""
        self._listener, self._path = listener, os.fsencode(path)
        self._open: list[socket.socket] = []
        listener.settimeout(START_SECONDS)
        while not self._open:
            self._accept()

    def wait(self, until: float) -> bool:
        """Wait until that monotonic time; return False at once when the last task has ended."""
        while True:
            left = max(0.0, until - monotonic())
            ready = select([self._listener, *self._open], (), (), left)[0]
            for each in ready:
                if each is self._listener:
                    self._accept()
                elif self._open == [each]:
                    return False
                else:
                    self._open.remove(each)
                    _tell(each, "\n")
            if not ready:
                return True

    def end(self, said: str) -> None:
        """Let the last one go, which says this."""
        _tell(self._open.pop(), said)

    def _accept(self) -> None:
        task, _ = self._listener.accept()
        if is_own(task):
            self._open.append(task)
            with suppress(OSError):
                task.sendall(self._path)


def _tell(task: socket.socket, said: str) -> None:
    with suppress(OSError), task:  # it may have been killed
        task.sendall(said.encode(errors="replace"))


def written(text: str, given: str | None, environ: Environment) -> str:
    """Add the report to the end of a file that is given, or of one where the job was submitted.

    Return what to say of it: where it is or, without a file, the report itself.
    """
    step = step_of(environ)
    path = given or (step and environ.get("SLURM_SUBMIT_DIR"))
    if not path:
        return text
    if os.path.isdir(path):
        path += f"/roofline-{step or os.getpid()}-{node_of(environ)}.txt"
    try:
        with open(path, "ab") as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        return f"roofline-exporter: {path}: {error.strerror}; the report:\n{text}"
    return f"roofline-exporter: the report is in {path}\n"
