# SPDX-License-Identifier: Apache-2.0
"""The advice on CUPTI is what is left to do on this machine, for this GPU."""

from __future__ import annotations

import pytest

from exporter import installation
from exporter.web.wording.facts import Counting, Facts
from exporter.web.wording.measuring import sentence

INSTALL = "pip install 'roofline-exporter[cupti]'"


@pytest.mark.usefixtures("installed_by_pip")
@pytest.mark.parametrize(
    ("state", "installed", "said", "not_said"),
    [
        (None, False, f"{INSTALL} and start the exporter with --source.cupti", "fits"),
        (None, True, "not measured: start the exporter with --source.cupti", INSTALL),
        ("missing", False, f"CUPTI is not installed, {INSTALL}", "--source.cupti"),
        ("missing", True, "no installed CUPTI fits this driver", INSTALL),
        ("no_permission", True, "the exporter needs CAP_PERFMON or the driver option", INSTALL),
        ("unsupported", True, "CUPTI cannot sample this GPU", INSTALL),
        ("unsupported", False, "CUPTI cannot sample this GPU", INSTALL),
    ],
)
def test_what_is_left_to_do(
    state: str | None,
    installed: bool,
    said: str,
    not_said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Switched off, missing, of another driver, not permitted, or not for this GPU."""
    monkeypatch.setattr(installation, "has", lambda *_: installed)
    counting = Counting(states={} if state is None else {"cupti": state})
    words = sentence(
        Facts(0, "NVIDIA GeForce RTX 4090", architecture="Ada Lovelace", counting=counting)
    )
    assert words is not None
    assert said.lower() in words.lower()
    assert not_said not in words
