# SPDX-License-Identifier: Apache-2.0
"""The daemon as its users meet it: a process with flags, signals, log lines and an HTTP port."""

from __future__ import annotations

import atexit
import functools
import http.client
import itertools
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.e2e.processes import Process
from tests.waiting import PATIENCE_SECONDS, wait_until

COMMAND = (sys.executable, "-m", "exporter")
WATCH_INTERVAL_SECONDS = 0.2
START_SECONDS = 15.0
Labels = Mapping[str, str]
Key = tuple[str, frozenset[tuple[str, str]]]

# What a GPU that cannot be read still shows, beside gpu_xid_*.
SHOWN_WHILE_DOWN = frozenset(
    {
        "gpu_up",
        "gpu_info",
        "gpu_last_read_timestamp_seconds",
        "gpu_xid_errors_total",
        "gpu_xid_last_timestamp_seconds",
    }
)


_NUMBERS = itertools.count()


@functools.cache
def _sockets() -> str:
    """Return a folder for sockets, whose paths must be shorter than those of tests may be."""
    folder = tempfile.mkdtemp(prefix="roofline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Page:
    """One page of /metrics, as client_python reads it."""

    def __init__(self, text: str) -> None:
        parse = parse_openmetrics if text.endswith("# EOF\n") else parse_text
        self.samples: dict[Key, float] = {}
        for family in parse(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"twice on one page: {key}"
                self.samples[key] = sample.value

    @functools.cached_property
    def _by_name(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for (name, labels), value in self.samples.items():
            found.setdefault(name, []).append((dict(labels), value))
        return found

    @property
    def names(self) -> frozenset[str]:
        """Every sample name."""
        return frozenset(self._by_name)

    def rows(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every sample of that name with these labels."""
        return [
            (have, value)
            for have, value in self._by_name.get(name, [])
            if labels.items() <= have.items()
        ]

    def get(self, name: str, **labels: str) -> float | None:
        """The value of the one sample of that name with these labels; None if there is none."""
        rows = self.rows(name, **labels)
        assert len(rows) <= 1, f"{name}{labels} is not one sample: {rows}"
        return rows[0][1] if rows else None

    def value(self, name: str, **labels: str) -> float:
        """The value of a sample that has to be there."""
        value = self.get(name, **labels)
        assert value is not None, f"{name}{labels} is absent"
        return value

    def gpu(self, index: int) -> dict[Key, float]:
        """Every series of one GPU."""
        pair = ("gpu", str(index))
        return {key: value for key, value in self.samples.items() if pair in key[1]}

    def readings(self, index: int) -> frozenset[str]:
        """The names of one GPU that may only be there while it can be read."""
        return frozenset(
            name
            for name, _ in self.gpu(index)
            if name not in SHOWN_WHILE_DOWN and not name.startswith("gpu_xid_")
        )

    def counters(self, index: int | None = None) -> dict[Key, float]:
        """Every counter, or those of one GPU."""
        samples = self.samples if index is None else self.gpu(index)
        return {key: value for key, value in samples.items() if key[0].endswith("_total")}


@dataclass(frozen=True)
class Answer:
    """What an HTTP request gave."""

    status: int
    headers: Labels
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Scrape:
    """One page of a watch."""

    at: float
    """Unix time at which it was asked for."""
    seconds: float
    text: str

    @functools.cached_property
    def page(self) -> Page:
        return Page(self.text)


@dataclass
class Watch:
    """Pages that were read one after the other while something happened."""

    scrapes: list[Scrape] = field(default_factory=list)
    error: BaseException | None = None

    def between(self, start: float, end: float) -> list[Scrape]:
        """The pages that were asked for between two Unix times."""
        chosen = [scrape for scrape in self.scrapes if start <= scrape.at < end]
        assert chosen, "no page in this time"
        return chosen

    def counters_fell(self) -> list[str]:
        """The counters that were smaller on a page than on an earlier one."""
        highest: dict[Key, float] = {}
        fell = []
        for scrape in self.scrapes:
            for key, value in scrape.page.counters().items():
                if value < highest.get(key, 0.0):
                    fell.append(f"{key}: {highest[key]} then {value}")
                highest[key] = value
        return fell


class Daemon(Process):
    """`roofline-exporter serve` on a free port."""

    def __init__(
        self,
        directory: Path,
        env: Mapping[str, str],
        flags: tuple[str, ...],
        program: tuple[str, ...] = COMMAND,
    ) -> None:
        self.socket = f"{_sockets()}/{next(_NUMBERS)}.sock"
        """Of training jobs, unless `flags` name another."""
        own = ("--web.listen-address=127.0.0.1:0", f"--training.socket={self.socket}")
        command = [*program, "serve", *own, *flags]
        super().__init__(command, directory, env)
        found = self.find_in_line(r"listening on (https?)://127\.0\.0\.1:(\d+)/")
        self.port = int(found[2])
        self.url = f"{found[1]}://127.0.0.1:{self.port}"

    def request(
        self, path: str, headers: Labels | None = None, method: str = "GET", timeout: float = 10.0
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Labels | None = None) -> Answer:
        return self.request(path, headers)

    def metrics(self) -> Page:
        """The page of /metrics now."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        return Page(answer.text)

    def page_when(
        self, true: Callable[[Page], bool], what: str, seconds: float = PATIENCE_SECONDS
    ) -> Page:
        """Wait for a page of which something is true."""

        def so() -> Page | None:
            page = self.metrics()
            return page if true(page) else None

        return wait_until(so, seconds, what)

    def wait_for_page(self, seconds: float, what: str, **wanted: float) -> Page:
        """Wait for a page on which gpu_up of each index in `wanted` (``gpu0=1``) is so."""

        def so(page: Page) -> bool:
            ups = {f"gpu{labels['gpu']}": value for labels, value in page.rows("gpu_up")}
            return ups.items() >= wanted.items()

        return self.page_when(so, what, seconds)

    def wait_for_gpus(self, count: int, seconds: float = START_SECONDS) -> Page:
        """Wait until so many GPUs are up and have counted something."""

        def so(page: Page) -> bool:
            ups = [value for _, value in page.rows("gpu_up")]
            observed = {labels["gpu"] for labels, _ in page.rows("gpu_observed_seconds_total")}
            return sum(ups) == count == len(observed)

        return self.page_when(so, f"{count} GPUs up", seconds)

    @contextmanager
    def watch(
        self, names: tuple[str, ...] = (), interval: float = WATCH_INTERVAL_SECONDS
    ) -> Iterator[Watch]:
        """Read /metrics over and over in another thread; only these families if any are named."""
        watch, stopped = Watch(), threading.Event()
        path = "/metrics" + "".join(f"{'&' if i else '?'}name[]={n}" for i, n in enumerate(names))

        def read() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            try:
                while not stopped.is_set():
                    at, started = time.time(), time.monotonic()
                    connection.request("GET", path)
                    text = connection.getresponse().read().decode()
                    watch.scrapes.append(Scrape(at, time.monotonic() - started, text))
                    stopped.wait(max(0.0, interval - (time.monotonic() - started)))
            except BaseException as error:
                watch.error = error
            finally:
                connection.close()

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield watch
        finally:
            stopped.set()
            thread.join()
        assert watch.error is None, f"a scrape failed: {watch.error!r}"


REQUEST = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class StreamClient:
    """One open stream; what comes is kept as it came."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(REQUEST)
        self.data = b""

    def read_for(self, seconds: float) -> bytes:
        """Read for so long, or until the server ends the stream; return what came in this time."""
        deadline, before = time.monotonic() + seconds, len(self.data)
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(65536)
            except TimeoutError:
                break
            if not chunk:
                break
            self.data += chunk
        return self.data[before:]

    def read_until(self, what: bytes, seconds: float = 10.0) -> None:
        """Read until something came."""
        deadline = time.monotonic() + seconds
        while what not in self.data:
            assert time.monotonic() < deadline, f"no {what!r} in {self.data[-500:]!r}"
            self.read_for(0.05)

    def read_to_end(self, seconds: float = 5.0) -> None:
        """Read until the server closes the connection."""
        self._socket.settimeout(seconds)
        while chunk := self._socket.recv(65536):
            self.data += chunk

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
