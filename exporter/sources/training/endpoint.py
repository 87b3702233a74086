# SPDX-License-Identifier: Apache-2.0
"""The Unix socket that training jobs report to: bind it, check it, remove it.

Other users may be able to write to its directory, and replace the socket by a link at any time. So
open the directory once, and change the permissions of open files only: sockets of this user without
a second name. A user who may write there can still remove the socket, or move another socket of
this user into its place, which then gets its permissions.
"""

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
_OPEN = os.O_PATH | os.O_CLOEXEC


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
        self._directory: int | None = None
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
        with contextlib.suppress(OSError):
            # Linux makes the file with the socket's permissions, so it is never open to more.
            os.fchmod(self.socket.fileno(), access.mode)
        folder, name = os.path.split(self.path)
        self._directory = _open_directory(folder)
        _refuse_open_to_all(self._directory)
        _remove_stale(self._directory, name, self.path)
        self.socket.bind(self.path)
        file = _open_own_socket(self._directory, name)
        try:
            found = os.fstat(file)
            self._file = found.st_dev, found.st_ino
            if access.group is not None:
                os.chown(_opened(file), -1, _group_id(access.group))
            if stat.S_IMODE(os.fstat(file).st_mode) != access.mode:  # the umask took a part of it
                os.chmod(_opened(file), access.mode)
        finally:
            os.close(file)

    def is_reachable(self) -> bool:
        """Return whether clients that use the path reach this socket."""
        return self._file is not None and _file_at(self.path) == self._file

    def close(self) -> None:
        """Close the socket; remove its file unless another one has replaced it."""
        if self._directory is not None:
            name = os.path.basename(self.path)
            if self._file is not None and _file_at(name, self._directory) == self._file:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._directory)
            os.close(self._directory)
        self._file = self._directory = None
        self.socket.close()


def _file_at(path: str, directory: int | None = None) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        found = os.stat(path, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _opened(file: int) -> str:
    """Return a path to an open file, whatever has replaced it in its directory."""
    return f"/proc/self/fd/{file}"


def _open_directory(path: str) -> int:
    """Open a directory; create it if it is missing. Links to directories are followed.

    Raises:
        SourceError: it is missing, and anybody may write to the one above it.
        OSError: it cannot be opened or made.
    """
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, _OPEN | os.O_DIRECTORY)
    above = _open_directory(os.path.dirname(path))
    try:
        _refuse_open_to_all(above)
        name = os.path.basename(path)
        is_new = True
        try:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=above)
        except FileExistsError:
            is_new = False
        made = os.open(name, _OPEN | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    finally:
        os.close(above)
    if is_new:
        with contextlib.suppress(OSError):
            # Jobs of all users pass through, whatever the umask is.
            os.chmod(_opened(made), DIRECTORY_MODE)
    return made


def _refuse_open_to_all(directory: int) -> None:
    """Raise SourceError for a directory in which any user may replace the files of others."""
    mode = os.fstat(directory).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise SourceError("any user may write to its directory, which has no sticky bit")


def _open_own_socket(directory: int, name: str) -> int:
    """Open the file of the socket that was just bound, without following a link.

    Raises:
        SourceError: something else has taken its place.
        OSError: it is gone.
    """
    try:
        file = os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        raise SourceError("it was removed, or its directory replaced, at once") from None
    found = os.fstat(file)
    is_own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
    if not is_own:
        os.close(file)
        raise SourceError("it was replaced at once")
    return file


def _remove_stale(directory: int, name: str, path: str) -> None:
    """Remove a socket file that no process listens on.

    Raises:
        SourceError: the file is no socket, or a process listens.
        OSError: the file cannot be read or removed.
    """
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
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
    if _file_at(name, directory) == (found.st_dev, found.st_ino):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _group_id(group: str) -> int:
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SourceError(f"there is no group {group}") from None
