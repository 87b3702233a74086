# SPDX-License-Identifier: Apache-2.0
"""A regular expression is taken if Prometheus takes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from deploy.prometheus.re2 import refused
from tests.conftest import require_tool

NOT_RE2 = {
    "(?=a)b": "lookaround",
    "(?!a)b": "lookaround",
    "(?<=a)b": "lookaround",
    "(?<!a)b": "lookaround",
    r"(a)\1": r"the escape \1",
    "(?P<n>x)(?P=n)": "references to groups",
    "a{1001}": "1000 times",
    "(a{100}){100}": "1000 times",
    "((a{20,}){20}x){3}": "1000 times",
    "x++": "possessive",
    "x{2}+": "possessive",
    r"a\Z": r"the escape \Z",
    r"\u00e9": r"the escape \u",
    "\\é": "the escape \\é",
    "(?>a)": "atomic",
    "(?#c)a": "comments",
    "(a)(?(1)b|c)": "conditions",
    "(?x)a": "a group or flag",
    "(?a:x)": "a group or flag",
    "(?P<é>x)": "a group or flag",
    r"[\b]": r"\b in a set",
}
"""What Python takes (some of it from 3.11 on) and Prometheus does not."""
RE2 = (
    "gpu-.*|dcgm",
    r"gpu-\d+\.prod|roofline",
    r"[a-z]{1,63}\.[a-z]{1,63}",
    "(?i)gpu",
    "(?i-s:gpu)x",
    "(?P<n>x)(?:a|b)+",
    r"\(\?=x\+\+",
    "[(?=]|[]+]+|[^]a]",
    r"\x41\b\B\A$",
    "(a{10}){100}|a{1000}",
    "x*?y+?z??",
    "é|x{|[a&&b]",
)


@pytest.mark.parametrize(("pattern", "construct"), NOT_RE2.items())
def test_what_re2_has_not_is_refused(pattern: str, construct: str) -> None:
    """With the construct."""
    expected = refused(pattern)
    assert expected
    assert construct in expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("gpu(", "a regular expression"),
        ("(" * 5000 + ")" * 5000, "a regular expression"),
        ("a{" + 30 * "9" + "}", "a regular expression"),
        ("a{,5}", "a regular expression of RE2, so without repetition without a least number"),
        ("[[:alpha:]]", "a regular expression of RE2, so without [: in a set"),
    ],
)
def test_what_is_none_or_reads_differently_is_refused(pattern: str, expected: str) -> None:
    """In one line, whatever Python's compiler makes of it."""
    assert refused(pattern) == expected


@pytest.mark.parametrize("pattern", RE2)
def test_what_re2_has_is_taken(pattern: str) -> None:
    """Also what looks like something that it has not."""
    assert refused(pattern) is None


def test_prometheus_agrees(tmp_path: Path) -> None:
    """It takes every pattern of the one list, and refuses every one of the other."""
    promtool = require_tool("promtool")

    def complaints(patterns: Iterable[str]) -> list[str]:
        rules = [
            {"record": "x", "labels": {"number": str(i)}, "expr": f"up{{job=~{json.dumps(p)}}}"}
            for i, p in enumerate(patterns)
        ]
        path = tmp_path / "rules.yml"
        path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}), "utf-8")
        done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
        return [line for line in done.stderr.splitlines() if "could not parse expression" in line]

    assert complaints(RE2) == []
    assert len(complaints(NOT_RE2)) == len(NOT_RE2)
