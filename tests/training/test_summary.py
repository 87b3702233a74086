# SPDX-License-Identifier: Apache-2.0
"""The line at the end of a job that `run` started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline_job import identity, phase, process, reporter, summary, summary_file, watch
from roofline_job.launch import job_environment
from roofline_job.process import PROCESS
from tests.training.conftest import Clock
from tests.training.listener import Listener

TRAIN = """
import torch
from torch.utils.data import DataLoader

for batch in DataLoader(torch.zeros(4, 4), 1):
    pass
print("done")
"""
BUSY = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
LINE = r"roofline-exporter: 4 steps, waited 0\.\d s \(\d+ % of the loop\) for data\n"


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a job that `run` started, but keep its own handler of SIGTERM."""
    monkeypatch.setattr(process, "before_termination", lambda finish: None)
    monkeypatch.setattr(summary, "_is_written", False)
    monkeypatch.setenv(summary.VARIABLE, "1")
    for name in (*identity.RANKS, "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unheard")
def test_it_says_steps_wait_and_stall(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """As shares of the loop; with nobody listening too."""
    for _ in watch(range(1200), job="job"):
        with phase("data"):
            clock.wait(0.07)
        clock.wait(0.3)
    account = PROCESS.accounts[0]
    account.meter.measuring = True
    account.meter.idle_ns["data"] = 61_000_000_000
    PROCESS.flush()
    PROCESS.flush()

    assert capsys.readouterr().err == (
        "roofline-exporter: 1,200 steps, waited 84 s (19 % of the loop) for data, "
        "GPU idle meanwhile 61 s (14 %)\n"
    )


@pytest.mark.usefixtures("unheard")
@pytest.mark.parametrize(
    ("environ", "start"),
    [
        ({"RANK": "0", "WORLD_SIZE": "8"}, "roofline-exporter: rank 0 of 8: 2 steps, waited "),
        ({"RANK": "1", "WORLD_SIZE": "8"}, ""),
        ({"SLURM_PROCID": "3"}, ""),
        ({summary.VARIABLE: ""}, ""),
    ],
)
def test_only_the_first_rank_of_a_job_under_run_says_it(
    environ: dict[str, str],
    start: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others would say about the same."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for _ in watch(range(2), job="job"):
        clock.wait(3)
    PROCESS.flush()
    said = capsys.readouterr().err
    assert said.startswith(start)
    assert bool(said) == bool(start)


@pytest.mark.usefixtures("client")
def test_a_process_that_did_nothing_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be one that only starts others."""
    PROCESS.account("job")
    PROCESS.flush()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("unheard")
@pytest.mark.parametrize(
    ("flops", "precision", "said"),
    [
        (41.2e12, "bf16", "41.2 TFLOP/s (MFU 25 % of 165 TFLOP/s bf16)"),
        (41.2e12, "int8", "41.2 TFLOP/s"),
        (2.5e15, None, "2,500 TFLOP/s"),
        (99_960_000_000.0, None, "100.0 GFLOP/s"),
        (2500.0, None, "2,500 FLOP/s"),
    ],
)
def test_it_says_how_much_of_the_peak_was_done(
    flops: float,
    precision: str | None,
    said: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the GPU of this rank, in the precision of the job."""
    device = SimpleNamespace(name="NVIDIA GeForce RTX 4090", multi_processor_count=128)
    cuda = SimpleNamespace(current_device=int, get_device_properties=lambda index: device)
    monkeypatch.setattr(identity, "cuda", lambda: cuda)
    for _ in watch(range(4), job="job", flops_per_step=flops, precision=precision):
        clock.wait(1)
    account = PROCESS.accounts[0]
    monkeypatch.setattr(reporter, "_allocator", str)
    PROCESS.flush()
    assert account.wall_ns == 4_000_000_000
    assert capsys.readouterr().err.endswith(f" for data, {said}\n")


@pytest.mark.usefixtures("unheard")
def test_flops_are_divided_by_the_time_since_they_count(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first steps, which are slow, are not counted."""
    for _ in watch(range(10), job="job"):
        clock.wait(1)
    account = PROCESS.accounts[0]
    account.counts.add_flops(9e12)
    account.flops_since_ns = 4_000_000_000
    PROCESS.flush()
    assert capsys.readouterr().err.endswith(" for data, 1.5 TFLOP/s\n")


def test_the_launcher_asks_for_the_line() -> None:
    """In its own process, which becomes the job; and `begin` for the file."""
    assert summary_file.VARIABLE == summary.FILE_VARIABLE
    variables, off = {"PYTHONPATH": "/inject"}, {"ROOFLINE_JOB_INSTRUMENT": "0"}
    asked = {**variables, summary.VARIABLE: str(os.getpid())}
    assert job_environment({}, variables, quiet=False) == asked
    assert job_environment({summary.VARIABLE: "1"}, variables, quiet=True) == variables
    assert job_environment(off, variables, quiet=False) == off


def ran(folder: Path, source: str, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script under `run`."""
    (folder / "train.py").write_text(source, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "exporter", "run", *flags, "--", sys.executable, "train.py"],
        cwd=folder,
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if name not in (summary.VARIABLE, "PYTHONUNBUFFERED")
            },
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "ROOFLINE_TRAINING_SOCKET": str(folder / "training.sock"),
            "XDG_RUNTIME_DIR": str(folder),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_job_under_run_ends_with_it(tmp_path: Path) -> None:
    """With its own output and exit code; not if it is quiet."""
    pytest.importorskip("torch")
    done = ran(tmp_path, TRAIN + "raise SystemExit(3)\n")
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert re.fullmatch(LINE, done.stderr), done.stderr

    quiet = ran(tmp_path, TRAIN, "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "done\n", "")


COUNTED = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 1)
{compiles}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.randn({samples}, 8), batch_size=8):
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("compiles", "samples", "said"),
    [
        ("", 48, r"[\d,.]+ M?FLOP/s"),
        (
            "model = torch.compile(model, backend='eager')",
            48,
            r"FLOPs not counted \(torch.compile is in use\)",
        ),
        ("", 16, r"FLOPs not counted \(it ended before one of its steps was counted\)"),
    ],
)
def test_a_job_that_is_counted_says_what_it_computed(
    compiles: str, samples: int, said: str, tmp_path: Path
) -> None:
    """Four of six steps of 2 x 8 x 8 forward, and as many for the weights; or why it is not."""
    pytest.importorskip("torch")
    listener = Listener(tmp_path / "training.sock")
    source = COUNTED.format(compiles=compiles, samples=samples)
    done = ran(tmp_path, source, "--count-flops")
    assert re.search(rf"% of the loop\) for data, {said}\n$", done.stderr), done.stderr
    last = listener.reports()[-1]
    listener.close()
    is_counted = not compiles and samples == 48
    assert last.get("model_flops") == (4 * 2 * (2 * 8 * 8) if is_counted else None)
    assert last.get("precision") == ("fp32" if is_counted else None)
    assert last.get("degraded") == (["flops"] if compiles else None)


