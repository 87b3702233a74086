# SPDX-License-Identifier: Apache-2.0
"""How this exporter was installed, and the command that adds a package to it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

CUPTI = "roofline-exporter[cupti]"
_IMAGE = "/opt/roofline-exporter"
"""The environment of the container image; one that was made by hand may be there, too."""


class Environment(NamedTuple):
    """The Python environment of a process, and the folders that its user knows."""

    prefix: str
    files: frozenset[str] = frozenset()
    """The names in its folder."""
    has_pip: bool = True
    in_image: bool = False
    """Whether the variables of the container image are set."""
    working: str = "/"
    home: str = "/"


def command(requirement: str, here: Environment) -> str:
    """Return the command that adds a package, or an extra, to an environment."""
    package, folder = f"'{requirement}'", _shown(here)
    if "pipx_metadata.json" in here.files:
        return f"pipx inject {Path(here.prefix).name} {package}"
    if "uv-receipt.toml" in here.files:
        return f"uv tool install --with {package} roofline-exporter"
    if here.prefix == _IMAGE:
        pip = f"sudo {folder}/bin/pip install {package}"
        return f"build an image with {package} (docs/cupti.md#install)" if here.in_image else pip
    with_pip = f"{folder}/bin/pip install {package}"
    return with_pip if here.has_pip else f"uv pip install --python {folder} {package}"


def _shown(here: Environment) -> str:
    """Return the prefix for a shell: below the working folder, below ``~``, or in full."""
    for folder, before in ((here.working, ""), (here.home, "~/")):
        if folder != "/" and here.prefix.startswith(f"{folder}/"):
            return before + shlex.quote(here.prefix.removeprefix(f"{folder}/"))
    return shlex.quote(here.prefix)


@cache
def adding(requirement: str) -> str:
    """Return the command that adds a package to the environment of this process."""
    here = Environment(
        prefix=sys.prefix,
        files=frozenset(os.listdir(sys.prefix)),
        has_pip=importlib.util.find_spec("pip") is not None,
        in_image="NVIDIA_VISIBLE_DEVICES" in os.environ,
        working=os.environ.get("PWD", "/"),
        home=os.path.expanduser("~"),
    )
    return command(requirement, here)
