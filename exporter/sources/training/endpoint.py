# SPDX-License-Identifier: Apache-2.0
"""Where training jobs report to: a Unix socket that is made, checked and removed with care."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.errors import SourceError

SYSTEM_DIRECTORY = "/run"
USER_DIRECTORY_VARIABLE = "XDG_RUNTIME_DIR"
NAME = "roofline-exporter/training.sock"
DIRECTORY_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Access:
    """Who may send to the socket."""

    mode: int = 0o666
    group: str | None = None
    """Name or number; None is the group of this process."""


def candidates(chosen: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths to try, in their order: the one that was chosen, or the usual ones."""
    if chosen is not None:
        return (os.path.abspath(chosen),)
    of_user = environ.get(USER_DIRECTORY_VARIABLE, "")
    directories = (SYSTEM_DIRECTORY, *((of_user,) if os.path.isabs(of_user) else ()))
    return tuple(f"{directory}/{NAME}" for directory in directories)


class Endpoint:
    """One bound socket, and the file that leads to it."""

    def __init__(self, path: str, access: Access) -> None:
        """Bind it; make missing directories, and remove the file of a socket without a listener.

        Raises:
            SourceError: it cannot be bound there; the message is one line and names the path.
        """
        self.path = path
        self._file: tuple[int, int] | None = None
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        try:
            self._bind(access)
        except (OSError, OverflowError, SourceError) as error:
            self.close()
            # Python's own errors, such as one for a path that is too long, have no number.
            reason = error.strerror if isinstance(error, OSError) and error.errno else error
            raise SourceError(f"{path}: {reason}") from error

    def _bind(self, access: Access) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with contextlib.suppress(OSError):
            # Linux makes the file with the socket's permissions, so it is never open to more.
            os.fchmod(self.socket.fileno(), access.mode)
        _make_directory(os.path.dirname(self.path))
        _remove_stale(self.path)
        self.socket.bind(self.path)
        self._file = _file_at(self.path)
        if access.group is not None:
            os.chown(self.path, -1, _group_id(access.group))
        os.chmod(self.path, access.mode)

    def is_reachable(self) -> bool:
        """Return whether the path still leads to this socket."""
        return self._file is not None and _file_at(self.path) == self._file

    def close(self) -> None:
        """Close the socket, and remove the file if it is still its own."""
        if self.is_reachable():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._file = None
        self.socket.close()


def _file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at the path; None if nothing is."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    _make_directory(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, DIRECTORY_MODE)  # jobs of all users pass through, whatever the umask is


def _remove_stale(path: str) -> None:
    """Remove the file of a socket without a listener.

    Raises:
        SourceError: there is something else, or a process listens.
        OSError: what is there cannot be looked at or removed.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SourceError("exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code in (0, errno.EPROTOTYPE):
        raise SourceError("another process listens there")
    if code != errno.ECONNREFUSED:
        raise SourceError(os.strerror(code))
    if _file_at(path) == (found.st_dev, found.st_ino):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _group_id(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SourceError(f"there is no group {group}") from None
