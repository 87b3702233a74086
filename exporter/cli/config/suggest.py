# SPDX-License-Identifier: Apache-2.0
"""Which known name a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LENGTH = 60
"""No name is longer than half of it."""


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ``, did you mean NAME?`` for the nearest known name, else nothing.

    What all names start with, `prefix`, is left out of the comparison.
    """
    if len(name) > MAX_LENGTH:
        return ""
    from difflib import get_close_matches  # loaded only where there is a mistake

    rest = {word.removeprefix(prefix): word for word in known}
    near = get_close_matches(name.removeprefix(prefix), rest, n=1, cutoff=0.6)
    return f", did you mean {rest[near[0]]}?" if near else ""
