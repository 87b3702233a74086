# SPDX-License-Identifier: Apache-2.0
"""Reads small files without ever waiting for one, and sees whether they have changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from exporter.errors import ConfigError, one_line
from exporter.files import open_regular

MOST_BYTES = 1024 * 1024
"""Of one file: a bundle of all public CAs has a fifth of it."""
SETTLED_SECONDS = 2.0
"""The stamps of file systems are coarse: what changed just before it was read may have changed
again since, under the same stamp."""

Signature = tuple[int, ...] | int
"""Device, inode, size and two times; or the number of the error."""


@dataclass
class Files:
    """Files that were read at a moment, and what they looked like then."""

    now: float
    """Unix time, in seconds."""
    seen: dict[Path, Signature] = field(default_factory=dict)

    def read(self, path: Path) -> bytes:
        """Return a file's content.

        Raises:
            ConfigError: it cannot be read, is no regular file or too large; no place is named.
        """
        name = one_line(os.fspath(path))
        try:
            with open_regular(path) as file:
                self.seen[path] = _signature(os.fstat(file.fileno()))
                data = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            self.seen.setdefault(path, signature(path))
            raise ConfigError(f"cannot read {name}: {_reason(error)}") from error
        if len(data) > MOST_BYTES:
            raise ConfigError(f"cannot read {name}: it has more than {MOST_BYTES} bytes")
        return data

    def may_have_changed(self) -> bool:
        """Return whether one of them differs, or could without any sign of it."""
        return any(
            signature(path) != before or self._was_fresh(before)
            for path, before in self.seen.items()
        )

    def _was_fresh(self, before: Signature) -> bool:
        return isinstance(before, tuple) and abs(self.now - before[-1] / 1e9) < SETTLED_SECONDS


def signature(path: Path) -> Signature:
    """Return what a path leads to; it changes with the file and with any link on the way."""
    try:
        return _signature(os.stat(path))
    except OSError as error:
        return error.errno or -1
    except ValueError:
        return -1


def _signature(status: os.stat_result) -> Signature:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _reason(error: Exception) -> object:
    return getattr(error, "strerror", None) or error
