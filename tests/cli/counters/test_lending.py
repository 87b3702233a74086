# SPDX-License-Identifier: Apache-2.0
"""``counters pause|resume`` finds the daemon's process, signals it, and says what came of it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cli.command import on_signal
from exporter.cli.config.coerce import URL
from exporter.cli.counters.lending import catches, process_of, send
from exporter.cli.counters.lending import outcome as wait_for
from exporter.errors import SourceError
from tests.cli.outcomes import Outcome
from tests.cli.status.answers import NODE
from tests.cli.stub import NOBODY, Stub
from tests.serving import serving

PROC = Path("/proc")


class Daemon:
    """This process as a daemon: it takes the signals, and says what is paused."""

    def __init__(self) -> None:
        self.paused: list[str] = []
        self.takes = True

    def pause(self) -> None:
        if self.takes:
            self.paused = ["cupti", "dcgm"]

    def resume(self) -> None:
        self.paused = []


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    daemon = Daemon()
    on_signal(signal.SIGUSR1, daemon.pause)
    on_signal(signal.SIGUSR2, daemon.resume)
    yield daemon
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def port(daemon: Daemon) -> Iterator[int]:
    class Page(Stub):
        def answer(self, request: object) -> tuple[int, bytes]:
            states = dict.fromkeys(daemon.paused, "paused") | {"gpm": "unsupported"}
            gpus = [{**gpu, "absent_readings": states} for gpu in NODE["gpus"][:2]]
            return 200, json.dumps({**NODE, "gpus": gpus}).encode()

    with serving(Page()) as port:
        yield port


def test_the_counters_are_handed_over_and_back(port: int, daemon: Daemon, outcome: Outcome) -> None:
    where = f"--url=http://127.0.0.1:{port}"

    code, out, err = outcome("counters", "pause", where)
    released = "cupti of GPU 0, dcgm of GPU 0, cupti of GPU 1, dcgm of GPU 1"
    assert (code, out, err) == (0, f"released: {released}\n", "")

    code, out, err = outcome("counters", "resume", where)
    assert (code, out, err) == (0, "resumed\n", "")
    assert daemon.paused == []


def test_a_port_where_nothing_listens(outcome: Outcome) -> None:
    said = "roofline-exporter: nothing listens on port 1 of this machine\n"
    assert outcome("counters", "pause", f"--url={NOBODY}") == (1, "", said)


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_another_machine_is_refused(host: str, outcome: Outcome) -> None:
    """What listens on that port here is another daemon."""
    code, _, err = outcome("counters", "pause", f"--url=http://{host}:19400")

    assert code == 1
    assert "is not of this machine" in err


def test_the_process_is_found_on_ipv6_as_well() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert process_of(URL.parse(f"http://[::1]:{port}"), PROC) == os.getpid()


def test_a_process_of_another_user_is_one_line(tmp_path: Path) -> None:
    """Its open files cannot be seen."""
    net = tmp_path / "net"
    net.mkdir()
    row = "0: 00000000:4BC8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1"
    (net / "tcp").write_text(f"  sl  local_address ...\n   {row}\n", encoding="ascii")
    (tmp_path / "99").mkdir()

    with pytest.raises(SourceError, match="another user's"):
        process_of(URL.parse("http://127.0.0.1:19400"), tmp_path)


def test_a_process_without_a_handler_is_not_signalled(daemon: Daemon) -> None:
    """SIGUSR1 would end it: a daemon of an older version, or none at all."""
    assert catches(os.getpid(), signal.SIGUSR1, PROC)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    assert not catches(os.getpid(), signal.SIGUSR1, PROC)
    with pytest.raises(SourceError, match="does not take SIGUSR1"):
        send(signal.SIGUSR1, os.getpid(), PROC)


def test_a_daemon_without_such_counters_says_so() -> None:
    waited: list[float] = []

    line = wait_for("pause", list, 1.0, waited.append)

    assert line == "no source of this daemon has counters that a profiler needs"
    assert sum(waited) == pytest.approx(1.0)


def test_counters_that_stay_paused_are_a_failure() -> None:
    with pytest.raises(SourceError, match="still paused after 1 s: cupti of GPU 0"):
        wait_for("resume", lambda: ["cupti of GPU 0"], 1.0, lambda _seconds: None)
