# SPDX-License-Identifier: Apache-2.0
"""How many entries each user may have in a shared table, and which entry makes room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

MAKES_ROOM_SECONDS = 10.0
"""An entry that was not used for longer makes room for a new one of the same user."""

K = TypeVar("K", bound=Hashable)


class FullError(Exception):
    """There is no room for another entry of this user."""


class Quota(Generic[K]):
    """The entries of each user, the one that was not used for longest first.

    A user's fair share is the size of the table over the number of users. A user who has no more
    entries than that loses none to another user.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[int, OrderedDict[K, float]] = {}
        """By uid: when each entry was last used."""
        self._count = 0

    def use(self, uid: int, key: K, now: float) -> None:
        """Note that an entry was used at monotonic time `now`; a new one is added."""
        entries = self._entries.setdefault(uid, OrderedDict())
        self._count += key not in entries
        entries[key] = now
        entries.move_to_end(key)

    def remove(self, uid: int, key: K) -> None:
        """Take an entry out."""
        entries = self._entries[uid]
        del entries[key]
        self._count -= 1
        if not entries:
            del self._entries[uid]

    def makes_room(self, uid: int, now: float) -> K | None:
        """Return the entry to remove before a new one of this user is added; None if there is room.

        A user below the fair share gets the room of the user with the most entries, as long as that
        one keeps at least as many; any other user only that of an own entry, if it was not used for
        MAKES_ROOM_SECONDS.

        Raises:
            FullError: the user has as many entries as it may have, and uses them all.
        """
        if self._count < self._size:
            return None
        own = self._entries.get(uid, OrderedDict())
        users = len(self._entries) + (uid not in self._entries)
        largest = max(self._entries.values(), key=len)
        if len(own) * users < self._size and len(own) + 1 < len(largest):
            return next(iter(largest))
        oldest = next(iter(own.items()), None)
        if oldest is not None and now - oldest[1] > MAKES_ROOM_SECONDS:
            return oldest[0]
        raise FullError
