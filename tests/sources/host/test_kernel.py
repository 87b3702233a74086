# SPDX-License-Identifier: Apache-2.0
"""What a real kernel shows: frozen control groups, a /proc that hides, pids that are used again,
and processes that end while they are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from exporter.derive.outside import judged
from exporter.sources.host.thread import family
from exporter.sources.proc import procfs
from exporter.sources.proc.procfs import STATE, stat_fields
from tests.conftest import require_tool
from tests.sources.host.jobs import PROCFS, REST, StartJob, letters, sampled, script, watching
from tests.waiting import wait_until

SPIN = "while True: pass"
SLEEPS = ("time.sleep(60)", "threading.Event().wait(60)", REST, "signal.pause()")
FUTEX = "threading.Event().wait(60)"
"""As a loop sleeps that has its batches pinned."""


FREEZERS = {
    1: (("freezer",), "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"),
    2: (("unified", "."), "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"),
}
"""By version of control groups: where they are; the file that freezes one, and what to write there
to freeze and thaw; the file that shows whether it is frozen, and what is in it then."""


class Group:
    """A control group that can be frozen."""

    def __init__(self, version: int) -> None:
        roots, self._file, self._freeze, self._thaw, self._shows, self._frozen = FREEZERS[version]
        for root in roots:
            self._path = Path("/sys/fs/cgroup", root, f"roofline-test-{os.getpid()}")
            with suppress(OSError):
                self._path.mkdir()
                self.thaw()
                return
            with suppress(OSError):
                self._path.rmdir()
        pytest.skip(f"control groups of version {version} cannot be frozen here")

    def add(self, *pids: int) -> None:
        for pid in pids:
            (self._path / "cgroup.procs").write_text(str(pid))

    def freeze(self) -> None:
        (self._path / self._file).write_text(self._freeze)
        wait_until(lambda: self._frozen in (self._path / self._shows).read_text())

    def thaw(self) -> None:
        (self._path / self._file).write_text(self._thaw)

    def close(self) -> None:
        self.thaw()
        procs = self._path / "cgroup.procs"
        for pid in procs.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not procs.read_text())
        self._path.rmdir()


@pytest.fixture(params=FREEZERS)
def group(request: pytest.FixtureRequest, start_job: StartJob) -> Iterator[Group]:
    """Return a control group of either version; it is thawed before its job is ended."""
    group = Group(request.param)
    yield group
    group.close()


@pytest.mark.parametrize("loop", [FUTEX, REST, SPIN])
def test_a_frozen_job_is_stopped(group: Group, start_job: StartJob, loop: str) -> None:
    """Wherever its threads slept: no wait for data, until it is thawed."""
    pid = start_job(script(SPIN, *SLEEPS, loop=loop))
    workers = wait_until(lambda: family(PROCFS, pid).workers)
    time.sleep(0.1)  # all sleep
    group.add(pid, *workers)
    group.freeze()
    seen = sampled(pid)
    assert {each.main for each in seen.states} == {"T"}
    assert letters(seen) == {"TTTTT"}
    moments = judged(seen.states)
    assert not any(each.certain or each.possible for each in moments)
    group.thaw()
    assert "T" not in "".join(letters(sampled(pid)))


def in_a_namespace(*words: str) -> dict[str, Any]:
    """Return what a program says that is the first of a pid namespace."""
    unshare = [require_tool("unshare"), "--fork", "--pid", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    program = [sys.executable, "-m", "tests.sources.host.namespaces"]
    ran = subprocess.run([*unshare, *program, *words], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("hidepid", "states", "problems"),
    [
        ("0", {"SS"}, {"host_io": "no_permission", "host_waits": "no_permission"}),
        ("1", set(), {"host": "no_permission"}),
        ("2", set(), {"host": "no_permission"}),
    ],
)
def test_who_may_not_look(hidepid: str, states: set[str], problems: dict[str, str]) -> None:
    """An unprivileged user sees less of the processes of others, or nothing; it is said."""
    require_tool("mount")
    seen = in_a_namespace("hidden", hidepid)
    assert set(seen["states"]) == states
    assert seen["problems"] == problems


@pytest.mark.parametrize("loop", ["main", "thread"])
def test_a_pid_that_is_used_again(loop: str) -> None:
    """What another process does is never taken for what the watched one did."""
    assert in_a_namespace("reused", loop) == {"states": [3, 0]}


@pytest.mark.slow
@pytest.mark.parametrize("reaped", [True, False])
@pytest.mark.parametrize("body", [REST, "time.sleep(60)", SPIN])
@pytest.mark.parametrize("read", range(4))
def test_a_worker_that_ends_between_two_reads_of_a_sample(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch, read: int, body: str, reaped: bool
) -> None:
    """It is left out, the other one and the loop stay."""
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" if reaped else ""
    pid = start_job(script(body, body, loop=ignore + SPIN))
    workers = family(PROCFS, pid).workers
    reader = watching(pid)
    reads = 0
    pread = os.pread

    def ending(file: int, length: int, offset: int) -> bytes:
        nonlocal reads
        if os.readlink(f"/proc/self/fd/{file}").startswith(f"/proc/{workers[0]}/"):
            if reads == read:
                end(workers[0])
            reads += 1
        return pread(file, length, offset)

    monkeypatch.setattr(os, "pread", ending)
    for _ in range(3):
        reader.sample()
    seen = reader.take()[pid]
    assert [len(each.workers) for each in seen.states][-1] == 1
    assert all(each.main == "R" for each in seen.states)
    assert reader.state is None or reader.state.up
    time.sleep(1.0)
    reader.sample()
    assert reader.take()[pid].workers == 1


def end(pid: int) -> None:
    """End a process; return when it has."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: stat_fields(PROCFS, pid)[STATE : STATE + 1] in ([], [b"Z"]))


@pytest.mark.parametrize("name", ["comm", "stat", "io", "status", "cgroup"])
def test_a_process_that_ends_once_a_file_of_it_is_open(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What vanishes before it is read is absent; nothing fails."""
    pid = start_job(script(REST, SPIN))
    ended: list[str] = []

    def opened(path: str, mode: str) -> Any:
        file = open(path, mode)  # noqa: SIM115
        if path.endswith(f"/{name}") and not ended:
            ended.append(path)
            os.killpg(pid, signal.SIGKILL)
            wait_until(lambda: stat_fields("/proc/./", pid)[STATE : STATE + 1] in ([], [b"Z"]))
        return file

    monkeypatch.setattr(procfs, "open", opened, raising=False)
    seen = sampled(pid, 3)
    assert ended
    assert len(seen.states) <= 1
