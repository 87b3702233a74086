# SPDX-License-Identifier: Apache-2.0
"""The Unix socket that training jobs report to: bind it, check it, remove it.

Other users may be able to write to its directory, and put a link in the place of the socket at any
time. So files are made with their permissions, which are never changed later. A user who may write
there can still remove the socket, or move another one into its place.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.errors import SourceError

SYSTEM_DIRECTORY = "/run"
USER_DIRECTORY_VARIABLE = "XDG_RUNTIME_DIR"
NAME = "roofline-exporter/training.sock"
DIRECTORY_MODE = 0o755


@dataclass(frozen=True, slots=True)
class SocketAccess:
    """Who may send to the socket."""

    mode: int = 0o666
    group: str | None = None
    """Name or number; None is the group of this process."""


def candidates(chosen: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths to try, in order: the configured one, or the default ones."""
    if chosen is not None:
        return (os.path.abspath(chosen),)
    of_user = environ.get(USER_DIRECTORY_VARIABLE, "")
    directories = (SYSTEM_DIRECTORY, *((of_user,) if os.path.isabs(of_user) else ()))
    return tuple(f"{directory}/{NAME}" for directory in directories)


class Endpoint:
    """A bound socket and its file."""

    def __init__(self, path: str, access: SocketAccess) -> None:
        """Bind the socket; create missing directories, remove a stale socket file.

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

    def _bind(self, access: SocketAccess) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        group = None if access.group is None else _group_id(access.group)
        _make_directory(os.path.dirname(self.path))
        _remove_stale(self.path)
        with _permissions(access.mode):
            self.socket.bind(self.path)
        self._file = _file_at(self.path)
        if group is not None:
            _give_to(self.path, group)

    def is_reachable(self) -> bool:
        """Return whether clients that use the path reach this socket."""
        return self._file is not None and _file_at(self.path) == self._file

    def close(self) -> None:
        """Close the socket; remove its file unless another one has replaced it."""
        if self.is_reachable():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._file = None
        self.socket.close()


def _file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _permissions(mode: int) -> Iterator[None]:
    """Have files and directories made with exactly these permissions."""
    umask = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(umask)


def _give_to(path: str, group: int) -> None:
    """Give a socket to a group, and nothing else that has taken its place."""
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISSOCK(os.fstat(file).st_mode):
            os.chown(f"/proc/self/fd/{file}", -1, group)
    finally:
        os.close(file)


def _make_directory(path: str) -> None:
    """Create a directory, and those above it, where they are missing.

    Raises:
        SourceError: any user may replace the files of others in it.
        OSError: it cannot be made.
    """
    if not os.path.isdir(path):
        _make_directory(os.path.dirname(path))
        # Jobs of all users pass through. Another daemon may be making it as well.
        with _permissions(DIRECTORY_MODE), contextlib.suppress(FileExistsError):
            os.mkdir(path)
    mode = os.stat(path).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise SourceError("any user may write to its directory, which has no sticky bit")


def _remove_stale(path: str) -> None:
    """Remove a socket file that no process listens on.

    Raises:
        SourceError: the file is no socket, or a process listens.
        OSError: the file cannot be read or removed.
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
        raise SourceError("another process listens there (--training.socket takes another path)")
    if code != errno.ECONNREFUSED:
        raise SourceError(os.strerror(code))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _group_id(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SourceError(f"there is no group {group}") from None
