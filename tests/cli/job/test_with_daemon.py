# SPDX-License-Identifier: Apache-2.0
"""`run --with-daemon`: the job's exit code, signals and report, and nothing left of the daemon."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.processes import environment
from tests.fake_nvml import FakeNvml, fault
from tests.waiting import wait_until

GPU = {
    "product": "h100-sxm",
    "utilization": 60,
    "power": 300,
    "gpm": {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20},
}
TRAIN = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.randn(8)

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Slow(), batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
raise SystemExit(3)
"""


class Runs:
    """Starts runs on a fake driver, on a node of their own."""

    def __init__(self, node: str, driver: FakeNvml) -> None:
        self.node, self.driver, self.folder = node, driver, driver.directory
        self.sockets = Path(f"/tmp/roofline-job-4711.0-{node}")
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        *words: str,
        report: bool = True,
        summary: Path | None = None,
        step: Mapping[str, str] | None = None,
        terminal: int | None = None,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start the job that these words are, with these variables more."""
        given = {
            **self.driver.environment(),
            "SLURMD_NODENAME": self.node,
            "CUDA_VISIBLE_DEVICES": "0",
            **(step or {}),
            **variables,
        }
        inherited = environment()
        for name in list(inherited):
            if name.startswith("SLURM") or name == "XDG_RUNTIME_DIR":
                del inherited[name]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "exporter", "run", "--with-daemon"),
                *((f"--report={self.report}",) if report else ()),
                *((f"--summary={summary}",) if summary else ()),
                *("--", *words),
            ],
            env={**inherited, **given},
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if terminal is None else lambda: _control(terminal),
        )
        if terminal is not None:
            os.close(terminal)
        self._started.append(process)
        return process

    @property
    def report(self) -> Path:
        return self.folder / "report.txt"

    def left(self) -> list[str]:
        """What is left: folders of sockets, and processes that know the name of the node."""
        needle = f"SLURMD_NODENAME={self.node}".encode()
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes() and _is_alive(entry):
                    pids.append(entry.name)
        return [*map(str, Path("/tmp").glob(f"roofline-job-*-{self.node}")), *pids]

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.left(), what="nothing is left")
        for pid in self.left():
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _control(terminal: int) -> None:
    """Make a terminal that of this process and its group."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _is_alive(process: Path) -> bool:
    return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Runs whose driver has two GPUs, the first of which is given to them; they leave nothing."""
    driver = FakeNvml(tmp_path / "nvml", {"devices": [GPU, GPU]})
    made = Runs(f"node-{secrets.token_hex(4)}", driver)
    yield made
    left = made.left()
    made.stop()
    assert left == []


def _said(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Exit code, output, and lines on standard error."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.splitlines()


def _line(process: subprocess.Popen[str]) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _row(report: str, name: str) -> Mapping[str, str]:
    """The row of a table of a report that begins with this name, by column."""
    lines = report.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith(f"{name} "))
    header = max(number for number in range(row) if not lines[number - 1])
    return dict(zip(_split(lines[header]), _split(lines[row]), strict=True))


def _split(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_a_training_job_has_its_code_its_line_and_its_report(runs: Runs) -> None:
    """The report has the GPU that it was given, not the other one, and its rank's waits; the
    summary has what only the daemon knows."""
    pytest.importorskip("torch")
    script, summary = runs.folder / "train.py", runs.folder / "run.json"
    script.write_text(TRAIN, encoding="utf-8")

    code, out, (line, where) = _said(
        runs.start(sys.executable, str(script), summary=summary, ROOFLINE_JOB_NAME="resnet")
    )

    assert (code, out) == (3, "")
    assert line.startswith("roofline-exporter: 20 steps, waited ")
    assert where == f"roofline-exporter: the report is in {runs.report}"
    text = runs.report.read_text(encoding="utf-8")
    gpu = _row(text, "0")
    assert (gpu["NAME"], gpu["UTIL"]) == ("H100 80GB HBM3", "60 %")
    assert (gpu["SAT"], gpu["SOURCE"]) == ("30 %", "gpm")
    assert float(gpu["ENERGY Wh"]) > 0
    assert "\n1  H100" not in text
    rank = _row(text, "resnet")
    assert rank["STEPS"] == "20"
    assert float(rank["DATA WAIT"].removesuffix(" %")) > 50
    written = json.loads(summary.read_text(encoding="utf-8"))
    assert written["steps"] == 20
    assert written["saturation_ratio"] == pytest.approx(0.3)
    assert written["energy_joules"] > 0
    assert written["gpu_seconds"] >= 80 * 0.02


def test_what_a_job_ends_with(runs: Runs) -> None:
    """Its own code, 128 + n after a signal, 127 as without; a report each time, in one file."""
    ends = [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), 137)]
    for words, wanted in ends:
        assert _said(runs.start(*words))[0] == wanted
    assert runs.report.read_text(encoding="utf-8").count("node  ") == 3

    code, _, lines = _said(runs.start("no-such-command", CUDA_VISIBLE_DEVICES="\udcff"))
    assert code == 127
    assert lines[0] == "roofline-exporter: run: no-such-command: command not found"


@pytest.mark.slow
def test_without_a_file_it_is_in_the_log(runs: Runs) -> None:
    """In a Slurm job it is in a file of the submit folder, which may not be writable."""
    _, _, lines = _said(runs.start("true", report=False))
    assert lines[0] == "roofline-exporter: the report:"

    slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "resnet"}
    slurm |= {"SLURM_STEP_ID": "2", "SLURM_SUBMIT_DIR": str(runs.folder)}
    _, _, lines = _said(runs.start("true", report=False, step=slurm))
    file = runs.folder / f"roofline-4711.2-{runs.node}.txt"
    assert lines == [f"roofline-exporter: the report is in {file}"]
    assert file.read_text().startswith(f"job   4711.2\nname  resnet\nnode  {runs.node}\n")

    _, _, lines = _said(
        runs.start("true", report=False, step=slurm | {"SLURM_SUBMIT_DIR": "/proc"})
    )
    assert lines[0].endswith("; the report:")
    assert lines[1] == "job   4711.2"


SIGNALLED = """
import signal, sys, time
got = []
for name in ("SIGTERM", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda number, _: got.append(number))
print("ready", flush=True)
while signal.SIGTERM not in got:
    time.sleep(0.05)
