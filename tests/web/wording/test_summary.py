# SPDX-License-Identifier: Apache-2.0
"""One line for a node, the sentence that matters most, and whether it is real."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exporter.model.reading import SUSPENDED
from exporter.web.wording.facts import Facts, Holder, Range, Saturation
from exporter.web.wording.summary import headline, totals

HELD: dict[str, Any] = {"idle": True, "held": True, "idle_seconds": 10.0}
STATES: dict[str, dict[str, Any]] = {
    "lost": {"down_reason": "lost"},
    "suspended": {"down_reason": SUSPENDED},
    "starved": {"limiter": "input"},
    "held idle": HELD,
    "idle": {"idle": True},
    "free": {"idle": True, "held": False},
    "clock-throttled": {"limiter": "clock"},
    "near its roof": {"saturation": Saturation(Range(0.9, 0.9))},
    "underused": {"busy_ratio": 1.0, "saturation": Saturation(Range(0.0, 0.0))},
    "often idle": {"limiter": "idle"},
    "busy": {"busy_ratio": 0.5},
    "unknown": {},
}


def node(*states: str) -> list[Facts]:
    return [Facts(index, **STATES[each]) for index, each in enumerate(states)]


def instances(count: int, **known: Any) -> list[Facts]:
    return [Facts(0, instance=index, **known) for index in range(1, count + 1)]


def test_totals_of_a_node() -> None:
    """Every state is counted, in an order that does not depend on the GPUs'."""
    states = ("free", "starved", "near its roof", "starved", "near its roof", "lost", "suspended")
    held = Facts(7, **{**HELD, "idle_seconds": 7810.0})
    assert totals([*node(*states), held]) == (
        "8 GPUs: 2 near their roof, 2 starved for data, 1 held idle for 2 h 10 min, 1 free, "
        "1 suspended, 1 lost"
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("near its roof", "near its roof"),
        ("clock-throttled", "clock-throttled"),
        ("unknown", "not known"),
    ],
)
def test_totals_of_one_gpu(state: str, text: str) -> None:
    """It is not spoken of in the plural."""
    assert totals(node(state)) == f"1 GPU: 1 {text}"
    assert totals([]) == "No GPUs"


def test_totals_of_instances() -> None:
    """Instances are counted in place of the GPU that is divided; the longest idle time is shown."""
    board = Facts(0, divided=True, power_watts=70.0)
    held = [
        Facts(0, instance=index, **{**HELD, "idle_seconds": 1800.0 * index}) for index in (1, 2)
    ]
    assert totals([board, *held]) == "1 GPU, 2 MIG instances: 2 held idle for 1 h 0 min"
    assert totals([board]) == "1 GPU: 1 free"


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (("lost", "starved", "starved"), "GPU 0 is lost"),
        (("lost", "lost"), "2 GPUs are lost"),
        (("near its roof", "starved"), "GPU 1 waits for its data"),
        (("free", "starved", "starved"), "2 GPUs wait for their data"),
        (("underused", "clock-throttled"), "GPU 0 looks busy and does little"),
        (("clock-throttled", "near its roof"), "GPU 0 is clock-throttled"),
        (("near its roof", "busy", "near its roof"), "2 GPUs are near their roof"),
        (("near its roof",), "GPU 0 is near its roof"),
        (("busy",), "GPU 0 is busy"),
        (("often idle", "idle"), "GPU 0 is often idle"),
        (("free", "idle"), "GPU 1 is idle"),
        (("free", "free"), "2 GPUs are free"),
        (("suspended",), "GPU 0 is suspended"),
        (("unknown",), "GPU 0 does not report how busy it is"),
        (("unknown", "free"), "GPU 1 is free"),
        ((), "No GPU can be read"),
    ],
)
def test_headlines(states: tuple[str, ...], sentence: str) -> None:
    """The most expensive state comes first; only where nothing is lost, what goes well."""
    assert headline(node(*states)).text == sentence


def test_headlines_name_reason_and_holder() -> None:
    """Of one GPU there is more to say."""
    lost = Facts(3, down_reason="lost: a driver call does not return")
    assert headline([lost]).text == "GPU 3 is lost: a driver call does not return"
    bob = Holder("bob", "python3", "notebook")
    held = Facts(2, instance=1, holder=bob, **{**HELD, "idle_seconds": 7810.0})
    assert headline([held]).text == "GPU 2/1 is held idle by bob for 2 h 10 min"
    longer = Facts(1, **{**HELD, "idle_seconds": 9000.0})
    assert headline([held, longer]).text == (
        "1 GPU and 1 MIG instance are held idle, the longest for 2 h 30 min"
    )
    assert headline([longer]).text == "GPU 1 is held idle for 2 h 30 min"


@pytest.mark.parametrize(
    ("state", "several"),
    [
        ("starved", "wait for their data"),
        ("held idle", "are held idle, the longest for 10 s"),
        ("near its roof", "are near their roof"),
    ],
)
def test_headlines_do_not_call_an_instance_a_gpu(state: str, several: str) -> None:
    """MIG instances are counted as what they are, beside whole GPUs if there are any."""
    parts = instances(8, **STATES[state])
    gpus = [replace(each, gpu=index) for index, each in enumerate(node(state, state), 1)]
    assert headline(parts).text == f"8 MIG instances {several}"
    assert headline([*gpus, *parts]).text == f"2 GPUs and 8 MIG instances {several}"
    assert headline(gpus).text == f"2 GPUs {several}"
