# SPDX-License-Identifier: Apache-2.0
"""When the source container asks, whom, and what it does about those that do not answer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.model.reading import Board, Device, Process, Reading, ShareReading, SlotReport, Vitals
from exporter.model.workload import Membership
from exporter.sources.workload.container import containers as module
from exporter.sources.workload.container.containers import ContainerSource, on_gpus
from tests.clocks import ManualClock
from tests.sources.workload.container.unix_engine import (
    UnixEngine,
    answer,
    container,
    engine_at,
    folder,
    listing,
    without_rights,
)

ID, OTHER_ID = "a" * 64, "b" * 64
DOWN = answer(b"", status=500)


class Rig:
    """A source with the containers that are on GPUs, and a clock that is moved by hand."""

    def __init__(self, *sockets: str, on_gpus: set[str]) -> None:
        self.clock = ManualClock()
        self.on_gpus = on_gpus
        self.source = ContainerSource(sockets, lambda: frozenset(self.on_gpus), self.clock)

    def names(self, after_seconds: float = 0.0) -> dict[str, str]:
        """The names by the first letter of the id, after one more round."""
        self.clock.advance(after_seconds)
        self.source.read_once()
        report = self.source.report()
        named = {} if report is None else report.named
        return {number[0]: each.container for number, each in named.items()}

    @property
    def up(self) -> bool | None:
        state = self.source.state
        return None if state is None else state.up


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where both engines listen by default."""
    with folder() as path:
        default = (str(path / "docker.sock"), str(path / "podman.sock"))
        monkeypatch.setattr(module, "CONTAINER_SOCKETS", default)
        yield path


@pytest.fixture
def docker(place: Path) -> Iterator[UnixEngine]:
    says = listing(container(ID, "/llm"), container(OTHER_ID, "/notebook"))
    with engine_at(place / "docker.sock", says) as engine:
        yield engine


@pytest.fixture
def podman(place: Path) -> Iterator[UnixEngine]:
    says = listing(container(OTHER_ID, "/vllm"), server="Libpod/5.2.0 (linux)")
    with engine_at(place / "podman.sock", says) as engine:
        yield engine


def test_nobody_is_asked_while_no_container_is_on_a_gpu(docker: UnixEngine) -> None:
    """An engine may be one that a question starts; the source is not in use then."""
    rig = Rig(docker.path, on_gpus=set())
    assert rig.names() == {}
    assert rig.names(1000.0) == {}
    assert rig.up is None
    assert docker.asked == []
    rig.on_gpus = {ID}
    assert rig.names() == {"a": "llm"}
    assert rig.up is True
    rig.on_gpus = set()
    assert rig.names(1000.0) == {"a": "llm"}
    assert rig.up is None
    assert len(docker.asked) == 1


def test_a_container_that_is_new_is_asked_for_at_once(docker: UnixEngine) -> None:
    """Those that are known, or that the engine did not know, only after minutes: by then they may
    have been renamed."""
    unknown = "c" * 64
    rig = Rig(docker.path, on_gpus={ID, unknown})
    assert rig.names() == {"a": "llm"}
    docker.says = listing(container(ID, "/renamed"), container(OTHER_ID, "/notebook"))
    assert rig.names(290.0) == {"a": "llm"}
    state = rig.source.state
    assert state is not None
    assert state.age_seconds == 290.0
    assert rig.names(10.0) == {"a": "renamed"}
    rig.on_gpus.add(OTHER_ID)
    assert rig.names(10.0) == {"a": "renamed", "b": "notebook"}
    assert docker.filters() == [[ID, unknown], [ID, unknown], [ID, OTHER_ID, unknown]]


def test_both_engines_name_theirs(docker: UnixEngine, podman: UnixEngine) -> None:
    """On one node."""
    docker.says = listing(container(ID, "/llm"))
    rig = Rig(docker.path, podman.path, on_gpus={ID, OTHER_ID})
    assert rig.names() == {"a": "llm", "b": "vllm"}
    report = rig.source.report()
    assert report is not None
    assert {each.runtime for each in report.named.values()} == {"docker", "podman"}
    assert not report.allocates


