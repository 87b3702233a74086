# SPDX-License-Identifier: Apache-2.0
"""Which addresses count as one client, and a bounded queue that is fair between clients."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, TypeVar

PREFIX_BITS = {4: 32, 6: 64}
"""By IP version: whoever has one address of IPv6 has all that begin so."""

T = TypeVar("T")


@lru_cache(maxsize=1024)
def origin(address: str) -> str:
    """Return what all addresses that one client can come from have in common.

    Those of 127.0.0.0/8 are one, so are those of an IPv6 /64; another IPv4 address stands for
    itself, also mapped to IPv6. What is no address stands for itself as well.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    bits = 8 if found.version == 4 and found.is_loopback else PREFIX_BITS[found.version]
    return str(ipaddress.ip_network((found, bits), strict=False))


class FairQueue(Generic[T]):
    """A bounded number of items, of which every origin has its share; each is in it once.

    The origins take turns, and the items of one keep their order: an item that is the first of its
    origin has its turn after at most one of each other origin.
    """

    def __init__(self, most: int, most_of_one: int | None = None) -> None:
        """Take how many there may be, and how many of one origin."""
        self._most = most
        self._most_of_one = most if most_of_one is None else most_of_one
        self._of: dict[str, deque[T]] = {}
        """By origin, in the order of their turns; none is empty."""
        self._having: dict[int, dict[str, None]] = {}
        """The origins that have so many items; none is empty."""
        self._length = 0

    def __len__(self) -> int:
        """Return how many there are; any thread may ask."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Yield all, in no order that means anything."""
        for items in self._of.values():
            yield from items

    def put(self, of: str, item: T) -> T | None:
        """Add an item of an origin; return the one that has to go for it, which may be itself.

        It is the newest of the origin that has most; between equals, of the newcomer's.
        """
        own = self._of.setdefault(of, deque())
        own.append(item)
        self._count(of, len(own) - 1, len(own))
        heaviest = of
        if len(own) <= self._most_of_one:
            if self._length <= self._most:
                return None
            those = self._having[max(self._having)]
            heaviest = of if of in those else next(iter(those))
        left_out = self._of[heaviest][-1]
        self.discard(heaviest, left_out)
        return left_out

    def pop(self) -> T:
        """Remove and return the item whose turn it is; raises KeyError if there is none."""
        of = next(iter(self._of), "")
        items = self._of.pop(of)
        item = items.popleft()
        self._count(of, len(items) + 1, len(items))
        if items:
            self._of[of] = items
        return item

    def discard(self, of: str, item: T) -> None:
        """Remove an item, if it is there."""
        items = self._of.get(of)
        if items is not None and item in items:
            items.remove(item)
            self._count(of, len(items) + 1, len(items))
            if not items:
                del self._of[of]

    def _count(self, of: str, before: int, now: int) -> None:
        """Note how many items an origin had and has: who floods is not counted anew each time."""
        self._length += now - before
        if before:
            del self._having[before][of]
            if not self._having[before]:
                del self._having[before]
        if now:
            self._having.setdefault(now, {})[of] = None
