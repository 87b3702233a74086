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
from exporter.sources.counters.wire import PAUSED

BACK_OFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Between one child's end and the next one's start."""
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
STEP_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orders:
    """The GPUs that a child is to measure, and whether it is to release them."""

    gpus: tuple[Mapping[str, Any], ...] = ()
    paused: bool = False


class ChildUser(Protocol):
    """The source that uses the child, as the supervisor calls it."""

    def orders(self) -> Orders:
        """Return the present orders."""

    def handle(self, message: Mapping[str, Any], now: float) -> None:
        """Take a message of the child."""

    def failed(self, problem: str) -> None:
        """Count a failure, because of which no child runs."""

    def ended(self, now: float) -> None:
        """Note that there is no child any more."""


@dataclass(slots=True)
class _Run:
    child: Child
    started: float
    heard: float | None = None
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
        self._failures_in_a_row = 0
        self._not_before = float("-inf")
        self._run: _Run | None = None
        self._leaving: list[tuple[Child, float]] = []
        """Children that were told to end and are not dead yet, and when they are killed."""
        self.generation = 0
        """How many children there were."""
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._wake)
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
        now = self._clock.monotonic()
        return tuple(child.pid for child, due in self._leaving if now >= due)

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
        os.eventfd_write(self._wake, 1)

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
        for child, _ in self._leaving:
            child.kill()
            child.wait(KILL_SECONDS)

    def step(self, wait_seconds: float) -> None:
        """In the child's thread: do what is due, and read its messages within `wait_seconds`."""
        now = self._clock.monotonic()
        self._reap(now)
        orders = self._user.orders()
        if self._run is None and orders.gpus and not orders.paused and now >= self._not_before:
            self._start(now)
        if self._run is not None:
            self._send_orders(self._run, orders, now)
        if self._run is not None:
            self._end_if_due(self._run, now)
        self._wait(wait_seconds)
        if self._run is not None:
            self._read(self._run)

    def _reap(self, now: float) -> None:
        """Kill children that do not end in time, and forget those that have ended."""
        for child, due in self._leaving:
            if now >= due:
                child.kill()
        self._leaving = [each for each in self._leaving if not each[0].is_gone()]

    def _start(self, now: float) -> None:
        if len(self.stuck) >= MOST_STUCK:
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
        self._run = _Run(child, started=now)
        child.send(self._options)

    def _send_orders(self, run: _Run, orders: Orders, now: float) -> None:
        try:
            if orders.gpus != run.sent.gpus:
                run.child.send({"gpus": orders.gpus})
            if orders.paused != run.sent.paused:
                run.child.send({"pause": True} if orders.paused else {"resume": True})
                run.release_due = now + PAUSE_SECONDS if orders.paused else None
        except BlockingIOError:
            self._kill(run.child, "did not read its orders and was killed")
        run.sent = orders
        if orders.gpus:
            run.unwanted_since = None
        elif run.unwanted_since is None:
            run.unwanted_since = now

    def _end_if_due(self, run: _Run, now: float) -> None:
        """End a child that no GPU wants, that keeps the counters, or hangs."""
        patience = FIRST_SECONDS if run.heard is None else SILENT_SECONDS
        silent = now - (run.started if run.heard is None else run.heard)
        if run.unwanted_since is not None and now - run.unwanted_since >= UNWANTED_SECONDS:
            self._leave()
        elif run.release_due is not None and now >= run.release_due:
            run.child.kill()  # that releases the counters
            self._leave()
        elif silent >= patience:
            self._kill(run.child, f"said nothing for {patience:.0f} s and was killed")

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._run is not None:
            poll.register(self._run.child.output, select.POLLIN)
            poll.register(self._run.child.errors, select.POLLIN)
            if self._run.release_due is not None:
                seconds = min(seconds, self._run.release_due - self._clock.monotonic())
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _read(self, run: _Run) -> None:
        """Read the messages of the child, and note if it has ended."""
        child = run.child
        try:
            messages = child.read()
        except ValueError:
            self._kill(child, "wrote more than makes sense and was killed")
            return
        for message in messages:
            run.heard = self._clock.monotonic()
            if message.get("state") == PAUSED and message["gpu"] is None:
                run.release_due = None
            self._user.handle(message, run.heard)
        if child.has_closed_output:
            child.wait(END_SECONDS)
            child.read_errors()
            self._kill(child, child.ending)  # it may only have closed its output
        else:
            child.read_errors()

    def _kill(self, child: Child, reason: str) -> None:
        child.kill()
        self._fail(f"its child process {reason}")

    def _fail(self, problem: str) -> None:
        """End the present child, and back off."""
        now = self._clock.monotonic()
        if self._run is not None and now - self._run.started >= GOOD_SECONDS:
            self._failures_in_a_row = 0
        wait = BACK_OFF_SECONDS[min(self._failures_in_a_row, len(BACK_OFF_SECONDS) - 1)]
        self._failures_in_a_row += 1
        self._not_before = now + wait
        self._leave()
        self._user.failed(problem)

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
