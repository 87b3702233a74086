# SPDX-License-Identifier: Apache-2.0
"""When a job reports, which of its processes do, and that nobody else can tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline_job import lanes, phase, reporter, watch
from roofline_job.lanes import Lane
from roofline_job.runs import NEVER, PROCESS, RETRY_SECONDS, SECOND, Run
from tests.training.listener import ROOT, Listener, run_job


class Clock:
    """A clock that is told the time."""

    now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, client: None) -> Clock:
    """Put every lane on one scripted clock."""
    clock, real = Clock(), Lane
    monkeypatch.setattr(lanes, "Lane", lambda run, **kwargs: real(run, clock, **kwargs))
    return clock


def test_at_most_one_report_a_second(clock: Clock, listener: Listener) -> None:
    """The first with the first batch, then one a second, each with all totals."""
    for _ in watch(range(40), job="job"):
        clock.now_ns += SECOND // 10
    found = listener.reports()

    assert [report["batches"] for report in found] == [1, 11, 21, 31]
    assert [report["sequence"] for report in found] == [0, 1, 2, 3]
    assert len({report["id"] for report in found}) == 1


def test_without_a_daemon_it_is_looked_for_every_five_seconds(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And found when it comes, with everything that happened before."""
    path = tmp_path / "late.sock"
    monkeypatch.setattr(reporter, "candidates", lambda _: (str(path),))
    looked: list[int] = []
    real = Run.tell

    def tell(run: Run, now_ns: int, *, ending: bool = False) -> None:
        looked.append(now_ns)
        real(run, now_ns, ending=ending)

    monkeypatch.setattr(Run, "tell", tell)
    batches = iter(watch(range(1_000), job="job"))
    for _ in range(100):
        next(batches)
        clock.now_ns += SECOND // 10
    assert [later - looked[0] for later in looked] == [0, RETRY_SECONDS * SECOND]

    listener = Listener(path)
    for _ in range(60):
        next(batches)
        clock.now_ns += SECOND // 10
    found = listener.reports()
    listener.close()
    assert found[0]["batches"] == 101


