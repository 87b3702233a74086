# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.sources.workload.kubernetes import unary
from exporter.sources.workload.kubernetes.unary import MOST_BYTES, CallFailed, call
from tests.sources.workload.kubernetes.conftest import StartKubelet
from tests.sources.workload.kubernetes.kubelet import LIST, Refused
from tests.sources.workload.kubernetes.messages import container, pod, pod_resources
from tests.sources.workload.kubernetes.raw_server import (
    HEAD,
    OK,
    Peer,
    answer_of,
    framed,
    serving,
)

GPU = "GPU-11111111-2222-3333-4444-555555555555"


def _fails(path: Path, why: str, *, code: int | None = None, seconds: float = 5.0) -> None:
    with pytest.raises(CallFailed, match=why) as caught:
        call(str(path), LIST, seconds)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_the_answer_of_real_grpc_arrives_whole(start_kubelet: StartKubelet) -> None:
    """250 pods with 8 devices each: many frames of HTTP/2."""
    answer = pod_resources(
        *(pod("team-a", f"pod-{n}", container("main", *[GPU] * 8)) for n in range(250))
    )
    kubelet = start_kubelet(answer)

    assert call(str(kubelet.path), LIST) == answer.SerializeToString()
    assert kubelet.metadata["user-agent"].startswith("roofline-exporter")


def test_an_answer_may_have_16_mib(start_kubelet: StartKubelet) -> None:
    """Exactly what the kubelet's own clients take: neither window has to be moved on."""
    kubelet = start_kubelet(bytes(MOST_BYTES))

    assert call(str(kubelet.path), LIST, 60) == bytes(MOST_BYTES)


def test_a_larger_answer_is_refused(start_kubelet: StartKubelet) -> None:
    """By its prefix, before it has arrived."""
    _fails(start_kubelet(bytes(MOST_BYTES + 1)).path, "16777217 bytes, more than 16777216")


@pytest.mark.parametrize(
    ("code", "number"),
    [(grpc.StatusCode.RESOURCE_EXHAUSTED, 8), (grpc.StatusCode.FAILED_PRECONDITION, 9)],
)
def test_a_refusal_has_its_code_and_its_words(
    start_kubelet: StartKubelet, code: grpc.StatusCode, number: int
) -> None:
    """As the kubelet's rate limit answers; what it says is on one line of the log."""
    kubelet = start_kubelet(Refused(code, "rejected by rate limit:\nö 100 %"))

    _fails(kubelet.path, f"says {code.name}: rejected by rate limit:\\?. 100 %", code=number)


def test_a_socket_that_nobody_listens_on_is_refused(sockets: Path) -> None:
    path = sockets / "left.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))

    _fails(path, "Connection refused")


def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    _fails(tmp_path / ("x" * 120), "path too long")


def test_a_slow_answer_is_not_waited_for(start_kubelet: StartKubelet) -> None:
    kubelet = start_kubelet(b"")
    go_on = threading.Event()
    kubelet.before_answering = lambda: go_on.wait(10)

    _fails(kubelet.path, "does not answer in time", seconds=0.3)
    go_on.set()


def test_an_answer_that_drips_is_not_waited_for(sockets: Path) -> None:
    """Each byte is in time, the whole is not."""

    def script(peer: Peer) -> None:
        peer.head()
        peer.data(framed(b"", size=1_000_000))
        while True:
            peer.data(b"x")
            threading.Event().wait(0.02)

    path = sockets / "raw.sock"
    with serving(path, script):
        _fails(path, "does not answer in time", seconds=0.3)


ENDS = "closes the connection before its answer is complete"


def _half_a_frame(peer: Peer) -> None:
    peer.head()
    peer.raw((1000).to_bytes(3, "big") + b"\x00\x00" + peer.stream.to_bytes(4, "big") + b"half")


def _half_a_message(peer: Peer) -> None:
    peer.head()
    peer.data(framed(b"half", size=8))
    peer.trailers()


def _no_message(peer: Peer) -> None:
    peer.head()
    peer.trailers()


def _half_a_prefix(peer: Peer) -> None:
    peer.head()
    peer.data(b"\x00\x00")
    peer.trailers()


