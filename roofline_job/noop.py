# SPDX-License-Identifier: Apache-2.0
"""`watch`, `step` and `phase` without effect, for ROOFLINE_JOB_INSTRUMENT=0."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def watch(iterable: Any, **_: Any) -> Any:
    """Return what it is given."""
    return iterable


def step(n: int = 1, **_: Any) -> None:
    """Count nothing."""


class phase:
    """Time nothing."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        """Take what the job says."""

    def __enter__(self) -> None:
        """Begin nothing."""

    def __exit__(self, *_: object) -> None:
        """Let pass what was raised."""
