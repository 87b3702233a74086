# SPDX-License-Identifier: Apache-2.0
"""What each error code of the driver means for one reading."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml
import pytest

from exporter.sources.nvml.plausible import PossibleRange
from exporter.sources.nvml.probe import Probe
from exporter.sources.reading_state import IDENTITY, Journal, Past

NEVER = [2, 3, 13, 25, 26]
NOT_NOW = [6, 10, 19, 21, 27, 29]
FAILURES = [7, 8, 11, 14, 17, 20, 23, 999, 12345]


class Chain:
    """A chain of calls that answer or fail as given, and count how often they were asked."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked = [0] * len(answers)
        self.failures: Counter[str] = Counter()
        self.journal = Journal("GPU 7", Past(self.failures))
        self.journal.now = 1000.0
        self.probe: Probe[int] = Probe(
            self.journal, "power", [self._call(i) for i in range(len(answers))]
        )

    def ask(self) -> int | None:
        """One round: the reading, and what is to be logged of it."""
        value = self.probe()
        self.journal.log_changes()
        return value

    def wait(self, seconds: float) -> None:
        self.journal.now += seconds

    def _call(self, position: int) -> Callable[[], int]:
        def call() -> int:
            self.asked[position] += 1
            answer = self.answers[position]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def answer(answers: dict[str, Any], group: str) -> int:
    found = answers[group]
    if isinstance(found, Exception):
        raise found
    return int(found)


def assert_one_line_each_way(caplog: pytest.LogCaptureFixture) -> None:
    broken, well = caplog.messages
    assert broken.startswith("GPU 7 cannot be read in part: power (")
    assert well == "GPU 7: can be read again: power"


def error(code: int) -> Exception:
    found = pynvml.NVMLError(code)
    assert isinstance(found, Exception)
    return found


@pytest.mark.parametrize("code", NEVER)
def test_never_falls_back_and_is_remembered(code: int) -> None:
    """A call that the driver or GPU model will never answer is replaced by the older one."""
    chain = Chain(error(code), 43)

    assert [chain.probe(), chain.probe()] == [43, 43]
    assert chain.asked == [1, 2]
    assert chain.journal.states == {}
    assert chain.failures == {}


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        *(((code,), "unsupported") for code in (2, 3, 26)),
        *(((code,), "old_driver") for code in (13, 25)),
        *((codes, "unsupported") for codes in ((13, 3), (3, 13))),
        ((13, 13), "old_driver"),
        *((codes, "no_permission") for codes in ((4,), (4, 3), (13, 4))),
    ],
)
def test_state_says_why_nothing_is_left(codes: tuple[int, ...], state: str) -> None:
    """A chain that ended is absent, with the reason that helps most, and is left alone."""
    chain = Chain(*(error(code) for code in codes))

    assert chain.probe() is None
    assert chain.probe() is None
    assert chain.asked == [1] * len(codes)
    assert chain.journal.states == {"power": state}
    assert not chain.probe.possible


def test_call_that_the_binding_lacks_is_an_old_driver() -> None:
    """An older pynvml has no such wrapper: the older call is used, else the state says so."""
    assert Chain(AttributeError("no such function"), 43).probe() == 43
    chain = Chain(AttributeError("no such function"))

    assert chain.probe() is None
    assert chain.journal.states == {"power": "old_driver"}


