# SPDX-License-Identifier: Apache-2.0
"""Processes with workers, as a training job has them, and what is seen of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from exporter.clock import SystemClock
from exporter.model.host import Seen
from exporter.sources.host.host import HostActivityReader

PROCFS = "/proc"
NAMED = 'open("/proc/self/comm", "w").write("pt_data_worker")'
HEAD = "import os, select, signal, sys, threading, time\nr, w = os.pipe()\n"
REST = "select.poll().poll(30000)"
"""As a worker waits for orders."""

IN_A_THREAD = f"""{HEAD}
def loop():
    if os.fork() == 0:
        {NAMED}
        os.write(w, b'.')
        while True: pass
    os.read(r, 1)
    print('ready', flush=True)
    while True: pass
threading.Thread(target=loop, daemon=True).start()
{REST}
"""
"""A program whose loop is not in its main thread."""

StartJob = Callable[..., int]


def script(*workers: str, loop: str = REST) -> str:
    """Return a program that forks workers, and then runs its loop."""
    forks = "".join(
        f"if os.fork() == 0:\n    {NAMED}\n    os.write(w, b'.')\n    {body}\n    os._exit(0)\n"
        "os.read(r, 1)\n"
        for body in workers
    )
    return f"{HEAD}{forks}print('ready', flush=True)\n{loop}\n"


def started(text: str) -> subprocess.Popen[bytes]:
    """Start a program as the leader of its group; return it when it is ready."""
    words = [sys.executable, "-c", text]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert job.stdout is not None
    job.stdout.readline()
    return job


def watching(pid: int) -> HostActivityReader:
    """Return what watches a process, and has sampled it once."""
    reader = HostActivityReader(PROCFS, "/sys", SystemClock())
    reader.watch(frozenset({pid}))
    reader.sample()
    return reader


def sampled(pid: int, times: int = 12, procfs: str = PROCFS) -> Seen:
    """Return what is seen of a process in so many samples."""
    reader = HostActivityReader(procfs, "/sys", SystemClock())
    reader.watch(frozenset({pid}))
    for _ in range(times):
        reader.sample()
        time.sleep(0.05)
    seen = reader.take()[pid]
    reader.watch(frozenset())
    reader.sample()
    return seen


def letters(seen: Seen) -> set[str]:
    """Return the states of workers in most of its samples."""
    found = [each.workers for each in seen.states]
    return {each for each in found if found.count(each) > len(found) // 3}
