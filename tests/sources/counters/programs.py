# SPDX-License-Identifier: Apache-2.0
"""Programs for real child processes: one that works, and one for each thing that goes wrong.

Run as ``python -m tests.sources.counters.programs NAME``. Options: ``seconds`` between two
activities, and what each program names.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.sources.counters.port import Port
from exporter.sources.counters.programs import run

TICK_SECONDS = 0.02


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
                port.emit(
                    {
                        "gpu": gpu["uuid"],
                        "gpu_instance": share,
                        "seconds": 1.0,
                        "ratios": {"sm": 0.5, "tensor": 0.25},
                        "bytes": {"pcie_transmit_bytes": 1000.0},
                        "age_seconds": 0.1,
                    }
                )
        port.wait(TICK_SECONDS)
    return 0


def rubbish(options: Mapping[str, Any], port: Port) -> int:
    """Write rubbish between good lines, as a library that prints to the pipe would."""
    for line in (b"hello\n", b"\xff\x00\n", b"[]\n", b'{"x": 2}\n', b"\n"):
        os.write(port.output, line)
    return count(options, port)


def endless_line(options: Mapping[str, Any], port: Port) -> int:
    """Write a line of a gigabyte."""
    os.set_blocking(port.output, True)
    port.beat()
    for _ in range(1 << 10):
        os.write(port.output, b"x" * (1 << 20))
    return 0


def silent(options: Mapping[str, Any], port: Port) -> int:
    """Hang, as in a driver call: not even the end of standard input is noticed."""
    port.beat()
    time.sleep(600)
    return 0


def talkative(options: Mapping[str, Any], port: Port) -> int:
    """Say more than is read, then a state; `done` is the file that says so."""
    for _ in range(5000):
        port.emit({"hello": {"x": "y" * 100}})
    port.emit({"gpu": None, "state": "busy", "message": f"dropped {port.dropped_total}"})
    with open(options["done"], "w", encoding="utf-8"):
        pass
    while not port.ended:
        port.beat()
        port.wait(TICK_SECONDS)
    return 0


def exits(options: Mapping[str, Any], port: Port) -> int:
    """End at once."""
    sys.stderr.write("first words\nlast words\n")
    return int(options.get("code", 3))


def raises(options: Mapping[str, Any], port: Port) -> int:
    """End by an exception that nobody catches."""
    raise RuntimeError("no such luck")


def missing(options: Mapping[str, Any], port: Port) -> int:
    """Say why it cannot work, and end."""
    port.emit({"gpu": None, "state": "missing", "message": "install this"})
    return 1


def segfault(options: Mapping[str, Any], port: Port) -> int:
    """Read address 0."""
    port.beat()
    ctypes.string_at(0)
    return 0


def kills_itself(options: Mapping[str, Any], port: Port) -> int:
    """Die as by the kernel's OOM killer."""
    port.beat()
    os.kill(os.getpid(), signal.SIGKILL)
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


def inventive(options: Mapping[str, Any], port: Port) -> int:
    """Speak of GPUs and instances that nobody has."""
    for gpu, instance in (("GPU-invented", None), ("GPU-a", 3)):
        port.emit({"gpu": gpu, "gpu_instance": instance, "seconds": 1.0, "ratios": {"sm": 0.5}})
        port.emit({"gpu": gpu, "gpu_instance": instance, "state": "busy", "message": "x"})
    return count(options, port)


def chatty(options: Mapping[str, Any], port: Port) -> int:
    """Print to standard output, as libraries do."""
    print("printed by a library", flush=True)
    os.write(1, b"written by a library\n")
    return count(options, port)


GRANDCHILD = """
import os, sys, time
if sys.argv[2] == "daemon":
    os.setsid()
    if os.fork():
        os._exit(0)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def spawns(options: Mapping[str, Any], port: Port) -> int:
    """Have a child and a daemon, as a library may, then go on as another of these programs; the
    environment names a file for their numbers, and that program."""
    pids = os.environ["SPAWNS_PIDS"]
    for kind in ("child", "daemon"):
        subprocess.Popen([sys.executable, "-c", GRANDCHILD, pids, kind])
    while not os.path.exists(pids) or Path(pids).read_text(encoding="utf-8").count("\n") < 2:
        time.sleep(TICK_SECONDS)
    port.beat()
    end: Callable[[Mapping[str, Any], Port], int] = globals()[os.environ["SPAWNS_END"]]
    return end(options, port)


NAMES = [
    *("count", "rubbish", "endless_line", "silent", "talkative", "exits", "raises"),
    *("spawns", "missing", "segfault", "kills_itself", "mute", "stubborn", "chatty", "inventive"),
]

if __name__ == "__main__":
    sys.exit(run(sys.argv[1], {name: f"tests.sources.counters.programs:{name}" for name in NAMES}))
