# SPDX-License-Identifier: Apache-2.0
"""The sampling process: what it reports, and how it handles every known fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from exporter.sources.counters.wire import Port, encoded
from exporter.sources.cupti import library
from exporter.sources.cupti.program import AGAIN, ENDED, SamplingProgram
from tests.fake_cupti import FakeCupti, uuid_of
from tests.sources.cupti.conftest import Fakes

P = ".avg.pct_of_peak_sustained_elapsed"


def wanted(*indexes: int, gpu_instances: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the exporter's request to sample these GPUs."""
    instances = list(gpu_instances)
    return {"gpus": [{"uuid": uuid_of(each), "gpu_instances": instances} for each in indexes]}


class ScriptedPort(Port):
    """Delivers messages at their times until `ends_at`; `wait` advances the clock."""

    def __init__(self, fake: FakeCupti) -> None:
        self.fake = fake
        self.now = 1000.0
        self.script: list[tuple[float, dict[str, Any] | tuple[str, ...] | Callable[[], None]]] = []
        """When, after the start, and what: a message, lines that the fake plays from then on, or
        something to do."""
        self.ends_at = 0.0
        self.ended = False
        self.said: list[tuple[float, dict[str, Any]]] = []
        """When, after the start, and what."""
        self.beats: list[float] = []

    def clock(self) -> float:
        """Return the monotonic time."""
        return self.now

    def emit(self, message: Mapping[str, Any]) -> None:
        """Record a message that has a line."""
        encoded(message)
        self.said.append((round(self.now - 1000.0, 6), dict(message)))

    def beat(self) -> None:
        """Note that the program is alive."""
        self.beats.append(self.now - 1000.0)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that are due."""
        due = [what for when, what in self.script if when <= self.now - 1000.0]
        self.script = [(when, what) for when, what in self.script if when > self.now - 1000.0]
        for what in due:
            if isinstance(what, tuple):
                self.fake.play(*what)
            elif callable(what):
                what()
        return [what for what in due if isinstance(what, dict)]

    def wait(self, seconds: float) -> None:
        """Let time pass until then, or until a message comes."""
        until = self.now + seconds
        comes = [1000.0 + when for when, _ in self.script]
        passed = max(min([until, *comes]), self.now) - self.now
        self.now += passed
        self.fake.advance(passed)
        self.ended = self.now >= 1000.0 + self.ends_at

    def states(self, index: int | None = 0) -> list[str]:
        """Return the states that were said of a GPU, or of all."""
        uuid = None if index is None else uuid_of(index)
        return [what["state"] for _, what in self.said if "state" in what and what["gpu"] == uuid]

    def activities(self, index: int = 0) -> list[tuple[float, dict[str, Any]]]:
        """Return the activities of a GPU."""
        uuid = uuid_of(index)
        return [
            (when, what) for when, what in self.said if what.get("gpu") == uuid and "ratios" in what
        ]


@pytest.fixture
def play(fake: Fakes, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, ScriptedPort]]:
    """Runs the program on a scenario for some seconds of the fake's time."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "what the program changes, until the test is over")

    def run(
        *lines: str,
        seconds: float = 5.0,
        chips: tuple[str, ...] = ("AD102",),
        gpus: dict[str, Any] | None = None,
        cuda: str | None = None,
        script: tuple[tuple[float, Any], ...] = (),
        **options: Any,
    ) -> tuple[int, ScriptedPort]:
        gpu = fake(chips, *lines)
        monkeypatch.setattr(library, "CUDA", cuda or str(gpu.libraries / "libcuda.so.1"))
        port = ScriptedPort(gpu)
        port.script = [(0.0, gpus or wanted(*range(len(chips)))), *script]
        port.ends_at = seconds
        options = {"library": str(gpu.cupti()), **options}
        return SamplingProgram(port, options, port.clock, lambda: 0.5).run(), port

    return run


Play = Callable[..., tuple[int, ScriptedPort]]


def test_every_second_is_said_of_every_gpu(play: Play) -> None:
    code, port = play(
        f"value sm__cycles_active{P} 80",
        f"value dram__throughput{P} 40 60",
        "value pcie__write_bytes.sum 1000",
        chips=("AD102", "GA102"),
    )

    assert code == ENDED
    for index in (0, 1):
        said = port.activities(index)
        assert [when for when, _ in said] == [1.0, 2.0, 3.0, 4.0]
        _, activity = said[1]
        assert activity["seconds"] == pytest.approx(1.0)
        assert activity["ratios"]["sm"] == pytest.approx(0.8)
        assert activity["ratios"]["dram"] == pytest.approx(0.5)
        assert activity["ratios"]["tensor"] == pytest.approx(0.1)
        assert activity["bytes"]["pcie_transmit_bytes"] == pytest.approx(100_000)
        assert port.states(index) == []


