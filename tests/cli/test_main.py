# SPDX-License-Identifier: Apache-2.0
"""Commands do what they say, with one line for each mistake and the promised exit codes."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from exporter import __version__
from exporter.cli import config
from exporter.cli import main as cli
from exporter.cli.command import Invocation
from exporter.errors import ConfigError, SourceError
from exporter.version import revision
from tests.cli.outcomes import Outcome
from tests.programs import HEAVY, ended, exporter, loaded_by, said

SAMPLE = (
    Path(__file__).parent.parent / "data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand in for the daemon, which has tests of its own."""
    module = ModuleType("exporter.cli.serve.server")
    monkeypatch.setitem(sys.modules, "exporter.cli.serve.server", module)
    return module


# Help and version


@pytest.mark.parametrize("words", ["once --demo", "specs", "--version"])
def test_a_stream_that_is_closed_from_the_start(words: str) -> None:
    """What would go there goes nowhere, as with print."""
    done = ended("/bin/sh", "-c", f"exec {sys.executable} -m exporter {words} >&-")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_version(outcome: Outcome) -> None:
    """One line names version, revision and Python."""
    line = f"roofline-exporter {__version__} (revision {revision()}, "
    line += f"python {platform.python_version()})\n"
    assert outcome("--version") == (0, line, "")
    assert outcome("once", "--version") == (0, line, "")


def test_help_names_every_flag_and_command_in_80_columns(outcome: Outcome) -> None:
    """The help is complete, grouped, shows defaults, and fits a terminal."""
    code, out, err = outcome("--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for flag in config.FLAGS:
        assert f"\n  {flag.option}" in out
    for command in cli.COMMANDS:
        assert f"\n  {command} " in out
    joined = " ".join(out.split())
    assert joined.count("(default: ") == len(config.FLAGS)
    assert "(default: 24h)" in joined
    assert "--source.gpm, --no-source.gpm" in joined
    assert out.index("web flags:") < out.index("--web.max-requests") < out.index("poll flags:")


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "run"])
def test_every_command_has_help_with_its_own_flags(command: str, outcome: Outcome) -> None:
    """A command's help has what is its own on a screen; --help=all has every flag that it takes."""
    brief, whole = (outcome(command, each) for each in ("-h", "--help=all"))
    for code, out, err in (brief, whole):
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: roofline-exporter {command} ")
        assert cli.COMMANDS[command].help in out
        assert max(map(len, out.splitlines()[1:])) <= 80
    assert all(f"\n  {flag.option}" in whole[1] for flag in config.FLAGS)
    if command == "serve":
        assert brief == whole
        return
    assert "--poll.interval" not in brief[1]
    assert len(brief[1].splitlines()) < 50
    assert brief[1].endswith("--help=all shows them.\n")


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("status", ("--watch", "--sort", "--json", "--url URL", "--url.ca-file")),
        ("healthcheck", ("--ready", "--url URL", "--url.password-file")),
        ("counters", ("--chip", "--cuda", "--url URL")),
        ("specs", ("--format", "--specs PATH")),
        ("record", ("--duration", "--force")),
    ],
)
def test_the_flags_that_a_command_is_about_are_in_its_help(
    command: str, own: tuple[str, ...], outcome: Outcome
) -> None:
    """Flags of the table, too, and whatever words follow."""
    for words in (["--help"], ["--help", "--nonsense"], ["-h", "x"]):
        _, out, _ = outcome(command, *words)
        for option in own:
            assert f"\n  {option}" in out


