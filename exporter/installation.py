# SPDX-License-Identifier: Apache-2.0
"""How this exporter was installed, and the command that adds a package to it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

CUPTI = "roofline-exporter[cupti]"
CUPTI_PACKAGES = ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12")
"""NVIDIA's packages of CUDA 13 and 12, one of which this extra adds."""
IMAGE = "/opt/roofline-exporter"
"""The environment of the container image; one that was made by hand may be there, too."""


@cache
def adding(requirement: str) -> str:
    """Return the command that adds a package, or an extra, to the environment of this process."""
    here, folder, package = Path(sys.prefix), _shown(sys.prefix), f"'{requirement}'"
    if (here / "pipx_metadata.json").exists():
        return f"pipx inject {here.name} {package}"
    if (here / "uv-receipt.toml").exists():
        return f"uv tool install --with {package} roofline-exporter"
    if sys.prefix == IMAGE and "NVIDIA_VISIBLE_DEVICES" in os.environ:
        return f"build an image with {package} (docs/cupti.md#install)"
    if importlib.util.find_spec("pip") is None and sys.prefix != IMAGE:
        return f"uv pip install --python {folder} {package}"
    sudo = "sudo " if sys.prefix == IMAGE else ""
    return f"{sudo}{folder}/bin/pip install {package}"


@cache
def has(*packages: str) -> bool:
    """Return whether one of these packages is in the environment of this process."""
    return any(True for name in packages for _ in distributions(name=name))


def _shown(prefix: str) -> str:
    """Return the prefix for a shell: below the working folder, below ``~``, or in full."""
    for folder, before in ((os.environ.get("PWD", "/"), ""), (os.path.expanduser("~"), "~/")):
        if folder != "/" and prefix.startswith(f"{folder}/"):
            return before + shlex.quote(prefix.removeprefix(f"{folder}/"))
    return shlex.quote(prefix)
