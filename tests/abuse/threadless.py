# SPDX-License-Identifier: Apache-2.0
"""The program on a node without process ids: ``python -m tests.abuse.threadless FILE serve ...``.

While the file exists no thread can be started. Root has no limit of its own that a test could
lower, so what the kernel answers is answered here.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from exporter.cli.main import main


def starve(file: str) -> None:
    """Have the start of every thread fail while the file exists."""
    start = threading.Thread.start

    def start_if_possible(thread: threading.Thread) -> Any:
        if os.path.exists(file):
            raise RuntimeError("can't start new thread")
        return start(thread)

    setattr(threading.Thread, "start", start_if_possible)  # noqa: B010 - mypy refuses it plainly


if __name__ == "__main__":
    starve(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
