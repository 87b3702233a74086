# SPDX-License-Identifier: Apache-2.0
"""Which addresses count as one client, and a bounded queue that is fair between clients."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, TypeVar

PREFIX_BITS = {4: 32, 6: 64}
"""By IP version: a host has a whole /64 of IPv6."""

T = TypeVar("T")


@lru_cache(maxsize=1024)
def origin(address: str) -> str:
    """Return the network that counts as one client.

    It is 127.0.0.0/8, an IPv6 /64 or a single IPv4 address, also mapped to IPv6. What is no address
    is returned as it is.
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
    """A bounded queue with round-robin between clients, first in first out within one."""

    def __init__(self, most: int, most_of_one: int | None = None) -> None:
        """Take how many items there may be, and how many of one client."""
        self._most = most
        self._most_of_one = most if most_of_one is None else most_of_one
        self._items: dict[str, deque[T]] = {}
        """By client, in the order of their turns; none is empty."""
        self._length = 0

    def __len__(self) -> int:
        """Return the number of items, in any thread."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Yield all, in no particular order."""
        for items in self._items.values():
            yield from items

    def put(self, client: str, item: T) -> T | None:
        """Add an item; at a limit, return the item that was dropped, which may be the new one.

        It is the newest of the client with most items; between equals, of this one.
        """
        own = self._items.setdefault(client, deque())
        own.append(item)
        self._length += 1
        heaviest = client
        if len(own) <= self._most_of_one:
            if self._length <= self._most:
                return None
            found = max(self._items, key=lambda each: len(self._items[each]))
            heaviest = found if len(self._items[found]) > len(own) else client
        dropped = self._items[heaviest][-1]
        self.discard(heaviest, dropped)
        return dropped

    def pop(self) -> T:
        """Remove and return the next item; raises KeyError if there is none."""
        client = next(iter(self._items), "")
        items = self._items.pop(client)
        self._length -= 1
        item = items.popleft()
        if items:
            self._items[client] = items
        return item

    def discard(self, client: str, item: T) -> None:
        """Remove an item, if it is there."""
        items = self._items.get(client)
        if items is not None and item in items:
            items.remove(item)
            self._length -= 1
            if not items:
                del self._items[client]
