# SPDX-License-Identifier: Apache-2.0
"""Which signals end a command that runs until it is stopped, and which it heeds meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM, and on SIGINT unless the command was started to ignore it.

    Scripts and ``nohup`` start what runs in the background so: a Ctrl-C is not meant for it.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop())
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: stop())


def on_lending(pause: Callable[[], object], resume: Callable[[], object]) -> None:
    """Call `pause` on SIGUSR1 and `resume` on SIGUSR2; both would end a process otherwise."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: pause())
    signal.signal(signal.SIGUSR2, lambda _number, _frame: resume())