time.sleep(0.3)
print(len(got), flush=True)
sys.exit(5)
"""


def test_signals_reach_the_job_once(runs: Runs) -> None:
    """It may take its time to end, as after scancel; the report comes after that."""
    process = runs.start(sys.executable, "-c", SIGNALLED)
    assert _line(process) == "ready"
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGTERM)

    assert _said(process)[:2] == (5, "2\n")
    assert runs.report.exists()


def test_a_killed_run_takes_job_and_daemon_with_it(runs: Runs) -> None:
    """As it would without a daemon; the report is there all the same."""
    process = runs.start("sh", "-c", "echo ready; exec sleep 600")
    assert _line(process) == "ready"
    process.kill()
    process.wait()

    wait_until(lambda: not runs.left(), what=f"nothing is left: {runs.left()}")
    assert runs.report.exists()


LOOK = """
import os, sys
print(os.environ['ROOFLINE_TRAINING_SOCKET'], flush=True)
sys.stdin.read()
"""


def test_the_tasks_of_a_step_share_one_daemon(runs: Runs) -> None:
    """Its folder is private; the first task has it, and the report."""
    step = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
    tasks = [
        runs.start(
            *("sh", "-c", f'{sys.executable} -c "{LOOK}" < {fifo}'),
            step={**step, "SLURM_LOCALID": str(number)},
        )
        for number, fifo in enumerate(_fifos(runs.folder, 3))
    ]
    ends = [open(fifo, "w") for fifo in sorted(runs.folder.glob("fifo-*"))]  # noqa: SIM115
    socket = runs.sockets / "training.sock"
    assert [Path(_line(task)) for task in tasks] == [socket] * 3
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (socket.parent, socket)]
    assert modes == [0o700, 0o600]

    for end, task in [*zip(ends, tasks, strict=True)][::-1]:
        assert not runs.report.exists()
        end.close()
        code, _, said = _said(task)
        assert code == 0
        assert said == (
            [f"roofline-exporter: the report is in {runs.report}"] if task is tasks[0] else []
        )


def _fifos(folder: Path, count: int) -> list[Path]:
    made = [folder / f"fifo-{number}" for number in range(count)]
    for each in made:
        os.mkfifo(each)
    return made


def test_a_daemon_that_cannot_start_keeps_no_job_from_running(runs: Runs) -> None:
    """One line says why; the job runs as without it."""
    show = ("sh", "-c", "echo ${ROOFLINE_TRAINING_SOCKET-none}")
    code, out, (line,) = _said(runs.start(*show, ROOFLINE_POLL_INTERVAL="soon"))
    assert (code, out) == (0, "none\n")
    assert line.startswith(
        "roofline-exporter: run: no daemon of its own, the job runs without: ROOFLINE_POLL_INTERVAL"
    )

    step = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
    others = runs.sockets
    others.mkdir(mode=0o755)
    code, out, (line,) = _said(runs.start(*show, step=step))
    assert (code, out) == (0, "none\n")
    assert line.endswith(f"{others}: somebody else's, or open to others")
    others.rmdir()


@pytest.mark.slow
def test_ctrl_c_reaches_the_job_once(runs: Runs) -> None:
    """The terminal signals all of its group."""
    count = (
        "import signal, time; got = []; signal.signal(2, lambda *_: got.append(1)); "
        "print('ready', flush=True); time.sleep(1); print(len(got)); raise SystemExit(6)"
    )
    leader, follower = os.openpty()
    process = runs.start(sys.executable, "-c", count, terminal=follower)
    with os.fdopen(leader, "wb", buffering=0) as terminal:
        assert _line(process) == "ready"
        terminal.write(b"\x03")
        code, out, _ = _said(process)
    assert (code, out) == (6, "1\n")


@pytest.mark.slow
def test_a_driver_that_hangs_holds_up_nobody(runs: Runs) -> None:
    """The job has its code and a report of what is known."""
    runs.driver.update(faults=[fault("nvmlDeviceGet*", hang=True)])
    code, _, lines = _said(runs.start("sh", "-c", "sleep 1; exit 4", report=False))
    assert code == 4
    assert any("no GPU of this job was seen" in line for line in lines)


@pytest.mark.slow
def test_a_daemon_that_dies_costs_the_report_alone(runs: Runs) -> None:
    """The job goes on, and a line at its end says that there is no report."""
    process = runs.start("sh", "-c", "echo ready; sleep 2; exit 4")
    assert _line(process) == "ready"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (daemon,) = [int(pid) for pid in children if b"exporter" in _command(pid)]
    os.kill(daemon, signal.SIGKILL)
    code, _, lines = _said(process)
    assert code == 4
    assert lines == ["roofline-exporter: run: the daemon of this job gave no report"]