HELPED = """
import queue, threading
import torch
from torch.utils.data import DataLoader

def hand_over():
    for batch in DataLoader(torch.zeros(4, 4), 1):
        batches.put(batch)
    batches.put(None)

batches = queue.Queue()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
threading.Thread(target=hand_over).start()
for batch in iter(batches.get, None):
    model(batch).sum().backward()
    optimizer.step()
"""


def test_a_loader_that_a_helper_thread_reads(tmp_path: Path) -> None:
    """The line says why no wait is known, and what would measure it."""
    pytest.importorskip("torch")
    done = ran(tmp_path, HELPED)
    assert re.fullmatch(
        r"roofline-exporter: \d steps: the data loader is read in a helper thread, so the wait of "
        r"the training loop is not measured; put watch\(\) around what that loop reads\n",
        done.stderr,
    ), done.stderr


SIGNALLED = """
import os, signal, sys
import torch
from torch.utils.data import DataLoader

for number, batch in enumerate(DataLoader(torch.zeros(4, 4), 1)):
    if number == 2:
        print(signal.getsignal(signal.SIGTERM).name, flush=True)
        print("lost without a flush", end="")
        {before}
        os.kill(os.getpid(), signal.SIGTERM)
{after}
"""
TRACED = "import faulthandler; faulthandler.register(signal.SIGTERM, sys.stdout)"
"""A handler that Python does not know of, as those of libraries in C++."""
STARTED = "roofline-exporter: 3 steps, waited "


