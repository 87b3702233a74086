# SPDX-License-Identifier: Apache-2.0
"""Reports of real processes arrive through a real socket, whatever else happens to it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.model.training import TRAINING_SENDERS
from exporter.sources.training import TrainingOptions, TrainingSource, receiver
from exporter.sources.training.receiver import MOST_BUCKETS, MOST_WAITING, RateLimit
from tests.clocks import ManualClock
from tests.sources.training.reports import datagram, numbered, only, send
from tests.waiting import wait_until

SHORT_SECONDS = 0.05
DECODE = "exporter.sources.training.training_reports.decode"
MakeSource = Callable[..., TrainingSource]


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> str:
    return str(tmp_path / "t.sock")


@pytest.fixture(name="make_source")
def _make_source(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSource]:
    """Makes sources that are ended with the test, and waits until they listen."""
    monkeypatch.setattr(receiver, "CHECK_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(receiver, "RETRY_SECONDS", SHORT_SECONDS)
    made: list[TrainingSource] = []

    def make(*paths: str, clock: Any = None, up: bool = True, **options: Any) -> TrainingSource:
        source = TrainingSource(TrainingOptions(paths, **options), clock or SystemClock())
        made.append(source)
        source.start()
        wait_until(lambda: source.up if up else source.problem)
        return source

    yield make
    for source in made:
        source.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "training-reports"]


@pytest.fixture(name="source")
def _source(make_source: MakeSource, path: str) -> TrainingSource:
    return make_source(path)


def total(source: TrainingSource) -> int:
    """Return how many were taken or refused, as a publisher finds out."""
    source.reports()
    return source.received_total + sum(source.rejected_total.values())


def deliver(source: TrainingSource, path: str, *datagrams: bytes) -> None:
    """Send them and wait until each was taken or refused."""
    wanted = total(source) + len(datagrams)
    for data in datagrams:
        send(path, data)
    wait_until(lambda: total(source) == wanted)


def test_a_report_arrives(source: TrainingSource, path: str) -> None:
    """With the pid according to the kernel, and times on both clocks."""
    deliver(source, path, datagram(steps=7))
    report = only(source)

    assert report.totals.steps == 7
    assert report.host_pids[:2] == (os.getpid(), os.getppid())
    assert report.uid == os.getuid()
    assert report.alive
    assert source.received_total == 1
    assert source.problem is None


def test_everything_that_is_refused_is_counted(
    make_source: MakeSource, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By its reason, and logged once."""
    source = make_source(path, max_jobs=1, max_ranks=2)
    first = datagram(id=numbered(1))
    bad = {
        "too_large": b"x" * 60_000,
        "not_json": b"",
        "version": datagram(version=2),
        "schema": datagram(rank=-1),
        "label": datagram(job="a\nb"),
        "credentials": datagram(pid=os.getppid()),
        "jobs": datagram(job="another"),
        "old": first,
        "implausible": datagram(id=numbered(1), sequence=18, step_seconds=1e18),
    }
    deliver(source, path, first, *bad.values(), *bad.values())
    deliver(source, path, datagram(id=numbered(2)), datagram(id=numbered(3)))

    assert source.rejected_total == {**dict.fromkeys(bad, 2), "rate": 0, "ranks": 1}
    assert source.received_total == 2
    own = "user" if os.getuid() >= 1000 else "system" if os.getuid() else "root"
    assert source.quota_hits_total == dict.fromkeys(TRAINING_SENDERS, 0) | {own: 3}
    logged = [line for line in caplog.messages if "refused" in line]
    assert len(logged) == len(bad) + 1
    assert (
        f"training report from pid {os.getpid()} of uid {os.getuid()} refused (label): "
        "job: expected 1 to 128 printable bytes, got 'a\\nb'"
    ) in logged


