# SPDX-License-Identifier: Apache-2.0
"""The socket is made where it can be, for those who may use it, and nobody loses theirs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import SourceError
from exporter.sources.training.endpoint import Endpoint, SocketAccess, candidates
from tests.conftest import require_tool, unmet

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "t.sock"


@pytest.fixture(name="umask", params=[0o077, 0o000])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    old = os.umask(request.param)
    yield
    os.umask(old)


def problem(path: Path, access: SocketAccess | None = None) -> str:
    with pytest.raises(SourceError) as raised:
        Endpoint(str(path), access or SocketAccess())
    return str(raised.value)


def listener(path: Path, kind: socket.SocketKind = socket.SOCK_DGRAM) -> socket.socket:
    """Return a socket that another program has bound."""
    other = socket.socket(socket.AF_UNIX, kind)
    other.bind(str(path))
    if kind == socket.SOCK_STREAM:
        other.listen()
    return other


def test_the_usual_places() -> None:
    """That of the system, then that of the user, who may have none."""
    system = "/run/roofline-exporter/training.sock"
    user = "/run/user/1000"

    assert candidates(None, {}) == (system,)
    assert candidates(None, {"XDG_RUNTIME_DIR": ""}) == (system,)
    assert candidates(None, {"XDG_RUNTIME_DIR": "relative"}) == (system,)
    assert candidates(None, {"XDG_RUNTIME_DIR": user}) == (
        system,
        f"{user}/roofline-exporter/training.sock",
    )


def test_a_chosen_place_is_the_only_one() -> None:
    """A relative one starts at the working directory."""
    assert candidates("/a/b", {"XDG_RUNTIME_DIR": "/run/user/1"}) == ("/a/b",)
    assert candidates("b", {}) == (f"{Path.cwd()}/b",)


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o600])
@pytest.mark.usefixtures("umask")
def test_permissions_are_those_that_were_asked_for(tmp_path: Path, mode: int) -> None:
    """Whatever the umask is; directories can be passed through by everybody."""
    path = tmp_path / "a" / "b" / "t.sock"
    endpoint = Endpoint(str(path), SocketAccess(mode))

    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o755
    endpoint.close()


def test_a_directory_that_is_there_stays_as_it_is(path: Path) -> None:
    """Its owner chose who passes through."""
    path.parent.chmod(0o700)
    Endpoint(str(path), SocketAccess()).close()

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@needs_root
@pytest.mark.parametrize("group", ["nogroup", "54321"])
def test_the_group_is_the_one_that_was_asked_for(path: Path, group: str) -> None:
    """By its name or its number."""
    endpoint = Endpoint(str(path), SocketAccess(0o660, group))
    found = path.stat()

    assert found.st_gid == (54321 if group.isdecimal() else 65534)
    assert stat.S_IMODE(found.st_mode) == 0o660
    endpoint.close()


@pytest.mark.parametrize(
    ("group", "reason"),
    [("no-such-group", "there is no group no-such-group"), ("9" * 30, "gid is greater than maxim")],
)
def test_without_its_group_there_is_no_socket(path: Path, group: str, reason: str) -> None:
    """Rather none than one for others."""
    assert problem(path, SocketAccess(0o660, group)).startswith(f"{path}: {reason}")
    assert not path.exists()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_living_socket_is_never_taken_away(path: Path, kind: socket.SocketKind) -> None:
    """Another daemon's, or that of something else."""
    with listener(path, kind):
        before = path.stat()
        assert problem(path) == (
            f"{path}: another process listens there (--training.socket takes another path)"
        )
        assert path.stat() == before


@pytest.mark.parametrize(
    "make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("/dev/null")]
)
def test_what_is_no_socket_is_never_removed(path: Path, make: object) -> None:
    """A wrong path costs nobody a file."""
    assert callable(make)
    make(path)

    assert problem(path) == f"{path}: exists and is not a socket"
    assert os.path.lexists(path)


def test_a_place_where_nothing_can_be_made_is_one_line(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "t.sock"
    assert problem(below) == f"{below}: Not a directory"
    assert problem(Path("/proc/none/t.sock")) == "/proc/none/t.sock: No such file or directory"
    long = tmp_path / ("x" * 120)
    assert problem(long) == f"{long}: AF_UNIX path too long"


@pytest.mark.parametrize("put", [os.symlink, os.link])
@pytest.mark.usefixtures("umask")
def test_what_takes_its_place_at_once_keeps_its_permissions(
    path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path, Path], None]
) -> None:
    """Who may write to the directory cannot have the daemon open up another file."""
    victim = path.parent / "victim"
    victim.touch()
    victim.chmod(0o600)

    class Swapped(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            Path(address).unlink()
            put(victim, Path(address))

    monkeypatch.setattr(socket, "socket", Swapped)
    group = "54321" if os.geteuid() == 0 else str(os.getegid())
    Endpoint(str(path), SocketAccess(0o666, group)).close()

    assert (stat.S_IMODE(victim.stat().st_mode), victim.stat().st_gid) == (0o600, os.getegid())


def test_a_directory_that_anybody_may_write_to_is_refused(path: Path) -> None:
    """With the sticky bit, as /tmp has it, nobody can remove the socket of another."""
    path.parent.chmod(0o777)
    why = "any user may write to its directory, which has no sticky bit"
    assert problem(path) == f"{path}: {why}"
    assert problem(path.parent / "new" / "t.sock") == f"{path.parent}/new/t.sock: {why}"

    path.parent.chmod(0o1777)
    Endpoint(str(path), SocketAccess()).close()


def test_a_link_in_the_place_of_a_missing_directory_is_not_followed(tmp_path: Path) -> None:
    """A link to a directory that is there is the administrator's; this one leads nowhere."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert problem(tmp_path / "a" / "t.sock").startswith(f"{tmp_path}/a/t.sock: ")
    assert not (tmp_path / "b").exists()


READ_ONLY = """
import socket, subprocess, sys
real, seen = sys.argv[1:]
for options in (["--bind", real, seen], ["-o", "remount,bind,ro", seen]):
    subprocess.run(["mount", *options], check=True)
try:
    open(f"{seen}/file", "w")
except OSError as error:
    print(error.strerror)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.sendto(b"x", f"{seen}/t.sock")
"""


@needs_root
def test_a_job_sends_through_a_directory_that_is_mounted_read_only(tmp_path: Path) -> None:
    """As containers should have it: it can send, but not take the socket's place."""
    unshare = require_tool("unshare")
    if subprocess.run([unshare, "--mount", "true"], check=False, timeout=30).returncode:
        unmet("mounts cannot be made here")
    real, seen = tmp_path / "real", tmp_path / "seen"
    seen.mkdir()
    endpoint = Endpoint(str(real / "t.sock"), SocketAccess())
    command = [unshare, "--mount", sys.executable, "-c", READ_ONLY, str(real), str(seen)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30)

    assert done.stdout == "Read-only file system\n"
    assert endpoint.socket.recv(9, socket.MSG_DONTWAIT) == b"x"
    endpoint.close()
