# SPDX-License-Identifier: Apache-2.0
"""What tests of several areas share."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from exporter import installation, log
from tests import bare
from tests.e2e.processes import Process

MEASURED = "measured"

QUICK_EXAMPLES = 25
TALLIED = ("passed", "failed", "error", "skipped", "xfailed")
LEFT_OUT = pytest.StashKey[int]()

# How long an example takes on a busy machine decides no test.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--bare``, and what tests/run.py needs."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="Leave out the tests marked slow, and try fewer random examples.",
    )
    parser.addoption("--tally", help="Write how many tests passed, and which failed, to a file.")
    parser.addoption(
        "--bare",
        action="store_true",
        help="Run the tests that look for servers, a Docker engine or a browser without any.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the machine a bare one: its programs for all workers, its signals in each of them."""
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(Workers())
    if config.getoption("quick"):
        settings.register_profile("quick", deadline=None, max_examples=QUICK_EXAMPLES)
        settings.load_profile("quick")
    if not config.getoption("bare"):
        return
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="roofline-path-")
        config.add_cleanup(folder.cleanup)
        bare.hide_programs(Path(folder.name))
    if config.getoption("dist", "no") == "no":  # else workers run the tests
        bare.ignore_interrupts()


@pytest.hookimpl(trylast=True)  # after the markers that folders add
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, and what is no different on a bare machine."""
    if config.getoption("bare"):
        config.hook.pytest_deselected(items=bare.only_what_differs(items))
    if config.getoption("quick"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        config.stash[LEFT_OUT] = len(slow)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the controller how many tests a worker left out: all have the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


class Workers:
    """What xdist says of its workers; a plugin only where it is used."""

    @staticmethod
    def pytest_testnodedown(node: Any) -> None:
        """Take over what a worker said at its end."""
        output = getattr(node, "workeroutput", {})
        node.config.stash[LEFT_OUT] = output.get("left_out", node.config.stash.get(LEFT_OUT, 0))


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Let SIGINT end what tests start: children inherit that a background job ignores it."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def installed_by_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every machine name one command that adds an extra, whatever the tests run from, and
    need it."""
    monkeypatch.setattr(installation, "adding", "pip install '{}'".format)
    monkeypatch.setattr(installation, "has", lambda *_: False)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A new folder at each `next`."""
    return (tmp_path / str(number) for number in itertools.count())


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Everything that was started; ended here, with what it said last if the test failed."""
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()
        print("\n".join([f"pid {process.pid} said:", *process.lines()[-40:]]))


@pytest.fixture
def restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what `log.setup` changes in the process; count the event loop's lines anew."""
    monkeypatch.setattr(log, "_LIMIT", log.AsyncioLimit())
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    states = [
        (logger, logger.handlers[:], logger.filters[:], logger.level, logger.propagate)
        for logger in (logging.getLogger(), logging.getLogger("asyncio"))
    ]
    yield
    for logger, handlers, filters, level, propagate in states:
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.setLevel(level)
        logger.propagate = propagate
    logging.captureWarnings(False)


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Put back the handlers that a command replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what tests measured: ``record_property("measured", "stop: 0.3 s")``.

    With ``--tally``, write the numbers to that file.
    """
    lines = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == MEASURED
    ]
    if lines:
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.line(line)
    if path := config.getoption("tally"):
        stats = terminalreporter.stats
        counts = {name: len(stats.get(name, [])) for name in TALLIED}
        failed = [report.nodeid for name in ("failed", "error") for report in stats.get(name, [])]
        counts["slow"] = config.stash.get(LEFT_OUT, 0)
        Path(path).write_text(json.dumps({"counts": counts, "failures": failed}), "utf-8")


def unmet(reason: str) -> NoReturn:
    """Skip the test, or the module that calls this while it is imported; fail it where everything
    has to be there (``REQUIRE_ALL=1``)."""
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and REQUIRE_ALL=1 says that it has to be")
    pytest.skip(reason, allow_module_level=True)


def require_tool(name: str, *, beside_python: bool = False) -> str:
    """Return the path of a program that a test runs.

    Without it the test is skipped, or fails where the environment says that everything is
    installed (``REQUIRE_ALL=1``). With `beside_python` it is one of this environment's packages.
    """
    own = str(Path(sys.executable).parent)
    path = shutil.which(name, path=own if beside_python else None)
    if path is not None:
        return path
    unmet(f"{name} is not on the PATH")
