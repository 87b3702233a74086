# SPDX-License-Identifier: Apache-2.0
"""Whether a password is the one of a hash, without ever keeping the event loop waiting.

To compute a hash takes long by design, so one is computed at a time, in a thread, and those who ask
take turns by where they come from. What came out is remembered, for right and for wrong ones apart:
who guesses cannot push out those who know. So a request need not stay until its turn: where too
many wait it is sent away, its password is checked all the same, and the next one is answered.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import logging
import secrets
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from exporter.web.access.hashes import Hash, dummy
from exporter.web.fairness import FairQueue, origin
from exporter.web.threads import Threads

MOST_REMEMBERED = 100
"""Right ones, and as many wrong ones."""
MOST_WAITING = 1024
"""Passwords that are to be checked: so many origins can have their turn."""
MOST_WAITING_OF_ONE = 16
"""Of one origin, so that it does not leave an hour's work behind."""
MOST_HELD = 32
"""Requests that wait for that: each is a connection that makes no room for others."""
LONGEST_PASSWORD = 72
"""Bytes; bcrypt does not look at more."""

log = logging.getLogger(__name__)


class Busy(Exception):
    """Too many wait already; asking again a second later may help."""


def credentials(header: bytes) -> tuple[bytes, bytes] | None:
    """Return user and password of an Authorization header, None if it holds none."""
    scheme, _, rest = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        decoded = b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


class _Asked(NamedTuple):
    """A password that is to be checked."""

    of: str
    """Its origin."""
    key: bytes
    password: bytes
    wanted: Hash
    is_known: bool
    """Whether there is such a user."""
    answer: asyncio.Future[bool | None]
    """Whether it is right; None for who is not to wait."""

    def say(self, is_right: bool | None) -> None:
        if not self.answer.done():
            self.answer.set_result(is_right)


class Passwords:
    """Checks passwords, one at a time."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._thread = Threads("password")
        self._turns: FairQueue[_Asked] = FairQueue(MOST_WAITING, MOST_WAITING_OF_ONE)
        self._held: FairQueue[_Asked] = FairQueue(MOST_HELD)
        self._checking: asyncio.Task[None] | None = None

    async def check(
        self, users: Mapping[str, Hash], user: bytes, password: bytes, address: str = ""
    ) -> bool:
        """Return whether this is the user's password; unknown users take as long as known ones.

        Raises:
            Busy: so many wait that this one may not; it may be checked all the same.
        """
        name = user.decode("utf-8", "replace")
        found = users.get(name) if name.encode() == user else None
        # bcrypt looks at no more bytes, and some implementations of it at none after a NUL.
        if len(password) > LONGEST_PASSWORD or b"\0" in password:
            return False
        wanted = found or self._dummy(users, user)
        key = self._key(user, password, wanted)
        known = self._remembered(key)
        if known is not None:
            return known
        loop, of = asyncio.get_running_loop(), origin(address)
        asked = _Asked(of, key, password, wanted, found is not None, loop.create_future())
        for queue in (self._turns, self._held):
            left_out = queue.put(of, asked)
            if left_out is not None:
                left_out.say(None)
            if left_out is asked:
                break
        if self._checking is None or self._checking.done():
            self._checking = loop.create_task(self._check_all())
        try:
            is_right = await asked.answer
        finally:
            self._held.discard(of, asked)
        if is_right is None:
            raise Busy
        return is_right

    async def _check_all(self) -> None:
        while self._turns:
            asked, is_right = self._turns.pop(), None
            try:
                matches = await self._thread.run(_matches, asked.password, asked.wanted)
            except Exception:  # such as no memory: neither right nor wrong
                log.debug("a password was not checked", exc_info=True)
            else:
                is_right = matches and asked.is_known
                self._remember(self._right if is_right else self._wrong, asked.key)
            # Who asks again and again has one turn for all of it.
            for each in [asked, *(each for each in self._turns if each.key == asked.key)]:
                self._turns.discard(each.of, each)
                each.say(is_right)

    def _dummy(self, users: Mapping[str, Hash], user: bytes) -> Hash:
        """Return a hash for an unknown user: always the same, and of a cost that a user's has."""
        costs = [known.cost for known in users.values()]
        number = int.from_bytes(hmac.digest(self._secret, user, "sha256")[:8], "big")
        return dummy(costs[number % len(costs)] if costs else 10)

    def _key(self, user: bytes, password: bytes, wanted: Hash) -> bytes:
        """Return what stands for them; it has the hash in it, so that a new one takes effect."""
        parts = (user, password, wanted.octets)
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, text, "sha256")

    def _remembered(self, key: bytes) -> bool | None:
        for known, is_right in ((self._right, True), (self._wrong, False)):
            if key in known:
                known.move_to_end(key)
                return is_right
        return None

    def _remember(self, known: OrderedDict[bytes, None], key: bytes) -> None:
        known[key] = None
        while len(known) > MOST_REMEMBERED:
            known.popitem(last=False)


def _matches(password: bytes, wanted: Hash) -> bool:
    import bcrypt  # only who has users needs it, for whom it is loaded with the file

    try:
        return bcrypt.checkpw(password, wanted.octets)
    except ValueError:
        return False
