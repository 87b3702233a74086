# SPDX-License-Identifier: Apache-2.0
"""Reads the files of the web configuration, and reads them again when they change."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigError, one_line, out_of_resources
from exporter.files import open_regular
from exporter.web.access.config import Pem, WebConfig, parse
from exporter.web.access.tls import allowed, server_context
from exporter.web.threads import Threads
from exporter.yaml_lines import decoded, loads

MOST_BYTES = 1024 * 1024
"""Of one file: a bundle of all public CAs has a fifth of it."""
SETTLED_SECONDS = 2.0
"""The stamps of file systems are coarse: what changed just before it was read may have changed
again since, under the same stamp."""
RETRY_SECONDS = 1.0
"""Between two readings of files that are broken and do not change."""
PATIENCE_SECONDS = 5.0
"""For a file system that does not answer."""

Signature = tuple[int, ...] | int
"""Device, inode, size and two times; or the number of the error."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """The active configuration. While the files are broken: the one before, and the problem."""

    context: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    config: WebConfig = field(default_factory=WebConfig)
    digests: tuple[bytes, ...] = ()
    """Of the content of each file, the configuration first."""
    notes: tuple[str, ...] = ()
    """What has no effect, or another one than was meant; a line each."""
    generation: int = 1
    """Grows when the files change; older connections end after their answer."""
    problem: str | None = None
    """Why the files cannot be used, in one line."""

    def admit(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client with this certificate, or none, may connect."""
        tls = self.config.tls
        return tls is None or allowed(certificate, tls.allowed_sans)

    @property
    def refuses_requests(self) -> bool:
        """Whether nothing may be served, because the files are broken.

        A client on an encrypted connection was accepted while they were good; without TLS, or where
        there are passwords, no client can be authenticated.
        """
        return self.problem is not None and (self.context is None or bool(self.config.users))


@dataclass
class Files:
    """Files that were read at a moment, what they looked like then, and their digests."""

    now: float
    """Unix time, in seconds."""
    seen: dict[Path, Signature] = field(default_factory=dict)
    digests: tuple[bytes, ...] = ()

    def read(self, path: Path) -> bytes:
        """Return a file's content; raise ConfigError, which names no place, if that cannot be."""
        name = one_line(os.fspath(path))
        try:
            with open_regular(path) as file:
                self.seen[path] = _signature(os.fstat(file.fileno()))
                data = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            self.seen.setdefault(path, signature(path))
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot read {name}: {reason}") from error
        if len(data) > MOST_BYTES:
            raise ConfigError(f"cannot read {name}: it has more than {MOST_BYTES} bytes")
        self.digests += (hashlib.sha256(data).digest(),)
        return data

    def may_have_changed(self) -> bool:
        """Return whether one of them differs, or could without any sign of it."""
        return any(
            signature(path) != before
            or (isinstance(before, tuple) and abs(self.now - before[-1] / 1e9) < SETTLED_SECONDS)
            for path, before in self.seen.items()
        )


def signature(path: Path) -> Signature:
    """Return a signature of the file at a path, which changes with it and with any link to it."""
    try:
        return _signature(os.stat(path))
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) or -1


def _signature(status: os.stat_result) -> Signature:
    times = status.st_mtime_ns, status.st_ctime_ns
    return (status.st_dev, status.st_ino, status.st_size, *times)


def load(
    path: Path, files: Files | None = None, before: ActiveConfig | None = None
) -> ActiveConfig:
    """Read a web configuration file and the files it names; return `before` if all are equal."""
    files = files or Files(time.time())
    try:
        data = files.read(path)
    except ConfigError as error:
        raise ConfigError(f"{error}, expected a YAML file") from error
    if before is not None and before.digests[:1] == files.digests:
        config = before.config
    else:
        config = _parsed(data, path)
    tls = config.tls
    pems = [] if tls is None else [tls.cert, tls.key, tls.client_ca]
    contents = [None if pem is None else _content(pem, files) for pem in pems]
    if before is not None and before.digests == files.digests:
        return before
    generation = 1 if before is None else before.generation + 1
    if tls is None:
        return ActiveConfig(None, config, files.digests, config.notes, generation)
    cert, key, client_ca = contents
    try:
        context, notes = server_context(tls, cert or b"", key or b"", client_ca)
    except ConfigError:
        raise
    except Exception as error:
        # OpenSSL has many ways to refuse what it reads, and Python some of its own.
        raise ConfigError(f"{tls.place}: TLS cannot be set up ({one_line(repr(error))})") from error
    return ActiveConfig(context, config, files.digests, config.notes + notes, generation)


