# SPDX-License-Identifier: Apache-2.0
"""``status`` as a command: whom it asks, how often, and what it prints where."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.snapshot import Snapshot
from exporter.specs import load_specs
from exporter.web.app import create_app
from exporter.web.store import Store
from tests import snapshots
from tests.cli.status.answers import NODE, answer_of, lines_of
from tests.cli.stub import NOBODY, Stub
from tests.fake_nvml import FakeNvml
from tests.programs import HEAVY, Ended, exporter, loaded_by
from tests.serving import serving
from tests.snapshots import EXAMPLES
from tests.terminals import REPOSITORY, Terminal, environment
from tests.waiting import wait_until

ALONE = "--web.listen-address=127.0.0.1:1"
"""Where no daemon listens."""
NO_LIBRARY = "--nvml.library=/nonexistent/libnvidia-ml.so.1"


# As a command.


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    stub.body = json.dumps(NODE).encode()
    stub.now = 1.0 + NODE["timestamp_seconds"]
    with serving(stub):
        yield stub


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Starts a command in a terminal of so many columns and lines."""
    started: list[Terminal] = []

    def start(columns: int, lines: int, *words: str, **changes: str) -> Terminal:
        started.append(Terminal(columns, lines, *words, env=environment(**changes)))
        return started[-1]

    yield start
    for each in started:
        each.close()


def run(*words: str, env: dict[str, str] | None = None) -> Ended:
    """Run a command whose output is no terminal."""
    return exporter(*words, env=env or environment(), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours(
    changes: dict[str, str], coloured: bool, stub: Stub, terminal: Callable[..., Terminal]
) -> None:
    """NO_COLOR and TERM=dumb are respected; colours change no text."""
    shown = terminal(100, 30, "status", "--url", stub.url, **changes)

    assert shown.wait() == 0
    assert shown.lines == lines_of(NODE, 100)
    assert ("\x1b[33m1h01m held\x1b[0m" in shown.output) == ("\x1b" in shown.output) == coloured


def test_in_a_pipe(stub: Stub) -> None:
    """160 columns, no colours; --json is the answer itself."""
    table = run("status", "--url", stub.url)
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.splitlines() == lines_of(NODE)

    answer = run("status", "--url", stub.url, "--json")
    assert answer.stdout == stub.body.decode() + "\n"


def test_sort(stub: Stub) -> None:
    """By trouble, or as it is asked."""
    by_trouble, by_index = (
        run("status", "--url", stub.url, *given) for given in ((), ("--sort=gpu",))
    )
    assert by_trouble.stdout.splitlines() == lines_of(NODE, sort="trouble")
    assert by_index.stdout.splitlines() == lines_of(NODE, sort="gpu")
    assert by_index.stdout != by_trouble.stdout


def test_a_terminal_with_fewer_lines_sums_up_the_calm(
    stub: Stub, terminal: Callable[..., Terminal]
) -> None:
    """What is printed does not scroll; --watch keeps its order."""
    gpus = [snapshots.h100_training(index) for index in range(64)]
    stub.body = json.dumps(answer_of(snapshots.snapshot(*gpus, snapshots.h100_idle(64)))).encode()
    shown = terminal(100, 30, "status", "--url", stub.url)
    assert shown.wait() == 0
    assert shown.lines[-1] == "and 39 GPUs: 38 busy, 1 free"
    assert len(shown.lines) == 29

    watched = terminal(100, 30, "status", "--watch", "--sort=idle", "--url", stub.url)
    wait_until(lambda: "and 39 GPUs: 38 busy" in watched.output)
    watched.send(signal.SIGINT)
    assert watched.wait() == 0
    assert "more" not in watched.output


def test_watch_redraws_in_place(stub: Stub, terminal: Callable[..., Terminal]) -> None:
    """Frames overwrite each other, follow a resize, and leave the terminal as it was."""
    shown = terminal(60, 30, "status", "--watch", "0.1", "--url", stub.url)
    wait_until(lambda: shown.output.count("\x1b[H") >= 4)
    assert shown.output.startswith("\x1b[?25l\x1b[H\x1b[J")
    assert "HOLDER" not in shown.output

    shown.resize(160, 30)
    wait_until(lambda: "HOLDER" in shown.output)
    assert "\x1b[?25h" not in shown.output

    shown.send(signal.SIGINT)
    assert shown.wait() == 0
    assert shown.output.endswith("\x1b[?25h")
    assert "Traceback" not in shown.output


def test_watch_cuts_what_does_not_fit(stub: Stub, terminal: Callable[..., Terminal]) -> None:
    """A node with more lines than the terminal does not scroll."""
    shown = terminal(60, 5, "status", "--watch", "--url", stub.url)
    wait_until(lambda: "more" in shown.output)
    shown.send(signal.SIGTERM)

    assert shown.wait() == 0
    frame = shown.output.split("\x1b[H")[2]
    assert frame.count("\n") == 4
    assert re.search(r"\+\d\d more", frame)
    assert shown.output.endswith("\x1b[?25h")


def test_watch_outlives_the_daemon(stub: Stub, terminal: Callable[..., Terminal]) -> None:
    """Without a daemon, the last readings stay, with a notice."""
    shown = terminal(160, 30, "status", "--watch", "0.1", "--url", stub.url)
    wait_until(lambda: "641/700" in shown.output)
    stub.status = 503
    wait_until(lambda: "expected status 200, got 503" in shown.output)
    stub.status = 200
    at = len(shown.output)
    wait_until(lambda: "expected status" not in shown.output[at:] and "641" in shown.output[at:])


def test_watch_in_a_pipe(stub: Stub) -> None:
    """Frames follow each other without escape sequences; with --json, one line each."""
    for words, separator in (((), "\n\n"), (("--json",), "\n")):
        process = subprocess.Popen(
            [sys.executable, "-m", "exporter", "status", "--watch=0.1", "--url", stub.url, *words],
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=REPOSITORY,
        )
        with process:
            assert process.stdout is not None
            read = b""
            while read.decode("utf-8", "ignore").count(separator) < 2:
                read += os.read(process.stdout.fileno(), 65536)
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
        assert b"\x1b" not in read


@contextmanager
def served(snapshot: Snapshot) -> Iterator[str]:
    """The real application on a port, without a publisher."""
    store, book = Store(), load_specs()
    app = create_app(
        store=store,
        pages=Pages(RenderOptions()),
        specs=lambda: book,
        poll_interval_seconds=lambda: 1.0,
    )
    store.publish(snapshot)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("columns", [60, 160])
def test_beside_the_real_application(columns: int, terminal: Callable[..., Terminal]) -> None:
    """The API has all that the table shows; an old snapshot has a notice."""
    now = replace(EXAMPLES["mixed"], timestamp_seconds=time.time())
    with served(now) as url:
        fresh = terminal(columns, 30, "status", "--url", url)
        assert fresh.wait() == 0
    assert fresh.lines == lines_of(answer_of(now), columns)

    with served(replace(now, timestamp_seconds=now.timestamp_seconds - 60)) as url:
        old = terminal(columns, 30, "status", "--url", url)
        assert old.wait() == 0
    assert any(re.match(r"these readings are (59|6\d) s old$", line) for line in old.lines)


def test_a_daemon_without_gpus_is_one_line() -> None:
    """The daemon's own reason, and exit code 1."""
    with served(snapshots.NO_DRIVER) as url:
        found = run("status", "--url", url)

    reason = "the NVIDIA driver library libnvidia-ml.so.1 cannot be loaded"
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f"roofline-exporter: no GPU: {reason}\n"


def test_nothing_heavy_is_imported(stub: Stub) -> None:
    """With a daemon, it starts without web framework, driver binding, YAML or validation."""
    assert not loaded_by(["status", "--url", stub.url]) & HEAVY
    assert stub.asked == 1


ANOTHER_VERSION = "(is the daemon of another version?)"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"<html>", 200, "expected the JSON of a roofline-exporter"),
        (b'{"error": "x"}', 200, "expected the JSON of a roofline-exporter"),
        (b'{"gpus": 1}', 200, f"gpus: expected a list, got 1 {ANOTHER_VERSION}"),
        (
            b'{"gpus": [{"index": "first"}]}',
            200,
            f'gpus[0].index: expected a whole number, got "first" {ANOTHER_VERSION}',
        ),
        (b"[" * 100_000, 200, "expected the JSON of a roofline-exporter"),
        (b'{"error": "x"}', 404, "expected status 200, got 404"),
    ],
)
def test_something_else_on_the_port(body: bytes, status: int, reason: str, stub: Stub) -> None:
    """One line that says what was expected, and exit code 1."""
    stub.body, stub.status = body, status
    found = run("status", "--url", stub.url)

    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f"roofline-exporter: {stub.url}/api/v1/gpus: {reason}\n"


