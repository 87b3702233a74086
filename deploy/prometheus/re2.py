# SPDX-License-Identifier: Apache-2.0
"""Does Prometheus take this regular expression, too?

Python's compiler says whether it is one; here is what Python has and RE2, of which Prometheus's are
(https://github.com/google/re2/wiki/Syntax, "NOT SUPPORTED"), has not or reads as something else.
"""

from __future__ import annotations

import re
import warnings

MOST_REPEATS = 1000
"""Of one counted repetition, and of those inside of each other multiplied."""

_TOKEN = re.compile(r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|.", re.DOTALL)
_LACKS = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"\(\?P?<?[=!]", "lookaround or references to groups"),
        (r"\(\?>", "atomic groups"),
        (r"\(\?#", "comments"),
        (r"\(\?P?\(", "conditions"),
        (r"\(\?(?!:|P<[A-Za-z0-9_]+>|[ims]*(?:-[ims]+)?[:)])", "a group or flag of this kind"),
        (r"(?:[*+?]|\{\d+(?:,\d*)?\})\+", "possessive repetition"),
        (r"\{,\d+\}", "repetition without a least number"),
    )
)
"""What to look for where escapes and sets are left out, and what it is called."""
_LACKS_ESCAPE = re.compile(r"\\(?:[1-9ZuUN]|[^\x00-\x7f])")
_LACKS_IN_SET = re.compile(r"\\b|\[:")
_NESTING = re.compile(r"\(|\)|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|.", re.DOTALL)


def refused(pattern: str) -> str | None:
    """Return what is wrong with a pattern, as what follows "expected"; None if it is fine."""
    lacking = _lacking(pattern)
    if lacking is not None:
        return f"a regular expression of RE2, so without {lacking}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return "a regular expression"
    if _repeats(_bare(pattern)) > MOST_REPEATS:
        return f"a regular expression of RE2, which repeats at most {MOST_REPEATS} times"
    return None


def _bare(pattern: str) -> str:
    return _TOKEN.sub(lambda token: "x" if token["escape"] or token["set"] else token[0], pattern)


def _lacking(pattern: str) -> str | None:
    for token in _TOKEN.finditer(pattern):
        inside = token["set"] or ""
        escapes = re.findall(r"\\.", token["escape"] or inside, re.DOTALL)
        for escape in escapes:
            if _LACKS_ESCAPE.match(escape):
                return f"the escape {escape}"
        found = _LACKS_IN_SET.search(inside)
        if found:
            return f"{found[0]} in a set"
    bare = _bare(pattern)
    return next((what for construct, what in _LACKS if construct.search(bare)), None)


def _repeats(bare: str) -> int:
    """Return the largest product of counts inside of each other; parentheses are balanced."""
    groups = [1]
    last = 1
    for token in _NESTING.finditer(bare):
        if token[0] == "(":
            groups.append(1)
            last = 1
        elif token[0] == ")":
            last = groups.pop()
        elif token["least"] is not None:
            last *= int(token["most"] or token["least"])
        else:
            last = 1
        groups[-1] = max(groups[-1], last)
    return max(groups)