@pytest.mark.parametrize("code", [2, 3, 4])
def test_what_worked_before_is_tried_again_soon(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One refusal does not cost a reading for good: its recovery shows within ten seconds, and
    meanwhile it costs less than reading it does."""
    caplog.set_level(logging.INFO)
    chain = Chain(42, error(3))
    assert chain.ask() == 42
    chain.answers[0] = error(code)
    for _ in range(5):
        assert chain.ask() is None
        chain.wait(1.0)
    assert chain.asked == [2, 1]
    assert chain.journal.states == {
        "power": "no_permission" if code == 4 else "unsupported",
    }
    assert chain.probe.possible
    chain.answers[0] = 43

    assert chain.ask() == 43
    assert chain.journal.states == {}
    assert_one_line_each_way(caplog)


@pytest.mark.parametrize(("code", "seconds"), [(2, 5.0), (3, 60.0), (4, 60.0)])
def test_what_never_worked_is_tried_again_at_the_static_cadence(code: int, seconds: float) -> None:
    """INVALID_ARGUMENT, which says nothing about the GPU model, sooner."""
    chain = Chain(error(code))
    assert chain.probe() is None
    chain.answers[0] = 42
    chain.wait(seconds - 0.5)
    assert chain.probe() is None
    assert not chain.probe.possible
    chain.wait(0.5)

    assert chain.probe() == 42
    assert chain.journal.states == {}


@pytest.mark.parametrize("code", [13, 25, 26])
def test_what_the_driver_lacks_is_never_tried_again(code: int) -> None:
    """Only a new session, as after a driver update, tries it again."""
    chain = Chain(error(code))
    for _ in range(3):
        assert chain.probe() is None
        chain.wait(1000.0)

    assert chain.asked == [1]


def test_older_call_steps_in_until_the_newer_one_is_back() -> None:
    """A chain goes back to the call that it used before."""
    chain = Chain(42, 7)
    chain.probe()
    chain.answers[0] = error(3)
    assert chain.probe() == 7
    chain.answers[0] = 43
    chain.wait(5.0)

    assert chain.probe() == 43
    assert chain.journal.states == {}


def test_impossible_values_are_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """A check decides what can be; the state says so until a value can be, and each change of it is
    one line."""
    caplog.set_level(logging.INFO)
    journal = Journal("GPU 7")
    values = iter([42, 2**32 - 1, 2**32 - 1, 43])
    probe: Probe[int] = Probe(journal, "power", [lambda: next(values)], PossibleRange(0, 100))
    found = []
    for _ in range(4):
        found.append((probe(), dict(journal.states)))
        journal.log_changes()

    implausible = {"power": "implausible"}
    assert found == [(42, {}), (None, implausible), (None, implausible), (43, {})]
    assert journal.failures == {}
    assert caplog.messages == [
        "GPU 7 cannot be read in part: power (implausible)",
        "GPU 7: can be read again: power",
    ]


@pytest.mark.parametrize("code", NOT_NOW)
def test_not_now_is_asked_again(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """A reading that is not there now is absent this round, silently, and asked the next."""
    chain = Chain(error(code), 43)

    assert chain.probe() is None
    chain.answers[0] = 42
    assert chain.probe() == 42
    assert chain.asked == [2, 0]
    assert (chain.failures, chain.journal.states, caplog.messages) == ({}, {}, [])


@pytest.mark.parametrize("code", FAILURES)
def test_unknown_codes_are_failures(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """Anything else is counted each time and logged once each way."""
    caplog.set_level(logging.INFO)
    chain = Chain(error(code), 43)
    for _ in range(3):
        assert chain.ask() is None
    chain.answers[0] = 42
    for _ in range(3):
        assert chain.ask() == 42

    assert chain.failures == {"nvml": 3}
    assert_one_line_each_way(caplog)
    assert chain.journal.states == {}


def test_python_errors_are_failures(caplog: pytest.LogCaptureFixture) -> None:
    """What the binding itself raises costs this reading only."""
    chain = Chain(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))

    assert chain.ask() is None
    assert chain.failures == {"nvml": 1}
    assert len(caplog.messages) == 1


def test_one_fault_of_many_readings_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each change of state names the groups, by what is wrong with them."""
    caplog.set_level(logging.INFO)
    journal = Journal("GPU 7")
    answers: dict[str, Any] = {"power": error(999), "clocks": error(999), "fans": error(4)}
    probes = {
        group: Probe[int](journal, group, [partial(answer, answers, group)]) for group in answers
    }
    for changed in ({}, {}, {"power": 1, "clocks": 2}, {}, {"fans": 3}):
        answers.update(changed)
        journal.now += 30.0
        for probe in probes.values():
            probe()
        journal.log_changes()

    assert caplog.messages == [
        "GPU 7 cannot be read in part: power, clocks (Unknown Error); fans (no permission)",
        "GPU 7: can be read again: power, clocks",
        "GPU 7: can be read again: fans",
    ]


@pytest.mark.parametrize("period", [2, 7, 40])
def test_a_reading_that_comes_and_goes_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, period: int
) -> None:
    """It is two lines a minute at most, and the last line is true within a minute."""
    caplog.set_level(logging.INFO)
    chain = Chain(43)
    for second in range(600):
        chain.answers[0] = error(999) if second % period < period / 2 else 42
        chain.ask()
        chain.wait(1.0)
    assert 2 <= len(caplog.messages) <= 20
    for answer, said in ((error(999), "cannot be read in part"), (42, "can be read again")):
        chain.answers[0] = answer
        for _ in range(61):
            chain.ask()
            chain.wait(1.0)
        assert said in caplog.messages[-1]


def test_a_new_session_does_not_say_at_once_what_the_last_one_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A GPU that is opened again and again logs no more than one that is not."""
    caplog.set_level(logging.INFO)
    past = Past()
    for second in range(30):
        journal = Journal("GPU 7", past)
        journal.now = 1000.0 + second
        if second % 2 == 0:
            journal.failed("nvml", "power", "Unknown Error")
        journal.log_changes()

    assert len(caplog.messages) == 2


def test_group_is_absent_while_one_of_its_readings_is() -> None:
    """The state goes when the last of them is back."""
    journal = Journal("GPU 7")
    journal.absent("ecc", "unsupported", "dram")
    journal.absent("ecc", "no_permission", "sram")
    journal.answered("ecc", "sram")
    assert journal.states == {"ecc": "unsupported"}
    journal.answered("ecc", "dram")

    assert journal.states == {}


def test_identity_has_no_state(caplog: pytest.LogCaptureFixture) -> None:
    """Facts that many GPU models lack are absent without a reason; a refused one is logged."""
    journal = Journal("GPU 7")
    journal.absent(IDENTITY, "unsupported")
    journal.refused("nvml", IDENTITY)
    journal.log_changes()

    assert journal.states == {}
    assert journal.failures == {"nvml": 1}
    assert caplog.messages == ["GPU 7 cannot be read in part: identity (no permission)"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.INFO]


def test_what_was_never_possible_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    """A GPU model may answer a sentinel for what it lacks: the state has it, the log not."""
    journal = Journal("GPU 7")
    nothing: Probe[int | None] = Probe(journal, "memory", [lambda: None])
    for _ in range(3):
        assert nothing() is None
        journal.log_changes()

    assert journal.states == {"memory": "implausible"}
    assert warnings(caplog) == []


def test_states_are_logged_once_and_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """That a GPU model lacks a reading is no warning."""
    caplog.set_level(logging.DEBUG)
    journal = Journal("GPU 7")
    for _ in range(3):
        journal.absent("gpm", "unsupported")

    assert [(entry.levelname, entry.getMessage()) for entry in caplog.records] == [
        ("DEBUG", "GPU 7: gpm cannot be read: unsupported")
    ]
    assert warnings(caplog) == []
