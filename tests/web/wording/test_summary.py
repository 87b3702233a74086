# SPDX-License-Identifier: Apache-2.0
"""One line for a node, the sentence that matters most, and whether it is real."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.model.reading import SUSPENDED
from exporter.web.wording.facts import Facts, Holder, Range, Saturation
from exporter.web.wording.recorded import ENDED, notice
from exporter.web.wording.summary import DOCUMENTATION, advice_address, headline, totals

REPOSITORY = Path(__file__).parent.parent.parent.parent

HELD: dict[str, Any] = {"idle": True, "held": True, "idle_seconds": 10.0}
STATES: dict[str, dict[str, Any]] = {
    "lost": {"down_reason": "lost"},
    "suspended": {"down_reason": SUSPENDED},
    "starved": {"limiter": "input"},
    "held idle": HELD,
    "idle": {"idle": True},
    "free": {"idle": True, "held": False},
    "unopened": {"idle": True, "held": False, "allocated": True},
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
        (
            ("underused", "clock-throttled"),
            "GPU 0 looks busy and does little: busy 100 % of the time, 0 % saturated",
        ),
        (("clock-throttled", "near its roof"), "GPU 0 is clock-throttled"),
        (
            ("near its roof", "busy", "near its roof"),
            "2 GPUs are near their roof; GPU 0 most: 90 % saturated",
        ),
        (("near its roof",), "GPU 0 is near its roof: 90 % saturated"),
        (("busy",), "GPU 0 is busy: 50 % used"),
        (("often idle", "idle"), "GPU 0 is often idle"),
        (("free", "idle"), "GPU 1 is idle"),
        (("free", "free"), "2 GPUs are free"),
        (("suspended",), "GPU 0 is suspended"),
        (("unopened", "free"), "GPU 0 is given to somebody, and nobody has opened it"),
        (("unopened", "unopened"), "2 GPUs are given away, and nobody has opened them"),
        (("unopened", "held idle"), "GPU 1 is held idle for 10 s"),
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
    assert headline([held]).text == (
        "GPU 2/1 is held idle for 2 h 10 min by bob (python3, notebook)"
    )
    longer = Facts(1, **{**HELD, "idle_seconds": 9000.0})
    assert headline([held, longer]).text == (
        "1 GPU and 1 MIG instance are held idle; GPU 1 longest for 2 h 30 min"
    )
    assert headline([longer]).text == "GPU 1 is held idle for 2 h 30 min"


def test_workloads_are_named_as_owners() -> None:
    """The team's pod stands where the user of its process stood, beside the job's name."""
    pod = Holder("root", "python3", "notebook", "team-a/notebook-7")
    held = Facts(4, holder=pod, **{**HELD, "idle_seconds": 7810.0})
    assert headline([held]).text == (
        "GPU 4 is held idle for 2 h 10 min by team-a/notebook-7 (python3, notebook)"
    )
    starved = Facts(2, holder=pod, limiter="input", idle_ratio=0.6)
    assert headline([starved]).text == (
        "GPU 2 idle 60 % of the time, waiting for data (team-a/notebook-7)"
    )
    assert headline([replace(starved, job="pretrain")]).text == (
        "GPU 2 idle 60 % of the time, waiting for data (pretrain; team-a/notebook-7)"
    )


def test_what_nobody_opened_is_said_with_its_time() -> None:
    """To whom it is given, and for how long that was seen; of several of the longest."""
    one = Facts(3, workloads=("team-b/train-1",), unopened_seconds=3900.0, **STATES["unopened"])
    text = "GPU 3 is given to team-b/train-1, and nobody has opened it for 1 h 5 min"
    assert headline([one]).text == text
    assert totals([one]) == "1 GPU: 1 unopened for 1 h 5 min"
    other = Facts(5, **STATES["unopened"])
    assert headline([other, one]).text == (
        "2 GPUs are given away, and nobody has opened them; "
        "GPU 3 longest for 1 h 5 min (given to team-b/train-1)"
    )
    assert totals([other]) == "1 GPU: 1 unopened"
    assert totals([replace(each, gpu=at) for at, each in enumerate((other, one))]) == (
        "2 GPUs: 2 unopened for 1 h 5 min"
    )


@pytest.mark.parametrize(
    ("state", "several"),
    [
        ("starved", "wait for their data"),
        ("held idle", "are held idle"),
        ("near its roof", "are near their roof"),
    ],
)
def test_headlines_do_not_call_an_instance_a_gpu(state: str, several: str) -> None:
    """MIG instances are counted as what they are, beside whole GPUs if there are any."""
    parts = instances(8, **STATES[state])
    gpus = [replace(each, gpu=index) for index, each in enumerate(node(state, state), 1)]
    for found, kinds in (
        (parts, "8 MIG instances"),
        ([*gpus, *parts], "2 GPUs and 8 MIG instances"),
        (gpus, "2 GPUs"),
    ):
        said = headline(found)
        assert said.brief == f"{kinds} {several}"
        assert said.text.startswith(said.brief)


JOB: dict[str, Any] = {"job": "bob-training"}
STALLED: dict[str, Any] = {"data_stall": Range(0.6, 0.6), "idle_ratio": 0.65, **JOB}


@pytest.mark.parametrize(
    ("found", "text", "brief"),
    [
        (
            [Facts(2, **STALLED)],
            "GPU 2 idle 60 % of the time, waiting for data (bob-training)",
            "GPU 2 waits for its data (bob-training)",
        ),
        (
            [Facts(2, data_stall=Range(0.4, 0.6), **JOB)],
            "GPU 2 idle 40 to 60 % of the time, waiting for data (bob-training)",
            "GPU 2 waits for its data (bob-training)",
        ),
        (
            [Facts(2, input_ratio=0.8, idle_ratio=0.75, **JOB)],
            "GPU 2 idle 75 % of the time, waiting for data (bob-training)",
            "GPU 2 waits for its data (bob-training)",
        ),
        (
            [Facts(2, data_stall=Range(0.198, 0.26), input_ratio=0.25, idle_ratio=0.6, **JOB)],
            "GPU 2 idle 20 to 26 % of the time, waiting for data (bob-training)",
            "GPU 2 waits for its data (bob-training)",
        ),
        (
            [Facts(1, input_ratio=0.5), Facts(2, **STALLED), Facts(3, data_stall=Range(0.3, 0.3))],
            "3 GPUs wait for their data; GPU 2 most: idle 60 % of the time (bob-training)",
            "3 GPUs wait for their data",
        ),
        (
            [
                Facts(
                    4,
                    limiter="clock",
                    clock_ratio=0.234,
                    throttle_reasons=("sw_power_cap",),
                    **JOB,
                )
            ],
            "GPU 4 is clock-throttled: 23 % of its time lost to lower clocks, software power cap "
            "(bob-training)",
            "GPU 4 is clock-throttled (bob-training)",
        ),
        (
            [Facts(0, limiter="memory", saturation=Saturation(Range(0.91, 0.91)), **JOB)],
            "GPU 0 is near its roof: 91 % saturated, limited by memory (bob-training)",
            "GPU 0 is near its roof (bob-training)",
        ),
        (
            [
                Facts(0, **HELD, **JOB, holder=Holder("bob", "python3", "training")),
                Facts(1, **{**HELD, "idle_seconds": 7810.0}, holder=Holder("ada", "vllm")),
            ],
            "2 GPUs are held idle; GPU 1 longest for 2 h 10 min by ada (vllm)",
            "2 GPUs are held idle",
        ),
        (
            [Facts(0, **HELD, **JOB, holder=Holder("bob", "python3", "training"))],
            "GPU 0 is held idle for 10 s by bob (python3, bob-training)",
            "GPU 0 is held idle by bob (python3, bob-training)",
        ),
        (
            [Facts(0, limiter="idle", idle_ratio=0.55, **JOB)],
            "GPU 0 is often idle: 55 % of the time (bob-training)",
            "GPU 0 is often idle (bob-training)",
        ),
    ],
)
def test_headlines_name_numbers_and_the_job(found: list[Facts], text: str, brief: str) -> None:
    """The worst one is named; what is read aloud has no number that changes each second."""
    assert headline(found).text == text
    assert headline(found).brief == brief


def test_every_state_leads_to_what_the_documentation_says_of_it() -> None:
    """The page exists, and the section in it."""
    for state in (*STATES, ENDED, "MIG"):
        page, _, section = (
            advice_address(state).removeprefix(f"{DOCUMENTATION}/blob/main/").partition("#")
        )
        text = (REPOSITORY / page).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert section in {"", *(heading.lower().replace(" ", "-") for heading in headings)}, state


@pytest.mark.parametrize(
    ("identities", "problem", "said"),
    [
        ((), None, None),
        ((("nvml", "580.95.05"),), None, None),
        (
            (("nvml", None), ("simulate", "simulated")),
            None,
            "Not real GPUs. This data is simulated.",
        ),
        (
            (("replay", "580.95.05"),),
            None,
            "This data is recorded, and played back: it is not what the GPUs do now.",
        ),
        (
            (("replay", "simulated"),),
            None,
            "Not real GPUs. This data is simulated; it was recorded, and is played back.",
        ),
        (
            (("replay", "580.95.05"),),
            "the recording day.jsonl has ended",
            "This data is recorded, and played back: it is not what the GPUs do now. "
            "The recording day.jsonl has ended.",
        ),
        ((("x" * 300, None),), None, f"Not real GPUs. This data comes from {'x' * 119}…."),
    ],
)
def test_data_that_is_not_of_now_is_marked(
    identities: tuple[tuple[str, str | None], ...], problem: str | None, said: str | None
) -> None:
    """One GPU whose readings are not real is enough; what was simulated stays so in a recording."""
    assert notice(identities, problem) == said
