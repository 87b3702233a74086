# SPDX-License-Identifier: Apache-2.0
"""One round over all workers: asks each for a reading, and waits for a limited time."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue

from exporter.clock import Clock
from exporter.sources.fleet.slots import Reader

HEAD_START_SECONDS = 0.002
"""How long a round waits for one worker before it asks the next."""


class Rounds:
    """Asks workers for readings, and collects those that have finished."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._finished: SimpleQueue[Reader] = SimpleQueue()

    def done(self, worker: Reader) -> None:
        """Note that `worker` has finished its round; called by the worker."""
        self._finished.put(worker)

    def run(self, workers: Sequence[Reader], wait_seconds: float) -> None:
        """Ask all workers that have finished their last round; wait at most `wait_seconds`."""
        deadline = self._clock.monotonic() + wait_seconds
        pending: set[Reader] = set()
        self._collect(pending, 0.0)  # workers that finished after the last round had ended
        # One after the other while the driver is quick: threads that all wake at once spend more
        # time on passing the interpreter's lock to each other than on reading.
        head_start = min(HEAD_START_SECONDS, wait_seconds / (2 * len(workers) or 1))
        for worker in workers:
            if not worker.asked:
                worker.ask()
                pending.add(worker)
                self._collect(pending, head_start)
        self._collect(pending, deadline - self._clock.monotonic())

    def _collect(self, pending: set[Reader], wait_seconds: float) -> None:
        """Take finished workers out of `pending` until it is empty or the time is over."""
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            remaining = deadline - self._clock.monotonic()
            try:
                if remaining > 0 and pending:
                    pending.discard(self._finished.get(timeout=remaining))
                else:
                    pending.discard(self._finished.get_nowait())
            except Empty:
                return
