# SPDX-License-Identifier: Apache-2.0
"""JSON merge patches as RFC 7386 applies them, for tests of what the exporter sends."""

from __future__ import annotations

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """Return the target with the patch applied (RFC 7386, section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
