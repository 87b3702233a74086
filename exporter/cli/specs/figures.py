# SPDX-License-Identifier: Apache-2.0
"""The figures of the spec file as they stand in a table."""

from __future__ import annotations

from exporter.cli.terminal.table import NOTHING, UNKNOWN, Cell

TERA, GIGA, MEGA = 1e12, 1e9, 1e6
RIDGE_DIGITS = 4
"""Significant digits of a ridge point."""


def scaled(value: float | None, scale: float, digits: int = 6) -> Cell:
    """Return a figure in multiples of `scale`, or that it is not known."""
    return UNKNOWN if value is None else Cell(number(value / scale, digits))


def number(value: float, digits: int = 6) -> str:
    """Return a number with at most this many significant digits, and without an exponent."""
    return f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


def known(value: float | None, scale: float, digits: int) -> Cell:
    """Return a figure in multiples of `scale`, or nothing where there is none."""
    return NOTHING if value is None else scaled(value, scale, digits)
