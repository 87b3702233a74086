# SPDX-License-Identifier: Apache-2.0
"""What an engine calls its containers, by well-meaning and by hostile answers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model.workload import Workload
from exporter.sources.poller import Unreadable
from exporter.sources.workload.container import engine as module
from exporter.sources.workload.container.engine import NOBODY, names
from tests.sources.workload.container.unix_engine import (
    UnixEngine,
    answer,
    container,
    folder,
    listing,
)

ID, OTHER_ID = "a" * 64, "b" * 64


@pytest.fixture
def engine() -> Iterator[UnixEngine]:
    with folder() as path:
        running = UnixEngine(path / "docker.sock")
        yield running
        running.stop()


def named(engine: UnixEngine, *entries: Any, server: str = "Docker/27.3.1 (linux)") -> Any:
    """The names by id that come from this listing, of two containers that are asked for."""
    engine.says = listing(*entries, server=server)
    return {number: each.container for number, each in names(engine.path, {ID, OTHER_ID}).items()}


def test_the_names_of_those_asked_for(engine: UnixEngine) -> None:
    """The question names the containers; what else is listed is left out."""
    engine.says = listing(container(ID, "/llm"), container("c" * 64, "/other"))
    assert names(engine.path, {ID, OTHER_ID}) == {
        ID: Workload("container", container="llm", id=ID, runtime="docker")
    }
    assert engine.asked[0].startswith(b"GET /containers/json?filters=%7B%22id%22%3A%5B%22aaaa")
    assert engine.asked[0].endswith(b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert engine.filters() == [[ID, OTHER_ID]]


def test_nobody_is_not_everybody(engine: UnixEngine) -> None:
    """An engine lists all it has if the filter is empty."""
    assert names(engine.path, ()) == {}
    assert engine.filters() == [[NOBODY]]


def test_the_question_is_bounded(engine: UnixEngine) -> None:
    """However many containers have a process on a GPU."""
    names(engine.path, {f"{number:064x}" for number in range(1000)})
    assert len(engine.filters()[0]) == 256


@pytest.mark.parametrize(
    ("server", "runtime"),
    [
        ("Docker/20.10.24+dfsg1 (linux)", "docker"),
        ("Libpod/4.3.1 (linux)", "podman"),
        ("nginx", ""),
        ("", ""),
    ],
)
def test_who_answers(engine: UnixEngine, server: str, runtime: str) -> None:
    """Podman also listens where Docker is looked for."""
    engine.says = listing(container(ID, "/llm"), server=server)
    assert names(engine.path, {ID})[ID].runtime == runtime


def test_what_is_not_a_name(engine: UnixEngine) -> None:
    """The names that links give have two slashes; Podman's older versions had none at all."""
    assert named(engine, container(ID, "/web/llm", "/llm")) == {ID: "llm"}
    assert named(engine, container(ID, "llm_1.a-b")) == {ID: "llm_1.a-b"}
    assert named(engine, container(ID, "/" + "x" * 255)) == {ID: "x" * 255}
    for bad in ("", "/", "/-x", "/x y", "/x\n", "/\x1b[31m", "/é", "/" + "x" * 256):
        assert named(engine, container(ID, bad)) == {}


def test_a_container_of_the_kubelet_has_no_name(engine: UnixEngine) -> None:
    """k8s_main_notebook-7_team-a_… is the pod's, which the kubelet names."""
    label = {"io.kubernetes.pod.uid": "8f9ba0f5"}
    entry = container(ID, "/k8s_main", Labels=label)
    assert named(engine, entry, container(OTHER_ID, "/llm")) == {OTHER_ID: "llm"}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"Id": ID},
        {"Names": ["/llm"]},
        {"Id": ID, "Names": [None, 5, {}]},
        {"Id": [ID], "Names": ["/llm"]},
        {"Id": ID[1:], "Names": ["/llm"]},
    ],
)
def test_a_bad_entry_harms_no_other(engine: UnixEngine, entry: Any) -> None:
    """It is left out."""
    assert named(engine, entry, container(OTHER_ID, "/llm", Labels=None)) == {OTHER_ID: "llm"}


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"H")
        threading.Event().wait(0.01)


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.0 200 X\r\n\r\n")
    while True:
        connection.sendall(b"x" * 100_000)


