# SPDX-License-Identifier: Apache-2.0
"""The command that adds an extra is the user's own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from exporter.installation import CUPTI, IMAGE, adding

FIND_SPEC = importlib.util.find_spec


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
        (IMAGE, "NVIDIA_VISIBLE_DEVICES", "build an image with {} (docs/cupti.md#install)"),
    ],
)
def test_as_it_was_installed(
    prefix: str, has: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pip, pipx or uv, into an environment, the image or the system; paths as a shell has
    them, without the name of the user."""
    here = prefix.format(home=tmp_path)
    monkeypatch.setattr(sys, "prefix", here)
    monkeypatch.setattr(
        *(importlib.util, "find_spec"),
        lambda name: ("pip" in has.split() or None) if name == "pip" else FIND_SPEC(name),
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PWD", str(Path(here).parent) if "PWD" in has else "/")
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    for each in has.split():
        if "." in each:
            Path(here).mkdir(parents=True)
            (Path(here) / each).touch()
        elif each.isupper() and each != "PWD":
            monkeypatch.setenv(each, "all")

    assert adding.__wrapped__(CUPTI) == said.format("'roofline-exporter[cupti]'")
