# SPDX-License-Identifier: Apache-2.0
"""When a child starts again, which GPUs want it, and what the log has of its states."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device
from exporter.sources.counters.child_counters import (
    EVERYWHERE,
    LINGER_SECONDS,
    PATIENCE_SECONDS,
    Demand,
    StateLog,
    StateNote,
)
from exporter.sources.counters.supervisor import BACK_OFF_SECONDS, GOOD_SECONDS, Restarts

DEVICE = Device(index=3, uuid="GPU-a", name="x", pci_bus_id="00000000:01:00.0")


@given(st.lists(st.floats(0, 2 * GOOD_SECONDS), max_size=12))
def test_a_good_minute_starts_the_waits_anew(lives: list[float]) -> None:
    """Else each wait is as long as the one before, or longer, up to the last."""
    restarts, now, row = Restarts(), 0.0, 0
    for life in lives:
        assert restarts.may_start(now)
        restarts.started(now)
        row = 0 if now + life - now >= GOOD_SECONDS else row
        now += life
        restarts.ended(now)
        wait = BACK_OFF_SECONDS[min(row, len(BACK_OFF_SECONDS) - 1)]
        row += 1
        assert not restarts.may_start(now + wait - 0.001)
        now += wait + 0.001


def test_a_gpu_is_wanted_when_nothing_better_measures_it_for_a_while() -> None:
    """A preferred source that stumbles for a moment changes nothing, either way."""
    wants = Demand()
    wants.add("session", DEVICE, (None,), 0.0)
    found = []
    for second in range(120):
        better = second in (3, 40) or 60 <= second < 100
        if wants.note("session", float(second), better=better):
            found.append((second, wants.is_wanted("GPU-a", None)))

    first = 3 + int(PATIENCE_SECONDS)
    assert found == [(first, True), (59 + int(LINGER_SECONDS), False), (99 + 5, True)]
    assert wants.gpus == [
        {"uuid": "GPU-a", "index": 3, "pci_bus_id": "00000000:01:00.0", "gpu_instances": []}
    ]


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
