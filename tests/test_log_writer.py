# SPDX-License-Identifier: Apache-2.0
"""Whoever logs never waits: lines that nobody reads are dropped and counted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.log import writer as writers
from exporter.log.writer import LineWriter
from tests.pipes import fill
from tests.programs import Ended, ended
from tests.waiting import wait_until

PROMPT_SECONDS = 0.5


class Pipe:
    """A pipe of one page, and a writer into it."""

    def __init__(self) -> None:
        self.reader, self.end = os.pipe()
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, 4096)
        self.writer = LineWriter(self.end, lambda lines: b"dropped %d\n" % lines)
        self._read = b""

    def read_until(self, end: bytes) -> list[bytes]:
        """Read up to a line; return all lines since the last call."""
        while not self._read.endswith(end + b"\n"):
            self._read += os.read(self.reader, 65536)
        lines, self._read = self._read.splitlines(), b""
        return lines

    def block(self) -> None:
        """Let the writer's thread wait in its write, with nothing in the queue."""
        self.writer.put(b"x" * 8191 + b"\n")
        wait_until(lambda: not self.writer._bytes, 5, "the first line is being written")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reader)
    made.writer.flush(5)
    os.close(made.end)


def test_lines_arrive_in_their_order_from_many_threads(pipe: Pipe) -> None:
    """Those of one thread stay in its order, and none is lost while somebody reads."""

    def log(name: int) -> None:
        for number in range(100):
            pipe.writer.put(b"%d %d\n" % (name, number))

    threads = [threading.Thread(target=log, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.writer.put(b"end\n")

    lines = pipe.read_until(b"end")[:-1]
    for name in range(4):
        own = [line for line in lines if line.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(100)]
    assert pipe.writer.dropped == 0


def test_what_finds_no_room_is_dropped_and_its_number_said(pipe: Pipe) -> None:
    """Nobody waits; when the reader comes back it learns how many lines are missing, once."""
    pipe.block()
    started = time.monotonic()
    for number in range(writers.MOST_LINES + 25):
        pipe.writer.put(b"%d\n" % number)
    assert time.monotonic() - started < PROMPT_SECONDS
    assert pipe.writer.dropped == 25

    first = pipe.read_until(b"\n%d" % (writers.MOST_LINES - 1))
    pipe.writer.put(b"later\n")
    lines = first + pipe.read_until(b"later")

    assert lines[1:] == [
        b"dropped 25",
        *(b"%d" % number for number in range(writers.MOST_LINES)),
        b"later",
    ]
    assert pipe.writer.flush(5)
    assert pipe.writer.dropped == 25


def test_long_lines_are_bounded_in_bytes(pipe: Pipe) -> None:
    """The queue holds a mebibyte, however few lines that is."""
    pipe.block()
    for _ in range(6):
        pipe.writer.put(b"y" * (2**18 - 1) + b"\n")
    assert pipe.writer.dropped == 2
    os.set_blocking(pipe.reader, False)
    while not pipe.writer.flush(0.0):
        with contextlib.suppress(BlockingIOError):
            os.read(pipe.reader, 65536)
    pipe.writer.put(b"after\n")
    assert pipe.writer.dropped == 2, "there is room again"


def test_a_flush_gives_up_after_its_time(pipe: Pipe) -> None:
    """The exit does not wait for ever."""
    pipe.block()
    started = time.monotonic()
    assert not pipe.writer.flush(0.1)
    assert 0.1 <= time.monotonic() - started < 0.1 + PROMPT_SECONDS

    os.read(pipe.reader, 65536)
    wait_until(lambda: pipe.writer.flush(5) or None, 5, "the reader came back")


# In a process of its own

PROGRAM = """
import logging, sys, threading, warnings
from exporter import log
log.setup("info", "logfmt")
logger = logging.getLogger("exporter.test")
{}
"""


def run(code: str, **options: Any) -> Ended:
    """Run a program whose standard error is that of the daemon."""
    return ended(sys.executable, "-c", PROGRAM.format(code), **options)


def test_the_exit_writes_what_waits() -> None:
    """Nothing is lost where somebody reads, and what the program prints itself comes last."""
    code = (
        "for n in range(500): logger.info('line %d', n)\n"
        "log.flush()\nprint('the end', file=sys.stderr)\nlogger.info('last')"
    )
    done = run(code)
    lines = done.stderr.splitlines()
    assert [line.partition("msg=")[2] for line in lines[:500]] == [
        f'"line {number}"' for number in range(500)
    ]
    assert lines[500] == "the end"
    assert lines[501].endswith("msg=last")
    assert done.returncode == 0


@pytest.mark.parametrize(
    "swap", ["os.dup2(os.open('/dev/full', os.O_WRONLY), 2)", "os.close(2)"], ids=["full", "closed"]
)
def test_a_stream_that_takes_nothing_ends_nothing(swap: str) -> None:
    """Lines are counted; nothing is raised."""
    done = run(
        f"import os; {swap}\nfor n in range(3): logger.info('m')\nlog.flush()\nprint(log.dropped())"
    )
    assert (done.returncode, done.stdout) == (0, "3\n")


FAULTS = {
    "thread": (
        "t = threading.Thread(target=lambda: 1/0, name='reader'); t.start(); t.join()",
        'msg="the thread reader was ended by a fault" error="ZeroDivisionError: division by zero" '
        "traceback=",
    ),
    "uncaught": ("1/0", 'msg="ended by a fault" error="ZeroDivisionError: division by zero" '),
    "unraisable": (
        "class C:\n  def __del__(self): raise ValueError('in del')\nC()",
        'error="ValueError: in del"',
    ),
    "warning": ("warnings.warn('old call')", "UserWarning: old call"),
    "format": ("logger.info('%d', 'x')", 'msg="a line cannot be formatted" error="TypeError: '),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_interpreter_reports_is_one_line(name: str) -> None:
    """It would write to the stream itself, over many lines, and wait for its reader."""
    code, expected = FAULTS[name]
    done = run(code)
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("time=")


def test_a_thread_that_exits_is_no_fault() -> None:
    done = run("t = threading.Thread(target=sys.exit); t.start(); t.join()")
    assert done.stderr == ""


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end of a pipe that is full and that nobody reads."""
    reader, end = os.pipe()
    fill(end)
    yield end
    os.close(reader)
    os.close(end)


def test_the_exit_does_not_wait_for_a_reader_that_is_gone(full_pipe: int) -> None:
    """The thread waits in its write while the interpreter ends; the exit code is the program's."""
    started = time.monotonic()
    code = "for n in range(5000): logger.info('m')\nprint(log.dropped())\nsys.exit(7)"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code)],
        stderr=full_pipe,
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 7
    assert int(done.stdout) >= 5000 - 2 * writers.MOST_LINES
    assert time.monotonic() - started < 10
