# SPDX-License-Identifier: Apache-2.0
"""A port with scripted messages and simulated time, for a program in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exporter.sources.counters.wire import Port, encoded
from tests.fake_cupti import FakeCupti, uuid_of


def wanted(*indexes: int, gpu_instances: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the exporter's request to sample these GPUs."""
    instances = list(gpu_instances)
    return {"gpus": [{"uuid": uuid_of(each), "gpu_instances": instances} for each in indexes]}


class ScriptedPort(Port):
    """Delivers messages at their times until `ends_at`; `wait` advances the clock."""

    def __init__(self, fake: FakeCupti) -> None:
        self.fake = fake
        self.now = 1000.0
        self.script: list[tuple[float, dict[str, Any] | tuple[str, ...] | Callable[[], None]]] = []
        """When, after the start, and what: a message, lines that the fake plays from then on, or
        something to do."""
        self.ends_at = 0.0
        self.ended = False
        self.said: list[tuple[float, dict[str, Any]]] = []
        """When, after the start, and what."""
        self.beats: list[float] = []

    def clock(self) -> float:
        """Return the monotonic time."""
        return self.now

    def emit(self, message: Mapping[str, Any]) -> None:
        """Record a message that has a line."""
        encoded(message)
        self.said.append((round(self.now - 1000.0, 6), dict(message)))

    def beat(self) -> None:
        """Note that the program is alive."""
        self.beats.append(self.now - 1000.0)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that are due."""
        due = [what for when, what in self.script if when <= self.now - 1000.0]
        self.script = [(when, what) for when, what in self.script if when > self.now - 1000.0]
        for what in due:
            if isinstance(what, tuple):
                self.fake.play(*what)
            elif callable(what):
                what()
        return [what for what in due if isinstance(what, dict)]

    def wait(self, seconds: float) -> None:
        """Let time pass until then, or until a message comes."""
        until = self.now + seconds
        comes = [1000.0 + when for when, _ in self.script]
        passed = max(min([until, *comes]), self.now) - self.now
        self.now += passed
        self.fake.advance(passed)
        self.ended = self.now >= 1000.0 + self.ends_at

    def states(self, index: int | None = 0) -> list[str]:
        """Return the states that were said of a GPU, or of all."""
        uuid = None if index is None else uuid_of(index)
        return [what["state"] for _, what in self.said if "state" in what and what["gpu"] == uuid]

    def activities(self, index: int = 0) -> list[tuple[float, dict[str, Any]]]:
        """Return the activities of a GPU."""
        uuid = uuid_of(index)
        return [
            (when, what) for when, what in self.said if what.get("gpu") == uuid and "ratios" in what
        ]
