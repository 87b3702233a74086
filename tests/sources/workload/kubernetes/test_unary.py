# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import grpc
import pytest

from exporter.sources.workload.kubernetes import unary
from exporter.sources.workload.kubernetes.unary import MOST_BYTES, CallFailed, call
from tests.sources.workload.kubernetes.conftest import StartKubelet
from tests.sources.workload.kubernetes.kubelet import LIST, Refused
from tests.sources.workload.kubernetes.messages import container, pod, pod_resources

GPU = "GPU-11111111-2222-3333-4444-555555555555"


def _fails(path: Path, why: str, *, code: int | None = None, seconds: float = 5.0) -> None:
    with pytest.raises(CallFailed, match=why) as caught:
        call(str(path), LIST, seconds)
    assert caught.value.code == code


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
    _fails(start_kubelet(bytes(MOST_BYTES + 1)).path, "more than 16777216 bytes")


@pytest.mark.parametrize(
    ("code", "number"),
    [(grpc.StatusCode.RESOURCE_EXHAUSTED, 8), (grpc.StatusCode.FAILED_PRECONDITION, 9)],
)
def test_a_refusal_has_its_code_and_its_words(
    start_kubelet: StartKubelet, code: grpc.StatusCode, number: int
) -> None:
    """As the kubelet's rate limit answers; what it says is on one line of the log."""
    kubelet = start_kubelet(Refused(code, "rejected by rate limit: 100 %"))

    _fails(kubelet.path, f"says {code.name}: rejected by rate limit: 100 %", code=number)


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


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\1\0\0\0\0\0\0x", b""])
def test_what_is_no_kubelet_is_named(sockets: Path, said: bytes) -> None:
    path = sockets / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(said)
                connection.recv(65536)

        thread = threading.Thread(target=answer)
        thread.start()
        _fails(
            path, "closes the connection before|does not keep to HTTP/2|Broken pipe|reset by peer"
        )
        thread.join()


def test_nothing_of_the_extra_is_imported_before_a_call() -> None:
    """The daemon is as small as before on a node without a kubelet."""
    import subprocess

    code = (
        f"import sys; import {unary.__name__}; "
        "import exporter.sources.workload.kubernetes.kubernetes_pods; "
        "sys.exit(any(name.split('.')[0] in ('h2', 'hpack', 'grpc') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
