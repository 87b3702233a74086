# SPDX-License-Identifier: Apache-2.0
"""NCCL's RAS: its protocol, its status, and what is kept of it."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.snapshot import SourceState
from exporter.model.training import RAS_STATES, Collectives
from exporter.sources import nccl as nccl_ras
from exporter.sources.nccl import KEPT_SECONDS, NcclRas, collectives, fetch_status
from exporter.sources.poller import Unreadable
from tests.clocks import ManualClock
from tests.sources.nccl.ras_server import RasServer, absent, rank, status

WELL = status(([rank(0, 100), rank(1, 101, gpu=1)], []))
SICK = status(
    ([rank(0, 100), rank(1, 101)], [absent(2, 102, dead=True), absent(3, 103)]),
    ([rank(0, 100)], [absent(1, 101, unresponsive=True), absent(2, 102)]),
)


def said(plain: Any) -> Collectives:
    return collectives(json.dumps(plain).encode())


def test_each_process_counts_once_by_its_worst_state() -> None:
    """Communicators overlap: a job has one for each kind of parallelism."""
    assert said(WELL) == Collectives(dict(zip(RAS_STATES, (2, 0, 0, 0), strict=True)), 1)
    assert said(SICK) == Collectives(dict.fromkeys(RAS_STATES, 1), 2)
    assert said(status()) == Collectives(dict.fromkeys(RAS_STATES, 0), 0)


def test_a_rank_of_no_known_process_is_one_of_its_communicator() -> None:
    """RAS has forgotten the process: host unknown, pid -1."""
    lost = {**absent(5, -1, dead=True), "host": "unknown"}
    assert said(status(([], [lost, {**lost, "rank": 6}]))).ranks["dead"] == 2


def test_the_gpus_of_one_process_are_ranks_of_their_own() -> None:
    """One process may drive all GPUs of a node."""
    assert said(status(([rank(n, 100, gpu=n) for n in range(4)], []))).ranks["responding"] == 4


@pytest.mark.parametrize(
    "data",
    [
        b"ERROR: nothing\n",
        b'{"communicators": 3}',
        b'{"communicators": [3]}',
        b'{"communicators": [{"ranks": 3}]}',
        b'{"communicators": [{"missing_ranks": [3]}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_status_is_refused(data: bytes) -> None:
    """Whoever has the port may say anything."""
    with pytest.raises(Unreadable, match="NCCL's RAS"):
        collectives(data)


KEYS = st.sampled_from(["communicators", "ranks", "missing_ranks", "status", "pid", "host"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_anything_is_a_status_or_refused(plain: Any) -> None:
    """And every state is counted."""
    try:
        found = said(plain)
    except Unreadable:
        return
    assert list(found.ranks) == list(RAS_STATES)
    assert all(count >= 0 for count in found.ranks.values())


def test_it_asks_as_ncclras_does() -> None:
    """Protocol, time limit and format first."""
    with RasServer(WELL) as ras:
        said = fetch_status("127.0.0.1", ras.port)
        assert said is not None
        assert json.loads(said) == WELL
        assert ras.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"]


def test_an_older_nccl_has_no_json() -> None:
    """Which is said, with what is needed."""
    with RasServer(has_json=False) as ras, pytest.raises(Unreadable, match=r"NCCL 2\.28"):
        fetch_status("127.0.0.1", ras.port)


def test_nobody_there_is_no_fault() -> None:
    """Most nodes have no job most of the time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert fetch_status("127.0.0.1", free.getsockname()[1]) is None


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 5000])
def test_another_server_on_the_port_is_not_believed(says: bytes) -> None:
    """It is named as what it is."""
    with RasServer(greeting=says) as ras, pytest.raises(Unreadable, match="is not NCCL's RAS"):
        fetch_status("127.0.0.1", ras.port)


def test_a_status_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is the node's."""
    monkeypatch.setattr(nccl_ras, "MOST_BYTES", 1000)
    with RasServer(b"x" * 200_000) as ras, pytest.raises(Unreadable, match="larger"):
        fetch_status("127.0.0.1", ras.port)


def test_one_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process keeps its port."""
    monkeypatch.setattr(nccl_ras, "TOTAL_SECONDS", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(Unreadable, match=r"timed out|longer"),
    ):
        fetch_status("127.0.0.1", server.getsockname()[1])


def test_what_was_said_holds_until_the_job_ends(caplog: pytest.LogCaptureFixture) -> None:
    """A question that fails leaves it for a minute; a job that is gone takes it along."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    with RasServer(SICK) as ras:
        source = NcclRas("127.0.0.1", ras.port, clock)
        assert source.state == SourceState(up=False)
        source.read_once()
        assert source.state.up
        found = source.collectives()
        assert found is not None
        assert found.ranks["dead"] == 1

        ras.says = b"nonsense"
        clock.advance(KEPT_SECONDS - 1)
        source.read_once()
        source.read_once()
        assert source.collectives() == found
        assert not source.state.up
        assert source.state.failures_total == 2
        assert source.state.age_seconds == KEPT_SECONDS - 1
        clock.advance(2.0)
        assert source.collectives() is None

        ras.says = SICK
        source.read_once()
        assert source.collectives() == found
    source.read_once()
    assert source.collectives() is None
    assert not source.state.up
    assert caplog.messages == [
        "source nccl-ras: the status of NCCL's RAS is no JSON",
        "source nccl-ras can be read again",
    ]
