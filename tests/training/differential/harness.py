# SPDX-License-Identifier: Apache-2.0
"""Runs one job with and without us, and says in what the two differ.

Output, exit code and files are equal to the byte; of a traceback, only our one frame for each call
that we wrap is taken out. Reports are held against what the job counted and timed itself.
"""

from __future__ import annotations

import atexit
import difflib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from exporter.sources.training.decode import decode
from tests.conftest import unmet

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = Path(sys.executable).with_name("roofline-exporter")
NAME = "tested"
SECONDS = 60
DATAGRAM_BYTES = 1 << 16
LINES = 40
"""Of what differs in one output that are shown."""
POINTS = 0.03
"""What a reported time may be off, of the wall time of the loops."""
OWN = "own.jsonl"
PREFIX = "roofline_job:"
SILENT = ("helper_thread",)
"""Reasons that are only reported: the job is as the client expects it."""

Report = Mapping[str, Any]


def require_module(name: str) -> None:
    """Skip a test whose library is not installed, or fail where everything has to be."""
    if importlib.util.find_spec(name) is None:
        unmet(f"{name} is not installed (pip install --group training)")


@dataclass(frozen=True, slots=True)
class Job:
    """A command, and what surrounds it."""

    words: Sequence[str | Path]
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """What lies in its folder when it starts."""
    stdin: str = ""
    own: bool = True
    """Whether it says itself what its reports have to hold."""
    but: frozenset[str] = frozenset()
    """Files that differ between any two runs."""
    shown: Callable[[str], str] = str
    """Takes from the output what else than torch's own times differs between any two runs."""

    def alone(self, case: str) -> Job:
        """Return the job that runs only one case of a script that has several."""
        own = {Path(self.words[-1]).stem, "None"}
        return self if case in own else replace(self, words=[*self.words, case])


@dataclass(frozen=True, slots=True)
class Done:
    """What a job left behind."""

    returncode: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes]
    """What it wrote into its folder, by path."""
    own: tuple[Report, ...]
    """What it says itself of each of its processes."""
    reports: tuple[Report, ...]
    """The last one under each id."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way in which a job is started."""

    name: str
    prefix: Callable[[], Sequence[str]] = tuple
    variables: Mapping[str, str] = field(default_factory=dict)
    frames: int = 1
    """Of ours that may follow each other in a traceback."""

    def __str__(self) -> str:
        return self.name


def _run() -> Sequence[str]:
    return (str(COMMAND), "run", "--quiet", "--job", NAME, "--")


def _isolated() -> Sequence[str]:
    """Start the launcher without the sitecustomize of the job."""
    return (sys.executable, "-I", "-m", "roofline_job.command", *_run()[1:])


def _variables() -> Sequence[str]:
    """Set what `run --print-env` prints, as a job script does."""
    printed = shlex.join([str(COMMAND), "run", "--job", NAME, "--print-env"])
    return ("sh", "-c", f'set -e; printed="$({printed})"; eval "$printed"; exec "$@"', "sh")


PLAIN = Mode("plain")
RUN = Mode("run", prefix=_run)
ISOLATED = Mode("isolated", prefix=_isolated)
VARIABLES = Mode("variables", prefix=_variables)
_WATCH = {"DIFFERENTIAL_WATCH": "1"}
SWITCHED_OFF = Mode("off", variables={**_WATCH, "ROOFLINE_JOB_INSTRUMENT": "0"})
WATCH = Mode("watch", variables=_WATCH, frames=2)


_STOP = b"stop"


class Receiver:
    """A socket as the daemon has it, and the last report under each id."""

    def __init__(self, path: Path) -> None:
        self._endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._endpoint.bind(str(path))
        self._last: dict[str, Report] = {}
        self._refused: list[Exception] = []
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while (datagram := self._endpoint.recv(DATAGRAM_BYTES)) != _STOP:
            try:
                decode(datagram)
                report = json.loads(datagram)
                self._last[report["id"]] = report
            except Exception as error:
                self._refused.append(error)

    def reports(self) -> tuple[Report, ...]:
        """Stop receiving and return what came; each must be one that the daemon takes."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(_STOP, self._endpoint.getsockname())
        self._thread.join()
        self._endpoint.close()
        if self._refused:
            raise self._refused[0]
        return tuple(sorted(self._last.values(), key=lambda report: int(report["rank"])))


@contextmanager
def receiving() -> Iterator[tuple[Receiver, Path]]:
    """Listen at a path that is short enough: pytest's own folders may not be."""
    with tempfile.TemporaryDirectory(prefix="job") as folder:
        path = Path(folder) / "s"
        yield Receiver(path), path


def _environ() -> dict[str, str]:
    """Return the environment of every job."""
    left_out = ("ROOFLINE_", "DIFFERENTIAL_", "PYTHON", "COV_", "COVERAGE_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_RUNTIME_DIR": "/nonexistent",
    }


