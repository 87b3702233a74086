# SPDX-License-Identifier: Apache-2.0
"""Many processes that report much at the same time lose no totals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.sources.training import TrainingOptions, TrainingSource
from tests.sources.training.reports import message, numbered
from tests.waiting import wait_until

SENDERS = 8
PER_SECOND = 250
SECONDS = 10

SENDER = """
import json, os, socket, sys, time
path, report, per_second, seconds = sys.argv[1], *map(json.loads, sys.argv[2:])
report["pid"] = os.getpid()
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.setblocking(False)
full = 0
start = time.monotonic()
for step in range(1, per_second * seconds + 1):
    time.sleep(max(start + step / per_second - time.monotonic(), 0))
    report.update(sequence=step, steps=step, batches=step, samples=256 * step)
    report["step_seconds"] = step / per_second
    report["phase_seconds"] = {"data": step / per_second / 4}
    report["exit"] = step == per_second * seconds
    sender.setblocking(report["exit"])
    try:
        sender.sendto(json.dumps(report).encode(), path)
    except BlockingIOError:
        full += 1
print(json.dumps({"id": report["id"], "steps": step, "full": full}))
"""


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.slow
def test_eight_senders_lose_no_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2,000 reports a second for 10 s; what did not fit into the queue is in the next report."""
    path = str(tmp_path / "t.sock")
    source = TrainingSource(TrainingOptions((path,)), SystemClock())
    source.start()
    try:
        wait_until(lambda: source.up)
        senders = [
            subprocess.Popen(
                [
                    *(sys.executable, "-c", SENDER, path),
                    json.dumps(message(id=numbered(rank), rank=rank, samples=0)),
                    *(str(PER_SECOND), str(SECONDS)),
                ],
                stdout=subprocess.PIPE,
            )
            for rank in range(SENDERS)
        ]
        ended = [json.loads(sender.communicate(timeout=60 + SECONDS)[0]) for sender in senders]
        full = sum(end["full"] for end in ended)
        wait_until(lambda: all(not report.alive for report in source.reports()))
        reports = {report.report_id: report for report in source.reports()}
    finally:
        source.stop()
    with capsys.disabled():
        print(f"\n{source.received_total} reports taken, {full} did not fit into the queue")

    assert source.received_total == SENDERS * PER_SECOND * SECONDS - full
    assert not any(source.rejected_total.values())
    for end in ended:
        totals = reports[end["id"]].totals
        assert totals.steps == totals.batches == end["steps"] == PER_SECOND * SECONDS
        assert totals.samples == 256 * end["steps"]
        assert totals.step_seconds == SECONDS
        assert totals.phase_seconds == {"data": SECONDS / 4}
        assert not reports[end["id"]].alive
