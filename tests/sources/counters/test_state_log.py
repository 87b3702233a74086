# SPDX-License-Identifier: Apache-2.0
"""What the log has of the states that a child reports."""

from __future__ import annotations

import logging

import pytest

from exporter.sources.counters.child_counters import EVERYWHERE, StateLog, StateNote


def test_the_log_has_one_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    """Also of a state that each new child finds again."""
    caplog.set_level(logging.INFO)
    notes = StateLog("cupti")

    assert notes.note(("GPU-a", None), "busy", "by Nsight")
    assert not notes.note(("GPU-a", None), "busy", "by Nsight")
    notes.forget()
    assert notes.of("GPU-a", None) is None
    assert not notes.note(("GPU-a", None), "busy", "by Nsight")
    assert notes.note(("GPU-a", 2), "no_permission", "")
    assert not notes.note(EVERYWHERE, "paused", "handed over")
    assert not notes.note(EVERYWHERE, "ok", "")
    assert notes.note(("GPU-b", None), "paused", "by dcgmi")
    assert not notes.note(("GPU-a", None), "ok", "")
    assert not notes.note(("GPU-a", None), "ok", "")

    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "cupti of GPU-a: by Nsight"),
        ("WARNING", "cupti of GPU-a/2: no permission"),
        ("INFO", "cupti: handed over"),
        ("INFO", "cupti: it works again"),
        ("INFO", "cupti of GPU-b: by dcgmi"),
        ("INFO", "cupti of GPU-a: it works again"),
    ]


def test_what_holds_for_all_holds_for_each() -> None:
    notes = StateLog("cupti")
    assert notes.note(("GPU-a", None), "unsupported", "CMP"), "a failure, though not warned of"
    assert notes.note(("GPU-a", 1), "mig", "on MIG")

    assert notes.of("GPU-a", 1) == StateNote("mig", "on MIG")
    assert notes.of("GPU-a", 2) == StateNote("unsupported", "CMP")
    assert notes.of("GPU-b", None) is None
    notes.note(EVERYWHERE, "missing", "install it")
    assert notes.of("GPU-b", None) == notes.of("GPU-a", 1) == StateNote("missing", "install it")