# Mistakes


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "run"])
def test_help_has_no_value_but_all(command: str, outcome: Outcome) -> None:
    """Of a single command, too."""
    said = "roofline-exporter: --help: expected nothing or all, got 'foo'\n"
    assert outcome(command, "--help=foo") == (2, "", said)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sevre"], "unknown command 'sevre', did you mean serve? (see roofline-exporter --help)"),
        (["x" * 500], f"unknown command '{'x' * 77}...' (see roofline-exporter --help)"),
        (["--foo"], "unknown flag --foo (see roofline-exporter --help)"),
        (["serve", "once"], "unexpected argument 'once' (see roofline-exporter --help)"),
        (["once", "--poll.interval", "1x"], "--poll.interval: expected a duration such as 500"),
        (["healthcheck", "--url"], "--url: expected a URL such as http://127.0.0.1:19400, got not"),
        (["healthcheck", "--redy"], "unknown flag --redy, did you mean --ready? (see roofline-ex"),
        (["healthcheck", "--url", "ftp://a"], "--url: expected a URL such as http://127.0.0.1:194"),
        (["healthcheck", "--web.listen-address=:0"], "healthcheck: web.listen-address has port 0"),
        (["status", "--watch=99"], "--watch: expected a duration from 100ms to 60s, or"),
        (["status", "--watch="], "--watch: expected a duration from 100ms to 60s, or"),
        (["status", "--sort=price"], "--sort: expected trouble, gpu, owner, utilization, saturat"),
        (["specs", "--format", "xml"], "--format: expected table or json, got 'xml'"),
        (["specs", "--specs=/nonexistent.yaml"], "/nonexistent.yaml: cannot be read"),
        (["counters"], "counters: expected one of check"),
        (["counters", "checks"], "counters: expected one of check"),
        (["counters", "check", "--chip"], "--chip: expected one argument"),
        (["counters", "check", "--cuda", "13"], "--cuda: expected a version such as 12.9, go"),
        (["record"], "record: expected a FILE, such as support.jsonl.gz"),
        (["record", "r", "--duration", "long"], "--duration: expected a duration from 100ms to 36"),
        (["record", "r", "--replay", "x"], "--replay: a recording cannot be recorded again, copy"),
        (["report"], "report: expected --prometheus URL, such as http://localhost:9090"),
        (["report", "--prometheus", "ftp://x"], "--prometheus: expected a URL such as http://127"),
        (["report", "--range", "30m"], "--range: expected a duration from 1h to 366d, got '30m'"),
        (["report", "--by", "team"], "--by: expected owner, namespace, user, job, node or model, "),
        (["report", "--format", "pdf"], "--format: expected table, html, csv or json, got 'pdf'"),
        (["report", "--prometheus=x", "--bearer-file=/no"], "--bearer-file: /no: cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    argv: list[str], message: str, outcome: Outcome, daemon: ModuleType
) -> None:
    """No usage text hides the line that says what is wrong."""
    daemon.serve = None  # type: ignore[attr-defined]
    code, out, err = outcome(*argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"roofline-exporter: {message}")
    assert err.count("\n") == 1


# serve and once


