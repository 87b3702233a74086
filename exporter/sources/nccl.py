# SPDX-License-Identifier: Apache-2.0
"""The source `nccl-ras`: asks NCCL's RAS every 15 s which ranks of a job on this node answer.

Commands and answers are lines of text over TCP, the status is JSON. The protocol is that of NCCL's
src/ras/client.cc; JSON came with NCCL 2.28.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

from exporter.clock import Clock
from exporter.exchange import Deadline
from exporter.model.training import RAS_STATES, Collectives
from exporter.sources.interface import NCCL_RAS
from exporter.sources.poller import PolledSource, Unreadable

INTERVAL_SECONDS = 15.0
KEPT_SECONDS = 60.0
"""A status that is older says nothing of now."""
PROTOCOL = 2
RANKS_SECONDS = 5
"""How long RAS waits for other processes; it takes at most as long again to give up on them."""
CONNECT_SECONDS = 2.0
TOTAL_SECONDS = 2.0 * RANKS_SECONDS + 3.0
MOST_BYTES = 16 * 2**20
"""A rank takes 700 bytes for each communicator that it is in."""
LONGEST_LINE = 1024

_SEVERITY = {state: number for number, state in enumerate(RAS_STATES)}


class NcclRas(PolledSource[Collectives]):
    """What NCCL's RAS says; nothing while no job answers, which is no fault."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        super().__init__(NCCL_RAS, self._status, clock, INTERVAL_SECONDS, comes_and_goes=True)
        self._host = host
        self._port = port

    def collectives(self) -> Collectives | None:
        """Return the last status, if it is not too old."""
        with self._lock:
            old = self._clock.monotonic() - self._read_at > KEPT_SECONDS
            return None if old else self._report

    def _status(self) -> Collectives | None:
        status = fetch_status(self._host, self._port)
        return None if status is None else collectives(status)


def fetch_status(host: str, port: int) -> bytes | None:
    """Return the status as JSON; None where nobody listens: no job with NCCL runs here.

    Raises:
        Unreadable: it is no RAS, is too old, or did not finish within `TOTAL_SECONDS`.
    """
    deadline = Deadline(TOTAL_SECONDS)
    try:
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
    except OSError:
        return None
    with connection:
        try:
            return _Client(connection, deadline).status()
        except TimeoutError:
            raise Unreadable(f"NCCL's RAS takes longer than {TOTAL_SECONDS:g} s") from None
        except OSError as error:
            raise Unreadable(f"NCCL's RAS at {host}:{port}: {error.strerror or error}") from error


class _Client:
    """A connection to RAS, with one deadline over all that is sent and received."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._received = bytearray()

    def status(self) -> bytes:
        """Return what RAS answers to STATUS."""
        greeting = self._command(f"CLIENT PROTOCOL {PROTOCOL}")
        if not greeting.upper().startswith(b"SERVER PROTOCOL "):
            raise Unreadable("what answers there is not NCCL's RAS")
        for command in (f"TIMEOUT {RANKS_SECONDS}", "SET FORMAT json"):
            if self._command(command) != b"OK":
                raise Unreadable("NCCL's RAS has no JSON: NCCL 2.28 or newer is needed")
        self._send("STATUS")
        while self._receive():
            if len(self._received) > MOST_BYTES:
                raise Unreadable(f"the status of NCCL's RAS is larger than {MOST_BYTES >> 20} MiB")
        return bytes(self._received)

    def _command(self, text: str) -> bytes:
        self._send(text)
        while b"\n" not in self._received:
            if len(self._received) > LONGEST_LINE or not self._receive():
                raise Unreadable("what answers there is not NCCL's RAS")
        line, _, self._received = self._received.partition(b"\n")
        return bytes(line.strip())

    def _send(self, text: str) -> None:
        self._connection.settimeout(self._deadline.left())
        self._connection.sendall(text.encode() + b"\n")

    def _receive(self) -> bool:
        self._connection.settimeout(self._deadline.left())
        data = self._connection.recv(1 << 16)
        self._received += data
        return bool(data)


def collectives(data: bytes) -> Collectives:
    """Return the collectives of a job's processes from a status in JSON.

    Raises:
        Unreadable: it is no status of RAS.
    """
    try:
        status = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable("the status of NCCL's RAS is no JSON") from error
    communicators = status.get("communicators") if isinstance(status, dict) else None
    if not isinstance(communicators, list):
        raise Unreadable('the status of NCCL\'s RAS has no list "communicators"')
    worst: dict[Hashable, str] = {}
    for number, communicator in enumerate(communicators):
        for rank, state in _ranks(communicator):
            key = _process(rank) or (number, _integer(rank.get("rank")))
            if _SEVERITY[state] >= _SEVERITY[worst.get(key, RAS_STATES[0])]:
                worst[key] = state
    counted = Counter(worst.values())
    return Collectives({state: counted[state] for state in RAS_STATES}, len(communicators))


def _ranks(communicator: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if not isinstance(communicator, dict):
        raise Unreadable("a communicator in the status of NCCL's RAS is no object")
    for rank in _objects(communicator, "ranks"):
        yield rank, "responding"
    for rank in _objects(communicator, "missing_ranks"):
        status = rank.get("status")
        said = status if isinstance(status, dict) else {}
        state = "unresponsive" if said.get("unresponsive") is True else "missing"
        yield rank, "dead" if said.get("considered_dead") is True else state


def _objects(communicator: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = communicator.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Unreadable(f"{key} in the status of NCCL's RAS is no list of ranks")
    return found


def _process(rank: dict[str, Any]) -> Hashable:
    """Return what identifies a rank over communicators; None where its process is not known."""
    host, pid = rank.get("host"), _integer(rank.get("pid"))
    if not isinstance(host, str) or pid is None or pid < 0:
        return None
    return host, pid, _integer(rank.get("cuda_dev"))


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
