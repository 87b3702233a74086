# SPDX-License-Identifier: Apache-2.0
"""Changes of the files take effect at the next look; while they are broken, clients are refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from exporter.errors import ConfigError
from exporter.web.access import reload
from exporter.web.access.reload import ActiveConfig, Files, WebConfigWatcher
from tests.clocks import ManualClock
from tests.web.access.authority import (
    cert_pem,
    client,
    client_context,
    key_pem,
    server,
    write_files,
)
from tests.web.access.handshakes import GREETING, handshake

TEXT = """\
tls_server_config:
  cert_file: node.crt
  key_file: node.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: clients.pem
"""


class Watched:
    """A web configuration in a folder, and what keeps up with it."""

    def __init__(self, folder: Path, text: str = TEXT) -> None:
        self.folder = write_files(folder)
        self.path = folder / "web.yml"
        self.write(text)
        self.clock = ManualClock()
        self.access = WebConfigWatcher(self.path, self.clock)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def look(self) -> ActiveConfig:
        return asyncio.run(self.access.look())


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def accepts(active: ActiveConfig, authority: str = "first") -> bool:
    assert active.context is not None
    for trusted in ("first", "other"):
        client_side = client_context(trusted, client(authority))
        if handshake(active.context, client_side).greeting == GREETING:
            return True
    return False


def test_a_secret_mounted_by_kubernetes_is_followed(tmp_path: Path) -> None:
    """Its files are links through a link that is exchanged; neither file nor folder is written."""
    for name, authority in (("..1", "first"), ("..2", "other")):
        (tmp_path / name).mkdir()
        write_files(tmp_path / name, authority)
        (tmp_path / name / "web.yml").write_text(TEXT)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("web.yml", "node.crt", "node.key", "clients.pem"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    access = WebConfigWatcher(tmp_path / "web.yml", ManualClock())
    assert accepts(access.active, "first")

    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    assert accepts(asyncio.run(access.look()), "other")


def test_connections_are_refused_during_half_a_rotation(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """A new certificate with the old key is broken; it heals by itself, with one line each."""
    caplog.set_level(logging.INFO)
    (watched.folder / "node.crt").write_bytes(cert_pem(server("other")))
    broken = watched.look()
    assert watched.look().problem == broken.problem
    assert not watched.access.ok

    (watched.folder / "node.key").write_bytes(key_pem(server("other")))
    healed = watched.look()

    assert broken.problem == (
        f"{watched.path}:3: key 'tls_server_config.key_file': the key does not belong to the "
        "certificate"
    )
    assert (broken.generation, healed.generation) == (1, 2)
    assert healed.problem is None
    assert watched.access.ok
    assert [(record.levelname, record.getMessage()[:45]) for record in caplog.records] == [
        ("ERROR", "the web configuration cannot be used, nobody "),
        ("INFO", "the web configuration has changed, and holds "),
    ]


def test_broken_files_that_do_not_change_are_used_again_each_second(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes them unusable may end without a trace in them; but not all the time."""
    tries = []

    def refuse(*_: object) -> None:
        tries.append(watched.clock.monotonic())
        raise ConfigError("no memory is left")

    with monkeypatch.context() as patched:
        patched.setattr(reload, "server_context", refuse)
        watched.write(f"{TEXT}# changed\n")
        for _ in range(5):
            assert watched.look().problem is not None
    assert len(tries) == 1

    watched.clock.advance(1.0)

    assert watched.look().problem is None


@pytest.mark.parametrize(
    ("text", "change", "word"), [(TEXT, "", "off"), ("", TEXT, "on"), ("{}", TEXT, "on")]
)
def test_tls_is_not_switched_while_running(
    tmp_path: Path, text: str, change: str, word: str
) -> None:
    """Clients and service discovery know the port by its scheme."""
    watched = Watched(tmp_path, text)
    watched.write(change)

    active = watched.look()

    assert active.problem == f"{watched.path}: TLS is switched {word} in it, which needs a restart"
    assert (active.context is not None) is bool(text == TEXT)
    watched.clock.advance(1.0)
    watched.write(text)
    assert watched.look().problem is None


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test that a mistake would make wait for ever."""
    asyncio.run(asyncio.wait_for(test(), 30))


class BlockedReads:
    """Blocks the threads that read the files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.gate = threading.Event()
        self.begun = threading.Event()
        look = Files.have_changed

        def blocked(files: Files) -> bool:
            self.looks += 1
            self.begun.set()
            self.gate.wait(30)
            return look(files)

        monkeypatch.setattr(Files, "have_changed", blocked)


