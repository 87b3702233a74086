# SPDX-License-Identifier: Apache-2.0
"""Whether a password is the one of a hash, without ever keeping the event loop waiting.

To compute a hash takes long by design, so one is computed at a time, in a thread, and few wait for
their turn. What came out is remembered, for right and for wrong ones apart: who guesses cannot push
out those who know.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import secrets
from base64 import b64decode
from collections import Counter, OrderedDict
from collections.abc import Mapping

from exporter.web.access.hashes import Hash, dummy
from exporter.web.threads import Threads

MOST_REMEMBERED = 100
"""Right ones, and as many wrong ones."""
MOST_WAITING = 16
MOST_WAITING_OF_ONE = 4
"""From one address."""
LONGEST_PASSWORD = 72
"""Bytes; bcrypt does not look at more."""


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


class Passwords:
    """Checks passwords, one at a time."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._thread = Threads("password")
        self._turn: asyncio.Lock | None = None
        self._waiting: Counter[str] = Counter()

    async def check(
        self, users: Mapping[str, Hash], user: bytes, password: bytes, address: str = ""
    ) -> bool:
        """Return whether this is the user's password; unknown users take as long as known ones.

        Raises:
            Busy: so many wait for their turn that this one may not.
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
        if self._waiting.total() >= MOST_WAITING or self._waiting[address] >= MOST_WAITING_OF_ONE:
            raise Busy
        if self._turn is None:
            self._turn = asyncio.Lock()  # in Python 3.10 it belongs to a loop
        self._waiting[address] += 1
        try:
            async with self._turn:
                known = self._remembered(key)  # who had the turn before may have asked the same
                if known is not None:
                    return known
                matches = await self._thread.run(_matches, password, wanted)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
        is_right = matches and found is not None
        self._remember(self._right if is_right else self._wrong, key)
        return is_right

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
    import bcrypt  # only who has users needs it

    try:
        return bcrypt.checkpw(password, wanted.octets)
    except ValueError:
        return False
