# SPDX-License-Identifier: Apache-2.0
"""Where the server listens when its address has a name, and what it says when it cannot."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from exporter.errors import ExporterError
from exporter.web.server.server import listen


def test_a_name_that_nobody_knows_is_said_to_be_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver has numbers of its own, which are none of the system's errors."""

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ExporterError) as caught:
        listen("node7", 19400)
    assert str(caught.value) == "cannot listen on node7:19400: Name or service not known"


def test_a_name_that_only_has_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node without IPv4."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this system has no IPv6")
    resolve = socket.getaddrinfo

    def without_ipv4(host: str, port: int, *args: Any, **named: Any) -> Any:
        assert host == "node7"
        return resolve("::1", port, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", without_ipv4)
    with listen("node7", 0) as listener:
        assert listener.family == socket.AF_INET6
        assert listener.getsockname()[0] == "::1"


def test_a_name_with_both_stays_on_ipv4() -> None:
    """As ``localhost``: whoever asks 127.0.0.1 finds it."""
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