def test_a_daemon_that_restarts_gets_the_totals(
    clock: Clock, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id and the numbers go on."""
    monkeypatch.setattr(reporter, "candidates", lambda _: (str(listener.path),))
    batches = iter(watch(range(1_000), job="job"))
    next(batches)
    before = listener.reports()
    listener.close()
    listener.path.unlink()
    for _ in range(100):
        next(batches)
        clock.now_ns += SECOND // 10
    again = Listener(listener.path)
    for _ in range(60):
        next(batches)
        clock.now_ns += SECOND // 10
    after = again.reports()
    again.close()

    assert after[0]["id"] == before[0]["id"]
    assert after[0]["sequence"] > before[0]["sequence"]
    assert after[0]["batches"] > 100


def test_steps_never_fall_when_an_optimizer_is_first_seen(clock: Clock) -> None:
    """Batches were counted as steps until then; the count waits for the truth to catch up."""
    lane = lanes.current("job")
    assert lane is not None
    lane.open_loop(clock, evaluating=False)
    found = []
    for batch in range(1, 33):
        lane.batch()
        if batch % 4 == 0:
            lane.optimizer_step(clock)
        found.append(lane.run.totals().steps)

    assert found == sorted(found)
    assert (found[2], found[-1]) == (3, 8)


def test_nothing_is_reported_before_the_job_works(clock: Clock, listener: Listener) -> None:
    """A process that only marks phases, as one that prepares data, is no training job."""
    with phase("checkpoint"):
        clock.now_ns += 5 * SECOND
    PROCESS.flush()

    assert PROCESS.run(None, None).due_ns == NEVER
    assert listener.reports() == []


def test_a_report_that_fails_is_swallowed(
    clock: Clock, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one is tried a second later."""
    failures = [RuntimeError("ours")]

    def rank() -> int:
        if failures:
            raise failures.pop()
        return 0

    monkeypatch.setattr("roofline_job.identity.rank", rank)
    for _ in watch(range(20), job="job"):
        clock.now_ns += SECOND // 10
    (report,) = listener.reports()

    assert (report["errors"], report["error"]) == (1, "RuntimeError: ours")


PLAIN = """
import sys
batches = list(range(3))
{watch}
for batch in batches:
    print("batch", batch)
    print("to stderr", file=sys.stderr)
{end}
"""
WATCH = "from roofline_job import watch\nbatches = watch(batches, job='job')"


@pytest.mark.parametrize(
    "end",
    ["", "sys.exit(3)", "sys.exit('message')", "raise ValueError('x')", "import os; os._exit(4)"],
)
@pytest.mark.parametrize("daemon", [True, False])
def test_output_and_exit_code_are_the_jobs_own(
    end: str, daemon: bool, listener: Listener, tmp_path: Path
) -> None:
    """Whether somebody listens or not, and with every warning shown."""
    socket = listener.path if daemon else tmp_path / "nobody.sock"
    environ = {"PYTHONDEVMODE": "1", "RANK": "abc", "WORLD_SIZE": "", "LOCAL_RANK": "é"}
    # The line that watches is there in both, so that tracebacks have the same line numbers.
    plain = run_job(tmp_path, PLAIN.format(watch="pass\npass", end=end), socket, environ)
    watched = run_job(tmp_path, PLAIN.format(watch=WATCH, end=end), socket, environ)

    assert watched.returncode == plain.returncode
    assert watched.stdout == plain.stdout
    assert watched.stderr == plain.stderr
    found = listener.reports()
    if daemon and "_exit" not in end:
        assert (found[-1]["batches"], found[-1]["exit"]) == (3, True)


def test_what_os_exit_or_a_signal_cuts_off_was_said_before(
    listener: Listener, tmp_path: Path
) -> None:
    """The first report goes out with the first batch."""
    source = """
        import os, signal
        from roofline_job import watch
        for batch in watch(range(3), job="job"):
            if batch == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        """
    assert run_job(tmp_path, source, listener.path).returncode == -signal.SIGKILL
    (report,) = listener.reports()

    assert report["job"] == "job"
    assert "exit" not in report


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_say_what_they_did(
    method: str, listener: Listener, tmp_path: Path
) -> None:
    """Each under an id of its own, also the last of it, though they end by ``os._exit``."""
    source = f"""
        import multiprocessing, os
        from roofline_job import watch

        def train(batches):
            for _ in watch(range(batches)):
                pass

        if __name__ == "__main__":
            os.environ["ROOFLINE_JOB_NAME"] = "job"
            train(2)
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=train, args=(n,)) for n in (3, 4)]
            for child in children:
                child.start()
            for child in children:
                child.join()
                assert child.exitcode == 0
        """
    job = run_job(tmp_path, source, listener.path)
    assert (job.returncode, job.stderr) == (0, "")
    last = {report["id"]: report for report in listener.reports() if report.get("exit")}

    assert sorted(report["batches"] for report in last.values()) == [2, 3, 4]
    assert len({report["pid"] for report in last.values()}) == 3
    assert {report["job"] for report in last.values()} == {"job"}


def test_a_forked_child_reports_only_a_loop_of_its_own(listener: Listener, tmp_path: Path) -> None:
    """Not the parent's totals, under another id, and nothing if it does not train."""
    source = """
        import os
        from roofline_job import phase, watch
        parent = os.getpid()
        for batch in watch(range(4), job="job"):
            if batch in (1, 2) and os.fork() == 0:
                if batch == 2:
                    list(watch(range(2), job="job"))
                with phase("checkpoint"):
                    pass
                break
        if os.getpid() == parent:
            os.wait(), os.wait()
        """
    job = run_job(tmp_path, source, listener.path)
    assert (job.returncode, job.stderr) == (0, "")
    last = {report["id"]: report for report in listener.reports()}

    assert sorted(report["batches"] for report in last.values()) == [2, 4]
    assert all(list(report["phase_seconds"]) != [] for report in last.values())


def test_a_process_that_becomes_another_program_keeps_nothing_of_ours(
    listener: Listener, tmp_path: Path
) -> None:
    """No descriptor is inherited; the next program is a stream of its own."""
    source = """
        import os, sys
        from roofline_job import watch
        list(watch(range(2), job="job"))
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        print(sorted(os.listdir("/proc/self/fd")))
        """
    job = run_job(tmp_path, source, listener.path)
    found = listener.reports()

    assert job.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing's own
    assert len({report["id"] for report in found}) == 2
    assert len({report["pid"] for report in found}) == 1


def test_workers_of_a_data_loader_never_report(listener: Listener, tmp_path: Path) -> None:
    """Also where the data set goes through something watched."""
    pytest.importorskip("torch")
    source = """
        import torch
        from torch.utils.data import DataLoader, IterableDataset
        from roofline_job import watch

        class Data(IterableDataset):
            def __iter__(self):
                yield from watch(range(5), job="worker")

        if __name__ == "__main__":
            for _ in watch(DataLoader(Data(), batch_size=None, num_workers=2), job="main"):
                pass
        """
    job = run_job(tmp_path, source, listener.path)
    assert (job.returncode, job.stderr) == (0, "")
    found = listener.reports()

    assert {report["job"] for report in found} == {"main"}
    assert found[-1]["batches"] == 10
    assert found[-1]["device"] == "none"


def test_hostile_names_arrive_fit(listener: Listener, tmp_path: Path) -> None:
    """Control characters, invalid UTF-8 and ten kilobytes, from the environment."""
    for name in ("a\nb\tc", "\udcff\udcfe", "x" * 10_000, "é" * 100, "  "):
        source = "from roofline_job import watch\nlist(watch([1]))"
        run_job(tmp_path, source, listener.path, {"ROOFLINE_JOB_NAME": name})
    names = [report["job"] for report in listener.reports() if report.get("exit")]

    assert names == ["a_b_c", "__", "x" * 128, "é" * 64, "job"]


def test_it_can_be_imported_without_the_daemons_dependencies(tmp_path: Path) -> None:
    """In a job's environment there is nothing but Python."""
    source = """
        import sys
        before = set(sys.modules)
        sys.path.insert(0, sys.argv[1])
        from roofline_job import phase, step, watch
        list(watch([1], job="job"))
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        foreign = new - set(sys.stdlib_module_names) - {"exporter", "_roofline_job"}
        print(sorted(foreign), sorted(name for name in sys.modules if name.startswith("exporter.")
              and not name.startswith("roofline_job")))
        """
    script = tmp_path / "job.py"
    script.write_text("\n".join(line.strip() for line in source.splitlines()), encoding="utf-8")
    # Isolated and without site-packages.
    found = subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        env={"ROOFLINE_TRAINING_SOCKET": str(tmp_path / "nobody")},
    )

    assert found.stdout == "[] []\n"