def test_concurrent_calls_share_one_read(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call during a look waits for the next one, which sees what changed before the call."""
    blocked = BlockedReads(monkeypatch)

    async def test() -> None:
        first = asyncio.ensure_future(watched.access.look())
        while not blocked.begun.is_set():
            await asyncio.sleep(0.001)
        later = [asyncio.ensure_future(watched.access.look()) for _ in range(50)]
        await asyncio.sleep(0)
        blocked.gate.set()
        await asyncio.gather(first, *later)

    in_loop(test)

    assert blocked.looks == 2


def test_connections_are_refused_while_a_file_system_hangs(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as it does not; one thread waits for it, for which the process need not wait."""
    monkeypatch.setattr(reload, "PATIENCE_SECONDS", 0.05)
    blocked = BlockedReads(monkeypatch)

    async def test() -> None:
        for _ in range(3):
            active = await watched.access.look()
            assert active.problem == f"{watched.path}: its file system does not answer"
        assert blocked.looks == 1
        blocked.gate.set()
        while watched.access._current is not None:
            await asyncio.sleep(0.001)
        watched.clock.advance(1.0)
        assert (await watched.access.look()).problem is None

    in_loop(test)


def test_every_failure_refuses_connections(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an unexpected one."""

    def fail(*_: object) -> None:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(reload, "server_context", fail)
    watched.write(TEXT + "  min_version: TLS13\n")
    assert "nobody thought of it" in (watched.look().problem or "")

    monkeypatch.setattr(watched.access, "_take", fail)
    assert "nobody thought of it" in (watched.look().problem or "")


@contextlib.contextmanager
def no_descriptor() -> Iterator[None]:
    """Have the kernel open no file for this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("changed", [False, True])
def test_without_descriptors_the_configuration_stays(
    watched: Watched, caplog: pytest.LogCaptureFixture, *, changed: bool
) -> None:
    """It says nothing of the files that they cannot be opened: they hold, the last that were read.

    As soon as there are descriptors again, what they say now does.
    """
    caplog.set_level(logging.INFO)
    write_files(watched.folder, "other" if changed else "first")

    async def test() -> None:
        with no_descriptor():
            for _ in range(3):
                active = await watched.access.look()
                assert (active.problem, active.generation) == (None, 1)
                watched.clock.advance(1.0)
        assert (await watched.access.look()).generation == 1 + changed

    in_loop(test)
    assert watched.access.ok
    assert sum("it cannot be looked at" in line for line in caplog.messages) == 1
    assert "Too many open files" in caplog.text


def test_files_that_are_broken_stay_so_without_descriptors(watched: Watched) -> None:
    """Exhausting them opens nothing."""
    watched.write("nonsense: 1\n")

    async def test() -> None:
        assert "nonsense" in ((await watched.access.look()).problem or "")
        await asyncio.to_thread(watched.write, TEXT)
        with no_descriptor():
            assert "nonsense" in ((await watched.access.look()).problem or "")
        watched.clock.advance(1.0)
        assert (await watched.access.look()).problem is None

    in_loop(test)


def test_a_second_mistake_is_logged_too(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Once each, so that the log shows the mistake that is left."""
    for text in ("rate: {}\n", "rate: {}\n", "basic_auth_users: {a: b}\n"):
        watched.write(text)
        watched.clock.advance(1.0)
        watched.look()
        watched.clock.advance(1.0)
        watched.look()

    messages = [record.getMessage() for record in caplog.records]
    assert ["'rate'" in message for message in messages] == [True, False]
