# SPDX-License-Identifier: Apache-2.0
"""The thread that starts a child process, sends it orders, reads its messages, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from exporter.clock import Clock
from exporter.sources.counters.child import Child
from exporter.sources.counters.wire import PAUSED, MalformedLine, Message, Noted, parsed

BACK_OFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
GOOD_SECONDS = 60.0
"""After a child that ran for so long, the back-off starts over."""
SILENT_SECONDS = 5.0
"""A child that writes nothing for so long hangs."""
FIRST_SECONDS = 30.0
"""Until its first message: it loads libraries of 200 MB."""
PAUSE_SECONDS = 1.5
"""For releasing the counters when it is paused, and reporting that."""
END_SECONDS = 1.0
"""For ending by itself, before it is killed."""
KILL_SECONDS = 0.5
"""How long the exporter waits for a killed child when it ends."""
UNWANTED_SECONDS = 10.0
"""How long a child stays that no GPU wants."""
MOST_STUCK = 2
"""Killed children that are still alive: beyond that no child is started."""
MOST_BYTES_PER_SECOND = 1 << 22
STEP_SECONDS = 1.0

log = logging.getLogger(__name__)


class Restarts:
    """The back-off between one child's end and the next one's start."""

    def __init__(self) -> None:
        self._ended_in_a_row = 0
        self._started = 0.0
        self._not_before = float("-inf")

    def may_start(self, now: float) -> bool:
        """Return whether the back-off is over."""
        return now >= self._not_before

    def started(self, now: float) -> None:
        """Note a start."""
        self._started = now

    def ended(self, now: float) -> None:
        """Note an unwanted end, or a failed start."""
        if now - self._started >= GOOD_SECONDS:
            self._ended_in_a_row = 0
        wait = BACK_OFF_SECONDS[min(self._ended_in_a_row, len(BACK_OFF_SECONDS) - 1)]
        self._ended_in_a_row += 1
        self._not_before = now + wait


@dataclass(frozen=True, slots=True)
class Orders:
    """What a child is to do."""

    gpus: tuple[Mapping[str, Any], ...] = ()
    """The GPUs to measure."""
    paused: bool = False


class ChildUser(Protocol):
    """The source that uses the child, as the supervisor calls it."""

    def orders(self) -> Orders:
        """Return what the child is to do now."""

    def handle(self, message: Message, now: float) -> None:
        """Take a message of the child."""

    def failed(self, problem: str | None = None, *, ended_itself: bool = False) -> None:
        """Count a failure; with a `problem` the child does not run.

        A child that `ended_itself` may have reported why.
        """

    def ended(self, now: float) -> None:
        """Note that there is no child any more."""


@dataclass(slots=True)
class _Run:
    """One child and its state."""

    child: Child
    started: float
    flow_since: float
    """When the window for its output rate began."""
    flow_bytes: int = 0
    """Total of its output at that time."""
    heard: float | None = None
    """When it last wrote a message."""
    sent: Orders = Orders()
    release_due: float | None = None
    """The deadline for releasing the counters."""
    unwanted_since: float | None = None


class Supervisor:
    """Keeps one child running while a GPU wants it; messages of an earlier child are ignored."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        options: Mapping[str, Any],
        clock: Clock,
        user: ChildUser,
    ) -> None:
        """Run `command`, give it the `options` as its first line; `name` is the source's."""
        self._name = name
        self._command = tuple(command)
        self._options = options
        self._clock = clock
        self._user = user
        self._restarts = Restarts()
        self._run: _Run | None = None
        self._leaving: list[tuple[Child, float]] = []
        """Children that were told to end, and when they are killed."""
        self._stuck: list[Child] = []
        """Children that were killed and are not dead yet."""
        self.generation = 0
        """How many children there were."""
        self._stopping = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        for end in (self._woken, self._wake):
            weakref.finalize(self, os.close, end)
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    @property
    def is_up(self) -> bool:
        """Whether a child runs and has written a message."""
        return self.heard is not None

    @property
    def heard(self) -> float | None:
        """When the child last wrote a message; None before that."""
        run = self._run
        return None if run is None else run.heard

    @property
    def has_released(self) -> bool:
        """Whether no child has the counters: there is none, or it has reported to be paused."""
        run = self._run
        return run is None or (run.sent.paused and run.release_due is None)

    @property
    def pid(self) -> int | None:
        """The number of the child's process; None if there is none."""
        run = self._run
        return None if run is None else run.child.pid

    @property
    def stuck(self) -> tuple[int, ...]:
        """The numbers of processes that were killed and are not dead yet."""
        return tuple(child.pid for child in self._stuck)

    def start(self) -> None:
        """Begin to watch for orders."""
        self._thread.start()

    def stop(self) -> None:
        """End the child; one that hangs is not waited for."""
        self._stopping = True
        self.nudge()
        if self._thread.is_alive():
            self._thread.join(2 * END_SECONDS)

    def nudge(self) -> None:
        """Wake the thread to look at new orders."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake
            os.write(self._wake, b"\0")

    def _supervise(self) -> None:
        while not self._stopping:
            try:
                self.step(STEP_SECONDS)
            except Exception as error:  # without this thread nothing would be measured again
                self._fail(f"its supervision failed: {type(error).__name__}: {error}")
                time.sleep(STEP_SECONDS)
        self.end()

    def end(self) -> None:
        """End the child with the exporter; it has END_SECONDS to release the counters."""
        if self._run is not None:
            child = self._run.child
            self._leave()
            child.wait(END_SECONDS)
        for child in (*(child for child, _ in self._leaving), *self._stuck):
            child.kill()
            child.wait(KILL_SECONDS)

    def step(self, wait_seconds: float) -> None:
        """Do what is due, and read the messages of the child within `wait_seconds`.

        Called only by the thread that starts the child.
        """
        now = self._clock.monotonic()
        self._reap(now)
        orders = self._user.orders()
        if self._run is None and orders.gpus and not orders.paused:
            self._start(now)
        if self._run is not None:
            self._send_orders(self._run, orders, now)
            self._end_if_due(self._run, now)
        self._wait(wait_seconds)
        if self._run is not None:
            self._read(self._run)

    def _reap(self, now: float) -> None:
        """Kill children that do not end in time, and forget those that have ended."""
        for child, due in self._leaving:
            if now >= due:
                child.kill()
                self._stuck.append(child)
        self._leaving = [(child, due) for child, due in self._leaving if now < due]
        self._leaving = [each for each in self._leaving if not each[0].is_gone()]
        self._stuck = [child for child in self._stuck if not child.is_gone()]

    def _start(self, now: float) -> None:
        if not self._restarts.may_start(now):
            return
        self._restarts.started(now)
        if len(self._stuck) >= MOST_STUCK:
            pids = " and ".join(map(str, self.stuck))
            self._fail(f"the child processes {pids} hang in the driver and cannot be killed")
            return
        try:
            child = Child(self._command)
        except OSError as error:
            self._fail(f"no child process can be started: {error}")
            return
        self.generation += 1
        log.debug("%s: the child process %d was started", self._name, child.pid)
        self._run = _Run(child, started=now, flow_since=now)
        child.send(self._options)

    def _send_orders(self, run: _Run, orders: Orders, now: float) -> None:
        """Send the child the orders that have changed."""
        if orders.gpus != run.sent.gpus:
            run.child.send({"gpus": orders.gpus})
        if orders.paused != run.sent.paused:
            run.child.send({"pause": True} if orders.paused else {"resume": True})
            run.release_due = now + PAUSE_SECONDS if orders.paused else None
        run.sent = orders
        run.child.flush()
        if orders.gpus:
            run.unwanted_since = None
        elif run.unwanted_since is None:
            run.unwanted_since = now

    def _end_if_due(self, run: _Run, now: float) -> None:
        """End a child that no GPU wants, that keeps the counters, hangs, or writes too much."""
        written = run.child.read_bytes_total - run.flow_bytes
        since, patience = (
            (run.started, FIRST_SECONDS) if run.heard is None else (run.heard, SILENT_SECONDS)
        )
        if run.unwanted_since is not None and now - run.unwanted_since >= UNWANTED_SECONDS:
            self._leave()
        elif run.release_due is not None and now >= run.release_due:
            run.child.kill()  # that releases the counters
            self._leave()
        elif now - since >= patience:
            self._kill(run.child, f"said nothing for {patience:.0f} s and was killed")
        elif written > MOST_BYTES_PER_SECOND:
            self._kill(run.child, "wrote more than makes sense and was killed")
        elif now - run.flow_since >= 1.0:
            run.flow_since, run.flow_bytes = now, run.child.read_bytes_total

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._run is not None:
            for pipe in self._run.child.readable:
                poll.register(pipe, select.POLLIN)
            if self._run.child.has_unsent:
                poll.register(self._run.child.stdin, select.POLLOUT)
            if self._run.release_due is not None:
                seconds = min(seconds, self._run.release_due - self._clock.monotonic())
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _read(self, run: _Run) -> None:
        """Read the messages of the child, and note if it has ended."""
        child = run.child
        gone = child.is_gone()
        child.read_errors()
        too_long = child.dropped_total
        lines = child.read()
        for _ in range(child.dropped_total - too_long):
            self._user.failed()
        for line in lines:
            self._handle(run, line)
        if child.has_closed_stdout and not gone:
            child.wait(END_SECONDS)
            child.read_errors()
            if not child.is_gone():
                self._kill(child, "closed its output and was killed")
                return
            gone = True
        if gone:
            self._fail(f"its child process {child.ending}", ended_itself=child.has_ended_itself)

    def _handle(self, run: _Run, line: bytes) -> None:
        try:
            message = parsed(line, self._name)
        except MalformedLine as error:
            log.debug("%s: a line of its child process %s: %.80r", self._name, error, line)
            self._user.failed()
            return
        now = run.heard = self._clock.monotonic()
        if isinstance(message, Noted) and message.gpu is None and message.state == PAUSED:
            run.release_due = None
        self._user.handle(message, now)

    def _kill(self, child: Child, reason: str) -> None:
        child.kill()
        self._fail(f"its child process {reason}")

    def _fail(self, problem: str, *, ended_itself: bool = False) -> None:
        """End the present child, and back off."""
        self._restarts.ended(self._clock.monotonic())
        self._leave()
        self._user.failed(problem, ended_itself=ended_itself)

    def _leave(self) -> None:
        """End the present child, and do not wait for its death."""
        run, self._run = self._run, None
        if run is None:
            return
        now = self._clock.monotonic()
        run.child.close()
        if not run.child.is_gone():
            self._leaving.append((run.child, now + END_SECONDS))
        self._user.ended(now)
