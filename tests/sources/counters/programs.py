# SPDX-License-Identifier: Apache-2.0
"""Programs for real child processes: one that works, and one for each thing that goes wrong.

Run as ``python -m tests.sources.counters.programs NAME``. Options: ``seconds`` between two
activities, and what each program names.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from exporter.sources.counters.programs import run
from exporter.sources.counters.wire import Port

TICK_SECONDS = 0.02
ACTIVITY = {
    "seconds": 1.0,
    "ratios": {"sm": 0.5, "tensor": 0.25},
    "bytes": {"pcie_transmit_bytes": 1000.0},
    "age_seconds": 0.1,
}


def count(options: Mapping[str, Any], port: Port) -> int:
    """Measure each GPU that is wanted; obey."""
    port.emit({"hello": {"library": "1.2"}})
    gpus: list[dict[str, Any]] = []
    paused = False
    while not port.ended:
        for message in port.messages():
            gpus = message.get("gpus", gpus)
            if message.get("pause"):
                paused = True
                port.emit({"gpu": None, "state": "paused", "message": "handed over"})
            if message.get("resume"):
                paused = False
        port.beat()
        for gpu in [] if paused else gpus:
            for share in gpu["gpu_instances"] or [None]:
                port.emit({"gpu": gpu["uuid"], "gpu_instance": share, **ACTIVITY})
        port.wait(TICK_SECONDS)
    return 0


def endless_line(options: Mapping[str, Any], port: Port) -> int:
    """Write a line of a gigabyte."""
    port.beat()
    for _ in range(1 << 10):
        os.write(port.output, b"x" * (1 << 20))
    return 0


def silent(options: Mapping[str, Any], port: Port) -> int:
    """Hang, as in a driver call: not even the end of standard input is noticed."""
    port.beat()
    time.sleep(600)
    return 0


def exits(options: Mapping[str, Any], port: Port) -> int:
    """End at once."""
    sys.stderr.write("first words\nlast words\n")
    return int(options.get("code", 3))


def raises(options: Mapping[str, Any], port: Port) -> int:
    """End by an exception that nobody catches."""
    raise RuntimeError("no luck")


def missing(options: Mapping[str, Any], port: Port) -> int:
    """Say why it cannot work, and end."""
    port.emit({"gpu": None, "state": "missing", "message": "install this"})
    return 1


def segfault(options: Mapping[str, Any], port: Port) -> int:
    """Read address 0."""
    port.beat()
    ctypes.string_at(0)
    return 0


def mute(options: Mapping[str, Any], port: Port) -> int:
    """Close the pipe and live on."""
    os.close(port.output)
    time.sleep(600)
    return 0


def stubborn(options: Mapping[str, Any], port: Port) -> int:
    """Beat, and do not let go when it is paused."""
    while not port.ended:
        port.messages()
        port.beat()
        port.wait(TICK_SECONDS)
    return 0


def chatty(options: Mapping[str, Any], port: Port) -> int:
    """Print to standard output, as libraries do."""
    print("printed by a library", flush=True)
    os.write(1, b"written by a library\n")
    return count(options, port)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], {sys.argv[1]: f"tests.sources.counters.programs:{sys.argv[1]}"}))