def test_it_is_alive_at_least_once_a_second(play: Play) -> None:
    _, port = play(seconds=10.0)

    assert all(after - before <= 1.0 for before, after in pairwise(port.beats))
    assert port.beats[-1] >= 9.0


def test_everything_is_given_back_in_the_end(play: Play) -> None:
    _, port = play(chips=("AD102", "GA102"))

    calls = port.fake.calls()
    assert calls.count("cuptiPmSamplingDisable") == 2
    assert calls.count("cuptiProfilerHostDeinitialize") >= 2
    assert calls[-1] == "cuptiProfilerDeInitialize"
    assert calls.count("cuptiProfilerDeInitialize") == 1


@pytest.mark.parametrize(
    "function",
    [
        "cuptiProfilerHostGetConfigImage",
        "cuptiPmSamplingEnable",
        "cuptiPmSamplingSetConfig",
        "cuptiPmSamplingStart",
        "cuptiPmSamplingGetCounterDataSize",
    ],
)
def test_a_start_that_fails_half_way_holds_nothing(play: Play, function: str) -> None:
    """It is tried again and again, so what one attempt left would add up."""
    _, port = play(f"fail {function} 999", seconds=300.0)

    calls = port.fake.calls()
    assert calls.count(function) > 2
    assert calls.count("cuptiProfilerHostDeinitialize") == calls.count(
        "cuptiProfilerHostInitialize"
    )


def test_a_gpu_that_is_not_wanted_any_more_is_given_back(play: Play) -> None:
    _, port = play(chips=("AD102", "GA102"), script=((2.5, wanted(1)),))

    assert [when for when, _ in port.activities(0)] == [1.0, 2.0]
    assert len(port.activities(1)) == 4


@pytest.mark.parametrize(
    ("lines", "seconds", "states"),
    [
        (["missing 2 9"], 8.0, ["unreachable"]),  # a second that is not covered
        (["fail cuptiPmSamplingDecodeData 8"], 9.0, ["busy"]),  # it overflows every second
        (["fail cuptiPmSamplingEnable 999"], 600.0, ["unreachable"] * 5),  # no reason is given
        ([f"value sm__cycles_active{P} 900"], 2.0, ["implausible"]),  # more than a unit can do
        (["value pcie__write_bytes.sum 1e17"], 2.0, ["implausible"]),
        # After 5, 15, 30 and then 60 s each.
        (["fail cuptiPmSamplingGetCounterAvailability 26"], 300.0, ["busy"] * 8),
    ],
)
def test_what_is_wrong_is_said_and_not_measured(
    play: Play, lines: list[str], seconds: float, states: list[str]
) -> None:
    """Readings are absent, not 0."""
    code, port = play(*lines, seconds=seconds)

    assert code == ENDED
    assert port.activities() == []
    assert port.states() == states


@pytest.mark.parametrize(
    ("lines", "cuda", "state"),
    [
        ((), "libcuda-is-not-here.so.1", "missing"),
        (("fail cuInit 999",), None, "unreachable"),
        # No function is called after that error: 13.x would crash.
        (("fail cuptiProfilerInitialize 15",), None, "old_driver"),
    ],
)
def test_what_no_gpu_can_be_sampled_without_is_the_same_for_all(
    play: Play, lines: tuple[str, ...], cuda: str | None, state: str
) -> None:
    code, port = play(*lines, cuda=cuda)

    assert code == AGAIN
    assert port.states(None) == [state]
    assert port.fake.calls()[-1:] in ([], ["cuInit"], ["cuptiProfilerInitialize"])


@pytest.mark.parametrize(
    ("orders", "states", "of_all"),
    [
        ([{"gpus": []}], [], []),
        ([wanted(0, gpu_instances=(1, 2))], ["mig"], []),
        ([{"pause": True}, wanted(0)], [], ["paused"]),
    ],
)
def test_no_library_is_loaded_before_a_gpu_can_be_sampled(
    play: Play, orders: list[dict[str, Any]], states: list[str], of_all: list[str]
) -> None:
    """None is wanted, it has MIG, or a profiler has the counters."""
    _, port = play(gpus=orders[0], script=tuple((0.0, order) for order in orders[1:]))

    assert (port.states(), port.states(None)) == (states, of_all)
    assert port.fake.calls() == []


def test_samples_that_stop_coming_have_a_new_session_tried(play: Play) -> None:
    """Samples may stop after a fault of the GPU."""
    script = ((2.5, ("missing 9 9",)), (7.5, ()))
    _, port = play(seconds=14.0, script=script)

    assert [when for when, _ in port.activities()] == [1.0, 2.0, 11.0, 12.0, 13.0]
    assert port.states() == ["unreachable"]
    assert len(port.fake.calls("cuptiPmSamplingEnable")) == 2


def test_counters_are_taken_at_once_after_a_pause(play: Play) -> None:
    """The back-off of the busy time before does not delay it."""
    script = ((50.2, {"pause": True}), (51.2, {"resume": True}), (51.0, ()))
    _, port = play("fail cuptiPmSamplingEnable 26", seconds=55.0, script=script)

    assert [when for when, _ in port.activities()] == [53.0, 54.0]


