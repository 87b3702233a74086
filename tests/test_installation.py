# SPDX-License-Identifier: Apache-2.0
"""The command that adds an extra is the user's own."""

from __future__ import annotations

import importlib.util
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from exporter.installation import CUPTI, IMAGE, adding, has


@pytest.mark.parametrize(
    ("prefix", "has", "said"),
    [
        ("{home}/gpu/.venv", "pip PWD", ".venv/bin/pip install {}"),
        ("{home}/gpu/.venv", "pip", "~/gpu/.venv/bin/pip install {}"),
        ("{home}/my gpu/.venv", "pip", "~/'my gpu/.venv'/bin/pip install {}"),
        ("/usr", "pip", "/usr/bin/pip install {}"),
        ("{home}/gpu/.venv", "", "uv pip install --python ~/gpu/.venv {}"),
        ("{home}/pipx/venvs/r", "pip pipx_metadata.json", "pipx inject r {}"),
        ("{home}/uv/r", "uv-receipt.toml", "uv tool install --with {} roofline-exporter"),
        (IMAGE, "pip", f"sudo {IMAGE}/bin/pip install {{}}"),
        (IMAGE, "image", "build an image with {} (docs/cupti.md#install)"),
    ],
)
def test_as_it_was_installed(
    prefix: str, has: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pip, pipx or uv, into an environment, the image or the system; paths as a shell has
    them, without the name of the user."""
    here = prefix.format(home=tmp_path)
    given = has.split()
    known = {"pip": find_spec("pip") if "pip" in given else None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: known.get(name))
    monkeypatch.setattr(sys, "prefix", here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PWD", str(Path(here).parent) if "PWD" in given else "/")
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    if "image" in given:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    for name in (each for each in given if "." in each):
        Path(here).mkdir(parents=True)
        (Path(here) / name).touch()

    assert adding.__wrapped__(CUPTI) == said.format("'roofline-exporter[cupti]'")


def test_what_is_installed() -> None:
    """Any of the packages will do."""
    assert has("no-such-package", "pytest")
    assert not has("no-such-package")
