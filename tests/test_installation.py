# SPDX-License-Identifier: Apache-2.0
"""The command that adds an extra is the user's own."""

from __future__ import annotations

import pytest

from exporter.installation import CUPTI, Environment, command

HOME = "/home/ada"
IMAGE = "/opt/roofline-exporter"


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (
            Environment(f"{HOME}/gpu/.venv", working=f"{HOME}/gpu", home=HOME),
            ".venv/bin/pip install 'roofline-exporter[cupti]'",
        ),
        (
            Environment(f"{HOME}/gpu/.venv", home=HOME),
            "~/gpu/.venv/bin/pip install 'roofline-exporter[cupti]'",
        ),
        (
            Environment(f"{HOME}/my gpu/.venv", home=HOME),
            "~/'my gpu/.venv'/bin/pip install 'roofline-exporter[cupti]'",
        ),
        (Environment("/srv/r", home=HOME), "/srv/r/bin/pip install 'roofline-exporter[cupti]'"),
        (
            Environment(f"{HOME}/gpu/.venv", has_pip=False, working=f"{HOME}/gpu"),
            "uv pip install --python .venv 'roofline-exporter[cupti]'",
        ),
        (
            Environment(
                f"{HOME}/.local/share/pipx/venvs/roofline-exporter",
                files=frozenset({"bin", "pipx_metadata.json"}),
            ),
            "pipx inject roofline-exporter 'roofline-exporter[cupti]'",
        ),
        (
            Environment(
                f"{HOME}/.local/share/uv/tools/roofline-exporter",
                files=frozenset({"bin", "uv-receipt.toml"}),
                has_pip=False,
            ),
            "uv tool install --with 'roofline-exporter[cupti]' roofline-exporter",
        ),
        (Environment(IMAGE), f"sudo {IMAGE}/bin/pip install 'roofline-exporter[cupti]'"),
        (
            Environment(IMAGE, has_pip=False, in_image=True),
            "build an image with 'roofline-exporter[cupti]' (docs/cupti.md#install)",
        ),
        (Environment("/usr"), "/usr/bin/pip install 'roofline-exporter[cupti]'"),
        (
            Environment(f"{HOME}/conda", home=HOME),
            "~/conda/bin/pip install 'roofline-exporter[cupti]'",
        ),
    ],
    ids=lambda value: value.split("/", 1)[0] if isinstance(value, str) else "",
)
def test_as_it_was_installed(here: Environment, said: str) -> None:
    """By pip, pipx or uv, into an environment, the image or the system; paths as a shell has
    them, without the name of the user."""
    assert command(CUPTI, here) == said
