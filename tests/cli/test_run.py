# SPDX-License-Identifier: Apache-2.0
"""`run` becomes the job: the same process, command and environment, and two variables more."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import main as cli
from roofline_job import command, launch
from roofline_job.launch import (
    INJECT,
    Options,
    UsageError,
    added,
    execute,
    exports,
    job_environment,
    main,
    parse,
)
from tests.programs import HEAVY, Ended, exporter, said

EXPECTED = "run: expected a command, such as: run -- torchrun train.py"
SEE = "(see roofline-exporter run --help)"


def start(*words: str, **options: Any) -> Ended:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return exporter("run", *words, env=inherited, **options)


# The command line


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--", "true"], Options(("true",))),
        (["--job", "a", "--", "x", "--job", "b"], Options(("x", "--job", "b"), "a")),
        (["--job=-a", "--", "x", "--", "-h"], Options(("x", "--", "-h"), "-a")),
        (["--job", "a b", "--job=b", "--", ""], Options(("",), "b")),
        (["--quiet", "--", "true", "--quiet"], Options(("true", "--quiet"), quiet=True)),
        (["x", "--job", "b"], Options(("x", "--job", "b"))),
        (["--summary", "a.json", "x", "--summary"], Options(("x", "--summary"), summary="a.json")),
        (["--count-flops", "--", "x", "--job"], Options(("x", "--job"), counts_flops=True)),
        (["--print-env"], Options(prints=True)),
        (["--print-env", "--job", "a", "--"], Options((), "a", prints=True)),
        (["--with-daemon", "x"], Options(("x",), with_daemon=True)),
        (
            ["--with-daemon", "--report", "a", "x", "--report"],
            Options(("x", "--report"), with_daemon=True, report="a"),
        ),
        (["--help", "--nonsense"], Options(helps=True)),
    ],
)
def test_what_a_command_line_says(words: list[str], options: Options) -> None:
    """From the first word that is no flag of its own on, or from --, all of it is the job's."""
    assert parse(words) == options


