# SPDX-License-Identifier: Apache-2.0
"""Reads a regular file of bounded size without blocking on a FIFO or device; writes a whole one.

Opening a FIFO blocks until somebody writes, a device may never end, and both may
stand where a file was when the configuration is read again.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class TooLargeError(OSError):
    """The file is longer than its reader takes."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading, and nothing else.

    Raises OSError, whose strerror says why, or ValueError for a path with a NUL character.
    """
    # Checked before, because opening a device has effects, and after, because it may be replaced.
    _refuse_unless_regular(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_unless_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a regular file; raise TooLargeError above `most_bytes`."""
    with open_regular(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TooLargeError(errno.EFBIG, f"more than {most_bytes} bytes")
    return data


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole; on OSError the old one stays.

    A device or FIFO, such as /dev/stdout, is written to.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _refuse_unless_regular(status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"{_KINDS.get(kind, 'something else')}, not a regular file")
