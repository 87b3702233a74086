# SPDX-License-Identifier: Apache-2.0
"""A table of limited size that users share: who has which entries, and which make room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

MAKES_ROOM_SECONDS = 10.0
"""An entry that was silent for longer makes room for a new one of the same user."""

K = TypeVar("K", bound=Hashable)


class FullError(Exception):
    """There is no room for this user."""


class Room(Generic[K]):
    """The entries of each user, the one that was silent for longest first.

    A user's fair share is the size over the number of users. A user who holds no more than that
    loses nothing to another one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[int, OrderedDict[K, float]] = {}
        """By uid: when each entry was last heard."""
        self._count = 0

    def hear(self, uid: int, key: K, now: float) -> None:
        """Note that an entry was heard at monotonic time `now`; a new one is added."""
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
        """Return which entry has to leave before a new one of this user can come in, or None.

        A user below the fair share gets the room of the user with the most entries, as long as that
        one keeps at least as many; any other user only that of an own entry which was silent.

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
