# SPDX-License-Identifier: Apache-2.0
"""`run` becomes the job: the same process, command and environment, and two variables more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter import run
from exporter.errors import ConfigError
from exporter.run import INJECT, job_environment

HEAVY = ("fastapi", "uvicorn", "pydantic", "prometheus_client", "pynvml", "yaml", "asyncio")


def start(
    *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "exporter", "run", *words],
        env={**inherited, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# The environment


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        (None, str(INJECT)),
        ("", str(INJECT)),  # an empty entry would be the current folder
        ("/a:/b", f"{INJECT}:/a:/b"),
        (":/a", f"{INJECT}::/a"),
    ],
)
def test_the_folder_comes_first(inherited: str | None, expected: str) -> None:
    """What the job had on its path stays there, and nothing else is added."""
    before = {"HOME": "/home/me", **({} if inherited is None else {"PYTHONPATH": inherited})}

    after = job_environment(before, None)

    assert after == {**before, "PYTHONPATH": expected, "ROOFLINE_JOB_INSTRUMENT": "1"}


def test_the_name_of_the_job_goes_with_it() -> None:
    """--job comes before a name that was in the environment."""
    assert job_environment({"ROOFLINE_JOB_NAME": "old"}, "new")["ROOFLINE_JOB_NAME"] == "new"
    assert job_environment({"ROOFLINE_JOB_NAME": "old"}, None)["ROOFLINE_JOB_NAME"] == "old"


def test_a_folder_that_a_path_cannot_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon would split it into two entries that mean something else."""
    monkeypatch.setattr(run, "INJECT", Path("/opt/a:b"))
    with pytest.raises(ConfigError, match=r"^run: /opt/a:b: PYTHONPATH cannot name a folder with"):
        job_environment({}, None)


def test_what_python_set_for_itself_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the C locale Python sets LC_CTYPE; the job gets what this process was given."""
    first = tmp_path / "environ"
    monkeypatch.setattr(run, "_FIRST_ENVIRONMENT", first)
    now = {"LC_CTYPE": "C.UTF-8", "HOME": "/root"}

    first.write_bytes(b"HOME=/root\0")
    assert run.without_coercion(now) == {"HOME": "/root"}
    first.write_bytes(b"HOME=/root\0LC_CTYPE=POSIX\0")
    assert run.without_coercion(now) == {"HOME": "/root", "LC_CTYPE": "POSIX"}
    first.unlink()
    assert run.without_coercion(now) == now


# The command

SHOW = """
import json, os, signal, sys
print(json.dumps({
    "pid": os.getpid(),
    "argv": sys.argv,
    "pipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    "instrument": os.environ.get("ROOFLINE_JOB_INSTRUMENT"),
    "job": os.environ.get("ROOFLINE_JOB_NAME"),
    "client": "_roofline_job" in sys.modules,
}))
sys.exit(3)
"""


def test_the_job_is_the_same_process(tmp_path: Path) -> None:
    """Signals reach the job itself, its arguments are its own, and its exit code is the code."""
    words = ["--job", "resnet", "--", sys.executable, "-c", SHOW, "--job", "x", "--", "-h", ""]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [sys.executable, "-m", "exporter", "run", *words],
        env=inherited,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (3, "")
    assert json.loads(out) == {
        "pid": process.pid,
        "argv": ["-c", "--job", "x", "--", "-h", ""],
        "pipe": True,  # Python's own, in the job too
        "instrument": "1",
        "job": "resnet",
        "client": True,
    }


def test_signals_and_locale_are_as_the_job_would_have_them() -> None:
    """A shell script under `run` sees what it sees without."""
    script = "grep -E '^Sig(Ign|Blk)' /proc/self/status; env | grep -c ^LC_CTYPE || true"
    env = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    env |= {"LANG": "C"}
    plain = subprocess.run(
        ["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    within = subprocess.run(
        [sys.executable, "-m", "exporter", "run", "--", "/bin/sh", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert within.stdout == plain.stdout


def test_a_command_that_is_not_there_is_127(tmp_path: Path) -> None:
    """One line says so, as a shell would."""
    for word in ("no-such-command", str(tmp_path / "nowhere"), ""):
        done = start("--", word)
        assert (done.returncode, done.stdout) == (127, "")
        assert done.stderr == f"roofline-exporter: run: {word or repr('')}: command not found\n"


def test_a_command_that_cannot_be_executed_is_126(tmp_path: Path) -> None:
    """One line says why."""
    plain, broken, empty = tmp_path / "plain", tmp_path / "broken", tmp_path / "empty"
    plain.write_text("echo no\n", encoding="ascii")
    plain.chmod(0o644)
    broken.write_text("#!/no/such/interpreter\n", encoding="ascii")
    empty.write_text("no program\n", encoding="ascii")
    broken.chmod(0o755)
    empty.chmod(0o755)

    for path, reason in (
        (plain, "cannot be executed: permission denied"),
        (tmp_path, "cannot be executed: permission denied"),
        (empty, "cannot be executed: exec format error"),
        (broken, "the interpreter in its first line is missing"),
    ):
        done = start("--", str(path))
        assert (done.returncode, done.stdout) == (126, "")
        assert done.stderr == f"roofline-exporter: run: {path}: {reason}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "run: expected -- and a command, such as: run -- torchrun train.py"),
        (["--"], "run: expected -- and a command, such as: run -- torchrun train.py"),
        (["--job", "a"], "run: expected -- and a command, such as: run -- torchrun train.py"),
        (["python", "train.py"], "unexpected argument 'python' (see roofline-exporter --help)"),
        (["--jbo", "a", "--", "true"], "unknown flag --jbo, did you mean --job? (see roofline-e"),
        (["--job=", "--", "true"], "--job: expected a name, such as resnet, got nothing"),
        (["--job"], "--job: expected one argument (see roofline-exporter --help)"),
    ],
)
def test_a_mistake_is_one_line_and_2(words: list[str], message: str) -> None:
    """The job is not started."""
    done = start(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"roofline-exporter: {message}")
    assert done.stderr.count("\n") == 1


def test_it_loads_nothing_heavy() -> None:
    """A job starts at once; none of the daemon's dependencies is needed to start it."""
    code = (
        "import os, sys\n"
        f"os.execvpe = lambda *_: print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "from exporter.cli import main\n"
        "try: main(['run', '--', 'true'])\n"
        "except TypeError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "[]\n"