def _parsed(data: bytes, path: Path) -> WebConfig:
    name = one_line(str(path))
    config = parse(loads(decoded(data, name), str(path)), path.parent)
    if config.users:
        try:
            import bcrypt  # noqa: F401 - here, and not when there may be no descriptor for it
        except ModuleNotFoundError as error:
            problem = f"{name}: basic_auth_users needs the Python package bcrypt"
            raise ConfigError(problem) from error
    return config


def _content(pem: Pem, files: Files) -> bytes:
    if pem.path is None:
        return (pem.text or "").encode()
    try:
        return files.read(pem.path)
    except ConfigError as error:
        raise ConfigError(f"{pem.place}: {error}") from error


class WebConfigWatcher:
    """Keeps the active configuration up to date."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        """Read the files; raise ConfigError with one line if they cannot be used."""
        self._clock = clock or SystemClock()
        self._path = path
        self._tried_at = self._clock.monotonic()
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._thread = Threads("web-config")
        self._is_unreadable = False
        """Whether there were no resources to look at the files the last time."""
        self._files = Files(self._clock.time())
        self.active = load(path, self._files)
        _log_notes(self.active)

    @property
    def ok(self) -> bool:
        """Whether the files can be used."""
        return self.active.problem is None

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are encrypted, which no change of the files changes."""
        return self.active.context is not None

    async def look(self) -> ActiveConfig:
        """Return the active configuration at a moment after this call.

        It is for a new connection; the server asks once a second, too, for those that are kept.
        Callers during one look share the next. All must be in one event loop.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._look_after(self._current))
        done, _ = await asyncio.wait({self._next}, timeout=PATIENCE_SECONDS)
        if not done:
            self._break(f"{self._path}: its file system does not answer")
        return self.active

    async def _look_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        try:
            await self._look()
        except Exception as error:
            if not out_of_resources(error):
                self._break(f"{self._path}: {one_line(repr(error))}")
            elif not self._is_unreadable:  # not a fault of the files
                self._is_unreadable = True
                reason = one_line(str(error))
                log.warning("the web configuration stays, it cannot be looked at: %s", reason)
        else:
            self._is_unreadable = False
        finally:
            self._current = None

    async def _look(self) -> None:
        files, active = self._files, self.active
        now, wall = self._clock.monotonic(), self._clock.time()
        is_due = active.problem is not None and now - self._tried_at >= RETRY_SECONDS

        def look() -> tuple[Files, ActiveConfig | str] | None:
            if not is_due and not files.may_have_changed():
                return None
            new = Files(wall)
            try:
                return new, load(self._path, new, active)
            except ConfigError as error:
                if out_of_resources(error):
                    raise
                return new, str(error)

        found = await self._thread.run(look)
        if found is not None:
            self._tried_at = now
            self._files, outcome = found
            self._take(outcome)

    def _take(self, found: ActiveConfig | str) -> None:
        if isinstance(found, str):
            self._break(found)
        elif (found.context is not None) != self.is_encrypted:
            switched = "off" if self.is_encrypted else "on"
            self._break(f"{self._path}: TLS is switched {switched} in it, which needs a restart")
        elif found.digests != self.active.digests:
            self.active = found
            log.info("the web configuration has changed, and holds from now on")
            _log_notes(found)
        elif self.active.problem is not None:
            self.active = replace(self.active, problem=None)
            log.info("the web configuration can be used again")

    def _break(self, problem: str) -> None:
        if self.active.problem != problem:  # a second mistake may come to light with the first
            log.error("the web configuration cannot be used, nobody is let in: %s", problem)
        self.active = replace(self.active, problem=problem)


def _log_notes(active: ActiveConfig) -> None:
    for note in active.notes:
        log.warning("%s", note)
