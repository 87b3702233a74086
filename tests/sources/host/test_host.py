# SPDX-License-Identifier: Apache-2.0
"""Watching processes: real ones, that rest, work, end and are hidden."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.model.host import ASLEEP, AT_REST, Seen
from exporter.sources.host import thread
from exporter.sources.host.host import LOOK_SECONDS, HostActivityReader, most_threads
from exporter.sources.host.limits import Cores, cores
from exporter.sources.host.thread import WAITS_FOR_ORDERS, Family, WatchedThread, family
from exporter.sources.proc.procfs import STATE, stat_fields
from tests.clocks import ManualClock
from tests.sources.host.jobs import (
    HEAD,
    IN_A_THREAD,
    NAMED,
    PROCFS,
    REST,
    StartJob,
    letters,
    sampled,
    script,
    watching,
)
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (REST, "Q"),
        # Python 3.10 sleeps in select.
        ("time.sleep(30)", "W" if sys.version_info >= (3, 11) else "Q"),
        ("while True: pass", "R"),
        ("threading.Event().wait(30)", "W"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "T"),
    ],
)
def test_what_a_worker_does(start_job: StartJob, body: str, expected: str) -> None:
    """It rests only where it waits for orders."""
    assert letters(sampled(start_job(script(body)))) == {expected}


def test_a_worker_that_rests_between_pieces_of_work_is_only_asleep(start_job: StartJob) -> None:
    """Between two looks it has run, as one that reads from the network. It seldom wakes, so that
    it seldom waits for a core here."""
    seen = sampled(start_job(script("while True: select.poll().poll(30)")))
    assert letters(seen) == {"S"}


def test_workers_are_found_through_a_process_that_starts_them(start_job: StartJob) -> None:
    """As a forkserver does."""
    nested = f"if os.fork() == 0:\n    {NAMED}\n    {REST}\n"
    pid = start_job(
        f"{HEAD}if os.fork() == 0:\n    {nested.replace(chr(10), chr(10) + '    ')}\n"
        f"    {REST}\nprint('ready', flush=True)\n{REST}\n"
    )
    wait_until(lambda: sampled(pid, 1).workers == 1)


def test_the_loop_is_the_thread_that_started_the_workers(start_job: StartJob) -> None:
    """The main thread may only wait for it."""
    pid = start_job(IN_A_THREAD)
    wait_until(lambda: family(PROCFS, pid).workers)
    assert family(PROCFS, pid).loop != pid
    assert [each.main for each in sampled(pid).states].count("R") > 6


def test_no_workers_are_seen_without_the_kernels_lists(start_job: StartJob, tmp_path: Path) -> None:
    """Or without the name that PyTorch gives them since 2.6: how many it has is not known."""
    pid = start_job(script(REST))
    (tmp_path / str(pid) / "task" / str(pid)).mkdir(parents=True)
    assert family(str(tmp_path), pid) == Family(pid)
    assert sampled(start_job(script(REST).replace(NAMED, "pass")), 2).workers is None


def test_a_process_without_workers_is_not_sampled(start_job: StartJob) -> None:
    """Its states would say nothing of a loader; it is only looked at for workers."""
    seen = sampled(start_job(script()), 4)
    assert (seen.states, seen.totals, seen.problems) == ((), None, {})


def test_while_no_process_has_workers_the_thread_sleeps_until_the_next_look(
    start_job: StartJob,
) -> None:
    """One look in five seconds, and nothing between two."""
    clock = ManualClock()
    reader = HostActivityReader(PROCFS, "/sys", clock)
    reader.watch(frozenset({start_job(script())}))
    waits = []
    for _ in range(12):
        reader.sample()
        waits.append(reader.between_seconds())
        clock.advance(waits[-1])
    assert waits == [LOOK_SECONDS] * 12


def test_processes_that_end_between_two_samples(start_job: StartJob) -> None:
    """A worker is left out; the process is not taken up again, even if another has its pid."""
    pid = start_job(script(REST, "time.sleep(0.3)"))
    reader = watching(pid)
    assert len(reader.take()[pid].states[0].workers) == 2
    time.sleep(0.6)
    reader.sample()
    assert len(reader.take()[pid].states[0].workers) == 1
    os.killpg(pid, signal.SIGKILL)
    time.sleep(0.2)
    for _ in range(3):
        reader.sample()
    assert reader.take()[pid].states == ()
    reader.watch(frozenset())
    reader.sample()
    assert reader.take() == {}


def test_a_hidden_process_is_said_to_be(tmp_path: Path) -> None:
    """By hidepid, or in another pid namespace."""
    seen = sampled(4242, 2, str(tmp_path))
    assert (seen.states, seen.problems) == ((), {"host": "no_permission"})


def test_what_may_not_be_read_is_said(start_job: StartJob, tmp_path: Path) -> None:
    """Without io and wchan the states remain: asleep, nobody knows where."""
    pid = start_job(script(REST))
    worker = family(PROCFS, pid).workers[0]
    wait_until(lambda: {stat_fields(PROCFS, each)[STATE] for each in (pid, worker)} == {b"S"})
    for each in (pid, worker):
        folder = tmp_path / str(each) / "task" / str(each)
        folder.mkdir(parents=True)
        (folder / "children").write_text(str(worker) if each == pid else "")
        for target in (folder / "stat", tmp_path / str(each) / "stat"):
            target.write_bytes(Path(f"/proc/{each}/stat").read_bytes())
        for name in ("comm", "cmdline", "status"):
            (tmp_path / str(each) / name).write_bytes(Path(f"/proc/{each}/{name}").read_bytes())
    seen = sampled(pid, 3, str(tmp_path))
    assert letters(seen) == {"S"}
    assert seen.totals is not None
    assert seen.totals.read_bytes is None
    assert seen.problems == {"host_io": "no_permission", "host_waits": "no_permission"}


def test_a_process_of_2000_threads(start_job: StartJob) -> None:
    """They are looked at when the watching begins, not ten times a second."""
    threads = "for _ in range(2000): threading.Thread(target=time.sleep, args=(60,)).start()"
    text = script(REST).replace("print('ready'", f"{threads}\nprint('ready'")
    pid = start_job(text)
    seen = sampled(pid)
    assert len(seen.states) == 12
    assert letters(seen) == {"Q"}


def test_more_workers_than_files_may_be_open(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections and GPUs go first."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (603, 603))
    assert most_threads() == 1
    seen = sampled(start_job(script(REST)), 2)
    assert (seen.states, seen.problems) == ((), {"host": "busy"})


@pytest.mark.parametrize("left", [0, 2, 5])
def test_no_file_can_be_opened_any_more(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """By the limit of this process or of the node: nothing is said of half of the threads, and
    what had been opened is closed."""
    pid, open_before = start_job(script(REST, REST)), os.listdir("/proc/self/fd")
    open_file, opened = thread._open, 0

    def limited(path: str) -> int:
        nonlocal opened
        opened += 1
        if opened > left:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return open_file(path)

    monkeypatch.setattr(thread, "_open", limited)
    seen = watching(pid).take()[pid]
    assert (seen.states, seen.problems) == ((), {"host": "busy"})
    assert os.listdir("/proc/self/fd") == open_before


def test_totals_are_of_the_process_and_its_workers(start_job: StartJob) -> None:
    """CPU time of the cores, reads of the workers."""
    reading = "f = os.open('/dev/zero', os.O_RDONLY)\n    while True: os.read(f, 4096)"
    pid = start_job(script(reading))
    reader = watching(pid)
    time.sleep(2.1)
    reader.sample()
    totals = reader.take()[pid].totals
    assert totals is not None
    assert totals.busy_seconds is not None
    assert totals.busy_seconds > 0.2
    assert totals.reads is not None
    assert totals.read_bytes == pytest.approx(4096 * totals.reads)
    assert totals.cores == len(os.sched_getaffinity(pid))
    reader.watch(frozenset())
    reader.sample()


def test_no_thread_wakes_while_nothing_is_watched(start_job: StartJob) -> None:
    """And it has no state until it has sampled anything."""
    reader = HostActivityReader(PROCFS, "/sys", SystemClock())
    reader.start()
    assert reader.state is None
    thread = next(each for each in threading.enumerate() if each.name == "proc")
    slices = Path(f"/proc/self/task/{thread.native_id}/schedstat")

    def rests() -> bool:
        before = slices.read_text().split()[2]
        time.sleep(0.5)
        return slices.read_text().split()[2] == before

    wait_until(rests)
    pid = start_job(script(REST))
    reader.watch(frozenset({pid}))
    wait_until(lambda: len(reader.take().get(pid, Seen()).states) > 0)
    assert reader.state is not None
    assert reader.state.up
    reader.stop()
    thread.join(5.0)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("allowed", "quotas", "expected"),
    [
        ("0-3,8", {}, (5.0, None)),
        ("0-63", {"a/b": "max 100000", "a": "250000 100000"}, (2.5, 7.5)),
        ("0-1", {"a/b": "800000 100000"}, (2.0, 0.6)),
        ("0-1", {"a/b": "rubbish"}, (2.0, 0.6)),
    ],
)
def test_cores(tmp_path: Path, allowed: str, quotas: dict[str, str], expected: Cores) -> None:
    """The affinity, or the smallest quota of the control groups; and how busy these were."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(f"Name:\tx\nCpus_allowed_list:\t{allowed}\n")
    (tmp_path / "7" / "cgroup").write_text("0::/a/b\n")
    for group, quota in quotas.items():
        folder = tmp_path / "fs" / "cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(f"{quota}\n")
        (folder / "cpu.stat").write_text("usage_usec 7500000\nuser_usec 1\n")
    ticks = "10 0 20 900 50 0 0 0 0 0"
    (tmp_path / "stat").write_text(f"cpu  20 0 40 1800 100 0 0 0\ncpu0 {ticks}\ncpu1 {ticks}\n")
    assert cores(str(tmp_path), str(tmp_path), 7) == expected
    assert cores(str(tmp_path), str(tmp_path), 8) is None


@pytest.mark.parametrize(
    ("scheduled", "expected"),
    [(("9 9 4", "9 9 4"), AT_REST), (("9 9 4", "9 9 5"), ASLEEP), (None, ASLEEP)],
)
def test_a_thread_is_at_rest_only_if_it_is_known_not_to_have_run(
    tmp_path: Path, scheduled: tuple[str, str] | None, expected: str
) -> None:
    """Where the kernel does not count how often it ran, a worker that waits may have worked."""
    folder = tmp_path / "7/task/8"
    folder.mkdir(parents=True)
    (folder / "stat").write_text("8 (python) S 1 1 1")
    (folder / "wchan").write_text("do_poll.constprop.0")
    if scheduled is not None:
        (folder / "schedstat").write_text(scheduled[0])
    watched = WatchedThread(str(tmp_path), 7, 8, WAITS_FOR_ORDERS)
    assert watched.state() == ASLEEP
    if scheduled is not None:
        (folder / "schedstat").write_text(scheduled[1])
    assert watched.state() == expected
    watched.close()