def start(job: Job, mode: Mode, folder: Path) -> Done:
    """Run a job in an empty folder, which has to be the same one in all modes."""
    folder.mkdir()
    for name, text in job.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environ = {**_environ(), "PWD": str(folder), **job.environ, **mode.variables}
    with receiving() as (receiver, socket_path):
        process = subprocess.Popen(
            [*mode.prefix(), *map(str, job.words)],
            env={**environ, "ROOFLINE_TRAINING_SOCKET": str(socket_path)},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(job.stdin.encode(), SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            stderr += f"\nkilled after {SECONDS} s ({mode})\n".encode()
        reports = receiver.reports()
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    shutil.rmtree(folder)
    own = files.pop(OWN, b"").splitlines()
    return Done(
        process.returncode,
        stdout.decode(errors="backslashreplace"),
        stderr.decode(errors="backslashreplace"),
        {name: content for name, content in files.items() if name not in job.files},
        tuple(map(json.loads, own)),
        reports,
    )


FRAME = re.compile(
    r"""^ (?P<indent> [ |]* ) File\ "[^"\n]*/roofline_job/[^"\n]*",\ line\ \d+,\ in\ .*\n
    (?: (?P=indent)\ \ .*\n )*""",
    re.MULTILINE | re.VERBOSE,
)
"""A frame of ours in a traceback, with the lines of source and the marks behind it."""


def without_frames(stderr: str, allowed: int = 1) -> str:
    """Take our frames out of tracebacks; leave them where more follow each other than allowed."""

    def shortened(found: re.Match[str]) -> str:
        return "" if len(FRAME.findall(found[0])) <= allowed else found[0]

    return re.sub(rf"(?:{_UNNAMED})+", shortened, stderr, flags=FRAME.flags)


_UNNAMED = FRAME.pattern


def differences(plain: Done, job: Done, *, but: Sequence[str] = (), frames: int = 1) -> list[str]:
    """Return in what a job differs from the same job without us."""
    found = []
    if job.returncode != plain.returncode:
        found.append(f"exit code {job.returncode}, not {plain.returncode}")
    found += _changed("stdout", plain.stdout, job.stdout)
    said, rest = ours(job.stderr)
    found += _changed("stderr", plain.stderr, without_frames(rest, frames))
    degraded = [reason for report in job.reports for reason in report.get("degraded") or []]
    reasons = [reason for reason in degraded if reason not in SILENT]
    if len(said) != len(reasons):
        found.append("\n".join((f"{len(said)} lines of ours for the reasons {reasons}", *said)))
    for name in sorted(plain.files.keys() | job.files.keys()):
        if (name in plain.files) != (name in job.files):
            found.append(
                f"{name} is written {'without' if name in plain.files else 'with'} us only"
            )
        elif name not in but and plain.files[name] != job.files[name]:
            found.append(f"{name} differs")
    return found


def ours(stderr: str) -> tuple[list[str], str]:
    """Return the lines that are of us, and the rest."""
    lines = stderr.splitlines(keepends=True)
    said = [line.rstrip() for line in lines if line.startswith(PREFIX)]
    return said, "".join(line for line in lines if not line.startswith(PREFIX))


def _changed(name: str, plain: str, job: str) -> list[str]:
    if plain == job:
        return []
    names = (f"{name} without us", f"{name} with us")
    lines = list(
        difflib.unified_diff(plain.splitlines(), job.splitlines(), *names, n=4, lineterm="")
    )
    return ["\n".join((*lines[:LINES], *["..."] * (len(lines) > LINES)))]


def misreported(done: Done, instrumentation: str | None = None) -> list[str]:
    """Return in what the reports differ from what the job says itself, times aside."""
    found = []
    left = by_process(done.reports)
    for own in done.own:
        report = left.pop(own["pid"], None)
        if own.get("unknown"):
            continue
        if report is None or own.get("quiet"):
            problems = [] if own.get("quiet", False) is (report is None) else [f"report: {report}"]
        else:
            problems = _unlike(own, report)
            if instrumentation not in (None, report["instrumentation"]):
                problems.append(f"is instrumented by {report['instrumentation']}")
        found += [f"{_name(own)}: {problem}" for problem in problems]
    found += [f"process {pid} of no known case reports {each}" for pid, each in left.items()]
    return found


def by_process(reports: Iterable[Report]) -> dict[int, Report]:
    """Return one report for each process: what it says under several ids is added, as it is by
    the daemon.
    """
    found: dict[int, Report] = {}
    for report in reports:
        before = found.get(report["pid"])
        found[report["pid"]] = report if before is None else _sum(before, report)
    return found


def _sum(one: Report, other: Report) -> Report:
    total = dict(one)
    for name in (*COUNTED, "step_seconds"):
        if one.get(name) is not None or other.get(name) is not None:
            total[name] = (one.get(name) or 0) + (other.get(name) or 0)
    phases = [each["phase_seconds"] for each in (one, other)]
    total["phase_seconds"] = {
        name: sum(each.get(name, 0) for each in phases) for name in {**phases[0], **phases[1]}
    }
    return total


def _name(own: Report) -> str:
    return str(own.get("case") or f"process {own['pid']}")


COUNTED = ("steps", "batches", "samples")


def _unlike(own: Report, report: Report) -> list[str]:
    """Return in what one report differs from what its process says."""
    found = [
        f"{report.get(name)} {name}, not {own[name]}"
        for name in (COUNTED if own.get("counted", True) else COUNTED[:1])
        if own[name] is not None and (report.get(name) or 0) != own[name]
    ]
    degraded = sorted(report.get("degraded") or [])
    if report.get("error") is not None and not degraded:
        found.append(f"the client failed: {report['error']}")
    if report["job"] != own.get("job", NAME):
        found.append(f"job {report['job']}")
    if bool(report.get("exit")) != own.get("exit", True):
        found.append("no last report" if own.get("exit", True) else "says that it ends")
    expected = own.get("degraded", [])
    if expected is not None and degraded != sorted(expected):
        found.append(f"degraded: {degraded} ({report.get('error')}), not {expected}")
    phases = report["phase_seconds"]
    named = sorted(name for name, seconds in phases.items() if seconds)
    if "phases" in own and named != sorted(own["phases"]):
        found.append(f"phases {phases}, not {sorted(own['phases'])}")
    found += [
        f"{name} {report.get(name)}, not {own[name]}"
        for name in ("precision", "rank", "world_size")
        if name in own and report.get(name) != own[name]
    ]
    if "loader" in own and own["loader"].items() - (report.get("loader") or {}).items():
        found.append(f"loader {report.get('loader')}, not {own['loader']}")
    if "phase_gpu_idle_seconds" in report:
        found.append("says that a GPU was idle")
    if sum(phases.values()) > report["step_seconds"] * 1.001:
        found.append(f"phases of {sum(phases.values())} s in {report['step_seconds']} s")
    return found


def mistimed(done: Done) -> dict[str, str]:
    """Return the cases in which times that are reported differ from the job's own clock by more
    than is tolerated.
    """
    reports = by_process(done.reports)
    found = {}
    for own in done.own:
        report = reports.get(own["pid"])
        if report is None or not own.get("whole") or not own.get("clock", True):
            continue
        whole, steps = own["whole"], report["step_seconds"]
        phases = report["phase_seconds"]
        waited, saved = own["waited"] / whole, own["saved"] / whole
        shares = [
            ("data", phases.get("data", 0) / whole, waited),
            ("checkpoint", phases.get("checkpoint", 0) / whole, saved),
        ]
        if own.get("share", True):
            shares.append(("data of its time", phases.get("data", 0) / (steps or whole), waited))
        off = [
            f"{reported:.1%} {name}, not {expected:.1%}"
            for name, reported, expected in shares
            if abs(reported - expected) > POINTS
        ]
        if off:
            found[_name(own)] = f"{_name(own)}: {'; '.join(off)} of {whole:.3f} s"
    return found


@cache
def _folder() -> Path:
    """Return the folder in which each job of this process finds its own."""
    folder = Path(tempfile.mkdtemp(prefix="differential"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_BASELINES: dict[tuple[str, str], Done] = {}


def baseline(name: str, job: Job, mode: Mode = PLAIN) -> Done:
    """Run a job without us, once for all modes."""
    key = (name, mode.name)
    if key not in _BASELINES:
        done = _BASELINES[key] = start(job, mode, _folder() / "job")
        if done.reports or "roofline_job" in done.stderr:
            raise AssertionError(f"{name} was run without us, and yet: {done}")
    return _BASELINES[key]


def compare(name: str, job: Job, mode: Mode, plain: Job | None = None) -> tuple[list[str], Done]:
    """Run a job in a mode; return what is wrong with it, and what it left behind.

    It is held against the same job without us, which `name` stands for, or against another one.

    Times are an agreement between two clocks on a machine that does other things too: a case in
    which only they are off is run once more, alone.
    """
    without = baseline(name, plain or job, SWITCHED_OFF if mode is WATCH else PLAIN)
    done = start(job, mode, _folder() / "job")
    found = differences(
        _shown(without, job), _shown(done, job), but=sorted(job.but), frames=mode.frames
    )
    if job.own:
        found += misreported(done, INSTRUMENTATION.get(mode.name))
    late = mistimed(done)
    if len(late) <= AGAIN:
        again = [start(job.alone(case), mode, _folder() / "job") for case in late]
        late = {case: problem for one in again for case, problem in mistimed(one).items()}
    return [*found, *late.values()], done


INSTRUMENTATION = {"run": "auto", "variables": "auto", "watch": "client"}
AGAIN = 16
"""Cases that are run once more; where more are off, it is no chance."""


TIMES = re.compile(r"^[WIE]\d{4} [\d:.]+ +\d+ |^USDT:[\d:. -]+| at 0x[0-9a-f]+\b", re.MULTILINE)
"""Date, time and pid with which torch begins the lines of its logs, and addresses."""


def _shown(done: Done, job: Job) -> Done:
    stdout, stderr = (job.shown(TIMES.sub("", text)) for text in (done.stdout, done.stderr))
    return replace(done, stdout=stdout, stderr=stderr)