MISTAKES = [
    ([], EXPECTED),
    (["--job", "a"], EXPECTED),
    (["--jbo", "a", "--", "true"], f"unknown flag --jbo, did you mean --job? {SEE}"),
    (["--poll.interval=1s", "--", "true"], f"unknown flag --poll.interval {SEE}"),
    (["-\n", "--", "true"], f"unknown flag -\\n {SEE}"),
    (["--job=", "--", "true"], "--job: expected a name, such as resnet, got nothing"),
    (["--job", "--print-env"], "--job: expected a name, such as resnet, got nothing"),
    (["--job", "--", "true"], "--job: expected a name, such as resnet, got nothing"),
    (["--count-flops=1", "--", "true"], f"--count-flops: takes no value {SEE}"),
    (["--report", "a", "x"], "--report: expected --with-daemon, whose report it is"),
    (["--print-env", "--with-daemon"], "--print-env: expected no --with-daemon, it starts none"),
    (["--help=foo", "--", "true"], f"--help: takes no value {SEE}"),
    (["--print-env=1"], f"--print-env: takes no value {SEE}"),
    (["--print-env", "true"], "--print-env: expected no command, it starts none"),
    (["--summary", "--", "true"], "--summary: expected a file, such as run.json, got nothing"),
    (["--print-env", "--summary=a"], "--summary: expected a command, --print-env starts none"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is not started, whichever way `run` is called."""
    for run, given in ((main, words), (cli.main, ["run", *words])):
        assert run(given) == 2
        assert tuple(capsys.readouterr()) == ("", f"roofline-exporter: {message}\n")


def test_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """It has no flag of the daemon, because it takes none."""
    assert cli.main(["run", "--help"]) == 0
    out = capsys.readouterr().out

    assert out == launch.HELP
    assert max(map(len, out.splitlines())) <= 80
    for flag in launch._FLAGS:
        assert f" {flag} " in out


# The environment


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        (None, INJECT),
        ("", INJECT),  # an empty entry would be the current folder
        ("/a:/b", f"{INJECT}:/a:/b"),
        (":/a", f"{INJECT}::/a"),
    ],
)
def test_the_folder_comes_first(inherited: str | None, expected: str) -> None:
    """What the job had on its path stays there, and nothing else is added."""
    before = {"HOME": "/home/me", **({} if inherited is None else {"PYTHONPATH": inherited})}

    after = job_environment(before, added(None))

    assert after == {**before, "PYTHONPATH": expected, "ROOFLINE_JOB_INSTRUMENT": "1"}


def test_the_name_of_the_job_goes_with_it() -> None:
    """--job comes before a name that was in the environment."""
    old = {"ROOFLINE_JOB_NAME": "old"}
    assert job_environment(old, added("new"))["ROOFLINE_JOB_NAME"] == "new"
    assert job_environment(old, added(None))["ROOFLINE_JOB_NAME"] == "old"


def test_a_folder_that_a_path_cannot_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon would split it into two entries that mean something else."""
    monkeypatch.setattr(launch, "INJECT", "/opt/a:b")
    with pytest.raises(UsageError, match=r"^run: /opt/a:b: PYTHONPATH cannot name a folder with"):
        added(None)


def test_what_python_set_for_itself_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the C locale Python sets LC_CTYPE; the job gets what this process was given."""
    first = tmp_path / "environ"
    monkeypatch.setattr(command, "_FIRST_ENVIRONMENT", str(first))
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")

    first.write_bytes(b"HOME=/root\0")
    assert command.first_environment() == {"HOME": "/root"}
    first.write_bytes(b"HOME=/root\0LC_CTYPE=POSIX\0")
    assert command.first_environment() == {"HOME": "/root", "LC_CTYPE": "POSIX"}
    first.unlink()
    assert command.first_environment() == os.environ


# What is printed


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("inherited", [None, "", "/a b:/c"])
def test_a_shell_gets_what_run_sets(
    shell: str, inherited: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`eval "$(roofline-exporter run --print-env)"`, with anything in folder and name."""
    monkeypatch.setattr(launch, "INJECT", "/opt/it's a $(folder)/inject")
    before = {"PATH": os.environ["PATH"]}
    before |= {} if inherited is None else {"PYTHONPATH": inherited}
    text = exports(added("a 'b' \"c\" $HOME `id`\nnext"))

    printed = said(shell, "-c", 'eval "$0"; exec env -0', text, env=before)

    after = dict(entry.split("=", 1) for entry in printed.rstrip("\0").split("\0"))
    expected = job_environment(before, added("a 'b' \"c\" $HOME `id`\nnext"))
    assert {name: after.get(name) for name in expected} == expected
    assert set(after) <= set(expected) | {"PWD", "SHLVL", "_", "OLDPWD"}


def test_the_lines_for_a_pod_can_be_read(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Four lines at most; a name may hold any byte."""
    assert main(["--print-env", "--count-flops", "--job", os.fsdecode(b"\xff")]) == 0
    assert capsysbinary.readouterr().out == (
        b"export ROOFLINE_JOB_INSTRUMENT=1\n"
        b"export ROOFLINE_JOB_NAME='\xff'\n"
        b"export ROOFLINE_JOB_COUNT_FLOPS=1\n"
        b'export PYTHONPATH=%s"${PYTHONPATH:+:$PYTHONPATH}"\n' % os.fsencode(INJECT)
    )


def test_output_that_cannot_be_written_is_one_line() -> None:
    """A full disk is reported; a reader that left is not."""
    with open("/dev/full", "wb") as full:
        done = start("--print-env", stdout=full)
    assert (done.returncode, done.stderr) == (1, "roofline-exporter: No space left on device\n")

    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = start("--help", stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


def test_streams_that_are_closed_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing goes to the other one instead."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["--help"]) == 0
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stderr", None)
    assert main([]) == 2
    monkeypatch.undo()
    assert tuple(capsys.readouterr()) == ("", "")


# The command


@pytest.fixture
def dispositions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this process's own alone."""
    monkeypatch.setattr(launch, "_undo_what_python_set", lambda: None)


def test_a_command_that_is_not_there_is_127(tmp_path: Path, dispositions: None) -> None:
    """One line says so, as a shell would."""
    for word in ("no-such-command", str(tmp_path / "nowhere"), ""):
        reason = f"{word or repr('')}: command not found"
        assert execute([word], os.environ) == (127, reason)
    done = start("--", "no-such-command")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "roofline-exporter: run: no-such-command: command not found\n"


def test_a_command_that_cannot_be_executed_is_126(tmp_path: Path, dispositions: None) -> None:
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
        assert execute([str(path)], os.environ) == (126, f"{path}: {reason}")
    done = start("--", str(plain))
    assert (done.returncode, done.stdout) == (126, "")
    line = f"roofline-exporter: run: {plain}: cannot be executed: permission denied\n"
    assert done.stderr == line


def test_it_loads_nothing_heavy() -> None:
    """A job starts at once; none of the daemon's dependencies is needed to start it."""
    code = (
        "import os, sys\n"
        f"os.execvpe = lambda *_: print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "from exporter.cli.main import main\n"
        "try: main(['run', '--', 'true'])\n"
        "except TypeError: pass\n"
    )
    assert said(sys.executable, "-c", code) == "[]\n"
