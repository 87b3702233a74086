# SPDX-License-Identifier: Apache-2.0
"""Redraw the table in place until interrupted."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from exporter.cli.terminal.screen import Screen, encodable, screen_of

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

Frame = Callable[[Screen], Sequence[str]]


class _Ended(Exception):
    """SIGTERM was received."""


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


@contextmanager
def _resizes() -> Iterator[Callable[[float], bool]]:
    """Yield a sleep that returns True early if the terminal is resized."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    old_handler = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
    old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def pause(seconds: float) -> bool:
        ready, _, _ = select.select([reader], [], [], max(0.0, seconds))
        if ready:
            os.read(reader, 4096)
        return bool(ready)

    try:
        yield pause
    finally:
        signal.set_wakeup_fd(old_writer)
        signal.signal(signal.SIGWINCH, old_handler)
        os.close(reader)
        os.close(writer)


def watch(
    frames: Callable[[], Frame],
    interval_seconds: float,
    stream: TextIO,
    environ: Mapping[str, str],
) -> int:
    """Print a frame every interval until SIGINT or SIGTERM; return the exit code.

    `frames` reads and returns the next frame. If the cursor cannot be moved, frames are separated
    by an empty line.
    """
    old_handler = signal.signal(signal.SIGTERM, _end)
    moves = screen_of(stream, environ).moves
    try:
        if moves:
            stream.write(HIDE_CURSOR + HOME + CLEAR_BELOW)
        with _resizes() as pause:
            while True:
                frame = frames()
                _show(frame, stream, environ)
                due = time.monotonic() + interval_seconds
                while (left := due - time.monotonic()) > 0:
                    if pause(left) and moves:
                        _show(frame, stream, environ)
    except (KeyboardInterrupt, _Ended):
        return 0
    finally:
        signal.signal(signal.SIGTERM, old_handler)
        if moves:
            stream.write(SHOW_CURSOR)
            stream.flush()


def _show(frame: Frame, stream: TextIO, environ: Mapping[str, str]) -> None:
    screen = screen_of(stream, environ)
    lines = [encodable(line, stream.encoding) for line in frame(screen)]
    if not screen.moves:
        stream.write("\n".join([*lines, "", ""]))
    else:
        shown = _cut(lines, screen.lines)
        # Clear the rest of a line after writing it, so that nothing flickers.
        stream.write(HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in shown) + CLEAR_BELOW)
    stream.flush()


def _cut(lines: list[str], most: int | None) -> list[str]:
    """Return the lines that fit above the cursor's line, and the number of others."""
    room = len(lines) if most is None else max(1, most - 1)
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"+{len(lines) - room + 1} more"]
