# SPDX-License-Identifier: Apache-2.0
"""Puts an ordinary function in the place of one of the job's, which it calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .switches import debug

HOOKED = "_roofline_hooked"
"""The attribute that our functions have."""


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Put what `wrap` makes of a function of a class or module in its place, once."""
    original = getattr(owner, name)
    if not hasattr(original, HOOKED):
        wrapper = functools.wraps(original)(wrap(original))
        setattr(wrapper, HOOKED, True)
        setattr(owner, name, wrapper)
        debug(f"hooked {getattr(owner, '__module__', owner.__name__)}.{original.__qualname__}")
