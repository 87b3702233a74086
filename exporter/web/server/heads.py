# SPDX-License-Identifier: Apache-2.0
"""Cuts what a client sends into the heads of its requests, which the parser gets one at a time."""

from __future__ import annotations

import re

_BLANK_LINE = re.compile(rb"\n\r?\n")
_LONGEST_ENDING = 3
_TLS_HANDSHAKE = b"\x16"


class HeadTooLong(Exception):
    """There is no blank line within the bytes that a head may have."""


class Heads:
    """The bytes of one connection that no request was made of yet."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        """Return how many bytes are held."""
        return len(self._held)

    @property
    def is_tls(self) -> bool:
        """Whether what is held begins a handshake of TLS, which need not have a blank line."""
        return self._held[:1] == _TLS_HANDSHAKE

    def put(self, data: bytes) -> None:
        """Add what arrived. Line breaks before a head are no part of it."""
        if not self._held:
            data = data.lstrip(b"\r\n")
        self._held += data

    def take(self) -> bytes | None:
        """Return the first head with its blank line, or None until it is there.

        Raises:
            HeadTooLong: it is longer than it may be.
        """
        held = self._held
        if not held:
            return None
        found = _BLANK_LINE.search(held, max(0, self._searched - _LONGEST_ENDING))
        end = len(held) if found is None else found.end()
        if end > self._most_bytes:
            raise HeadTooLong
        if found is None:
            self._searched = end
            return None
        self._searched = 0
        if end == len(held):
            self._held = bytearray()
            return bytes(held)
        head = bytes(held[:end])
        self._held = held[end:].lstrip(b"\r\n")
        return head
