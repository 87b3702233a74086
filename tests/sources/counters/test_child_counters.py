# SPDX-License-Identifier: Apache-2.0
"""A counter source in a child process: real children, and everything that goes wrong with one."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest

from exporter.clock import SystemClock
from exporter.sources.counters import child_counters, supervisor
from exporter.sources.counters.child_counters import (
    EVERYWHERE,
    ChildCounters,
    StateLog,
    StateNote,
)
from exporter.sources.counters.programs import IGNORED_SIGNALS
from tests.sources.counters.bench import UUID, Bench, Gpu, command, is_alive, opened
from tests.waiting import wait_until

MakeBench = Callable[..., Bench]


def measured(bench: MakeBench, name: str = "count") -> tuple[Bench, Gpu]:
    """A bench whose child measures the one GPU that is open."""
    made = bench(name)
    gpu = made.open()
    made.run()
    made.step_until(lambda: gpu.source.measures(None))
    return made, gpu


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_what_a_child_measures_reaches_the_round(bench: MakeBench) -> None:
    """Each activity stands until the next one; the rounds have their mean, and nothing is wrong."""
    made, gpu = measured(bench)
    gpu.read()
    made.later(1.0, 3)

    (activity,) = gpu.read().values()

    assert activity.source == "dcgm"
    assert (activity.seconds, activity.sm, activity.tensor) == (1.0, 0.5, 0.25)
    assert activity.pcie_transmit_bytes == pytest.approx(1000.0)
    assert gpu.journal.states == {}
    assert made.is_up
    assert made.failures == 0
    assert made.counters.facts == {"library": "1.2"}


def test_a_child_is_started_only_for_a_gpu_that_nothing_better_measures(bench: MakeBench) -> None:
    """A preferred source may take a moment to start."""
    made = bench("count", patience_seconds=child_counters.PATIENCE_SECONDS)
    gpu = made.open()

    made.advance(child_counters.PATIENCE_SECONDS - 1.0)
    assert made.supervisor.generation == 0
    assert made.counters.state is None
    gpu.measured_better = True
    made.advance(60.0)
    assert made.supervisor.generation == 0
    gpu.measured_better = False
    made.advance(child_counters.PATIENCE_SECONDS + 1.0)

    assert made.supervisor.generation == 1


def test_a_child_that_nobody_wants_any_more_is_ended(bench: MakeBench) -> None:
    """Not at once: the preferred source may only have stumbled the other way."""
    made = bench("count")
    gpu = made.open()
    made.run()
    pid = made.supervisor.pid
    gpu.measured_better = True

    made.advance(child_counters.LINGER_SECONDS)
    assert made.supervisor.is_up
    made.advance(supervisor.UNWANTED_SECONDS + 2.0)

    assert made.supervisor.pid is None
    wait_until(lambda: not is_alive(pid))
    assert made.counters.state is None
    assert gpu.journal.states == {}


def test_a_gpu_that_is_closed_wants_nothing(bench: MakeBench) -> None:
    """What was measured of it is forgotten."""
    made, gpu = measured(bench)

    gpu.source.close()

    assert made.counters.held(UUID, None) is None
    assert made.counters.state is None


def test_what_a_library_prints_is_logged(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """And costs no message."""
    caplog.set_level(logging.DEBUG)
    made, _ = measured(bench, "chatty")

    assert (made.failures, warnings(caplog)) == (0, [])
    assert "printed by a library" in caplog.text
    assert "written by a library" in caplog.text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("segfault", "its child process was killed by signal 11 (SIGSEGV)"),
        ("exits", "its child process ended with exit code 3: last words"),
        ("raises", "its child process ended with exit code 1: RuntimeError: no luck"),
        ("mute", "its child process closed its output and was killed"),
        ("endless_line", "its child process wrote more than makes sense and was killed"),
        ("missing", "install this"),
    ],
)
def test_the_end_of_a_child_costs_the_readings(
    bench: MakeBench, caplog: pytest.LogCaptureFixture, name: str, line: str
) -> None:
    """One line in the log, and one state: that of the child, if it gave one for all GPUs."""
    made = bench(name)
    gpu = made.open()
    gpu.read()

    made.step_until(lambda: made.supervisor.generation == 1 and made.supervisor.pid is None)
    gpu.read()

    assert warnings(caplog) == [f"dcgm: {line}"]
    assert gpu.journal.states == {"dcgm": "missing" if name == "missing" else "unreachable"}
    assert made.failures == (2 if name == "missing" else 1)
    assert not made.is_up


@pytest.mark.slow
def test_a_child_that_ends_in_a_loop_is_started_ever_more_rarely(bench: MakeBench) -> None:
    """One that lived for a minute starts the waits anew."""
    made = bench("count")
    made.open()

    def wait_after(seconds: float) -> float:
        """Kill the child after so long; return how long it is until the next one."""
        made.run()
        made.advance(seconds)
        os.kill(made.supervisor.pid or 0, signal.SIGKILL)
        made.step_until(lambda: made.supervisor.pid is None)
        ended = made.clock.monotonic()
        while made.supervisor.pid is None:
            made.later(0.5)
        return made.clock.monotonic() - ended

    waits = supervisor.BACK_OFF_SECONDS
    assert [wait_after(1.0) for _ in range(6)] == [*waits, waits[-1]]
    assert made.failures == 6
    assert wait_after(supervisor.GOOD_SECONDS) == waits[0]


def test_it_works_again_after_an_end(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """The new child's readings end the state, and the log says so once."""
    caplog.set_level(logging.INFO)
    made, gpu = measured(bench)
    assert made.supervisor.pid is not None
    os.kill(made.supervisor.pid, signal.SIGKILL)
    made.step_until(lambda: made.supervisor.pid is None)
    gpu.read()
    assert gpu.journal.states == {"dcgm": "unreachable"}
    assert not gpu.source.measures(None)

    made.clock.advance(supervisor.BACK_OFF_SECONDS[0])
    made.step_until(lambda: gpu.source.measures(None))
    gpu.read()

    assert gpu.journal.states == {}
    assert made.supervisor.generation == 2
    assert caplog.messages == [
        "dcgm: its child process was killed by signal 9 (SIGKILL)",
        "dcgm: it works again",
    ]


