# SPDX-License-Identifier: Apache-2.0
"""How this exporter was installed, and the command that adds a package to it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

CUPTI = "roofline-exporter[cupti]"
_IMAGE = "/opt/roofline-exporter"
"""The environment of the container image; one that was made by hand may be there, too."""


class Environment(NamedTuple):
    """The Python environment of a process, and the folders that its user knows."""

    prefix: str
    """sys.prefix"""
    files: frozenset[str] = frozenset()
    """The names in the folder of the environment."""
    has_pip: bool = True
    in_image: bool = False
    """Whether the variables of the container image are set."""
    working: str = "/"
    home: str = "/"

    @property
    def folder(self) -> str:
        """The prefix for a shell: below the working folder, below ``~``, or in full."""
        for folder, before in ((self.working, ""), (self.home, "~/")):
            if folder != "/" and self.prefix.startswith(f"{folder}/"):
                return before + shlex.quote(self.prefix.removeprefix(f"{folder}/"))
        return shlex.quote(self.prefix)


_COMMANDS: tuple[tuple[Callable[[Environment], bool], str], ...] = (
    (lambda here: "pipx_metadata.json" in here.files, "pipx inject {name} {package}"),
    (
        lambda here: "uv-receipt.toml" in here.files,
        "uv tool install --with {package} roofline-exporter",
    ),
    (
        lambda here: here.in_image and here.prefix == _IMAGE,
        "build an image with {package} (docs/cupti.md#install)",
    ),
    (lambda here: here.prefix == _IMAGE, "sudo {folder}/bin/pip install {package}"),
    (lambda here: not here.has_pip, "uv pip install --python {folder} {package}"),
    (lambda here: True, "{folder}/bin/pip install {package}"),
)
"""The first whose condition holds."""


def command(requirement: str, here: Environment) -> str:
    """Return the command that adds a package, or an extra, to an environment."""
    form = next(form for holds, form in _COMMANDS if holds(here))
    name = Path(here.prefix).name
    return form.format(name=name, package=f"'{requirement}'", folder=here.folder)


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
