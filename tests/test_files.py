# SPDX-License-Identifier: Apache-2.0
"""Only regular files are read, at once and not further than was asked for; others are replaced."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from exporter.files import TooLargeError, open_regular, read_regular, replace_file


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    """Up to the bound, and also through a symlink, as mounted secrets are."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"12345")
    link.symlink_to(file)
    assert read_regular(file, 5) == read_regular(link, 5) == b"12345"
    with open_regular(os.fspath(file)) as opened:
        assert opened.read(2) == b"12"
        assert os.get_inheritable(opened.fileno()) is False


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    """Its size need not be known beforehand: files below /proc say 0."""
    file = tmp_path / "file"
    file.write_bytes(b"123456")
    with pytest.raises(TooLargeError, match="more than 5 bytes"):
        read_regular(file, 5)
    with pytest.raises(TooLargeError):
        read_regular("/proc/self/status", 5)


def test_nothing_else_is_opened(tmp_path: Path) -> None:
    """A FIFO without a writer would hold us up, and /dev/zero never ends."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, reason in (
            (tmp_path / "fifo", "a FIFO, not a regular file"),
            (tmp_path / "socket", "a socket, not a regular file"),
            (Path("/dev/zero"), "a device, not a regular file"),
            (tmp_path, "Is a directory"),
            (tmp_path / "none", "No such file or directory"),
        ):
            with pytest.raises(OSError) as caught:
                read_regular(path, 10)
            assert caught.value.strerror == reason


def test_a_path_that_cannot_be_one() -> None:
    """NUL ends a path for the kernel."""
    with pytest.raises(ValueError, match=r"null (byte|character)"):
        read_regular("a\0b", 10)


def test_replaced_file_is_whole_or_the_last_one(tmp_path: Path) -> None:
    """A link is replaced, not what it leads to; nothing is left beside the file."""
    file, other = tmp_path / "report", tmp_path / "other"
    other.write_bytes(b"theirs")
    file.symlink_to(other)
    replace_file(file, b"new")
    assert (file.read_bytes(), other.read_bytes()) == (b"new", b"theirs")
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        replace_file(file / "below", b"new")
    assert {path.name for path in tmp_path.iterdir()} == {"report", "other"}


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A device such as /dev/stdout stays one, also for root."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(fifo, b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert fifo.is_fifo()