def test_a_child_that_hangs_is_killed(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    """The one sign of a hang is that it says nothing."""
    made = bench("silent")
    gpu = made.open()
    made.run()
    pid = made.supervisor.pid

    made.later(supervisor.SILENT_SECONDS - 0.1)
    assert is_alive(pid)
    made.later(0.1)
    gpu.read()

    wait_until(lambda: not is_alive(pid))
    assert warnings(caplog) == ["dcgm: its child process said nothing for 5 s and was killed"]
    assert gpu.journal.states == {"dcgm": "unreachable"}


def test_a_child_may_take_its_time_to_load(bench: MakeBench) -> None:
    """A library of 200 MB comes from a cold disk at times."""
    made = bench("", program=(sys.executable, "-c", "import time; time.sleep(600)"))
    made.open().read()
    made.step()

    made.later(supervisor.FIRST_SECONDS - 0.1, 2)
    assert made.supervisor.pid is not None
    made.later(0.1)

    assert made.supervisor.pid is None


def test_a_message_stays_on_one_line_of_the_log(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cut, and what would move a terminal's cursor is escaped."""
    message = "a\n\x1b[2J" + "b" * 900

    bench("count").counters.handle({"gpu": None, "state": "busy", "message": message}, 0.0)

    (line,) = warnings(caplog)
    assert line.startswith("dcgm: a\\n\\x1b[2Jbbb")
    assert len(line) < 520


def test_a_command_that_is_not_there(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    made = bench("", program=("/nonexistent",))
    gpu = made.open()
    gpu.read()

    made.step()
    gpu.read()

    assert "no child process can be started" in warnings(caplog)[0]
    assert gpu.journal.states == {"dcgm": "unreachable"}


def test_the_counters_are_handed_over_and_taken_back(bench: MakeBench) -> None:
    """The child goes on without them."""
    made, gpu = measured(bench)
    pid = made.supervisor.pid

    made.counters.pause()
    made.step(5)
    made.advance(supervisor.PAUSE_SECONDS + 3.0)
    assert gpu.read() == {}
    assert gpu.journal.states == {"dcgm": "paused"}
    assert not gpu.source.measures(None)
    made.counters.resume()
    made.step_until(lambda: gpu.source.measures(None))
    gpu.read()

    assert gpu.journal.states == {}
    assert made.supervisor.pid == pid
    assert made.failures == 0


def test_counters_that_nobody_held_are_not_handed_over(bench: MakeBench) -> None:
    """A GPU that the source refuses stays refused."""
    made = bench("count")
    gpu, refused = made.open(), made.open("GPU-mining")
    made.run()
    made.step_until(lambda: gpu.source.measures(None))

    made.counters.pause()
    made.step(5)
    made.advance(supervisor.PAUSE_SECONDS + 3.0)
    refusal = {"gpu": "GPU-mining", "state": "unsupported", "message": "CMP"}
    made.counters.handle(refusal, made.clock.monotonic())
    gpu.read()
    refused.read()

    assert gpu.journal.states == {"dcgm": "paused"}
    assert refused.journal.states == {"dcgm": "unsupported"}


def test_a_child_that_keeps_the_counters_is_killed(bench: MakeBench) -> None:
    """Within two seconds they are free, whatever it does; it is started again when they return."""
    made = bench("stubborn")
    made.open()
    made.run()
    pid = made.supervisor.pid

    made.counters.pause()
    made.step()
    made.later(supervisor.PAUSE_SECONDS)
    wait_until(lambda: not is_alive(pid))
    made.step(3)
    assert made.supervisor.pid is None
    made.counters.resume()
    made.step_until(lambda: made.supervisor.is_up)

    assert made.supervisor.generation == 2


def test_children_that_cannot_be_killed_are_given_up(
    bench: MakeBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those in an endless driver call: two of them, and no third."""
    monkeypatch.setattr("exporter.sources.counters.child.Child.kill", lambda child: None)
    made = bench("silent")
    gpu = made.open()
    gpu.read()

    for _ in range(supervisor.MOST_STUCK):
        made.step_until(lambda: made.supervisor.is_up)
        made.later(supervisor.SILENT_SECONDS)
        made.later(max(supervisor.END_SECONDS, supervisor.BACK_OFF_SECONDS[1]))
    made.step(3)
    gpu.read()

    assert made.supervisor.generation == supervisor.MOST_STUCK
    assert "hang in the driver and cannot be killed" in warnings(caplog)[-1]
    assert gpu.journal.states == {"dcgm": "unreachable"}
    monkeypatch.undo()
    for pid in made.supervisor.stuck:
        os.kill(pid, signal.SIGKILL)
    made.step_until(lambda: not made.supervisor.stuck)
    made.clock.advance(supervisor.BACK_OFF_SECONDS[-1])
    made.step_until(lambda: made.supervisor.is_up)
    assert made.supervisor.generation == supervisor.MOST_STUCK + 1


def test_signals_to_all_processes_do_not_end_a_child(bench: MakeBench) -> None:
    """The exporter gets them too, and decides what follows: at its own end nothing is warned of."""
    made = bench("count")
    gpu = made.open()
    made.run()
    pid = made.supervisor.pid
    assert pid is not None

    for number in IGNORED_SIGNALS:
        os.kill(pid, number)
    made.clock.advance(1.0)
    made.step_until(lambda: gpu.read() == {} and gpu.source.measures(None))

    assert made.supervisor.pid == pid


PARENT = """
import sys, time
from tests.sources.counters.bench import Bench

bench = Bench(sys.argv[1])
bench.open()
bench.run()
print(bench.supervisor.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", ["count", "silent"])
def test_a_child_does_not_outlive_the_exporter(name: str) -> None:
    """Not even one that hangs and an exporter that is killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, name], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()

    wait_until(lambda: not is_alive(pid))


def test_it_runs_in_a_thread_of_its_own_and_leaves_nothing_behind() -> None:
    """Nor does it wait for a child that hangs."""
    gc.collect()
    threads, before = set(threading.enumerate()), opened()
    counters = ChildCounters(
        "dcgm", {}, SystemClock(), command=command("silent"), patience_seconds=0.0
    )
    counters.start()
    gpu, supervised = Gpu(counters, SystemClock(), UUID, (None,)), counters.supervisor
    gpu.read()
    wait_until(partial(getattr, supervised, "is_up"))
    pid = supervised.pid

    counters.stop()

    assert not counters.supervisor.is_up
    wait_until(lambda: not is_alive(pid))
    assert set(threading.enumerate()) <= threads
    del counters, gpu, supervised
    gc.collect()
    assert opened() <= before


def test_a_fault_in_the_supervision_does_not_end_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the next step."""
    monkeypatch.setattr(supervisor, "STEP_SECONDS", 0.01)
    counters = ChildCounters("dcgm", {}, SystemClock(), command=command("count"))
    steps: list[float] = []

    def broken(wait_seconds: float) -> None:
        steps.append(wait_seconds)
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(counters.supervisor, "step", broken)
    counters.start()
    wait_until(lambda: len(steps) > 1)
    counters.stop()

    assert warnings(caplog) == ["dcgm: its supervision failed: ZeroDivisionError: oh"]


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


def test_a_line_of_a_gigabyte_ends_the_child(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither kept nor read to its end."""
    made = bench("endless_line")
    gpu = made.open()
    gpu.read()

    made.step_until(lambda: made.supervisor.generation == 1 and made.supervisor.pid is None)
    gpu.read()

    assert warnings(caplog) == [
        "dcgm: its child process wrote more than makes sense and was killed"
    ]
    assert gpu.journal.states == {"dcgm": "unreachable"}
