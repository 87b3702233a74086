# SPDX-License-Identifier: Apache-2.0
"""Keeps what scrapers ask for ready: made when a snapshot is published, while somebody asks."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
"""What tells the pages of one kind apart, such as a format."""

ACTIVE_SECONDS = 300.0
"""How long a variant is kept ready after it was last asked for."""


def encoded(data: bytes, zipped: bool) -> bytes:
    """Return a page as it is sent."""
    # Level 1: a tenth of the time of level 9 for a fifth more bytes. No time stamp: same page,
    # same bytes.
    return gzip.compress(data, 1, mtime=0) if zipped else data


class Variants(Generic[K]):
    """Every page of one kind that was asked for in the last 5 minutes, plain and gzipped.

    Whoever publishes holds the lock and calls `renew`; any thread may ask.
    """

    def __init__(
        self, lock: threading.Lock, clock: Callable[[], float], make: Callable[[K], bytes]
    ) -> None:
        """Take the lock under which pages are made, and what makes one."""
        self._lock = lock
        self._clock = clock
        self._make = make
        self._asked: dict[tuple[K, bool], float] = {}
        self._ready: dict[tuple[K, bool], bytes] = {}
        """Replaced whole, so that it can be read without the lock."""

    def ready(self, key: K, zipped: bool) -> bytes | None:
        """Return the page if it is ready, at once; None if `page` has to make it first."""
        data = self._ready.get((key, zipped))
        if data is not None:
            self._asked[key, zipped] = self._clock()
        return data

    def page(self, key: K, zipped: bool) -> bytes:
        """Return the page of the latest snapshot, and keep this variant ready from now on."""
        variant = (key, zipped)
        with self._lock:
            data = self._ready.get(variant)
            if data is None:
                data = encoded(self._make(key), zipped)
                self._ready = {**self._ready, variant: data}
            self._asked[variant] = self._clock()
            return data

    def renew(self) -> None:
        """Make those anew that are still asked for, and forget the others; the lock is held."""
        now = self._clock()
        asked = {
            variant: at for variant, at in list(self._asked.items()) if now - at < ACTIVE_SECONDS
        }
        variants = tuple(asked)
        self._asked = asked  # from here on other threads may add to it
        plain = {key: self._make(key) for key in {key for key, _ in variants}}
        self._ready = {variant: encoded(plain[variant[0]], variant[1]) for variant in variants}