def test_there_is_one_client_in_a_process(listener: Listener, tmp_path: Path) -> None:
    """Loaded by path under a name of its own, it hides nothing and is what an import gives."""
    source = f"""
        import importlib.util, sys
        folder = {str(ROOT / "exporter" / "training")!r}
        spec = importlib.util.spec_from_file_location(
            "_roofline_job", folder + "/__init__.py", submodule_search_locations=[folder])
        client = sys.modules["_roofline_job"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(client)
        assert "exporter" not in sys.modules
        list(client.watch(range(2), job="job"))
        from roofline_job import phase, step, watch
        assert (watch, phase, step) == (client.watch, client.phase, client.step)
        list(watch(range(3)))
        """
    job = run_job(tmp_path, source, listener.path)
    assert (job.returncode, job.stderr) == (0, "")
    last = {report["id"]: report for report in listener.reports()}

    assert [report["batches"] for report in last.values()] == [5]


def test_the_name_of_the_first_import_is_the_client() -> None:
    """Imported the usual way, that is the one client."""
    import roofline_job

    client: Any = sys.modules["_roofline_job"]
    assert client.watch is roofline_job.watch


def test_a_child_begins_with_no_failures(client: None) -> None:
    """What failed in the parent was the parent's."""
    from roofline_job.failures import FAILURES

    FAILURES.add(ValueError("parent's"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps([FAILURES.count, FAILURES.first]).encode())
        os._exit(0)
    os.waitpid(pid, 0)

    assert json.loads(os.read(read, 100)) == [0, ""]


def test_a_run_of_another_rank_is_another_stream(client: None) -> None:
    """One process that trains two ranks, as simulators do, has two."""
    first, second = PROCESS.run("job", 0), PROCESS.run("job", 1)

    assert first is not second
    assert PROCESS.run("job", None) is first
    assert first.id != second.id