def test_an_overflow_costs_its_second_alone(play: Play) -> None:
    _, port = play("fail cuptiPmSamplingDecodeData 8 1", seconds=4.0)

    assert [when for when, _ in port.activities()] == [2.0, 3.0]
    assert port.states() == []
    assert port.fake.calls("cuptiPmSamplingEnable").count("cuptiPmSamplingEnable") == 2


@pytest.mark.parametrize(
    ("code", "state"),
    [
        *((1, "unsupported"), (27, "unsupported"), (33, "unsupported"), (35, "no_permission")),
        *((40, "no_permission"), (41, "unsupported"), (42, "unsupported"), (43, "mig")),
        *((44, "unsupported"), (45, "unsupported"), (46, "unsupported")),
    ],
)
def test_what_only_another_driver_can_mend_is_tried_once(play: Play, code: int, state: str) -> None:
    """The other GPU is still sampled."""
    ended, port = play(
        f"fail cuptiPmSamplingEnable {code} 0 0", seconds=100.0, chips=("AD102", "AD102")
    )

    assert ended == ENDED
    assert port.states() == [state]
    assert port.fake.calls("cuptiPmSamplingEnable") == ["cuptiPmSamplingEnable"] * 2
    assert len(port.activities(1)) == 99


@pytest.mark.parametrize("field", ["vgpu", "confidential", "cmp", "wsl", "sli", "architecture"])
def test_what_a_gpu_lacks_is_asked_before_it_is_tried(play: Play, field: str) -> None:
    _, port = play(f"lacks 0 {field}")

    assert port.states() == ["unsupported"]
    assert port.fake.calls("cuptiPmSamplingEnable", "cuptiDeviceGetChipName") == []


@pytest.mark.parametrize("step", ["Enable", "SetConfig", "Start", "GetCounterDataSize"])
def test_counters_that_somebody_else_has_are_waited_for(play: Play, step: str) -> None:
    """Meanwhile the session is closed, so that nothing of ours blocks the other program."""
    _, port = play(f"fail cuptiPmSampling{step} 26 2", seconds=24.0)

    assert port.states() == ["busy", "busy"]
    assert [when for when, _ in port.activities()] == [21.0, 22.0, 23.0]
    held = port.fake.calls("cuptiPmSamplingEnable", "cuptiPmSamplingDisable")
    pair = ["cuptiPmSamplingEnable", "cuptiPmSamplingDisable"]
    assert held == (["cuptiPmSamplingEnable"] * 2 + pair if step == "Enable" else pair * 3)


def test_a_gpu_that_worked_and_fails_for_good_has_a_new_process_tried(play: Play) -> None:
    broken = ("fail cuptiPmSamplingDecodeData 999", "fail cuptiPmSamplingEnable 999")
    code, port = play(seconds=600.0, script=((3.5, broken),))

    assert code == AGAIN
    assert len(port.activities()) == 3
    assert port.states() == ["unreachable"] * 4
    assert port.states(None) == ["unreachable"]


@pytest.mark.parametrize(("error", "ended"), [(7, AGAIN), (26, ENDED)])
def test_counters_that_are_lost_have_a_new_process_tried_if_that_helps(
    play: Play, error: int, ended: int
) -> None:
    """It does where this process has them open, not where somebody took them."""
    code, port = play(seconds=9.0, script=((2.5, (f"fail cuptiPmSamplingDecodeData {error} 1",)),))

    assert code == ended
    assert [when for when, _ in port.activities()] == [1.0, 2.0]
    assert port.states() == ["busy"] * (ended == ENDED)
    assert "cuptiPmSamplingDisable" in port.fake.calls()


def test_counters_that_were_never_open_here_do_not_end_the_process(play: Play) -> None:
    """Otherwise one GPU would end the process again and again for all."""
    code, port = play("fail cuptiPmSamplingEnable 7 0 0", seconds=30.0, chips=("AD102", "AD102"))

    assert code == ENDED
    assert set(port.states()) == {"busy"}
    assert len(port.activities(1)) == 29


def test_a_gpu_that_cuda_does_not_list_costs_no_other(play: Play) -> None:
    _, port = play(gpus=wanted(0, 7))

    assert port.states(7) == ["unreachable"]
    assert len(port.activities(0)) == 4


def test_a_share_of_each_minute_is_sampled_in_one_piece(play: Play) -> None:
    _, port = play(seconds=180.0, duty=0.25)

    whens = [when for when, _ in port.activities()]
    for minute in range(3):
        own = [when - 60 * minute for when in whens if 60 * minute <= when < 60 * minute + 60]
        assert own == [pytest.approx(24.0 + second) for second in range(14)]
    assert port.fake.calls("cuptiPmSamplingDisable") == ["cuptiPmSamplingDisable"] * 3