def test_refusals_are_told_of_once_a_minute(
    make_source: MakeSource, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With how many there were meanwhile."""
    clock = ManualClock()
    source = make_source(path, clock=clock)
    deliver(source, path, *[b"no"] * 5)
    clock.advance(61)
    deliver(source, path, b"no")
    logged = [line for line in caplog.messages if "refused" in line]

    assert len(logged) == 2
    assert logged[1].endswith(" (4 more for that reason since the last such line)")


def test_descriptors_that_a_sender_passes_are_not_taken_in(
    source: TrainingSource, path: str
) -> None:
    """They would fill this process's table."""
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", 0, 1, 2))
        sender.sendmsg([datagram()], [rights], 0, path)
    wait_until(lambda: total(source))

    assert source.received_total == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_bug_in_the_decoder_does_not_end_the_source(
    make_source: MakeSource,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is counted, and logged once a minute; the next report is taken."""

    def broken(data: bytes) -> None:
        raise ZeroDivisionError

    clock = ManualClock()
    source = make_source(path, clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(DECODE, broken)
        deliver(source, path, *[datagram()] * 5)
        clock.advance(61)
        deliver(source, path, datagram())
    deliver(source, path, datagram())

    assert source.rejected_total["schema"] == 6
    assert source.received_total == 1
    assert len([line for line in caplog.messages if "it could not be understood" in line]) == 2


def test_failures_inside_a_client_are_told_of(
    make_source: MakeSource, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute, on one line: the job itself must not notice them."""
    clock = ManualClock()
    source = make_source(path, clock=clock)
    for sequence in range(3):
        deliver(source, path, datagram(sequence=sequence, errors=2, error="Boom\nforged line"))
    assert only(source).errors == 2
    logged = [line for line in caplog.messages if " failures;" in line]

    assert logged == [
        "the client in training job resnet, rank 0, had 2 failures; the first: Boom\\nforged line"
    ]


def test_reports_are_read_without_anybody_asking(make_source: MakeSource, path: str) -> None:
    """Many at once when they come, few when no more come for a while."""
    source = make_source(path)
    for sequence in range(MOST_WAITING):
        send(path, datagram(sequence=sequence))
    wait_until(lambda: source.received_total >= MOST_WAITING)
    send(path, datagram(sequence=MOST_WAITING))
    wait_until(lambda: source.received_total == MOST_WAITING + 1)


# The socket's life


def test_stopping_removes_the_file(source: TrainingSource, path: str) -> None:
    """And ends the thread at once."""
    source.stop()

    assert not os.path.exists(path)
    assert not source.up


def test_stopping_what_never_started(path: str) -> None:
    """A daemon that fails early stops too."""
    source = TrainingSource(TrainingOptions((path,)), SystemClock())
    source.stop()

    assert source.reports() == ()
    assert not source.up


def test_the_first_place_that_can_be_had_is_taken(
    make_source: MakeSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file, another daemon's socket, and then a free one."""
    caplog.set_level(logging.INFO)
    (tmp_path / "file").touch()
    paths = [str(tmp_path / name) for name in ("file", "living", "free")]
    first = make_source(paths[1])
    second = make_source(*paths)
    deliver(second, paths[2], datagram())
    deliver(first, paths[1], datagram())

    assert caplog.messages == [f"training reports are taken at {path}" for path in paths[1:]]


def test_without_any_place_the_source_is_off_and_tries_again(
    make_source: MakeSource, path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says why."""
    os.mkdir(path)
    other = str(tmp_path / "file")
    Path(other).touch()
    source = make_source(path, other, up=False)
    threading.Event().wait(5 * SHORT_SECONDS)
    why = f"{path}: exists and is not a socket; {other}: exists and is not a socket"

    assert not source.up
    assert source.problem == why
    assert caplog.messages == [f"no training reports are taken: {why}"]
    os.rmdir(path)
    wait_until(lambda: source.up)
    assert source.problem is None
    deliver(source, path, datagram())


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_socket_that_was_removed_is_made_again(
    make_source: MakeSource, tmp_path: Path, is_busy: bool
) -> None:
    """With its directory too, as when one is mounted over it; also while reports arrive."""
    directory = tmp_path / "d"
    path = str(directory / "t.sock")
    source = make_source(path)
    moved = tmp_path / "moved"
    directory.rename(moved)

    def is_back() -> bool:
        if is_busy:
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                send(str(moved / "t.sock"), b"noise")
        return os.path.exists(path) and source.up

    wait_until(is_back)
    deliver(source, path, datagram())

    assert source.received_total == 1


def test_a_place_that_another_took_is_left_to_it(make_source: MakeSource, tmp_path: Path) -> None:
    """The next place is taken instead."""
    paths = [str(tmp_path / name) for name in "ab"]
    source = make_source(*paths)
    os.unlink(paths[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(paths[0])
        wait_until(lambda: os.path.exists(paths[1]) and source.up)
        deliver(source, paths[1], datagram())
        source.stop()
        assert os.path.exists(paths[0])
        assert not os.path.exists(paths[1])


def test_a_daemon_that_was_killed_leaves_a_file_that_is_replaced(
    make_source: MakeSource, path: str
) -> None:
    """Nobody has to clean up by hand."""
    script = f"import socket\nsocket.socket(socket.AF_UNIX, 2).bind({path!r})"
    subprocess.run([sys.executable, "-c", script], check=True)
    deliver(make_source(path), path, datagram())


# The rate of each user


def _allowed(limit: RateLimit, uid: int, now: float, attempts: int) -> int:
    return sum(limit.allows(uid, 800, now) for _ in range(attempts))


def test_a_user_has_a_burst_and_a_rate() -> None:
    """5,000 at once, then 2,500 a second."""
    limit = RateLimit()

    assert _allowed(limit, 1000, 0.0, 20_000) in (4999, 5000)
    assert _allowed(limit, 1000, 1.0, 20_000) in range(2498, 2502)
    assert _allowed(limit, 1000, 100.0, 20_000) in (4999, 5000)


def test_large_reports_cost_more() -> None:
    """A kilobyte is one token, begun or full."""
    for size, tokens in ((0, 1), (1, 1), (1024, 1), (1025, 2), (8192, 8), (8193, 9)):
        limit = RateLimit()
        allowed = sum(limit.allows(0, size, 0.0) for _ in range(6000))
        assert abs(allowed - 5000 // tokens) <= 1


def test_512_ranks_of_root_have_room_to_spare() -> None:
    """Containers run as uid 0: all of a node's ranks may be one user's, with large reports."""
    limit = RateLimit()
    for second in range(60):
        for rank in range(512):
            assert limit.allows(0, 4096, second + rank / 1000)


def test_users_that_are_idle_are_forgotten() -> None:
    """They come and go."""
    limit = RateLimit()
    for uid in range(20_000):
        limit.allows(uid, 800, uid / 1000)

    assert len(limit._full_at) <= MOST_BUCKETS + 1
