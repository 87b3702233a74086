# SPDX-License-Identifier: Apache-2.0
"""One round over all workers: asks each for a reading, and waits for those that are quick."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue

from exporter.clock import Clock
from exporter.sources.fleet.slots import Reader

HEAD_START_SECONDS = 0.002
"""How long a round waits for one GPU before it asks the next."""


class Rounds:
    """Asks workers, and hears from them when they are done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._finished: SimpleQueue[Reader] = SimpleQueue()

    def done(self, worker: Reader) -> None:
        """Hear that `worker` has ended the round that it was asked for."""
        self._finished.put(worker)

    def run(self, workers: Sequence[Reader], wait_seconds: float) -> None:
        """Ask those that are not still busy with an earlier round; wait at most so long."""
        deadline = self._clock.monotonic() + wait_seconds
        pending: set[Reader] = set()
        self._collect(pending, 0.0)  # what late workers put there after the last round
        # One after the other as long as the driver is quick: threads that all wake at once spend
        # more time on handing the interpreter to each other than on reading.
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
