# SPDX-License-Identifier: Apache-2.0
"""One word for a GPU, one line for a node, and the sentence that matters most."""

from __future__ import annotations

import pytest

from exporter.web.standing import Standing, Told, headline, totals, word


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing("lost", busy=1.0), "lost"),
        (Standing("suspended"), "suspended"),
        (Standing("up"), "unknown"),
        (Standing("up", busy=0.7, stall=0.2, saturation_lower=0.9, idle_seconds=60), "starved"),
        (Standing("up", busy=0.7, stall=0.19), "busy"),
        (Standing("up", busy=0.1, stall=0.02, limiter="input"), "often idle"),
        (Standing("up", busy=0.49, stall=0.19, limiter="input"), "often idle"),
        (Standing("up", busy=0.5, stall=0.02, limiter="input"), "busy"),
        (Standing("up", busy=0.2, limiter="input"), "starved"),
        (Standing("up", busy=0.0, held=True, idle_seconds=10.0), "held idle"),
        (Standing("up", busy=0.0, held=True, idle_seconds=9.9), "idle"),
        (Standing("up", busy=0.0, held=False, idle_seconds=0.5), "free"),
        (Standing("up", busy=0.0, held=False, limiter="idle"), "free"),
        (Standing("up", busy=0.0, idle_seconds=3600.0), "idle"),
        (Standing("up", busy=0.3, held=True, limiter="idle"), "often idle"),
        (Standing("up", busy=0.0, held=True, limiter="idle", idle_seconds=0.0), "often idle"),
        (Standing("up", held=False), "unknown"),
        (Standing("up", busy=0.7, limiter="compute", held=True, idle_seconds=0.0), "busy"),
        (Standing("up", busy=1.0, saturation_lower=0.95, limiter="clock"), "held back"),
        (Standing("up", busy=1.0, saturation_lower=0.8, saturation_upper=0.8), "saturated"),
        (Standing("up", busy=1.0, saturation_lower=0.6, of_achievable=0.75), "saturated"),
        (Standing("up", busy=1.0, saturation_lower=0.6, of_achievable=0.74), "busy"),
        (Standing("up", busy=1.0, saturation_lower=0.0, saturation_upper=0.19), "underused"),
        (Standing("up", busy=1.0, saturation_lower=0.0, saturation_upper=1.0), "busy"),
        (Standing("up", busy=0.5, saturation_lower=0.0, saturation_upper=0.1), "busy"),
        (Standing("up", saturation_upper=0.5), "busy"),
    ],
)
def test_words(standing: Standing, expected: str) -> None:
    """The first rule that holds gives the word; what is not known decides nothing."""
    assert word(standing) == expected


def told(*words: str) -> list[Told]:
    return [Told(f"GPU {index}", each) for index, each in enumerate(words)]


def test_totals_of_a_node() -> None:
    """Every word is counted, in an order that does not depend on the GPUs'."""
    gpus = told("free", "starved", "saturated", "starved", "saturated", "lost", "saturated")
    held = Told("GPU 7", "held idle", idle_seconds=7810.0)
    assert totals(8, [*gpus, held]) == (
        "8 GPUs: 3 saturated, 2 starved for data, 1 held idle for 2 h 10 min, 1 free, 1 lost"
    )


def test_totals_of_instances_and_of_one_gpu() -> None:
    """Instances are counted as well; the longest idle time is told."""
    held = [Told("GPU 0/1", "held idle", 60.0), Told("GPU 0/2", "held idle", 3600.0)]
    assert totals(1, held) == "1 GPU, 2 instances: 2 held idle for 1 h 0 min"
    assert totals(1, told("unknown")) == "1 GPU: 1 not known"
    assert totals(1, told("suspended")) == "1 GPU: 1 suspended"
    assert totals(0, []) == "0 GPUs"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("lost", "starved", "starved"), "GPU 0 is lost"),
        (("lost", "lost"), "2 GPUs are lost"),
        (("saturated", "starved"), "GPU 1 waits for its data"),
        (("free", "starved", "starved"), "2 GPUs wait for their data"),
        (("underused", "held back"), "GPU 0 looks busy and does little"),
        (("held back", "saturated"), "GPU 0 is held back by its clock"),
        (("saturated", "busy", "saturated"), "2 GPUs are saturated"),
        (("busy",), "GPU 0 is busy"),
        (("often idle", "idle"), "GPU 0 is often idle"),
        (("free", "idle"), "GPU 1 is idle"),
        (("free", "free"), "2 GPUs are free"),
        (("suspended",), "GPU 0 is suspended"),
        (("unknown",), "GPU 0 does not tell how busy it is"),
        (("unknown", "free"), "GPU 1 is free"),
        ((), "No GPU can be read"),
    ],
)
def test_headlines(words: tuple[str, ...], sentence: str) -> None:
    """What costs most is told; only where nothing does, what is well."""
    assert headline(told(*words)) == sentence


def test_headlines_name_reason_and_holder() -> None:
    """Of one GPU there is more to say."""
    lost = Told("GPU 3", "lost", reason="hung: a driver call does not return")
    assert headline([lost]) == "GPU 3 is lost: hung: a driver call does not return"
    held = Told("GPU 2/1", "held idle", 7810.0, "bob")
    assert headline([held]) == "GPU 2/1 is held idle by bob for 2 h 10 min"
    longer = Told("GPU 1", "held idle", 9000.0)
    assert headline([held, longer]) == (
        "1 GPU and 1 instance are held idle, the longest for 2 h 30 min"
    )
    assert headline([longer]) == "GPU 1 is held idle for 2 h 30 min"


@pytest.mark.parametrize(
    ("word", "several"),
    [
        ("lost", "are lost"),
        ("starved", "wait for their data"),
        ("held idle", "are held idle, the longest for 0 s"),
        ("saturated", "are saturated"),
    ],
)
def test_headlines_do_not_call_an_instance_a_gpu(word: str, several: str) -> None:
    """MIG instances are counted as what they are, beside whole GPUs if there are any."""
    instances = [Told(f"GPU 0/{index}", word) for index in range(8)]
    gpus = [Told(f"GPU {index}", word) for index in (1, 2)]
    assert headline(instances) == f"8 instances {several}"
    assert headline([*gpus, *instances]) == f"2 GPUs and 8 instances {several}"
    assert headline(gpus) == f"2 GPUs {several}"
