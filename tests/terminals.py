# SPDX-License-Identifier: Apache-2.0
"""Pseudo-terminals for tests of commands that draw, and what a terminal would show of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_SECONDS = 20.0


def environment(**changes: str) -> dict[str, str]:
    """The environment of a user with a terminal that has colours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ROOFLINE_") and name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    return kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | changes


class Terminal:
    """A command of ours in a terminal of a given size."""

    def __init__(
        self, columns: int, lines: int, *words: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self._set_size(columns, lines)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "exporter", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env or environment(),
            cwd=REPOSITORY,
            start_new_session=True,
        )
        os.close(slave)
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the last process on the other side ended
                return
            if not piece:
                return
            self._seen += piece

    @property
    def output(self) -> str:
        """All that was written, with its escape sequences."""
        return self._seen.decode("utf-8", "replace")

    @property
    def lines(self) -> list[str]:
        """The lines that were written, without escape sequences."""
        return ESCAPE.sub("", self.output).replace("\r", "").splitlines()

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as a user's window does."""
        self._set_size(columns, lines)
        self.send(signal.SIGWINCH)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        finally:
            self.close()
        return code

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE_SECONDS)
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
