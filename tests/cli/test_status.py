# SPDX-License-Identifier: Apache-2.0
"""``status``: one line a GPU that fits the terminal, is honest and cannot be broken by names."""

from __future__ import annotations

import copy
import fcntl
import http.server
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.cli import main as cli
from exporter.cli.status.command import Frames
from exporter.cli.status.readers import Answered, ask_daemon, read_answer
from exporter.cli.status.render import rendered
from exporter.cli.status.view import view
from exporter.cli.status.watch import watch
from exporter.cli.terminal.screen import Screen, cells
from exporter.errors import SourceError
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.model.reading import Memory, Utilization, Vitals
from exporter.model.snapshot import Bounds, Gpu, Rank, Saturation, Snapshot
from exporter.specs import load_specs
from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.gpus import GpusAnswer
from exporter.web.api.models.read import read
from exporter.web.api.write import json_text
from exporter.web.app import create_app
from exporter.web.store import Store
from tests import snapshots
from tests.fake_nvml import FakeNvml
from tests.serving import serving
from tests.snapshots import EXAMPLES
from tests.terminals import REPOSITORY, Terminal, environment
from tests.waiting import wait_until

GOLDEN = Path(__file__).parent.parent / "golden"
NOBODY = "http://127.0.0.1:1"
NO_LIBRARY = "--nvml.library=/nonexistent/libnvidia-ml.so.1"
HOSTILE = (
    "NVIDIA \x1b[2J\x1b]0;owned\x07H100",
    "a\nb\r\tc\x00\x7f\x9b31m",
    "\u202eabc\u2066def\u2069\u200f",
    "x" * 4096,
    "e" + "\u0301" * 500,
    "\u6f22\u5b57" * 40 + "\U0001f680",
    "\U0001f1e9\U0001f1ea" * 20,
    "",
)


