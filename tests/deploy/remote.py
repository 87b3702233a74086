# SPDX-License-Identifier: Apache-2.0
"""The configurations of a page such as docs/remote.md, each named by its first line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"(?:#!/bin/sh\n)?(?:#|//) (?:\S*/)?([\w.-]+)")


def configurations(page: str) -> Mapping[str, str]:
    """Return them by the name of the file that each is to be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {found[1]: block for block in blocks if (found := NAME.match(block))}


def commands(page: str) -> list[str]:
    """Return what is to be typed."""
    text = (DOCS / page).read_text(encoding="utf-8")
    files = configurations(page).values()
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if block not in files]


CONFIGURATIONS = configurations("remote.md")
COMMANDS = commands("remote.md")
