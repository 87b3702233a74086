# SPDX-License-Identifier: Apache-2.0
"""The command that adds an extra is the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.installation import CUPTI, Environment, command

HOME = "/home/ada"
VENV, TOOLS = f"{HOME}/gpu/.venv", f"{HOME}/.local/share"
IMAGE = "/opt/roofline-exporter"


@pytest.mark.parametrize(
    ("prefix", "known", "said"),
    [
        (VENV, {"working": f"{HOME}/gpu"}, ".venv/bin/pip install {}"),
        (VENV, {}, "~/gpu/.venv/bin/pip install {}"),
        (f"{HOME}/my gpu/.venv", {}, "~/'my gpu/.venv'/bin/pip install {}"),
        ("/usr", {}, "/usr/bin/pip install {}"),
        (VENV, {"has_pip": False}, "uv pip install --python ~/gpu/.venv {}"),
        (f"{TOOLS}/pipx/venvs/r", {"files": {"pipx_metadata.json"}}, "pipx inject r {}"),
        (
            f"{TOOLS}/uv/tools/r",
            {"files": {"uv-receipt.toml"}, "has_pip": False},
            "uv tool install --with {} roofline-exporter",
        ),
        (IMAGE, {}, f"sudo {IMAGE}/bin/pip install {{}}"),
        (IMAGE, {"in_image": True}, "build an image with {} (docs/cupti.md#install)"),
    ],
)
def test_as_it_was_installed(prefix: str, known: dict[str, Any], said: str) -> None:
    """By pip, pipx or uv, into an environment, the image or the system; paths as a shell has
    them, without the name of the user."""
    here = Environment(prefix, **{"home": HOME, **known})
    assert command(CUPTI, here) == said.format("'roofline-exporter[cupti]'")