def answer_of(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON that the daemon would serve."""
    text = json_text(gpus_answer(snapshot))
    return json.loads(text)  # type: ignore[no-any-return]


def node() -> dict[str, Any]:
    """A node with a GPU of every kind, two of which are held by somebody."""
    answer = answer_of(
        snapshots.snapshot(
            snapshots.h100_training(0),
            snapshots.t4_estimate(1),
            snapshots.h100_mig(2),
            snapshots.lost(3),
            snapshots.h100_idle(4),
            snapshots.bare(5),
        )
    )
    shares = [gpu["shares"] for gpu in answer["gpus"]]
    for some in shares:
        for share in some:
            share.pop("holder", None)
    shares[0][0]["holder"] = {"owner": "ada", "command": "python3", "class": "training"}
    shares[4][0]["holder"] = {"owner": "bob", "command": "ipykernel", "class": "notebook"}
    shares[4][0]["held"] = True
    return answer


def lines_of(answer: object, columns: int = 160, **options: Any) -> list[str]:
    shown = view(read(GpusAnswer, answer), **options)
    return list(rendered(shown, Screen(columns)))


def row(lines: Sequence[str], gpu: str) -> str:
    """The line of one GPU."""
    (found,) = [line for line in lines if line.split()[:1] == [gpu]]
    return found


# What is shown.


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_golden(columns: int) -> None:
    """What a user sees, to the character."""
    golden = (GOLDEN / f"status-{columns}.txt").read_text(encoding="utf-8")

    assert "\n".join(lines_of(node(), columns)) + "\n" == golden


def test_utilization_stands_beside_saturation() -> None:
    """A busy GPU that is half saturated does not look like one that is saturated."""
    (title, header, line) = lines_of(answer_of(EXAMPLES["training"]))

    assert title.startswith("1 GPU: 1 busy · driver 580.95.05")
    assert header.split()[:5] == ["GPU", "NAME", "STATE", "UTIL", "SAT"]
    assert line.startswith("0    H100 80GB HBM3  busy              99 %      56 %  gpm")
    assert "641/700  61 °C  not idle" in line


def test_an_estimate_is_two_bounds() -> None:
    """Never a point, and marked as an estimate."""
    line = row(lines_of(answer_of(EXAMPLES["estimate"])), "0")

    assert " 0\N{EN DASH}43 %  estimate" in line
    close = answer_of(EXAMPLES["estimate"])
    close["gpus"][0]["shares"][0]["saturation"]["lower_ratio"] = 0.43
    assert " 43\N{EN DASH}43 %  estimate" in row(lines_of(close), "0")


def with_ranks(gpu: Gpu, *ranks: Rank) -> list[str]:
    return lines_of(answer_of(snapshots.with_training(snapshots.snapshot(gpu), *ranks)))


def test_data_stall_is_shown_where_a_rank_reports() -> None:
    """What is measured is a number; a wait alone, or what is seen from outside, bounds it."""
    rank = snapshots.rank_on_gpu()
    waits = replace(rank, data_stall_ratio=None)

    _, header, line = with_ranks(snapshots.h100_training(), rank)
    assert "LIMITER  DATA STALL" in header
    assert "compute        24 %  " in line
    assert "compute     <= 31 %  " in with_ranks(snapshots.h100_training(), waits)[-1]
    assert "  24 %  " in with_ranks(snapshots.h100_training(), rank, replace(rank, rank=1))[-1]
    assert "  24 %  " in with_ranks(snapshots.h100_training(), rank, replace(waits, rank=1))[-1]
    assert " 13\N{EN DASH}31 %" in lines_of(answer_of(EXAMPLES["estimate"]))[-1]


def test_data_stall_belongs_to_live_ranks_of_that_gpu() -> None:
    """No column for a job that has ended, runs elsewhere or has not said anything yet.

    Nor for one that the driver does not list there.
    """
    rank = snapshots.rank_on_gpu()
    nothing = lines_of(answer_of(EXAMPLES["training"]))

    for other in (
        replace(rank, processes=0),
        replace(rank, gpu_uuid=None),
        replace(rank, gpu_instance=1),
        replace(rank, data_wait_ratio=None, data_stall_ratio=None),
        replace(rank, verified=False),
    ):
        assert with_ranks(snapshots.h100_training(), other) == nothing
    lines = with_ranks(snapshots.h100_mig(2), snapshots.rank_on_instance(2))
    assert "<= 50 %" in row(lines, "2/1")
    assert "<=" not in row(lines, "2/2") + row(lines, "2")


def test_a_lost_gpu_is_one_grey_line_with_the_reason() -> None:
    """What it last did is not shown as if it still held."""
    screen = Screen(160, colour=True)
    answer = read(GpusAnswer, answer_of(EXAMPLES["lost"]))
    line = list(rendered(view(answer), screen))[-1]

    assert line.count("\x1b[2m") == 3
    assert line.endswith("\x1b[2mlost\x1b[0m")
    assert "%" not in line


def test_mig_has_one_line_an_instance() -> None:
    """The board's readings stand on the board's line, the work on those of its instances."""
    lines = lines_of(answer_of(EXAMPLES["mig"]))

    assert lines[0].startswith("1 GPU, 2 MIG instances: 1 busy, 1 not known")
    board, first, second = row(lines, "0"), row(lines, "0/1"), row(lines, "0/2")
    assert "641/700" in board
    assert "idle" not in board
    assert "3g.40gb" in first
    assert "compute" in first
    assert "W" not in first + second
    assert "61 °C" not in first


def test_idle_and_held() -> None:
    """How long nothing was done, and whether somebody keeps it from others."""
    answer = answer_of(EXAMPLES["idle"])
    assert "1h01m free" in row(lines_of(answer), "0")
    assert ": 1 free ·" in lines_of(answer)[0]

    answer["gpus"][0]["shares"][0]["held"] = True
    assert "1h01m held" in row(lines_of(answer), "0")
    assert ": 1 held idle for 1 h 1 min ·" in lines_of(answer)[0]

    del answer["gpus"][0]["shares"][0]["held"]
    line = row(lines_of(answer), "0")
    assert "1h01m" in line
    assert "free" not in line


def test_mostly_idle_is_not_idle() -> None:
    """A GPU that works 40 % of the time is limited by being idle, and is not idle."""
    answer = answer_of(EXAMPLES["training"])
    answer["gpus"][0]["shares"][0]["limiter"] = "idle"

    lines = lines_of(answer)
    assert ": 1 often idle ·" in lines[0]
    assert row(lines, "0").count("  often idle  ") == 2
    assert "  not idle  " in row(lines, "0")


def test_idle_is_what_was_seen_of_it() -> None:
    """Where it is not known whether a GPU is idle, a last busy time long ago does not say so."""
    answer = answer_of(EXAMPLES["idle"])
    share = answer["gpus"][0]["shares"][0]
    del share["idle"]["idle_for_seconds"], share["limiter"]
    lines = lines_of(answer)
    assert ": 1 busy ·" in lines[0]
    assert "free" not in row(lines, "0")
    assert "1h0" not in row(lines, "0")


def test_an_idle_gpu_that_waits_for_its_data_is_counted_by_that() -> None:
    """The line says for how long it is idle, the title why."""
    answer = answer_of(EXAMPLES["idle"])
    answer["gpus"][0]["shares"][0] |= {"limiter": "input", "held": True}
    lines = lines_of(answer)
    assert ": 1 starved for data ·" in lines[0]
    assert "1h01m held" in row(lines, "0")


def test_since_start_no_time_is_claimed() -> None:
    """Whoever looked for a second only knows that it is idle now, not since when."""
    line = row(lines_of(answer_of(EXAMPLES["idle"]), since_start=True), "0")

    assert "idle free" in line
    assert "1h01m" not in line
    assert "49s" not in line


def test_the_holder_is_named() -> None:
    """Owner, command and class; an owner that is not known is left out."""
    assert "ada: python3 (training)" in row(lines_of(node()), "0")
    answer = node()
    answer["gpus"][0]["shares"][0]["holder"] = {"command": "python3", "class": "other"}
    assert " python3 (other) " in row(lines_of(answer), "0") + " "
    for gpu in answer["gpus"]:
        for share in gpu["shares"]:
            share.pop("holder", None)
    assert "HOLDER" not in lines_of(answer)[1]


@pytest.mark.parametrize(
    ("source", "notice"),
    [
        ("simulate", "This data is simulated."),
        ("replay", "This data is a recording, played back."),
    ],
)
def test_data_that_is_not_real_is_marked(source: str, notice: str) -> None:
    """Nobody takes the demo for hardware, however narrow the terminal."""
    answer = node()
    answer["gpus"][1]["identity"]["source"] = source

    for columns in (30, 160):
        text = " ".join(lines_of(answer, columns)[:7])
        assert f"Not real GPUs. {notice}" in text


def test_what_is_unknown_is_a_dash() -> None:
    """Never 0; and a column in which nothing is known is not there."""
    lines = lines_of(answer_of(EXAMPLES["bare"]))

    assert lines == ["1 GPU: 1 not known", "GPU  NAME", "0    GPU"]


def test_narrow_terminals_lose_the_least_important_first() -> None:
    """Each width shows all that a narrower one does."""
    before: set[str] = set()
    for columns in range(20, 181):
        header = next(line for line in lines_of(node(), columns) if line.startswith("GPU "))
        shown = {word.strip() for word in header.split("  ") if word.strip()}
        assert before <= shown
        before = shown
    assert len(before) == 16


# No width is exceeded, whatever the values.

ratios = st.none() | st.floats(0, 1e6, allow_nan=False)
amounts = st.none() | st.floats(0, 1e300, allow_nan=False)
texts = st.text(max_size=300) | st.sampled_from(HOSTILE)


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    """A GPU of some kind with readings of any size and any text."""
    example = draw(st.sampled_from([gpu for each in EXAMPLES.values() for gpu in each.gpus]))
    lower, upper = draw(st.floats(0, 1e6)), draw(st.floats(0, 1e6))
    shares = tuple(
        replace(
            share,
            utilization=Utilization(draw(st.floats(0, 1e6)), 1.0, 1.0, None, None),
            memory=Memory(draw(st.integers(0, 2**63)), draw(st.integers(0, 2**63)), 0),
            saturation=Saturation(
                draw(st.sampled_from(["gpm", "dcgm", "estimate"])),
                True,
                Bounds(lower, upper),
                draw(ratios),
                draw(st.none() | texts),
            ),
            held=draw(st.none() | st.booleans()),
            limiter=draw(st.none() | texts),
            totals=replace(
                share.totals,
                last_busy_timestamp_seconds=draw(amounts),
                idle_for_seconds=draw(amounts),
                held_idle_seconds=draw(amounts),
            ),
        )
        for share in example.shares
    )
    vitals = Vitals(power_watts=draw(amounts), temperature_celsius=draw(amounts))
    return replace(
        example,
        device=replace(
            example.device, index=draw(st.integers(0, 2**40)), name=draw(texts), source=draw(texts)
        ),
        down_reason=draw(st.none() | texts),
        vitals=vitals if example.up else None,
        shares=shares,
    )


def assert_fits(lines: Sequence[str], columns: int) -> None:
    for line in lines:
        assert cells(line) <= columns, line
        assert line.isprintable(), line


@settings(max_examples=150)
@given(st.lists(gpus(), max_size=4), st.integers(1, 200), st.none() | texts)
def test_no_line_is_wider_than_the_terminal(
    some: list[Gpu], columns: int, problem: str | None
) -> None:
    """Nothing wraps and nothing unprintable is printed, whatever a driver says."""
    answer = answer_of(Snapshot(1.0, tuple(some), {}, problem))

    assert_fits(lines_of(answer, columns), columns)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


NODE = node()
PLACES = list(places({"": NODE}))[1:]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(PLACES), anything), max_size=4), st.integers(1, 200))
def test_an_answer_of_another_version_does_not_raise(
    changes: list[tuple[tuple[Any, ...], Any]], columns: int
) -> None:
    """A daemon may be older or newer: it is understood, or refused in one line."""
    document = {"": copy.deepcopy(NODE)}
    for path, value in changes:
        at: Any = document
        for key in path[:-1]:
            try:
                at = at[key]
            except (KeyError, IndexError, TypeError):
                break
        else:
            key = path[-1]
            if isinstance(at, dict) or (isinstance(at, list) and key in range(len(at))):
                at[key] = value

    try:
        found = read_answer("page", json.dumps(document[""]).encode())
        lines = list(rendered(view(found), Screen(columns)))
    except SourceError as error:
        lines, columns = [str(error)], 250
    assert_fits(lines, columns)


def test_an_answer_of_an_older_version_is_read() -> None:
    """A list or a mapping that it does not know of yet is empty."""
    older, empty = node(), node()
    for gpu, other in zip(older["gpus"], empty["gpus"], strict=True):
        del gpu["ranks"], gpu["absent_readings"]
        other["ranks"], other["absent_readings"] = [], {}
        for share, other_share in zip(gpu["shares"], other["shares"], strict=True):
            del share["data_stall"]
            other_share["data_stall"] = {}
    assert lines_of(older) == lines_of(empty)


def test_an_answer_of_a_newer_version_is_read() -> None:
    """What is not known of it yet is left out."""
    newer = node() | {"schema_version": 2, "cooling": {"fans": 3}}
    newer["gpus"][0]["shares"][0]["mood"] = "good"
    assert lines_of(newer) == lines_of(node())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless(name: str) -> None:
    """No escape sequence, control character or bidi mark gets through; rows stay aligned."""
    answer = node()
    answer["gpus"][0]["identity"]["name"] = name
    answer["gpus"][0]["shares"][0]["holder"] = {"owner": name, "command": name, "class": name}
    answer["gpus"][3]["down_reason"] = name

    lines = lines_of(answer)
    assert_fits(lines, 160)
    table = [line for line in lines if line.startswith(("0 ", "1 ", "4 "))]
    assert len({cells(line[: line.index(" °C")]) for line in table}) == 1


# As a command.


class Stub:
    """An HTTP server with a canned answer."""

    def __init__(self) -> None:
        self.status = 200
        self.body = json.dumps(NODE).encode()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/api/v1/gpus"
                self.send_response_only(stub.status)
                self.send_header("Content-Length", str(len(stub.body)))
                self.send_header("Date", "Mon, 21 Sep 2026 14:13:21 GMT")  # a second later
                self.end_headers()
                self.wfile.write(stub.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    with serving(stub.server):
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


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command whose output is no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words],
        capture_output=True,
        encoding="utf-8",
        env=env or environment(),
        cwd=REPOSITORY,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("columns", [60, 160])
def test_in_a_terminal(columns: int, stub: Stub, terminal: Callable[..., Terminal]) -> None:
    """It fits the terminal it is in, with colours, and says the same as without them."""
    shown = terminal(columns, 30, "status", "--url", stub.url)

    assert shown.wait() == 0
    assert shown.lines == lines_of(NODE, columns)
    assert "\x1b[33m1h01m held\x1b[0m" in shown.output


@pytest.mark.parametrize(
    ("changes", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours(
    changes: dict[str, str], coloured: bool, stub: Stub, terminal: Callable[..., Terminal]
) -> None:
    """NO_COLOR and TERM=dumb are respected."""
    shown = terminal(100, 30, "status", "--url", stub.url, **changes)

    assert shown.wait() == 0
    assert ("\x1b" in shown.output) == coloured


def test_in_a_pipe(stub: Stub) -> None:
    """160 columns, no colours; --json is the answer itself."""
    table = run("status", "--url", stub.url)
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.splitlines() == lines_of(NODE)

    answer = run("status", "--url", stub.url, "--json")
    assert answer.stdout == stub.body.decode() + "\n"


def test_an_encoding_without_our_characters(stub: Stub) -> None:
    """Look-alikes replace what cannot be printed; nothing is raised."""
    found = run("status", "--url", stub.url, env=environment(PYTHONIOENCODING="ascii"))

    assert found.returncode == 0
    assert found.stdout.isascii()
    assert "0-43 %" in found.stdout


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
    assert "+8 more" in frame
    assert shown.output.endswith("\x1b[?25h")


def test_watch_outlives_the_daemon(stub: Stub, terminal: Callable[..., Terminal]) -> None:
    """While nobody answers, the last readings stay and it is said so."""
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
    """The API says what the table needs; a snapshot that is old is said to be so."""
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
    code = (
        "import sys; from exporter.cli.main import main;"
        f"code = main(['status', '--url', {stub.url!r}]);"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'pydantic', 'pynvml', 'yaml', 'asyncio',"
        " 'prometheus_client'} & set(sys.modules);"
        "sys.exit(f'{code} {sorted(heavy)}' if code or heavy else 0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert (found.returncode, found.stderr) == (0, "")


ANOTHER_VERSION = "(is the daemon of another version?)"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"<html>", 200, "expected the JSON of a roofline-exporter"),
        (b"[]", 200, "expected the JSON of a roofline-exporter"),
        (b"null", 200, "expected the JSON of a roofline-exporter"),
        (b'{"error": "x"}', 200, "expected the JSON of a roofline-exporter"),
        (b'{"gpus": 1}', 200, f"gpus: expected a list, got 1 {ANOTHER_VERSION}"),
        (
            b'{"gpus": [{"index": "first"}]}',
            200,
            f'gpus[0].index: expected a whole number, got "first" {ANOTHER_VERSION}',
        ),
        (
            b'{"gpus": [{"index": 0}]}',
            200,
            f"gpus[0]: expected the key 'uuid', got {{\"index\": 0}} {ANOTHER_VERSION}",
        ),
        (b"\xff" * 10, 200, "expected the JSON of a roofline-exporter"),
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
    """The GPUs of this node are not those of the node that the user asked for."""
    found = run("status", "--url", NOBODY)

    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f"roofline-exporter: {NOBODY}/api/v1/gpus: Connection refused\n"


@pytest.mark.parametrize("value", ["x", "0", "99", "-1s", ""])
def test_a_bad_interval_is_refused(value: str) -> None:
    """One line, exit code 2."""
    found = run("status", f"--watch={value}")

    assert found.returncode == 2
    assert found.stderr == (
        "roofline-exporter: --watch: expected a duration from 100ms to 60s, or seconds, "
        f"got '{value}'\n"
    )


# Without a daemon.


@pytest.fixture
def nobody() -> Iterator[str]:
    """The flag of an address at which nobody listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"--web.listen-address=127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    gpm = {"graphics": 100, "sm": 90, "tensor": 85, "dram": 20, "fp64": 0, "fp32": 4, "fp16": 2}
    devices = [
        {"product": "h100-sxm", "utilization": 100, "gpm": gpm},
        {"product": "t4", "utilization": 0},
    ]
    return FakeNvml(tmp_path / "driver", {"devices": devices})


def test_without_a_daemon_the_gpus_are_read(driver: FakeNvml, nobody: str) -> None:
    """About a second of readings, and one line says what they leave open."""
    env = environment(**driver.environment())
    found = run("status", nobody, "--poll.interval=500ms", env=env)

    assert (found.returncode, found.stderr) == (0, "")
    title, notice, _, measured, estimated = found.stdout.splitlines()
    assert title.startswith("2 GPUs: 1 near its roof, 1 free")
    assert notice.startswith("no daemon (http://127.0.0.1:")
    assert notice.endswith("Connection refused): idle time is unknown")
    assert " 100 %      85 %  gpm " in measured
    assert "not idle" in measured
    assert "idle free" in estimated

    answer = json.loads(run("status", nobody, "--json", "--poll.interval=500ms", env=env).stdout)
    assert [gpu["index"] for gpu in answer["gpus"]] == [0, 1]
    assert answer["schema_version"] == 1


def test_without_a_daemon_it_watches_too(
    driver: FakeNvml, nobody: str, terminal: Callable[..., Terminal]
) -> None:
    """Readings go on changing; nothing else is written between the frames."""
    shown = terminal(100, 30, "status", nobody, "--watch", "200ms", **driver.environment())
    wait_until(lambda: "85 %" in shown.output)
    driver.device(0, gpm={"tensor": 35})
    wait_until(lambda: "35 %" in shown.output)
    shown.send(signal.SIGINT)

    assert shown.wait() == 0
    assert "level=" not in shown.output


def test_without_a_driver_it_is_one_line(nobody: str) -> None:
    """Both reasons, and exit code 1."""
    found = run("status", nobody, NO_LIBRARY)

    assert (found.returncode, found.stdout) == (1, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith("roofline-exporter: no daemon (http://127.0.0.1:")
    assert "and --nvml.library /nonexistent/libnvidia-ml.so.1" in line


def test_a_port_of_its_own_choice_needs_a_url() -> None:
    """Nobody knows where a daemon with port 0 listens."""
    found = run("status", "--web.listen-address=:0")

    assert found.returncode == 2
    assert "status: web.listen-address has port 0, expected --url URL" in found.stderr


def test_the_screen_of_something_without_a_file() -> None:
    """Output into memory is no terminal."""
    from exporter.cli.terminal.screen import screen_of

    assert screen_of(io.StringIO(), {"TERM": "xterm"}) == Screen()


# The same inside this process.


def test_one_call(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, JSON and refusals come out of `main` as they do of the program."""
    assert cli.main(["status", "--url", stub.url]) == 0
    assert capsys.readouterr().out.splitlines() == lines_of(NODE)
    assert cli.main(["status", "--url", stub.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == NODE
    assert cli.main(["status", "--url", stub.url, "--watch=1h"]) == 2
    stub.body = b'{"gpus": [], "problem": "the driver lists no GPU"}'
    assert cli.main(["status", "--url", stub.url]) == 1
    assert capsys.readouterr().err.endswith("roofline-exporter: no GPU: the driver lists no GPU\n")
    stub.body = b"{"
    assert cli.main(["status", "--url", stub.url]) == 1


def test_frames_follow_each_other_until_interrupted(stub: Stub) -> None:
    """While nobody answers, the last frame is shown again with the reason above it."""
    read = iter((ask_daemon(stub.url), SourceError("gone\x1b[2J"), KeyboardInterrupt()))

    def reader() -> Answered:
        answered = next(read)
        if isinstance(answered, BaseException):
            raise answered
        return answered

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert watch(Frames(reader, None), 0.01, out, {"TERM": "xterm"}) == 0
    out.seek(0)
    first, second, rest = out.read().split("\n\n")
    assert first.splitlines() == lines_of(NODE)
    assert second.splitlines() == lines_of(NODE, notices=("gone\\x1b[2J",))
    assert rest == ""


def test_a_terminal_is_drawn_in_place() -> None:
    """Cursor hidden, home, each line cleared to its end, the rest cleared, cursor shown."""
    frames = iter((lambda screen: ["a" * screen.columns, "b", "c"],))

    def read() -> Callable[[Screen], Sequence[str]]:
        try:
            return next(frames)
        except StopIteration:
            raise KeyboardInterrupt from None

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 3, 10, 0, 0))
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        assert watch(read, 0.01, stream, {"TERM": "xterm"}) == 0
        written = ""
        while not written.endswith("h"):
            written += os.read(master, 4096).decode()
    os.close(master)
    assert written == (
        "\x1b[?25l\x1b[H\x1b[J\x1b[H" + "a" * 10 + "\x1b[K\r\n+2 more\x1b[K\r\n\x1b[J\x1b[?25h"
    )
