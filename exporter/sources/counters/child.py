# SPDX-License-Identifier: Apache-2.0
"""One child process and its three pipes, which are read and written without blocking."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any

from exporter.errors import one_line
from exporter.sources.counters.programs import KILL_SIGNAL
from exporter.sources.counters.wire import Lines, encoded

READ_BYTES = 65_536
MOST_READ_BYTES = 1 << 20
"""Of one pipe and at once."""
MOST_ERRORS = 20
LONGEST_ERROR = 200

log = logging.getLogger(__name__)


def program(name: str) -> tuple[str, ...]:
    """Return the command that runs one of the programs."""
    return sys.executable, "-m", "exporter.sources.counters.programs", name


class Child:
    """A process that runs a program; used by the thread that started it.

    The thread must outlive it: the kernel kills the child when the thread ends.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=_environment(),
        )
        self._unsent = bytearray()
        self._lines = Lines()
        self._error_lines = Lines()
        self._errors: deque[str] = deque(maxlen=MOST_ERRORS)
        self._at_end: set[IO[bytes]] = set()
        self.read_bytes_total = 0
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None, "a pipe"  # noqa: S101
        assert stdout is not None, "a pipe"  # noqa: S101
        assert stderr is not None, "a pipe"  # noqa: S101
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        for pipe in (stdin, stdout, stderr):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def has_unsent(self) -> bool:
        """Whether an order waits for room in the pipe."""
        return bool(self._unsent)

    @property
    def dropped_total(self) -> int:
        """How many lines were too long."""
        return self._lines.dropped_total

    def send(self, message: Mapping[str, Any]) -> None:
        """Send an order, as soon as there is room for it."""
        self._unsent += encoded(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as there is room for."""
        if self._unsent:
            try:
                del self._unsent[: os.write(self.stdin.fileno(), self._unsent)]
            except BlockingIOError:
                pass
            except OSError:  # the child is gone; reading its other pipes shows that
                self._unsent.clear()

    def read(self) -> list[bytes]:
        """Return the lines that it has written since the last call."""
        return self._lines.feed(self._read(self.stdout))

    def read_errors(self) -> None:
        """Log what it has written to standard error, and remember the end of it."""
        for line in self._error_lines.feed(self._read(self.stderr)):
            text = one_line(line[:LONGEST_ERROR].decode(errors="replace")).strip()
            if text:
                self._errors.append(text)
                log.debug("child process %d: %s", self.pid, text)

    def _read(self, pipe: IO[bytes]) -> bytes:
        found = bytearray()
        with contextlib.suppress(BlockingIOError):
            while len(found) < MOST_READ_BYTES:
                data = os.read(pipe.fileno(), READ_BYTES)
                if not data:
                    self._at_end.add(pipe)
                    break
                found += data
        self.read_bytes_total += len(found)
        return bytes(found)

    @property
    def has_closed_stdout(self) -> bool:
        """Whether its standard output is at its end."""
        return self.stdout in self._at_end

    @property
    def readable(self) -> list[IO[bytes]]:
        """The pipes that are not at their end."""
        return [pipe for pipe in (self.stdout, self.stderr) if pipe not in self._at_end]

    def close(self) -> None:
        """Close its pipes, which tells it to end."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                pipe.close()

    def kill(self) -> None:
        """Kill it and what it has started; it may stay inside a driver call for a while."""
        with contextlib.suppress(OSError):
            self._process.send_signal(KILL_SIGNAL)

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def is_gone(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    @property
    def has_ended_itself(self) -> bool:
        """Whether it has ended, and not by a signal."""
        code = self._process.returncode
        return code is not None and code >= 0

    @property
    def ending(self) -> str:
        """How it ended, in words, with the last line of its standard error."""
        code = self._process.returncode
        if code is None:
            return "does not end"
        if code < 0:
            return f"was killed by signal {-code} ({_signal_name(-code)})"
        last = f": {self._errors[-1]}" if self._errors else ""
        return f"ended with exit code {code}{last}" if code else f"ended by itself{last}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of no name"


def _environment() -> dict[str, str]:
    """Return the environment in which a child imports from where this process does."""
    folders = (os.path.abspath(folder) for folder in sys.path if folder)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONSAFEPATH": "1",
    }
