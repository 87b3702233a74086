# SPDX-License-Identifier: Apache-2.0
"""What is seen of a job from outside meets the readings of the GPU that it holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.host import HostTotals, Seen, ThreadStates
from exporter.model.reading import Process
from exporter.model.snapshot import Share, SourceState
from exporter.publisher import Publisher, Rules
from tests.publisher.test_tick import BUSY, QUIET, SPECS, gpu
from tests.publisher.test_training import Bench

PID = 4242
ALWAYS_BUSY = dataclasses.replace(BUSY, engine=1.0, sm=1.0)
WAITING, FULL = ("Q", "RR"), ("Q", "QQ")


class Threads:
    """The source, under control of the test."""

    name = "proc"
    state = SourceState(up=True)

    def __init__(self) -> None:
        self.watched: frozenset[int] = frozenset()
        self.seen: dict[int, Seen] = {}

    def watch(self, pids: frozenset[int]) -> None:
        self.watched = pids

    def take(self) -> dict[int, Seen]:
        seen, self.seen = self.seen, {}
        return seen


class Outside(Bench):
    """A job that does not report, unless asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads()
        self.reports = False
        self.publisher = Publisher(
            self.script, SPECS, Rules(), self.clock, training=[self.jobs], host=self.threads
        )

    def run(self, seconds: int, *moments: tuple[str, str], **reading: Any) -> Share:
        """Let seconds pass in which the threads go through these states, over and over."""
        shown = None
        for _ in range(seconds):
            now = self.clock.monotonic()
            if PID in self.threads.watched:
                states = [ThreadStates(now + n / 10, *moments[n % len(moments)]) for n in range(10)]
                self.threads.seen[PID] = Seen(
                    tuple(states), HostTotals(now, cores=8.0), 2, {"host_io": "no_permission"}
                )
            if self.reports:
                shown = self.tick(**reading)
            else:
                self.clock.advance(1.0)
                self.script.read(self.device, processes=self.listed, **reading)
                shown = self.publisher.tick()
        assert shown is not None
        self.states = gpu(shown).states
        return gpu(shown).shares[0]


def test_a_certain_wait_bounds_the_stall_and_limits_the_gpu() -> None:
    """The GPU was idle, and the loop waited for its workers all the time."""
    outside = Outside()
    share = outside.run(30, WAITING, activity=QUIET)
    bounds = share.data_stall["procfs"]
    assert 0.9 < bounds.lower < bounds.upper <= 1.0
    assert share.limiter == "input"
    totals = share.totals
    assert totals.data_stall_lower_seconds["procfs"] == pytest.approx(10 * bounds.lower, abs=10.0)
    assert totals.data_stall_lower_seconds["procfs"] > 9.0
    assert share.host is not None
    assert (share.host.method, share.host.workers, share.host.cores) == ("procfs", 2, 8.0)
    assert outside.states["host_io"] == "no_permission"


def test_a_full_queue_is_no_stall() -> None:
    """The loop waits for something else: a collective, or an evaluation."""
    share = Outside().run(30, FULL, activity=QUIET)
    assert share.data_stall["procfs"].lower == 0.0
    assert share.data_stall["procfs"].upper < 0.05
    assert share.limiter == "idle"
    assert share.totals.data_stall_lower_seconds == {"procfs": 0.0}


def test_nothing_is_read_while_no_held_gpu_idles() -> None:
    """Nor of one that nobody holds; half a minute after the last gap it ends."""
    outside = Outside()
    outside.run(5, WAITING, activity=ALWAYS_BUSY)
    assert outside.threads.watched == frozenset()
    outside.run(2, WAITING, activity=QUIET)
    assert outside.threads.watched == {PID}
    outside.run(29, WAITING, activity=ALWAYS_BUSY)
    assert outside.threads.watched == {PID}
    share = outside.run(4, WAITING, activity=ALWAYS_BUSY)
    assert outside.threads.watched == frozenset()
    assert (share.host, share.data_stall) == (None, {})
    assert "host_io" not in outside.states
    outside.listed = ()
    outside.run(5, WAITING, activity=QUIET)
    assert outside.threads.watched == frozenset()


@pytest.mark.parametrize(
    "listed",
    [
        (Process(PID, "compute"), Process(4243, "compute")),
        (Process(PID, "mps"),),
        (Process(PID, "compute"), Process(7, "mps", command="nvidia-cuda-mps-server")),
        (Process(PID, "compute", work_class="serving"),),
        (Process(PID, "compute", work_class="notebook"),),
    ],
)
def test_no_claim_of_several_holders_or_of_what_waits_for_people(
    listed: tuple[Process, ...],
) -> None:
    """Nobody knows for which of several the GPU idles."""
    outside = Outside()
    outside.listed = listed
    share = outside.run(25, WAITING, activity=QUIET)
    assert outside.threads.watched == frozenset()
    assert (share.data_stall, share.host) == ({}, None)
    assert share.limiter == "idle"


def test_a_job_that_reports_is_believed_instead() -> None:
    """Its own waits are exact; what it does on the host is still seen."""
    outside = Outside()
    outside.reports = True
    share = outside.run(30, WAITING, activity=QUIET)
    assert "procfs" not in share.data_stall
    assert "procfs" not in share.totals.data_stall_lower_seconds
    assert share.host is not None


def test_a_process_that_ends_leaves_nothing_behind() -> None:
    """The next one on the GPU starts over."""
    outside = Outside()
    assert outside.run(20, WAITING, activity=QUIET).data_stall
    outside.listed = (Process(4243, "compute"),)
    share = outside.run(3, WAITING, activity=QUIET)
    assert outside.threads.watched == {4243}
    assert share.host is None
    assert not share.data_stall


def test_the_bounds_are_on_the_page_of_metrics() -> None:
    """Ratios and totals, beside those that a client's waits give."""
    outside = Outside()
    pages = Pages(RenderOptions())
    outside.publisher = Publisher(
        outside.script, SPECS, Rules(), outside.clock, (pages.publish,), host=outside.threads
    )
    outside.run(30, WAITING, activity=QUIET)
    page = pages.page("text-0.0.4", zipped=False).decode()
    shown = {line.partition("{")[0] for line in page.splitlines() if 'method="procfs"' in line}
    assert shown == {
        f"gpu_inferred_data_stall_{end}_{unit}"
        for end in ("lower", "upper")
        for unit in ("ratio", "seconds_total")
    }
