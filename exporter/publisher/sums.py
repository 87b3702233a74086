# SPDX-License-Identifier: Apache-2.0
"""How the values of one field are put together, whichever field it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def merged(one: Any, other: Any, of: Callable[[float, float], float]) -> Any:
    """Return `of` two numbers, or of each label's two numbers where the values are mappings.

    None is "not known" and gives way to what is known; a label that is missing counts as 0. Neither
    value is changed. Mappings are plain dicts.
    """
    if one is None or other is None:
        return other if one is None else one
    if not isinstance(other, dict):
        return of(one, other)
    together = dict(one)
    for label, each in other.items():
        together[label] = of(together.get(label, 0.0), each)
    return together
