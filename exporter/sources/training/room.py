# SPDX-License-Identifier: Apache-2.0
"""A table of limited size that users share: who holds what in it, and who has to leave for whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

MAKES_ROOM_SECONDS = 10.0
"""An entry that was silent for longer makes room for another one of its user."""

K = TypeVar("K", bound=Hashable)


class FullError(Exception):
    """Nothing has to leave for this user."""


class Room(Generic[K]):
    """The entries of each user, the one that was silent for longest first.

    A user's fair share is the size over the number of users. Whoever holds no more than that loses
    nothing to another user, whatever that one does.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[int, OrderedDict[K, float]] = {}
        """By uid: when each entry was last heard."""
        self._count = 0

    def hear(self, uid: int, key: K, now: float) -> None:
        """Take note that an entry was heard at monotonic time `now`; a new one comes in."""
        held = self._held.setdefault(uid, OrderedDict())
        self._count += key not in held
        held[key] = now
        held.move_to_end(key)

    def leave(self, uid: int, key: K) -> None:
        """Take an entry out."""
        held = self._held[uid]
        del held[key]
        self._count -= 1
        if not held:
            del self._held[uid]

    def leaving(self, uid: int, now: float) -> K | None:
        """Return what has to leave before a new entry of this user can come; None: nothing.

        Below its share a user gets the room of whoever holds most, if that leaves the two no
        further apart; else only that of an own entry which was silent for a while.

        Raises:
            FullError: the user holds as much as it may, and all of it is alive.
        """
        if self._count < self._size:
            return None
        own = self._held.get(uid, OrderedDict())
        users = len(self._held) + (uid not in self._held)
        largest = max(self._held.values(), key=len)
        if len(own) * users < self._size and len(own) + 1 < len(largest):
            return next(iter(largest))
        for key, heard in own.items():
            if now - heard > MAKES_ROOM_SECONDS:
                return key
            break
        raise FullError
