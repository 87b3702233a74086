# SPDX-License-Identifier: Apache-2.0
"""What a bcrypt hash looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

COSTS = range(4, 19)
"""One more takes twice the time: 0.07 s at 10, about 20 s at 18."""

_HASH = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$(?P<salt>[./A-Za-z0-9]{22})[./A-Za-z0-9]{31}")
_LAST_OF_SALT = frozenset(".Oeu")
"""22 letters hold 132 bits, the salt has 128: the last four are 0."""


@dataclass(frozen=True, slots=True)
class Hash:
    """A well-formed hash of a password."""

    text: str = field(repr=False)

    @property
    def cost(self) -> int:
        """The binary logarithm of the number of rounds."""
        return int(self.text[4:6])

    @property
    def octets(self) -> bytes:
        """It as bcrypt takes it."""
        return self.text.encode()


def is_hash(text: str) -> bool:
    """Return whether it is a hash of versions 2a, 2b or 2y that is computed in some seconds."""
    found = _HASH.fullmatch(text)
    if found is None:
        return False
    return int(found["cost"]) in COSTS and found["salt"][-1] in _LAST_OF_SALT


def dummy(cost: int) -> Hash:
    """Return a hash of that cost for those who have none; its matches are refused too."""
    return Hash(f"$2b${cost:02d}${'.' * 53}")
