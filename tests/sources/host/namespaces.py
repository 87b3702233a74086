# SPDX-License-Identifier: Apache-2.0
"""What is seen in a pid namespace of its own, as JSON: ``python -m tests.sources.host.namespaces``
``hidden HIDEPID`` or ``reused LOOP``, under ``unshare --fork --pid --mount-proc``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.sources.host.host import HostActivityReader
from tests.clocks import ManualClock
from tests.sources.host.jobs import IN_A_THREAD, PROCFS, REST, sampled, script, started

NOBODY = 65534
LOOPS = {"main": script("while True: pass"), "thread": IN_A_THREAD}


def hidden(hidepid: str) -> dict[str, Any]:
    """Look as nobody at a process of root, through a /proc that hides so much."""
    subprocess.run(["mount", "-t", "proc", "-o", f"hidepid={hidepid}", "proc", PROCFS], check=True)
    job = started(script(REST))
    sampled(job.pid, 1)  # imports everything, while it may be read
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    seen = sampled(job.pid, 4)
    states = [each.main + each.workers for each in seen.states]
    return {"states": states, "problems": dict(seen.problems)}


def reused(loop: str) -> dict[str, Any]:
    """Look at a process until it ends, and then at another one of the same pid."""
    clock = ManualClock()
    reader = HostActivityReader(PROCFS, "/sys", clock)
    seen: list[int] = []
    job = started(LOOPS[loop])
    reader.watch(frozenset({job.pid}))
    for _ in range(2):
        for _ in range(3):
            clock.advance(2.0)
            reader.sample()
        seen.append(len(reader.take()[job.pid].states))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        with suppress(ChildProcessError):
            while True:
                os.wait()  # its workers: their session has its pid
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(job.pid - 1))
        before, job = job.pid, started(LOOPS[loop])
        assert job.pid == before
    return {"states": seen}


if __name__ == "__main__":
    print(json.dumps({"hidden": hidden, "reused": reused}[sys.argv[1]](*sys.argv[2:])))