def test_sigterm_ends_a_job_with_it(tmp_path: Path, listener: Listener) -> None:
    """The parent sees the same death, the same output, and the daemon the last report."""
    pytest.importorskip("torch")
    done = ran(tmp_path, SIGNALLED.format(before="", after=""))
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "SIG_DFL\n")
    assert done.stderr.startswith(STARTED)
    assert done.stderr.count("\n") == 1
    last = listener.reports()[-1]
    assert (last["steps"], last["exit"]) == (3, True)

    borrowed = """signal.signal(signal.SIGTERM, signal.signal(signal.SIGTERM, print))
        print(signal.getsignal(signal.SIGTERM).name, flush=True)"""
    done = ran(tmp_path, SIGNALLED.format(before=borrowed, after="").replace('end="")', "flush=1)"))
    assert (done.returncode, done.stdout[-8:]) == (-signal.SIGTERM, "SIG_DFL\n")
    assert done.stderr.startswith(STARTED)

    quiet = ran(tmp_path, SIGNALLED.format(before="", after=""), "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (-signal.SIGTERM, "SIG_DFL\n", "")


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        ("print(signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)).name)", 7, "SIG_DFL"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0, ""),
        ("signal.signal(signal.SIGTERM, lambda *_: print('own'))", 0, "own"),
        (f"{TRACED}; os.fork() or os._exit(0); os.wait()", 0, "in <module>"),
    ],
)
def test_a_job_that_handles_sigterm_itself_does_so(
    tmp_path: Path, before: str, code: int, said: str
) -> None:
    """It sees no handler but its own, and gets the line where it ends."""
    pytest.importorskip("torch")
    done = ran(tmp_path, SIGNALLED.format(before=before, after=""))
    assert done.returncode == code
    assert "SIG_DFL\n" in done.stdout
    assert said in done.stdout
    assert done.stderr.startswith(STARTED if code else "roofline-exporter: 4 steps, waited ")


def test_a_handler_of_a_library_is_left_alone(tmp_path: Path) -> None:
    """One that was there before the job trained, and of which Python says SIG_DFL."""
    pytest.importorskip("torch")
    source = SIGNALLED.format(before="", after="").replace(
        "import torch\n", f"{TRACED}\nimport torch\n"
    )
    done = ran(tmp_path, source)
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["SIG_DFL"])
    assert "in <module>" in done.stdout
    assert done.stderr.startswith("roofline-exporter: 4 steps, waited ")


def test_a_child_of_a_job_has_the_default_of_sigterm(tmp_path: Path) -> None:
    """Also one that is ended before it has begun."""
    pytest.importorskip("torch")
    after = """
import multiprocessing, threading, time

fork = multiprocessing.get_context("fork")
codes = []

def end_children():
    for _ in range(20):
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.1)
        child.terminate()
        child.join()
        codes.append(child.exitcode)

end_children()
thread = threading.Thread(target=end_children)
thread.start()
thread.join()
print(set(codes))
os.kill(os.getpid(), signal.SIGTERM)
"""
    source = SIGNALLED.format(before="break", after=after).replace('end="")', 'end="", flush=True)')
    done = ran(tmp_path, source.replace("print(set(codes))", "print(set(codes), flush=True)"))
    assert done.stdout.endswith("{-15}\n")
    assert done.returncode == -signal.SIGTERM
    assert done.stderr.startswith(STARTED)
    assert done.stderr.count("roofline-exporter") == 1


def test_spawned_trainers_without_ranks_have_a_line_each(tmp_path: Path) -> None:
    """The process that started them has none; nor has the one of several with ranks."""
    pytest.importorskip("torch")
    source = """
import os
import torch
from torch import multiprocessing
from torch.utils.data import DataLoader

def train(index):
    print(os.getpid(), flush=True)
    for batch in DataLoader(torch.zeros(4, 4), 1):
        pass

if __name__ == "__main__":
    multiprocessing.spawn(train, nprocs=2)
"""
    done = ran(tmp_path, source)
    assert done.returncode == 0
    expected = LINE.replace("exporter: ", "exporter: process ([0-9]+): ")
    assert re.fullmatch(f"(?:{expected})" + "{2}", done.stderr), done.stderr
    assert sorted(re.findall(expected, done.stderr)) == sorted(done.stdout.split())


def test_a_trainer_without_a_loader_that_has_started_others(tmp_path: Path) -> None:
    """As in reinforcement learning: environments in processes, and optimizer steps in this one."""
    pytest.importorskip("torch")
    source = f"""
import os, subprocess
import torch

optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
subprocess.run(["sh", "-c", {BUSY!r}])
optimizer.step()
print(os.getpid())
"""
    done = ran(tmp_path, source)
    assert done.returncode == 0
    said = f"process {done.stdout.strip()}: {summary.NOTHING}"
    assert done.stderr == f"roofline-exporter: {said}\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch", f"roofline-exporter: {summary.NOTHING}\n"),
        ("import torch, subprocess\nsubprocess.run(['sh', '-c', '" + BUSY + "'])", ""),
        ("print('hello')", ""),
    ],
)
def test_a_job_that_is_not_measured(tmp_path: Path, source: str, said: str) -> None:
    """One that trains nothing needs no line; of one that starts others it is not known."""
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    done = ran(tmp_path, source)
    assert done.returncode == 0
    assert done.stderr == said
