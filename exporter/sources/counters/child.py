# SPDX-License-Identifier: Apache-2.0
"""One child process and its three pipes, which are read and written without blocking."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, cast

from exporter.errors import one_line
from exporter.sources.counters.wire import READ_BYTES, Lines, encoded

LONGEST_ERROR = 200

log = logging.getLogger(__name__)


def program(name: str) -> tuple[str, ...]:
    """Return the command that runs one of the programs."""
    return sys.executable, "-m", "exporter.sources.counters.programs", name


class Child:
    """A process that runs a program; used by the thread that started it. The thread must outlive
    it: the kernel kills the child when the thread ends."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            cwd="/",
            env=_environment(),
        )
        self.pid = self._process.pid
        self._orders = cast("IO[bytes]", self._process.stdin)
        self.output = cast("IO[bytes]", self._process.stdout)
        self.errors = cast("IO[bytes]", self._process.stderr)
        for end in (self._orders, self.output, self.errors):
            os.set_blocking(end.fileno(), False)
        self._lines = Lines()
        self._errors = b""
        self.has_closed_output = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Send an order.

        Raises:
            BlockingIOError: the child does not read its orders, and the pipe is full.
        """
        line = encoded(message)
        with contextlib.suppress(BrokenPipeError):  # reading its other pipes shows that it is gone
            if os.write(self._orders.fileno(), line) < len(line):
                raise BlockingIOError

    def read(self) -> list[dict[str, Any]]:
        """Return the child's messages since the last call.

        Raises:
            ValueError: it writes something else.
        """
        data = _read(self.output)
        self.has_closed_output = data == b""
        return [json.loads(line) for line in self._lines.feed(data or b"")]

    def read_errors(self) -> None:
        """Log the child's standard error, and keep the end of it."""
        said = _read(self.errors) or b""
        self._errors = (self._errors + said)[-READ_BYTES:]
        for text in _texts(said):
            log.debug("child process %d: %s", self.pid, text)

    def close(self) -> None:
        """Close its pipes, which tells it to end."""
        for end in (self._orders, self.output, self.errors):
            end.close()

    def kill(self) -> None:
        """Kill it; it may stay inside a driver call for a while."""
        self._process.kill()

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def is_gone(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    @property
    def ending(self) -> str:
        """How it ended, in words, with the last line of its standard error."""
        code = self._process.returncode
        if code is None:
            return "closed its output and was killed"
        if code < 0:
            return f"was killed by signal {-code} ({_signal_name(-code)})"
        last = "".join(f": {text}" for text in _texts(self._errors)[-1:])
        return f"ended with exit code {code}{last}" if code else f"ended by itself{last}"


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return the bytes in a pipe; empty at its end, None if there are none yet."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None


def _texts(said: bytes) -> list[str]:
    """Return the lines that have a text, cut and printable."""
    lines = (line[:LONGEST_ERROR].decode(errors="replace") for line in said.splitlines())
    texts = (one_line(line).strip() for line in lines)
    return [text for text in texts if text]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of no name"


def _environment() -> dict[str, str]:
    """Return the environment in which a child imports from where this process does."""
    folders = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder)
    return {**os.environ, "PYTHONPATH": folders, "PYTHONSAFEPATH": "1"}