def test_a_daemon_that_was_named_is_the_only_one_asked() -> None:
    """With --url the GPUs of this node are not read."""
    found = run("status", "--url", NOBODY)

    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f"roofline-exporter: {NOBODY}/api/v1/gpus: Connection refused\n"


# Without a daemon.


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    gpm = {"graphics": 100, "sm": 90, "tensor": 85, "dram": 20, "fp64": 0, "fp32": 4, "fp16": 2}
    devices = [
        {"product": "h100-sxm", "utilization": 100, "gpm": gpm},
        {"product": "t4", "utilization": 0},
    ]
    return FakeNvml(tmp_path / "driver", {"devices": devices})


def test_without_a_daemon_the_gpus_are_read(driver: FakeNvml) -> None:
    """A notice says what one second of readings cannot show."""
    env = environment(**driver.environment())
    found = run("status", ALONE, "--poll.interval=500ms", env=env)

    assert (found.returncode, found.stderr) == (0, "")
    title, notice, _, measured, estimated, *better = found.stdout.splitlines()
    assert title.startswith("2 GPUs: 1 near its roof, 1 free")
    assert notice.startswith("no daemon (http://127.0.0.1:")
    assert notice.endswith("Connection refused): idle time is unknown")
    assert " 100 %      85 %  gpm " in measured
    assert "not idle" in measured
    assert "idle free" in estimated
    assert better[0].startswith("GPU 1: not measured: ")

    answer = json.loads(run("status", ALONE, "--json", "--poll.interval=500ms", env=env).stdout)
    assert [gpu["index"] for gpu in answer["gpus"]] == [0, 1]
    assert answer["schema_version"] == 1


def test_without_a_daemon_it_watches_too(
    driver: FakeNvml, terminal: Callable[..., Terminal]
) -> None:
    """Readings go on changing; nothing else is written between the frames."""
    shown = terminal(100, 30, "status", ALONE, "--watch", "200ms", **driver.environment())
    wait_until(lambda: "85 %" in shown.output)
    driver.device(0, gpm={"tensor": 35})
    wait_until(lambda: "35 %" in shown.output)
    shown.send(signal.SIGINT)

    assert shown.wait() == 0
    assert "level=" not in shown.output


def test_without_a_driver_it_is_one_line() -> None:
    """Both reasons, and exit code 1."""
    found = run("status", ALONE, NO_LIBRARY)

    assert (found.returncode, found.stdout) == (1, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith("roofline-exporter: no daemon (http://127.0.0.1:")
    assert "and --nvml.library /nonexistent/libnvidia-ml.so.1" in line
