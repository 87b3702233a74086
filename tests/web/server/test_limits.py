# SPDX-License-Identifier: Apache-2.0
"""Timeouts and limits of connections."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.fairness import origin
from exporter.web.server import protocol
from exporter.web.server.limits import Activity, Limits, Phase, timed_out
from tests.waiting import wait_until
from tests.web.server.site import GET, LARGE, Client, Site


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site().open() as site:
        yield site


def entered(site: Site, number: int) -> None:
    """Wait until so many connections are in."""
    wait_until(lambda: len(site.connections) == number)


def unsent(site: Site) -> list[int]:
    """How many bytes of each connection's answers are not taken."""
    connections = site.connections
    return [connection.measure().unsent_bytes for connection in connections]


def ends(site: Site, client: Client, seconds: float) -> None:
    """Assert that a connection ends after so many more seconds, and not before."""
    site.sweep()
    site.sweep(seconds - 1)
    assert client.is_open
    site.sweep(1.1)
    wait_until(lambda: not client.is_open)


@pytest.mark.parametrize(
    "data", [b"", b"\r\n\r\n", b"GET / HTTP/1.1\r\n", GET[:-4] % b"/"], ids=repr
)
def test_a_head_has_10_seconds(site: Site, data: bytes) -> None:
    """Whether none of it or some of it came."""
    with site.connect(data) as client:
        entered(site, 1)
        time.sleep(0.05)
        ends(site, client, 10)
    assert site.count.requests_aborted_total["head_timeout"] == 1


def test_dripping_does_not_prolong_it(site: Site) -> None:
    """The time counts from the first byte."""
    with site.connect(GET % b"/first") as client:
        client.answer()
        client.send(b"G")
        wait_until(lambda: _phases(site) == ["HEAD"])
        for byte in b"ET / HTT":
            client.send(bytes([byte]))
            site.sweep(1)
        ends(site, client, 2)
    assert site.count.requests_aborted_total["head_timeout"] == 1


def _phases(site: Site) -> list[str]:
    connections = site.connections
    return [connection.activity.phase.name for connection in connections]


def test_between_requests_there_are_75_seconds(site: Site) -> None:
    """Line breaks do not prolong them; nothing is counted."""
    with site.connect(GET % b"/") as client:
        client.answer()
        wait_until(lambda: unsent(site) == [0])
        client.send(b"\r\n")
        ends(site, client, 75)
    assert not any(site.count.requests_aborted_total.values())


def test_an_idle_connection_can_be_used_until_then(site: Site) -> None:
    """As Prometheus has it with a long interval."""
    with site.connect(GET % b"/") as client:
        for _ in range(3):
            client.answer()
            wait_until(lambda: unsent(site) == [0])  # the kernel takes its time to confirm
            site.sweep(60)
            client.send(GET % b"/")
        client.answer()


@pytest.mark.parametrize("path", [b"/large", b"/own", b"/stream"])
def test_a_client_that_reads_nothing_for_10_seconds_is_disconnected(
    site: Site, path: bytes
) -> None:
    """Also of a stream, and of an answer whose request is long done."""
    with site.connect(GET % path) as client:
        stuck(site, 1)
        site.sweep()
        site.sweep(9)
        assert len(site.connections) == 1
        site.sweep(1.1)
        assert len(site.connections) == 0
        assert len(client.rest()) < len(LARGE)
    assert site.count.requests_aborted_total["stalled"] == 1


def stuck(site: Site, number: int) -> None:
    """Wait until the answers of so many connections do not move."""

    def still() -> bool:
        before = unsent(site)
        time.sleep(0.1)
        return len(before) == number and all(before) and unsent(site) == before

    wait_until(still)


def test_a_slow_reader_has_a_minute(site: Site) -> None:
    """Not one more for each byte."""
    with site.connect(GET % b"/large") as client:
        stuck(site, 1)
        for _ in range(7):
            client.socket.recv(200_000)
            time.sleep(0.05)
            site.sweep(8)
        site.sweep(8)
        assert len(site.connections) == 0
    assert site.count.requests_aborted_total["stalled"] == 1


def test_a_slow_application_has_a_minute(site: Site) -> None:
    """Then the connection is ended."""
    with site.connect(GET % b"/slow") as client:
        wait_until(lambda: site.scopes)
        ends(site, client, 60)


def test_a_refused_client_cannot_linger(site: Site) -> None:
    """It has 2 s to read why."""
    with site.connect(b"nonsense\r\n\r\n") as client:
        wait_until(lambda: site.count.requests_refused_total["malformed"])
        client.send(b"more")
        site.sweep()
        site.sweep(1.5)
        assert len(site.connections) == 1
        site.sweep(1)

        def is_gone() -> bool:
            site.sweep()
            return len(site.connections) == 0

        # The kernel may take a moment to hear that the answer has arrived.
        wait_until(is_gone)


