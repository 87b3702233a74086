# SPDX-License-Identifier: Apache-2.0
"""The configurations of docs/remote.md, each named by its first line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "remote.md").read_text(encoding="utf-8")
NAME = re.compile(r"(?:#!/bin/sh\n)?(?:#|//) (?:\S*/)?([\w.-]+)")


def _configurations() -> Mapping[str, str]:
    blocks = re.findall(r"^```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return {found[1]: block for block in blocks if (found := NAME.match(block))}


CONFIGURATIONS = _configurations()
"""By the name of the file that each is to be."""
COMMANDS = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    if block not in CONFIGURATIONS.values()
]
