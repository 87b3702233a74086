# SPDX-License-Identifier: Apache-2.0
"""The configurations of a page such as docs/remote.md, each named by its first line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"(?:#!/bin/sh\n)?(?:#|//) (?:\S*/)?([\w.-]+)(?: \[\w+\])?\n")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def configurations(page: str) -> Mapping[str, str]:
    """Return them by the name of the file that each is to be."""
    return {found[1]: block for _, block in blocks(page) if (found := NAME.match(block))}


def commands(page: str) -> list[str]:
    """Return what is to be typed."""
    files = configurations(page).values()
    return [block for language, block in blocks(page) if language == "sh" and block not in files]


CONFIGURATIONS = configurations("remote.md")
COMMANDS = commands("remote.md")
