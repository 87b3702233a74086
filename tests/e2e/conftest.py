# SPDX-License-Identifier: Apache-2.0
"""Daemons on scripted drivers, and a real Prometheus; all end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from exporter.model.snapshot import Snapshot
from tests.conftest import require_tool, unmet
from tests.e2e.alerting import Alertmanager
from tests.e2e.browser import SIZES, View, chromium, started
from tests.e2e.daemons import COMMAND, Daemon
from tests.e2e.live import Live
from tests.e2e.processes import Process
from tests.e2e.prometheus import PrometheusServer
from tests.fake_nvml import FakeNvml

SLOWEST = ("test_page", "test_containers", "test_gpu_faults", "test_web_config", "test_prometheus")

StartDaemon = Callable[..., Daemon]
MakeDriver = Callable[..., FakeNvml]
RunCommand = Callable[..., Process]
StartPrometheus = Callable[..., PrometheusServer]
StartAlertmanager = Callable[[str], Alertmanager]
OpenPage = Callable[..., View]
Serve = Callable[..., Live]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test here, and begin with those that take longest: others run beside them."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
    if ours:
        first = items.index(ours[0])
        ours.sort(key=lambda item: item.path.stem not in SLOWEST)
        others = [item for item in items if here not in item.path.parents]
        items[:] = [*others[:first], *ours, *others[first:]]


@pytest.fixture
def make_driver(folders: Iterator[Path]) -> MakeDriver:
    """Makes scripted drivers: ``make_driver({"devices": […]})``."""

    def make(scenario: Mapping[str, Any], **options: Any) -> FakeNvml:
        return FakeNvml(next(folders), scenario, **options)

    return make


@pytest.fixture
def start(folders: Iterator[Path], processes: list[Process]) -> StartDaemon:
    """Starts `serve` on a fake driver, or with the environment given instead of one; with
    `wait_for`, returns once so many GPUs are up and counted something."""

    def launch(driver: FakeNvml | Mapping[str, str], *flags: str, wait_for: int = 0) -> Daemon:
        env = driver.environment() if isinstance(driver, FakeNvml) else driver
        daemon = Daemon(next(folders), env, flags)
        processes.append(daemon)
        if wait_for:
            daemon.wait_for_gpus(wait_for)
        return daemon

    return launch


@pytest.fixture
def command(folders: Iterator[Path], processes: list[Process]) -> RunCommand:
    """Runs a subcommand to its end: ``command(driver, "once")``."""

    def run(driver: FakeNvml | Mapping[str, str], *words: str) -> Process:
        env = driver.environment() if isinstance(driver, FakeNvml) else driver
        process = Process([*COMMAND, *words], next(folders), env)
        processes.append(process)
        process.wait()
        return process

    return run


@pytest.fixture
def start_prometheus(folders: Iterator[Path], processes: list[Process]) -> StartPrometheus:
    """Starts a Prometheus that scrapes a port: ``start_prometheus(daemon.port, "15s")``; or with
    a configuration of its own: ``start_prometheus(config=text)``."""
    program = require_tool("prometheus")

    def launch(
        port: int = 0, interval: str = "1s", config: str = "", flags: Sequence[str] = ()
    ) -> PrometheusServer:
        server = PrometheusServer(program, next(folders), port, interval, config, flags)
        processes.append(server)
        return server

    return launch


@pytest.fixture
def start_alertmanager(folders: Iterator[Path], processes: list[Process]) -> StartAlertmanager:
    """Starts an Alertmanager with a configuration."""
    program = require_tool("prometheus-alertmanager")

    def launch(config: str) -> Alertmanager:
        server = Alertmanager(program, next(folders), config)
        processes.append(server)
        return server

    return launch


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module: while it runs, so does an event loop in this thread,
    which tests of other modules must not find."""
    path = chromium()
    if path is None:
        unmet("chromium is not on the PATH")
    with started(path) as running:
        yield running


@pytest.fixture
def view(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages: ``view(size="phone", color_scheme="dark")``; none may offend the policy."""
    opened: list[View] = []

    def new(size: str = "laptop", **options: Any) -> View:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, timezone_id="UTC", **options
        )
        opened.append(View(context.new_page()))
        return opened[-1]

    yield new
    violations = [line for each in opened for line in each.violations()]
    for each in opened:
        each.page.context.close()
    assert violations == []


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Shows snapshots: ``serve(snapshot)``."""
    running: list[Live] = []

    def new(*shown: Snapshot, **options: Any) -> Live:
        running.append(Live(*shown, **options))
        return running[-1]

    yield new
    for each in running:
        each.stop()
