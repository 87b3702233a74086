# SPDX-License-Identifier: Apache-2.0
"""What ``--fail-if`` takes: a number of B, or its change from A to B, above or below a limit.

    NAME (">" | ">=" | "<" | "<=") [SIGN] NUMBER ["%"]

With a sign it is the change, as percents of A. A share may be given as 0.2 or as 20%.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from exporter.cli.compare.comparison import FIGURES, change, missing, text_of, value
from exporter.cli.compare.job_summary import JobSummary
from exporter.cli.config.coerce import shown
from exporter.cli.config.parser import did_you_mean
from exporter.errors import ConfigError

NAMES = {"wait": "data_wait_ratio", "stall": "data_stall_ratio"} | {name: name for name in FIGURES}
"""What a number may be called."""
_FORM = re.compile(r"\s*(\w+)\s*([<>]=?)\s*([-+]?)([0-9]{1,24}(?:\.[0-9]{1,24})?)\s*(%?)\s*")
_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class Condition(NamedTuple):
    """One --fail-if."""

    text: str
    name: str
    is_beyond: Callable[[float, float], bool]
    limit: float
    is_change: bool

    def holds(self, a: JobSummary, b: JobSummary) -> tuple[bool | None, str]:
        """Return whether it holds, and why; None where a number that it needs is not known."""
        of_a = value(a, self.name) if self.is_change else 0.0
        of_b = value(b, self.name)
        if of_a is None or of_b is None:
            return None, f"{self.name} is {missing(of_a, of_b)}"
        if self.is_change:
            by = change(of_a, of_b)
            return self.is_beyond(by, self.limit), f"{self.name} changed by {by:+.1%}"
        return self.is_beyond(of_b, self.limit), f"{self.name} is {text_of(self.name, of_b)}"


def condition(text: str) -> Condition:
    """Read one --fail-if; raise ConfigError, which names it and what was expected."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise _unexpected(text, "a name, <, <=, > or >=, and a number, such as wait>20%")
    name, sign, unit = found[1], found[3], found[5]
    if name not in NAMES:
        raise _unexpected(text, f"one of {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
    if sign and not unit:
        raise _unexpected(text, f"percents behind a sign, such as {sign}10%")
    if unit and not sign and not NAMES[name].endswith("_ratio"):
        raise _unexpected(text, f"a number, or a change such as +10%: {name} is no share")
    limit = float(sign + found[4]) / (100 if unit else 1)
    return Condition(text, NAMES[name], _OPERATORS[found[2]], limit, bool(sign))


def _unexpected(text: str, expected: str) -> ConfigError:
    return ConfigError(f"--fail-if: {shown(text)}: expected {expected}")
