# SPDX-License-Identifier: Apache-2.0
"""Reads the files of the web configuration, and reads them again when they change."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigError, one_line, out_of_resources
from exporter.files import TooLargeError, read_regular
from exporter.web.access.config import Pem, WebConfig, parse
from exporter.web.access.tls import allowed, server_context
from exporter.web.threads import Threads
from exporter.yaml_lines import decoded, loads

MOST_BYTES = 1024 * 1024
"""Of one file: a bundle of all public CAs has a fifth of it."""
RETRY_SECONDS = 1.0
"""Between two readings of files that are broken and do not change."""
PATIENCE_SECONDS = 5.0
"""For a file system that does not answer."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """The active configuration. While the files are broken: the one before, and the problem."""

    context: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    config: WebConfig = field(default_factory=WebConfig)
    digests: Mapping[Path, bytes] = field(default_factory=dict)
    """Of the content of each file."""
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


class Files:
    """The files of one reading, and what was in them."""

    def __init__(self) -> None:
        self.digests: dict[Path, bytes] = {}
        """Empty where one could not be read."""

    def read(self, path: Path) -> bytes:
        """Return a file's content; raise ConfigError, which names no place, if that cannot be."""
        name = one_line(os.fspath(path))
        self.digests[path] = b""
        try:
            data = read_regular(path, MOST_BYTES)
        except TooLargeError as error:
            raise ConfigError(f"cannot read {name}: it has {error.strerror}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot read {name}: {reason}") from error
        self.digests[path] = hashlib.sha256(data).digest()
        return data

    def have_changed(self) -> bool:
        """Return whether one of them holds something else now."""
        now = Files()
        for path in self.digests:
            with contextlib.suppress(ConfigError):
                now.read(path)
        return now.digests != self.digests


def load(path: Path, files: Files | None = None, generation: int = 1) -> ActiveConfig:
    """Read a web configuration file and the files it names."""
    files = files or Files()
    try:
        data = files.read(path)
    except ConfigError as error:
        raise ConfigError(f"{error}, expected a YAML file") from error
    config = _parsed(data, path)
    tls = config.tls
    if tls is None:
        return ActiveConfig(None, config, files.digests, config.notes, generation)
    cert, key = _content(tls.cert, files), _content(tls.key, files)
    client_ca = None if tls.client_ca is None else _content(tls.client_ca, files)
    try:
        context, notes = server_context(tls, cert, key, client_ca)
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
        self._files = Files()
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
        now = self._clock.monotonic()
        is_due = active.problem is not None and now - self._tried_at >= RETRY_SECONDS

        def look() -> tuple[Files, ActiveConfig | str] | None:
            if not is_due and not files.have_changed():
                return None
            new = Files()
            try:
                return new, load(self._path, new, active.generation + 1)
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
