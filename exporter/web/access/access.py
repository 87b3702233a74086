# SPDX-License-Identifier: Apache-2.0
"""Keeps up with the files of the web configuration while the daemon runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path

from exporter.clock import Clock, SystemClock
from exporter.errors import ConfigError, one_line, out_of_resources
from exporter.web.access.load import Loaded, Reading
from exporter.web.access.terms import Terms
from exporter.web.threads import Threads

RETRY_SECONDS = 1.0
"""Between two readings of files that are broken and do not change."""
PATIENCE_SECONDS = 5.0
"""For a file system that does not answer."""
FRESH_SECONDS = 1.0
"""How old a look may be for a request on a connection that is kept."""
WATCH_SECONDS = 1.0
"""Between two looks for whoever waits for other terms."""
ALWAYS_SENT = frozenset({"X-Content-Type-Options"})
"""Every answer has this header with its only value, whatever the files say."""

log = logging.getLogger(__name__)


class Access:
    """The terms that hold."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        """Read the files.

        Raises:
            ConfigError: they cannot be used; one line that names the place and the problem.
        """
        self._clock = clock or SystemClock()
        self._path = path
        self._tried_at = self._looked_at = self._clock.monotonic()
        self._current: asyncio.Task[None] | None = None
        self._current_since = 0.0
        self._next: asyncio.Task[None] | None = None
        self._changed: asyncio.Event | None = None
        self._thread = Threads("web-config")
        self._stays: str | None = None
        """Why the files could not be looked at the last time; None while they can."""
        self._reading = Reading(path, self._clock.time())
        self._loaded = self._reading.load()
        self.terms = _terms(self._loaded, 1)
        _log_notes(self._loaded)

    @property
    def ok(self) -> bool:
        """Whether the files can be used."""
        return self.terms.problem is None

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are encrypted, which no change of the files changes."""
        return self.terms.context is not None

    async def look(self) -> Terms:
        """Return the terms of a moment after this call, for whoever connects.

        Those who call while one look is under way share the next. All must be in one event loop.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._look_after(self._current))
        now = self._clock.monotonic()
        since = now if self._current is None else self._current_since
        done, _ = await asyncio.wait({self._next}, timeout=max(0.0, since + PATIENCE_SECONDS - now))
        if not done:
            self._break(f"{self._path}: its file system does not answer")
        return self.terms

    async def recent(self) -> Terms:
        """Return terms that are at most a second old, for a request."""
        if self._clock.monotonic() - self._looked_at < FRESH_SECONDS:
            return self.terms
        return await self.look()

    async def superseded(self, generation: int) -> None:
        """Return once other terms hold than those of a generation.

        It looks by itself: who only watches a stream makes no request that would.
        """
        while self.terms.generation == generation:
            if self._changed is None:
                self._changed = asyncio.Event()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), WATCH_SECONDS)
                continue
            await self.recent()

    async def _look_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        self._current_since = self._clock.monotonic()
        try:
            await self._look()
        except Exception as error:
            if out_of_resources(error):  # which says nothing of the files
                self._stay(one_line(str(error)))
            else:
                self._break(f"{self._path}: {one_line(repr(error))}")
        else:
            self._stays = None
        finally:
            self._current = None
            self._looked_at = self._clock.monotonic()

    async def _look(self) -> None:
        reading, loaded = self._reading, self._loaded
        now, wall = self._clock.monotonic(), self._clock.time()
        is_due = self.terms.problem is not None and now - self._tried_at >= RETRY_SECONDS

        def look() -> tuple[Reading, Loaded | ConfigError] | None:
            if not is_due and not reading.files.may_have_changed():
                return None
            new = Reading(reading.path, wall)
            try:
                return new, new.load(loaded)
            except Exception as error:
                if out_of_resources(error):
                    raise
                if isinstance(error, ConfigError):
                    return new, error
                # Whatever it is, nobody is let in for it.
                return new, ConfigError(f"{reading.path}: {one_line(repr(error))}")

        found = await self._thread.run(look)
        if found is not None:
            self._tried_at = now
            self._reading, outcome = found
            self._take(outcome)

    def _take(self, outcome: Loaded | ConfigError) -> None:
        if isinstance(outcome, ConfigError):
            self._break(str(outcome))
            return
        if (outcome.context is not None) != self.is_encrypted:
            self._break(
                f"{self._path}: TLS is switched {'off' if self.is_encrypted else 'on'} in it, "
                "which needs a restart"
            )
            return
        if outcome is not self._loaded:
            self._loaded = outcome
            self.terms = _terms(outcome, self.terms.generation + 1)
            if self._changed is not None:
                self._changed.set()
                self._changed = None
            log.info("the web configuration has changed, and holds from now on")
            _log_notes(outcome)
        elif self.terms.problem is not None:
            self.terms = replace(self.terms, problem=None)
            log.info("the web configuration can be used again")

    def _stay(self, reason: str) -> None:
        if self._stays is None:
            log.warning("the web configuration stays, it cannot be looked at: %s", reason)
        self._stays = reason

    def _break(self, problem: str) -> None:
        if self.terms.problem != problem:  # a second mistake may come to light with the first
            log.error("the web configuration cannot be used, nobody is let in: %s", problem)
        self.terms = replace(self.terms, problem=problem)


def _terms(loaded: Loaded, generation: int) -> Terms:
    config = loaded.config
    return Terms(
        context=loaded.context,
        allowed_sans=frozenset() if config.tls is None else config.tls.allowed_sans,
        generation=generation,
        users=config.users,
        headers=tuple(
            (name.lower().encode(), value.encode())
            for name, value in config.headers
            if name not in ALWAYS_SENT
        ),
        rate_limit=config.rate_limit,
    )


def _log_notes(loaded: Loaded) -> None:
    for note in loaded.notes:
        log.warning("%s", note)