def test_no_engine_is_no_fault(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where neither listens, ids do; once one does, it is asked within ten seconds."""
    rig = Rig(str(place / "docker.sock"), str(place / "podman.sock"), on_gpus={OTHER_ID})
    assert rig.names() == {}
    assert rig.up is None
    assert caplog.text == ""
    with engine_at(place / "podman.sock", listing(container(OTHER_ID, "/vllm"))):
        assert rig.names(10.0) == {"b": "vllm"}
        assert rig.up is True


def test_a_default_socket_that_may_not_be_opened_is_said_once(
    docker: UnixEngine, podman: UnixEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no fault, and the other engine gives its names."""
    caplog.set_level(logging.INFO)
    os.chmod(docker.path, 0)
    rig = Rig(docker.path, podman.path, on_gpus={OTHER_ID})
    os.chmod(podman.path, 0o777)
    with without_rights():
        assert rig.names() == {"b": "vllm"}
        assert rig.names(300.0) == {"b": "vllm"}
    assert rig.up is True
    assert caplog.messages == [
        f"source container: {docker.path} may not be opened: permission denied; "
        "containers have ids without names"
    ]


def test_a_socket_that_was_named_is_expected_to_be_there(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried at the start, and its absence is a fault until it answers."""
    path = str(place / "mine.sock")
    rig = Rig(path, on_gpus=set())
    rig.names()
    assert rig.up is False
    rig.on_gpus = {ID}
    rig.names(10.0)
    assert caplog.messages == [f"source container: nothing listens at {path}"]
    with engine_at(place / "mine.sock", listing(container(ID, "/llm"))):
        assert rig.names(10.0) == {"a": "llm"}
        assert rig.up is True


def test_one_engine_that_fails_harms_no_other(docker: UnixEngine, podman: UnixEngine) -> None:
    """Its last word stays, and it is asked at every round until it answers."""
    docker.says = listing(container(ID, "/llm"))
    rig = Rig(docker.path, podman.path, on_gpus={ID})
    assert rig.names() == {"a": "llm"}
    docker.says = DOWN
    rig.on_gpus.add(OTHER_ID)
    assert rig.names(10.0) == {"a": "llm", "b": "vllm"}
    assert rig.up is False
    assert len(docker.asked) == 2
    docker.says = listing(container(ID, "/renamed"))
    assert rig.names(10.0) == {"a": "renamed", "b": "vllm"}
    assert rig.up is True


def test_an_engine_that_went_away(docker: UnixEngine, caplog: pytest.LogCaptureFixture) -> None:
    """Containers live on while Docker is restarted, under their names."""
    rig = Rig(docker.path, on_gpus={ID})
    rig.names()
    docker.stop()
    rig.on_gpus.add(OTHER_ID)
    assert rig.names(10.0) == {"a": "llm"}
    assert rig.up is False
    assert caplog.messages == ["source container: it is gone; its last word stays"]
    rig.on_gpus = set()
    rig.names(10.0)
    assert rig.up is None


def test_whose_names_are_wanted() -> None:
    """Containers with a process on any share, but not those of pods."""
    members = (
        Membership(container_id=ID),
        Membership(container_id=OTHER_ID, pod_uid="8f9ba0f5"),
        Membership(slurm_job="5"),
        None,
    )
    listed = tuple(Process(pid, "compute", membership=each) for pid, each in enumerate(members))
    device = Device(0, "GPU-1", "H100")
    shares = (ShareReading(processes=listed), ShareReading(processes=None))
    reading = Reading(device, 1.0, 1.0, Vitals(), Board(), shares)
    reports = [
        SlotReport(0, device, reading, None, {}),
        SlotReport(1, None, None, "it is lost", {}),
    ]
    assert on_gpus(reports) == {ID}