# Caps

FEW = Limits(connections=3, connections_per_address=2)


@contextlib.contextmanager
def open_site(limits: Limits) -> Iterator[tuple[Site, Callable[..., Client]]]:
    """Give a site, and what connects to it and hangs up at the end."""
    with Site(limits).open() as site, contextlib.ExitStack() as stack:

        def connect(data: bytes = b"", address: str = "127.0.0.1") -> Client:
            return stack.enter_context(site.connect(data, address))

        yield site, connect


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each address of this host but 127.0.0.1 count as one of another host."""

    def elsewhere(address: str) -> str:
        return origin(address if address == "127.0.0.1" else f"10{address.removeprefix('127')}")

    monkeypatch.setattr(protocol, "origin", elsewhere)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("addresses", "reason"),
    [(["127.0.0.1"] * 3, "address_limit"), ([f"127.0.0.{n}" for n in range(2, 6)], "limit")],
)
def test_at_a_limit_the_next_connection_is_refused(addresses: list[str], reason: str) -> None:
    """It is closed, and counted; those before it are served."""
    with open_site(FEW) as (site, connect):
        busy = [connect(GET % b"/slow", address) for address in addresses[:-1]]
        wait_until(lambda: len(site.scopes) == len(busy))
        site.sweep(5)
        new = connect(b"", addresses[-1])
        wait_until(lambda: not new.is_open)
        assert site.count.connections_refused_total[reason] == 1
        site.released.set()
        for client in busy:
            assert client.answer().endswith(b"GET /slow\n")


def test_large_answers_of_their_own_are_bounded() -> None:
    """Unread answers of their own are kept for some clients only; a shared one is kept for all."""
    with open_site(Limits(unsent_bytes=3 * len(LARGE))) as (site, connect):
        for _ in range(8):
            connect(GET % b"/large")
        stuck(site, 8)
        assert not any(site.count.requests_aborted_total.values())
        for _ in range(8):
            connect(GET % b"/own")
        wait_until(lambda: site.count.requests_aborted_total["room"] >= 6)
        assert connect(GET % b"/").answer().endswith(b"GET /\n")


def test_there_are_no_more_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stay for the rest of the process."""
    for soft, most in ((1024, 512), (128, 64), (64, 4), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert Limits().affordable().connections == most


# When a connection has timed out

LIMITS = Limits()
NOW = 1000.0


@pytest.mark.parametrize(
    ("phase", "seconds", "reason"),
    [
        (Phase.HANDSHAKE, 10, "handshake"),
        (Phase.HEAD, 10, "head_timeout"),
        (Phase.ANSWERING, 60, "stalled"),
        (Phase.IDLE, 75, "idle"),
        (Phase.CLOSING, 2, "closed"),
    ],
)
def test_each_phase_has_its_time(phase: Phase, seconds: float, reason: str) -> None:
    """From its first moment; only a stream may last."""
    assert timed_out(Activity(phase, NOW - seconds + 0.1), NOW, LIMITS) is None
    assert timed_out(Activity(phase, NOW - seconds), NOW, LIMITS) == reason
    assert timed_out(Activity(Phase.STREAMING, 0.0), NOW, LIMITS) is None


def test_an_event_of_a_stream_has_a_minute_however_it_drips() -> None:
    """A client that takes a byte now and then makes progress, and is too slow all the same."""
    for seconds, expected in ((59.9, None), (60.0, "stalled")):
        drips = Activity(Phase.STREAMING, NOW, 1, NOW, NOW - seconds)
        assert timed_out(drips, NOW, LIMITS) == expected


AGES = st.floats(0, 200)


MOMENTS = AGES.map(lambda age: NOW - age)


ACTIVITIES = st.builds(
    Activity,
    st.sampled_from(Phase),
    MOMENTS,
    st.sampled_from([0, 1, 1 << 20]),
    MOMENTS,
    st.none() | MOMENTS,
)


@given(ACTIVITIES)
def test_no_connection_lasts_forever(activity: Activity) -> None:
    """But a stream with nothing to send, or whose client reads; a byte now and then is too slow."""
    later = NOW + 75
    ends = timed_out(activity, later, LIMITS)
    assert ends or (activity.phase is Phase.STREAMING and not activity.unsent_bytes)
    ends = timed_out(replace(activity, progressed=later), later, LIMITS)
    assert ends or activity.phase is Phase.STREAMING