def _goaway(peer: Peer) -> None:
    peer.head()
    peer.http.close_connection(error_code=2)
    peer.flush()
    peer.wait_for_end()


def _reset(peer: Peer) -> None:
    peer.head()
    peer.http.reset_stream(peer.stream, error_code=8)
    peer.flush()
    peer.wait_for_end()


def _compressed(peer: Peer) -> None:
    peer.head()
    peer.data(framed(b"x", compressed=1))
    peer.trailers()
    peer.wait_for_end()


def _two_messages(peer: Peer) -> None:
    peer.head()
    peer.data(framed(b"x") + framed(b"y"))
    peer.trailers()
    peer.wait_for_end()


def _no_status(peer: Peer) -> None:
    peer.head()
    peer.data(framed(b"x"), end=True)
    peer.wait_for_end()


def _no_http2(peer: Peer) -> None:
    peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _data_of_no_stream(peer: Peer) -> None:
    peer.raw(b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x")
    peer.wait_for_end()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (_half_a_frame, ENDS),
        (lambda peer: peer.head(), ENDS),
        (_half_a_message, "one whole message"),
        (_half_a_prefix, "one whole message"),
        (_no_message, "one whole message"),
        (_goaway, "is going away"),
        (_reset, "breaks off its answer"),
        (_compressed, "compresses its answer"),
        (_two_messages, "one whole message"),
        (_no_status, "without a status of gRPC"),
        (answer_of((*HEAD, ("grpc-status", "x"))), "without a status of gRPC"),
        (answer_of(((":status", "404"),)), "HTTP status b'404'"),
        (answer_of(((":status", "200"), ("content-type", "text/html"))), "not answer with gRPC"),
        (_no_http2, ENDS),
        (_data_of_no_stream, "does not keep to HTTP/2"),
    ],
)
def test_what_is_no_answer_is_refused(
    sockets: Path, script: Callable[[Peer], None], why: str
) -> None:
    path = sockets / "raw.sock"
    with serving(path, script):
        _fails(path, why, seconds=20)


@pytest.mark.parametrize(
    ("status", "why"), [("14", "says UNAVAILABLE: gone$"), ("77", "says status 77: gone$")]
)
def test_a_refusal_may_have_no_head_of_its_own(sockets: Path, status: str, why: str) -> None:
    """Trailers only, as a server answers that fails at once."""
    path = sockets / "raw.sock"
    script = answer_of((*HEAD, ("grpc-status", status), ("grpc-message", "gone")))
    with serving(path, script):
        _fails(path, why, code=int(status))


def test_an_answer_counts_that_is_followed_by_a_farewell(sockets: Path) -> None:
    """GOAWAY after the trailers, as a server that ends in good order sends it."""

    def script(peer: Peer) -> None:
        peer.http.send_headers(peer.stream, HEAD)
        peer.http.send_data(peer.stream, framed(b"\x08\x01"))
        peer.http.send_headers(peer.stream, OK, end_stream=True)
        peer.http.close_connection()
        peer.flush()

    path = sockets / "raw.sock"
    with serving(path, script):
        assert call(str(path), LIST) == b"\x08\x01"


def test_nothing_of_the_extra_is_imported_before_a_call() -> None:
    """The daemon is as small as before on a node without a kubelet."""
    import subprocess

    code = (
        f"import sys; import {unary.__name__}; "
        "import exporter.sources.workload.kubernetes.kubernetes_pods; "
        "sys.exit(any(name.split('.')[0] in ('h2', 'hpack', 'grpc') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_whatever_a_server_sends_is_an_answer_or_a_failure(
    frames: list[bytes], begins_well: bool
) -> None:
    """Nothing but CallFailed is ever raised: frames of any type with any content, and noise."""

    def script(peer: Peer) -> None:
        if begins_well:
            peer.head()
        for each in frames:
            kind, flags, rest = each[:1] or b"\0", each[1:2] or b"\0", each[2:]
            stream = peer.stream.to_bytes(4, "big")
            peer.raw(len(rest).to_bytes(3, "big") + kind + flags + stream + rest)
        peer.raw(b"".join(frames))

    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        path = Path(folder) / "raw.sock"
        with serving(path, script), suppress(CallFailed):
            call(str(path), LIST)
