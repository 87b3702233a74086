# SPDX-License-Identifier: Apache-2.0
"""The sampling process: what it reports, and how it handles every known fault."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from exporter.sources.cupti import driver
from exporter.sources.cupti.program import AGAIN, ENDED, SamplingProgram
from tests.sources.cupti.conftest import Fakes
from tests.sources.cupti.ports import ScriptedPort, wanted

P = ".avg.pct_of_peak_sustained_elapsed"


@pytest.fixture
def play(fake: Fakes, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, ScriptedPort]]:
    """Runs the program on a scenario for some seconds of the fake's time."""

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
        monkeypatch.setattr(driver, "LIBRARY", cuda or str(gpu.libraries / "libcuda.so.1"))
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


def test_no_library_is_loaded_before_a_gpu_is_wanted(play: Play) -> None:
    _, port = play(gpus={"gpus": []})

    assert port.fake.calls() == []


def test_everything_is_given_back_in_the_end(play: Play) -> None:
    _, port = play(chips=("AD102", "GA102"))

    calls = port.fake.calls()
    assert calls.count("cuptiPmSamplingDisable") == 2
    assert calls.count("cuptiProfilerHostDeinitialize") >= 2
    assert calls[-1] == "cuptiProfilerDeInitialize"
    assert calls.count("cuptiProfilerDeInitialize") == 1


def test_a_gpu_that_is_not_wanted_any_more_is_given_back(play: Play) -> None:
    _, port = play(chips=("AD102", "GA102"), script=((2.5, wanted(1)),))

    assert [when for when, _ in port.activities(0)] == [1.0, 2.0]
    assert len(port.activities(1)) == 4


def test_a_second_that_is_not_covered_is_not_measured(play: Play) -> None:
    """It is absent, not 0."""
    _, port = play("missing 2 9", seconds=8.0)

    assert port.activities() == []
    assert port.states() == ["unreachable"]


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


def test_a_second_of_which_little_is_missing_is(play: Play) -> None:
    _, port = play("missing 0 9", seconds=3.0)

    assert [when for when, _ in port.activities()] == [1.0, 2.0]


def test_an_overflow_costs_its_second_alone(play: Play) -> None:
    _, port = play("fail cuptiPmSamplingDecodeData 8 1", seconds=4.0)

    assert [when for when, _ in port.activities()] == [2.0, 3.0]
    assert port.states() == []
    assert port.fake.calls("cuptiPmSamplingEnable").count("cuptiPmSamplingEnable") == 2


def test_what_overflows_every_second_is_said_once(play: Play) -> None:
    _, port = play("fail cuptiPmSamplingDecodeData 8", seconds=9.0)

    assert port.activities() == []
    assert port.states() == ["busy"]


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


def test_a_gpu_with_mig_is_not_touched(play: Play) -> None:
    _, port = play(gpus=wanted(0, gpu_instances=(1, 2)))

    assert port.states() == ["mig"]
    assert port.fake.calls() == []


def test_counters_that_somebody_else_has_are_waited_for(play: Play) -> None:
    """Meanwhile the session is closed, so that nothing of ours blocks the other program."""
    _, port = play("fail cuptiPmSamplingEnable 26 2", seconds=24.0)

    assert port.states() == ["busy", "busy"]
    assert [when for when, _ in port.activities()] == [21.0, 22.0, 23.0]
    assert port.fake.calls("cuptiPmSamplingEnable") == ["cuptiPmSamplingEnable"] * 3


def test_counters_that_somebody_takes_from_us_are_given_back(play: Play) -> None:
    _, port = play(seconds=9.0, script=((2.5, ("fail cuptiPmSamplingDecodeData 26 1",)),))

    assert port.states() == ["busy"]
    assert "cuptiPmSamplingDisable" in port.fake.calls()
    assert [when for when, _ in port.activities()] == [1.0, 2.0]


def test_counters_that_are_busy_are_waited_for_at_most_a_minute(play: Play) -> None:
    _, port = play("fail cuptiPmSamplingGetCounterAvailability 26", seconds=300.0)

    tries = [when for when, what in port.said if what.get("state") == "busy"]
    assert tries[0] == 0.0
    assert all(after - before <= 61.0 for before, after in pairwise(tries))
    assert len(tries) < 12


def test_a_fault_without_a_reason_is_tried_five_times(play: Play) -> None:
    code, port = play("fail cuptiPmSamplingEnable 999", seconds=600.0)

    assert code == ENDED
    assert port.states() == ["unreachable"] * 5


def test_a_gpu_that_worked_and_fails_for_good_has_a_new_process_tried(play: Play) -> None:
    broken = ("fail cuptiPmSamplingDecodeData 999", "fail cuptiPmSamplingEnable 999")
    code, port = play(seconds=600.0, script=((3.5, broken),))

    assert code == AGAIN
    assert len(port.activities()) == 3
    assert port.states() == ["unreachable"] * 4
    assert port.states(None) == ["unreachable"]


def test_counters_that_are_open_in_this_process_have_a_new_one_tried(play: Play) -> None:
    code, port = play(script=((2.5, ("fail cuptiPmSamplingDecodeData 7",)),))

    assert code == AGAIN
    assert len(port.activities()) == 2


def test_counters_that_were_never_open_here_do_not_end_the_process(play: Play) -> None:
    """Otherwise one GPU would end the process again and again for all."""
    code, port = play("fail cuptiPmSamplingEnable 7 0 0", seconds=30.0, chips=("AD102", "AD102"))

    assert code == ENDED
    assert set(port.states()) == {"busy"}
    assert len(port.activities(1)) == 29


def test_a_driver_that_is_too_old_is_the_same_for_all(play: Play) -> None:
    """No function is called after that error: 13.x would crash."""
    code, port = play("fail cuptiProfilerInitialize 15")

    assert code == AGAIN
    assert port.states(None) == ["old_driver"]
    assert port.fake.calls()[-1] == "cuptiProfilerInitialize"


@pytest.mark.parametrize(
    ("lines", "cuda", "state"),
    [
        ((), "libcuda-is-not-here.so.1", "missing"),
        (("fail cuInit 999",), None, "unreachable"),
    ],
)
def test_without_a_cuda_driver_no_gpu_is_sampled(
    play: Play, lines: tuple[str, ...], cuda: str | None, state: str
) -> None:
    code, port = play(*lines, cuda=cuda)

    assert code == AGAIN
    assert port.states(None) == [state]


def test_a_gpu_that_cuda_does_not_list_costs_no_other(play: Play) -> None:
    _, port = play(gpus=wanted(0, 7))

    assert port.states(7) == ["unreachable"]
    assert len(port.activities(0)) == 4


def test_more_than_a_unit_can_do_is_no_reading(play: Play) -> None:
    _, port = play(f"value sm__cycles_active{P} 900")

    assert port.activities() == []
    assert set(port.states()) == {"implausible"}


def test_a_pause_before_the_first_gpu_loads_nothing(play: Play) -> None:
    _, port = play(gpus={"pause": True}, script=((0.0, wanted(0)),))

    assert port.fake.calls() == []
    assert port.states(None) == ["paused"]


def test_a_share_of_each_minute_is_sampled_in_one_piece(play: Play) -> None:
    _, port = play(seconds=180.0, duty=0.25)

    whens = [when for when, _ in port.activities()]
    for minute in range(3):
        own = [when - 60 * minute for when in whens if 60 * minute <= when < 60 * minute + 60]
        assert own == [pytest.approx(24.0 + second) for second in range(14)]
    assert port.fake.calls("cuptiPmSamplingDisable") == ["cuptiPmSamplingDisable"] * 3
