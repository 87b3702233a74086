# SPDX-License-Identifier: Apache-2.0
"""The daemon of one job: reads GPUs and takes reports until the last run ends, then reports.

It has no web listener: any user of the node could connect to a port, and the job needs none.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from time import monotonic

from exporter.cli import config
from exporter.cli.job.report import report
from exporter.cli.job.runs import Runs
from exporter.cli.job.seen import Seen
from exporter.cli.job.step import CONTROL, FORWARDED, REPORT_SECONDS, TRAINING, node_of, step_of
from exporter.cli.job.summary import amend
from exporter.cli.wiring import Parts
from exporter.clock import next_due_seconds

LONGEST_GAP_INTERVALS = 3
DEFAULTS = {"ROOFLINE_POLL_SLOW_INTERVAL": "2s"}
"""Short jobs have processes, too."""

SUMMARY_FILE = "ROOFLINE_JOB_SUMMARY_FILE"
"""As in ``roofline_job.summary_file``."""

log = logging.getLogger(__name__)


def serve(
    folder: str, environ: Mapping[str, str], given: str | None, ready: Callable[[], object]
) -> None:
    """Call `ready` once it listens in `folder`; serve until every run has ended."""
    flags = (f"--training.socket={folder}/{TRAINING}", "--training.socket-mode=0600")
    settings = config.load(flags, {**DEFAULTS, **environ})
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    step, node, job = step_of(environ), node_of(environ), environ.get("SLURM_JOB_NAME")
    file = ReportFile(given, environ)
    parts, runs, seen = Parts(settings), Runs(f"{folder}/{CONTROL}"), Seen()
    parts.start()
    ready()
    interval = settings.poll_interval_seconds
    due = before = monotonic()
    lasts = True
    while lasts:
        lasts = runs.wait(due)  # else one more tick takes the last reports
        now = monotonic()
        try:
            snapshot = parts.publisher.tick()
            is_gap = now - before > LONGEST_GAP_INTERVALS * interval
            seen.take(snapshot, 0.0 if is_gap else now - before, runs.gpus(snapshot))
        except Exception:
            log.exception("a tick failed")
        due, before = next_due_seconds(due, interval, now), now
        if runs.wants_report or not lasts:
            runs.wants_report = False
            named = " ".join(filter(None, (step, step and job))) or None
            said = file.write(report(seen, named, node))
    if summary := environ.get(SUMMARY_FILE):
        amend(summary, seen)
    signal.alarm(REPORT_SECONDS)  # a driver that hangs keeps nobody waiting, and no process
    parts.stop()
    shutil.rmtree(folder, ignore_errors=True)
    runs.end(said)


class ReportFile:
    """The end of a file that is named, or of one where a job was submitted; else the log."""

    def __init__(self, given: str | None, environ: Mapping[str, str]) -> None:
        """Take what the user has given, if anything."""
        step = step_of(environ)
        path = given or (step and environ.get("SLURM_SUBMIT_DIR"))
        if path and os.path.isdir(path):
            path += f"/roofline-{step or os.getpid()}-{node_of(environ)}.txt"
        self._path = path
        self._offset: int | None = None
        """Where this report begins: an earlier run keeps its own."""

    def write(self, text: str) -> str:
        """Write the report so far; return what to say of it: where it is, or the report itself."""
        if not self._path:
            return text
        try:
            with open(self._path, "ab") as file:
                self._offset = file.tell() if self._offset is None else self._offset
                file.truncate(self._offset)
                file.write(text.encode(errors="replace"))
        except OSError as error:
            return f"roofline-exporter: {self._path}: {error.strerror}; the report:\n{text}"
        return f"roofline-exporter: the report is in {self._path}\n"
