# SPDX-License-Identifier: Apache-2.0
"""The child's side of the pipes: it never waits for the exporter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.sources.counters.port import Port
from exporter.sources.counters.wire import Lines


class Pipes:
    """A port, and the ends that the exporter has."""

    def __init__(self) -> None:
        orders, self.tell = os.pipe()
        self.said, says = os.pipe()
        self.ends = {orders, self.tell, self.said, says}
        self.port = Port(orders, says)
        os.set_blocking(self.said, False)
        self._lines = Lines()

    def order(self, text: str) -> None:
        os.write(self.tell, text.encode())

    def read(self, most: int = 1 << 20) -> list[dict[str, Any]]:
        """What is in the pipe, every line of which is whole."""
        try:
            return [json.loads(line) for line in self._lines.feed(os.read(self.said, most))]
        except BlockingIOError:
            return []

    def shut(self, end: int) -> None:
        os.close(end)
        self.ends.discard(end)

    def close(self) -> None:
        for end in tuple(self.ends):
            self.shut(end)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def test_orders_arrive_one_by_one(pipes: Pipes) -> None:
    pipes.order('{"host": "x"}\n{"pause": true}\n{"resu')
    assert pipes.port.options() == {"host": "x"}
    assert pipes.port.messages() == [{"pause": True}]
    pipes.order('me": true}\n')
    assert pipes.port.messages() == [{"resume": True}]
    assert pipes.port.messages() == []
    assert not pipes.port.ended


def test_the_end_of_the_orders_is_the_end(pipes: Pipes) -> None:
    """Nobody waits after it."""
    pipes.shut(pipes.tell)
    began = time.monotonic()

    pipes.port.wait(60.0)

    assert pipes.port.ended
    assert pipes.port.options() == {}
    assert time.monotonic() - began < 50.0


def test_an_order_ends_the_wait(pipes: Pipes) -> None:
    pipes.order('{"pause": true}\n')
    began = time.monotonic()

    pipes.port.wait(60.0)

    assert time.monotonic() - began < 50.0
    assert pipes.port.messages() == [{"pause": True}]


def test_an_exporter_that_is_gone_is_the_end(pipes: Pipes) -> None:
    pipes.shut(pipes.said)

    pipes.port.beat()

    assert pipes.port.ended


def test_a_full_pipe_costs_activities_and_no_states(pipes: Pipes) -> None:
    """Of the states of one place the newest is kept; every line that arrives is whole."""
    port = pipes.port
    long = {"hello": {"x": "y" * 5000}}
    while not port.dropped_total:
        port.emit(long)
    for number in range(1000):
        port.emit({"gpu": f"GPU-{number % 10}", "state": "busy", "message": str(number)})
        port.beat()

    found = []
    for _ in range(2000):
        found += pipes.read(3000)
        port.beat()
    states = [each for each in found if "state" in each]

    assert {each["gpu"]: each["message"] for each in states} == {
        f"GPU-{number}": str(990 + number) for number in range(10)
    }
    assert len(states) == 10
    assert "beat" in found[-1]
    assert port.dropped_total > 1000


def test_a_number_that_is_none_is_the_programs_fault(pipes: Pipes) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        pipes.port.emit({"gpu": "GPU-a", "seconds": float("nan")})
