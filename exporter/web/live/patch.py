# SPDX-License-Identifier: Apache-2.0
"""What changed between two JSON objects, as a JSON merge patch (RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what turns `before` into `after`: members that changed, None for those that are gone.

    Objects are compared member by member, lists are replaced whole. `after` holds no None.
    """
    patch: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if old == value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[name] = merge_patch(old, value)
        else:
            patch[name] = value
    for name in before.keys() - after.keys():
        patch[name] = None
    return patch
