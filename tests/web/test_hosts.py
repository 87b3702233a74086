# SPDX-License-Identifier: Apache-2.0
"""A request for another host is refused, so that no foreign page can read this node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from exporter.web.hosts import Hosts, KnownHosts, own_domains

DOMAINS = ("cluster.example", "lan")


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1:19400",
        "[::1]:19400",
        "[fe80::1%eth0]",
        "LOCALHOST:19400",
        "app.localhost",
        "gpu1:19400",
        "gpu1.",
        "node7.example.org",
        "NODE7.example.org.:80",
        "gpu1.cluster.example",
        "a.b.cluster.example:1",
        "gpu1.lan",
        "",
    ],
)
def test_a_name_of_this_node(host: str) -> None:
    """Whatever an operator or a scraper calls it by."""
    assert Hosts((), DOMAINS, "node7.example.org").include(host.encode())


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "10.0.0.1.evil.example",
        "notcluster.example",
        "node7.example.org.evil.example",
        "[evil.example]",
        "[::1]evil.example",
        "evil.example\xe9",
        "evil.example/.localhost",
        "evil.example:80:lan",
        "gpu1:evil.example",
        "[::1]:80.evil.example",
        "gpu1, evil.example",
        "300.1.1.1",
        "x" * 30_000 + ".example",
    ],
)
def test_a_name_of_somebody_else(host: str) -> None:
    """Also one that looks like a name of this node."""
    assert not Hosts((), DOMAINS, "node7.example.org").include(host.encode("latin-1"))


def test_what_is_allowed() -> None:
    """By name, below a name, or every name."""
    hosts = Hosts(("Metrics.Example", ".internal.example"), (), "node7")
    assert hosts.include(b"metrics.example:19400")
    assert hosts.include(b"gpu1.internal.example")
    assert not hosts.include(b"internal.example")
    assert not hosts.include(b"gpu1.metrics.example")
    assert Hosts(("*",), (), "node7").include(b"evil.example")


def test_search_domains(tmp_path: Path) -> None:
    """Those of resolv.conf; none without one."""
    text = "# search no.example\nnameserver 10.0.0.1\ndomain a.example\nsearch B.example. c.d .\n"
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    assert own_domains(path) == ("a.example", "b.example", "c.d")
    assert own_domains(tmp_path / "none") == ()


def _asked(host: str | None, path: str, scheme: str, method: str = "GET") -> list[Any]:
    """Return what came of a request: its status, whether the application saw it, what counted."""
    found: list[Any] = []

    async def app(*_: Any) -> None:
        found.append("passed")

    async def send(message: Any) -> None:
        found.append(message.get("status") or message["body"])

    headers = [] if host is None else [(b"host", host.encode())]
    scope = {"method": method, "scheme": scheme, "path": path, "headers": headers}
    known = KnownHosts(app, Hosts((), (), "node7"), found.append)
    asyncio.run(known(scope, None, send))  # type: ignore[arg-type]
    return found


def test_others_get_421() -> None:
    """In a line that names the flag; probes, and TLS with its certified names, are let through."""
    refused = _asked("evil.example", "/metrics", "http")
    assert refused[:2] == ["host", 421]
    assert refused[2] == (
        b"evil.example is not known as a name of this node; "
        b"--web.allowed-hosts=evil.example allows it\n"
    )
    for strange in ("a b.example", "<b>.example", "[::1%]", "x." * 200):
        assert _asked(strange, "/metrics", "http")[2] == (
            b"expected a name of this node in Host; --web.allowed-hosts adds names\n"
        )
    assert _asked("evil.example", "/metrics", "http", "HEAD") == ["host", 421, b""]
    for path in ("/-/healthy", "/-/ready"):
        assert _asked("evil.example", path, "http") == ["passed"]
    assert _asked("evil.example", "/metrics", "https") == ["passed"]
    assert _asked("node7", "/metrics", "http") == ["passed"]
    assert _asked(None, "/metrics", "http") == ["passed"]
