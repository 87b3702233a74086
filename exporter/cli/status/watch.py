# SPDX-License-Identifier: Apache-2.0
"""Redraw the table in place until interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from exporter.cli.status.render import View, rendered
from exporter.cli.terminal.screen import Screen, encodable, screen_of

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
RESIZE_SECONDS = 0.1
"""How soon a resized terminal is redrawn."""


def watch(
    views: Callable[[], View], interval_seconds: float, stream: TextIO, environ: Mapping[str, str]
) -> int:
    """Print a view every interval until SIGINT or SIGTERM; return the exit code.

    `views` reads the next. If the cursor cannot be moved, an empty line is between two.
    """
    old_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    moves = screen_of(stream, environ).moves
    try:
        if moves:
            stream.write(HIDE_CURSOR + HOME + CLEAR_BELOW)
        while True:
            view = views()
            shown = _show(view, stream, environ)
            due = time.monotonic() + interval_seconds
            while (left := due - time.monotonic()) > 0:
                time.sleep(min(left, RESIZE_SECONDS))
                if moves and screen_of(stream, environ) != shown:
                    shown = _show(view, stream, environ)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, old_handler)
        if moves:
            stream.write(SHOW_CURSOR)
            stream.flush()


def _show(view: View, stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Print a view; return the size that it was made for."""
    screen = screen_of(stream, environ)
    lines = [encodable(line, stream.encoding) for line in rendered(view, screen)]
    if not screen.moves:
        stream.write("\n".join([*lines, "", ""]))
    else:
        shown = _cut(lines, screen.lines)
        # Clear the rest of a line after writing it, so that nothing flickers.
        stream.write(HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in shown) + CLEAR_BELOW)
    stream.flush()
    return screen


def _cut(lines: list[str], most: int | None) -> list[str]:
    """Return the lines that fit above the cursor's line, and the number of others."""
    room = len(lines) if most is None else max(1, most - 1)
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"+{len(lines) - room + 1} more"]
