# SPDX-License-Identifier: Apache-2.0
"""The daemon on a fast clock: `serve` itself, ticked one simulated second after the other.

Another clock is put in where the daemon wires its parts, and no tick is ever skipped: a slow
machine takes longer, it does not test less. What waits in real time stays so, but for the
supervisor of the GPUs (see `PacedEvent`).
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from exporter.cli import wiring
from exporter.cli.main import main
from exporter.clock import Clock
from exporter.publisher import Publisher
from exporter.sources.fleet import fleet
from exporter.web.live.stream import Streams
from exporter.web.store import Store
from tests.clocks import ManualClock

PROGRAM = (sys.executable, "-m", "tests.soak.launcher")
PACE_VARIABLE = "SOAK_PACE"
"""The most ticks in a real second."""
CLOCK_VARIABLE = "FAKE_NVML_CLOCK"
"""The file that the simulated driver reads its time from."""
INTERVAL_SECONDS = 1.0
LEAST_PAUSE_SECONDS = 0.0005
"""Between two ticks, also where they are late: requests have to get their turn."""

log = logging.getLogger(__name__)


class SteppedClock(ManualClock):
    """A clock that stands still but for `advance`, and moves the simulated driver's with it."""

    def __init__(self, path: Path) -> None:
        super().__init__(float(path.read_text(encoding="utf-8")))
        self._path = path
        self._scratch = path.with_name(f"{path.name}.{os.getpid()}.step")

    def advance(self, seconds: float) -> None:
        """Advance both."""
        super().advance(seconds)
        self._scratch.write_text(f"{self.time():.9f}\n", encoding="utf-8")
        self._scratch.replace(self._path)


class PacedEvent(threading.Event):
    """An event whose waits take simulated time."""

    def __init__(self, pace: float) -> None:
        super().__init__()
        self._pace = pace

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; at most `timeout` simulated seconds."""
        return super().wait(None if timeout is None else timeout / self._pace)


class SteppedPublisher(Publisher):
    """A publisher that moves the clock by one interval before each tick."""

    def __init__(self, *args: Any, stepped: SteppedClock, ticks_per_second: float, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._stepped = stepped
        self._spacing = 1 / ticks_per_second

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            self._stepped.advance(INTERVAL_SECONDS)
            try:
                self.tick()
            except Exception:
                log.exception("a tick failed")
            now = time.monotonic()
            due = max(due + self._spacing, now - 1.0)  # catch up for a second at most
            self._stopped.wait(max(LEAST_PAUSE_SECONDS, due - now))


def run(argv: list[str], clock: SteppedClock, pace: float) -> int:
    """Run the command line on this clock; return its exit code."""

    def node_clock(_: object) -> Clock:
        return clock

    class PacedFleet(fleet.Fleet):
        """Counts the GPUs, and tries the driver again, in simulated time."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._slots.wake = PacedEvent(pace)

    stepped = functools.partial(SteppedPublisher, stepped=clock, ticks_per_second=pace)
    with (
        patch.object(wiring, "node_clock", node_clock),
        patch.object(wiring, "Publisher", stepped),
        patch.object(wiring, "Store", functools.partial(Store, clock.monotonic)),
        patch.object(wiring, "Streams", functools.partial(Streams, clock=clock.monotonic)),
        patch("exporter.cli.readers.Fleet", PacedFleet),
    ):
        return main(argv)


if __name__ == "__main__":
    sys.exit(
        run(
            sys.argv[1:],
            SteppedClock(Path(os.environ[CLOCK_VARIABLE])),
            float(os.environ[PACE_VARIABLE]),
        )
    )