def silence(connection: socket.socket) -> None:
    connection.recv(1)


BAD: dict[str, tuple[bytes | Callable[[socket.socket], None], str]] = {
    "an error": (answer(b'{"message": "no"}', status=500), "answers with status 500"),
    "a refusal": (answer(b"", status=403), "answers with status 403"),
    "nothing": (b"", "does not answer as Docker and Podman do"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer as Docker and Podman do"),
    "not JSON": (answer(b"<html>"), "does not answer as Docker and Podman do"),
    "no list": (answer(b'{"Id": "a"}'), "does not answer as Docker and Podman do"),
    "no text": (answer(b"\xff\xfe\x00"), "does not answer as Docker and Podman do"),
    "brackets": (answer(b"[" * 1_000_000), "does not answer as Docker and Podman do"),
    "digits": (answer(b"[" + b"1" * 9999 + b"]"), "does not answer as Docker and Podman do"),
    "half": (answer(b"[]" + b" " * 99)[:-50], "does not answer as Docker and Podman do"),
    "headers": (b"HTTP/1.0 200 X\r\n" + b"A: b\r\n" * 999, "does not answer as Docker and"),
    "silence": (silence, "has no whole answer within 0.3 s"),
    "a drip": (drip, "has no whole answer within 0.3 s"),
    "a flood": (flood, "answers with more than 4 MB"),
}


@pytest.mark.parametrize(("says", "problem"), BAD.values(), ids=BAD)
def test_a_bad_answer_is_one_line(
    engine: UnixEngine,
    monkeypatch: pytest.MonkeyPatch,
    says: bytes | Callable[[socket.socket], None],
    problem: str,
) -> None:
    """It names the socket, and nothing of what the answer holds; no response is left open."""
    responses: list[http.client.HTTPResponse] = []

    class Kept(http.client.HTTPResponse):
        def begin(self) -> None:
            responses.append(self)
            super().begin()

    monkeypatch.setattr(http.client, "HTTPResponse", Kept)
    if says in (silence, drip):
        monkeypatch.setattr(module, "TOTAL_SECONDS", 0.3)
    engine.says = says
    with pytest.raises(Unreadable) as raised:
        names(engine.path, {ID})
    assert str(raised.value).startswith(f"{engine.path} {problem}")
    assert [response.isclosed() for response in responses] == [True]
    assert "\n" not in str(raised.value)


def test_nothing_listens(engine: UnixEngine) -> None:
    """No file, a folder that is a file, a file that is no socket, a socket that was left behind."""
    beside = Path(engine.path).parent / "file"
    beside.touch()
    engine.stop(leave_file=True)
    for path in (engine.path, f"{beside}/docker.sock", str(beside), "/nonexistent/docker.sock"):
        with pytest.raises(FileNotFoundError):
            names(path, {ID})


def test_a_path_that_no_socket_has() -> None:
    """It is too long for the kernel."""
    with pytest.raises(Unreadable, match="path too long"):
        names("/" + "x" * 200, {ID})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([ID, "/llm"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["Id", "Names", "Labels", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | JSON.map(lambda value: answer(json.dumps(value).encode()))
    | JSON.map(lambda value: answer(json.dumps([value]).encode()))
)
def test_any_answer_is_names_or_a_problem(engine: UnixEngine, said: bytes) -> None:
    """Nothing that a socket says does harm, and only names come of it."""
    engine.says = said
    try:
        found = names(engine.path, {ID})
    except Unreadable:
        return
    assert set(found) <= {ID}
    assert all(each.container.isprintable() and each.container for each in found.values())
