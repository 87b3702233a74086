# SPDX-License-Identifier: Apache-2.0
"""When a job reports, which of its threads and processes do, and that nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline_job import degraded, phase, reporter, step, watch
from roofline_job.process import PROCESS
from roofline_job.reporter import RETRY_SECONDS, SECOND
from roofline_job.thread_accounts import NEVER
from tests.training.conftest import Clock
from tests.training.listener import Listener, run_job
from tests.training.measured import Optimizer, measured


def test_at_most_one_report_a_second(clock: Clock, listener: Listener) -> None:
    """The first two with the first batch, then one a second, each with all totals."""
    for _ in watch(range(39), job="job"):
        clock.wait(0.1)
    found = listener.reports()

    assert [report["batches"] for report in found] == [0, 1, 11, 21, 31]
    assert [report["sequence"] for report in found] == [0, 1, 2, 3, 4]
    assert [report.get("in") for report in found] == ["data", None, None, None, None]
    assert len({report["id"] for report in found}) == 1


def test_without_a_daemon_it_is_looked_for_every_five_seconds(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And found when it comes, with everything that happened before."""
    path = tmp_path / "late.sock"
    monkeypatch.setattr(reporter, "candidates", lambda _: (str(path),))
    looked: list[int] = []
    deliver = reporter.deliver

    def look(datagram: bytes, wait_seconds: float) -> bool:
        looked.append(clock.now_ns)
        return deliver(datagram, wait_seconds)

    monkeypatch.setattr(reporter, "deliver", look)
    batches = iter(watch(range(1_000), job="job"))
    for _ in range(100):
        next(batches)
        clock.wait(0.1)
    assert [later - looked[0] for later in looked] == [0, RETRY_SECONDS * SECOND]

    listener = Listener(path)
    for _ in range(60):
        next(batches)
        clock.wait(0.1)
    found = listener.reports()
    listener.close()
    assert found[0]["batches"] == 101


def test_nothing_is_reported_before_the_job_works(clock: Clock, listener: Listener) -> None:
    """A process that only marks phases, as one that prepares data, is no training job."""
    with phase("checkpoint"):
        clock.wait(5)
    PROCESS.flush()

    assert [account.due_ns for account in PROCESS.accounts] == [NEVER]
    assert listener.reports() == []


# Threads


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.usefixtures("unheard")
def test_a_step_in_another_thread_after_the_data_ended_counts(clock: Clock) -> None:
    """Its time does not: it is another thread's."""
    optimizer = Optimizer()
    for _ in watch(range(4)):
        clock.wait(1)
        in_a_thread(optimizer.step)
    clock.wait(1)
    in_a_thread(optimizer.step)

    assert measured().counts == (4, 4, None)
    assert measured().wall_ns == 4 * SECOND


@pytest.mark.usefixtures("unheard")
def test_a_job_that_starts_a_thread_per_epoch_does_not_grow(clock: Clock) -> None:
    """A thread that got the number of one that has ended goes on where that was."""
    numbers = set()

    def train() -> None:
        numbers.add(threading.get_ident())
        for _ in watch(range(3)):
            clock.wait(1)
        clock.wait(100)

    for _ in range(20):
        in_a_thread(train)

    assert len(PROCESS.accounts) == len(numbers)
    assert sum(measured(account).batches for account in PROCESS.accounts) == 60
    assert sum(measured(account).wall_ns for account in PROCESS.accounts) == 60 * SECOND


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("automatic", [True, False])
def test_a_thread_that_python_has_not_started_stays_unknown_to_it(automatic: bool) -> None:
    """``threading.enumerate`` has nothing that it would not have without us."""
    PROCESS.automatic = automatic
    before, over = {thread.ident for thread in threading.enumerate()}, threading.Event()

    def foreign() -> None:
        list(watch(iter([1])))
        Optimizer().step()
        found.extend(threading._active)  # type: ignore[attr-defined]
        over.set()

    import _thread

    found: list[int] = []
    _thread.start_new_thread(foreign, ())
    assert over.wait(10)

    assert set(found) <= before


# Processes


def test_switched_off_nothing_is_measured_or_registered(tmp_path: Path) -> None:
    """Not even what happens at the end of the process."""
    source = """
        import atexit
        from roofline_job import phase, step, watch
        batches = [1, 2]
        assert watch(batches, job="job") is batches
        before = atexit._ncallbacks()
        for _ in watch(batches):
            with phase("forward"):
                step()
        step("nonsense")
        print(atexit._ncallbacks() - before)
        """
    job, reports = run_job(tmp_path, source, ROOFLINE_JOB_INSTRUMENT="0")
    assert (job.returncode, job.stdout, job.stderr) == (0, "0\n", "")
    assert reports == ()


@pytest.mark.parametrize("name", ["signal", "socket", "logging", "random"])
def test_a_job_keeps_modules_of_the_standard_librarys_names(name: str, tmp_path: Path) -> None:
    """What the client may do without is not imported, whether or not somebody listens."""
    (tmp_path / f"{name}.py").write_text("print('of the job')\n", encoding="utf-8")
    source = """
        from roofline_job import phase, step, watch

        for batch in watch(range(3)):
            with phase("forward"):
                print(batch)
        step()
        """
    job, _ = run_job(tmp_path, source, ROOFLINE_TRAINING_SOCKET=str(tmp_path / "nobody.sock"))
    assert (job.returncode, job.stdout, job.stderr) == (0, "0\n1\n2\n", "")


def test_hostile_names_arrive_fit(tmp_path: Path) -> None:
    """Control characters, invalid UTF-8 and ten kilobytes, from the environment."""
    names = []
    for name in ("a\nb\tc", "\udcff\udcfe", "x" * 10_000, "é" * 100, "  "):
        source = "from roofline_job import watch\nlist(watch([1]))"
        _, (last,) = run_job(tmp_path, source, ROOFLINE_JOB_NAME=name)
        names.append(last["job"])

    assert names[:-1] == ["a_b_c", "__", "x" * 128, "é" * 64]
    assert names[-1].startswith("job@")


@pytest.mark.usefixtures("client")
def test_another_rank_has_an_account_of_its_own() -> None:
    """One process that trains two ranks, as simulators do, has two."""
    first, second = PROCESS.account("job", 0), PROCESS.account("job", 1)

    assert first is not None
    assert second is not None
    assert first is not second
    assert PROCESS.account("job", None) is PROCESS.account() is first
    assert first.id != second.id


@pytest.mark.usefixtures("client")
def test_a_loader_worker_has_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that only loads data for another one says nothing."""
    monkeypatch.setattr("roofline_job.identity.is_loader_worker", lambda: True)
    with phase("forward"):
        assert list(watch([1])) == [1]
        step()

    assert PROCESS.account() is None
    assert PROCESS.accounts == []
    assert not degraded.FOUND