@pytest.mark.parametrize("argv", [[], ["serve"], ["--process.max=3"], ["serve", "--process.max=3"]])
def test_serve_is_the_default(argv: list[str], daemon: ModuleType, outcome: Outcome) -> None:
    """Without a command the daemon starts, with the flags that are there."""
    seen: list[config.Settings] = []

    def serve(settings: config.Settings, reload: Callable[[], config.Reloaded]) -> int:
        seen.append(settings)
        return 0

    daemon.serve = serve  # type: ignore[attr-defined]
    assert outcome(*argv) == (0, "", "")
    assert seen[0].process_max == (3 if argv[-1:] == ["--process.max=3"] else 32)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SourceError("no\nluck"), 1, "roofline-exporter: no\\nluck\n"),
        (ConfigError("specs.yaml:3: bad"), 2, "roofline-exporter: specs.yaml:3: bad\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes_of_failures(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """1 failed, 2 configuration, 130 interrupted: one line at most."""

    def run(invocation: Invocation) -> int:
        raise error

    monkeypatch.setattr("exporter.cli.print_metrics.run", run)
    assert outcome("once") == (code, "", line)


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    """``roofline-exporter --help | head -1`` ends quietly."""
    command = f"{sys.executable} -m exporter --help | true; echo ${{PIPESTATUS[0]}}"
    for _ in range(3):
        done = ended("bash", "-c", command)
        assert done.stderr == ""
        assert done.stdout in ("0\n", "1\n")


@pytest.mark.parametrize("words", ["--help", "specs H100", "check-config", "once --demo"])
def test_output_that_cannot_be_written_is_one_line(words: str) -> None:
    """A full disk under the output is reported as any other failure."""
    with open("/dev/full", "wb") as full:
        done = exporter(*words.split(), stdout=full)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "roofline-exporter: No space left on device"
    assert "Traceback" not in done.stderr


# check-config


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--demo", "--replay={sample}"], "--replay: expected no --demo beside it"),
        (["--replay={sample}", "--replay.speed=60"], "--replay.speed: expected at most 50 "),
        (["--replay={folder}/none.gz"], "{folder}/none.gz: cannot be read: "),
        (
            ["--training.socket-group=no-such-group"],
            "--training.socket-group: expected a group of this machine, there is no group "
            "'no-such-group'",
        ),
        (
            ["--web.listen-address=192.0.2.7:19400"],
            "--web.listen-address: expected an address of this machine, not 192.0.2.7 (Cannot "
            "assign requested address)",
        ),
        (["--web.config.file={folder}/none.yml"], "cannot read {folder}/none.yml: "),
        (["--demo.scenario={folder}/none.yml", "--demo"], "{folder}/none.yml: cannot be read"),
        (["--specs={folder}/none.yml"], "{folder}/none.yml: cannot be read"),
    ],
)
def test_check_config_refuses_what_the_daemon_refuses(
    outcome: Outcome, tmp_path: Path, argv: list[str], problem: str
) -> None:
    """Each of these ends `serve` before it has begun, or leaves out what was asked for."""
    places = {"sample": SAMPLE, "folder": tmp_path}
    words = [word.format(**places) for word in argv]
    code, out, err = outcome("check-config", *words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(problem.format(**places))
    if "socket-group" in problem:  # The daemon serves without its socket, and says so every time.
        return
    code, out, err = outcome("serve", *words, "--log.level=error")
    assert code in (1, 2)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--training.socket-group=root"],
        ["--training.socket-group=no-such-group", "--no-source.training"],
        ["--web.listen-address=127.0.0.1:0"],
        ["--web.listen-address=localhost:19400"],
        ["--replay={sample}", "--replay.speed=1"],
    ],
)
def test_check_config_takes_what_the_daemon_takes(outcome: Outcome, argv: list[str]) -> None:
    """Nothing is refused that would work."""
    words = [word.format(sample=SAMPLE) for word in argv]
    assert outcome("check-config", *words) == (0, "configuration is valid\n", "")


def test_a_port_in_use_is_no_problem_of_the_configuration(outcome: Outcome) -> None:
    """A daemon with this very configuration may be running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = f"--web.listen-address=127.0.0.1:{port}"
        assert outcome("check-config", words)[0] == 0


TWO_MISTAKES = """\
products:
  mine:
    product: Mine
    names: [Mine]
    architecture: Ada
    compute_capability: 8.9
    cores_per_sm: 0
"""


@pytest.mark.parametrize("command", ["serve", "check-config", "once"])
def test_all_mistakes_of_a_spec_file_at_once(
    outcome: Outcome, tmp_path: Path, command: str
) -> None:
    """Each on a line with file, line, key and what was expected, whoever reads the file."""
    specs = tmp_path / "specs.yml"
    specs.write_text(TWO_MISTAKES)
    code, out, err = outcome(command, f"--specs={specs}", "--demo")
    assert (code, out) == (2, "")
    prefix = "" if command == "check-config" else "roofline-exporter: "
    assert err.splitlines() == [
        f"{prefix}{specs}:6: key 'products.mine.compute_capability': expected a quoted compute "
        "capability such as '9.0', got 8.9",
        f"{prefix}{specs}:7: key 'products.mine.cores_per_sm': expected a positive whole number, "
        "got 0",
    ]


# What is loaded


def test_help_and_mistakes_come_before_what_takes_long_to_load() -> None:
    """Nobody waits for what is not going to be used, whatever the command."""
    words = [
        [name, word]
        for name in cli.COMMANDS
        if name not in ("run", "check-config")
        for word in ("--help", "--poll.interval=soon")
    ]
    own = [["specs", "--format=xml"], ["record"], ["record", "r.jsonl", "--duration=soon"]]

    assert not loaded_by(["--help"], ["check-config", "--help"], *words, *own) & HEAVY


def test_what_only_files_the_api_and_recordings_need_is_not_loaded() -> None:
    """A daemon that is only scraped has no frameworks in memory."""
    code = (
        "import sys, exporter.cli.serve.server; from exporter.specs import load_specs;"
        "load_specs(); print(*sys.modules)"
    )
    loaded = set(said(sys.executable, "-c", code).split())
    assert {"exporter", "starlette", "pynvml", "prometheus_client"} <= loaded
    assert not loaded & {"pydantic", "pydantic_core", "yaml", "fastapi", "bcrypt"}
