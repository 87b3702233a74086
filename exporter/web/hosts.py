# SPDX-License-Identifier: Apache-2.0
"""Refuses requests whose Host is no name of this node.

A foreign web page can point its own name at this node (DNS rebinding), and its scripts could then
read the answers. They cannot choose the Host that the browser sends.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.web.responses import refuse_plainly

EXEMPT = frozenset({"/-/healthy", "/-/ready"})
RESOLV_CONF = Path("/etc/resolv.conf")
MOST_NAME_LENGTH = 253
"""RFC 1035, section 2.3.4."""

_HOST = re.compile(r"(?:\[(?P<address>[^]]*)\]|(?P<name>[A-Za-z0-9._-]*))(?::[0-9]*)?")


def own_domains(path: Path = RESOLV_CONF) -> tuple[str, ...]:
    """Return the search domains of this node; none where its resolv.conf cannot be read."""
    try:
        lines = path.read_text(encoding="latin-1").splitlines()
    except OSError:
        return ()
    found = [words[1:] for words in map(str.split, lines) if words[:1] in (["search"], ["domain"])]
    return tuple(filter(None, (_normal(word) for words in found for word in words)))


def _normal(name: str) -> str:
    return name.strip(".").lower()


class Hosts:
    """The names of this node."""

    def __init__(
        self, allowed: Iterable[str], domains: Iterable[str], name: str | None = None
    ) -> None:
        """Take what an operator allows (``*``, names, ``.example.com``), and the node's names."""
        allowed = tuple(allowed)
        self._any = "*" in allowed
        self._names = {_normal(entry) for entry in allowed if not entry.startswith(".")}
        self._names.add(_normal(socket.gethostname() if name is None else name))
        below = [entry for entry in allowed if entry.startswith(".")]
        domains = (*below, *domains, "localhost")
        self._below = tuple(f".{_normal(domain)}" for domain in domains)

    def include(self, host: bytes) -> bool:
        """Return whether a Host header names this node."""
        if self._any:
            return True
        found = _HOST.fullmatch(host.decode("latin-1").strip())
        if found is None:
            return False
        if found["address"] is not None:
            return _is_address(found["address"])
        name = _normal(found["name"])
        return (
            "." not in name
            or _is_address(name)
            or name in self._names
            or name.endswith(self._below)
        )


def misdirected(host: bytes) -> str:
    """Return why a Host is refused, and the flag that allows it."""
    found = _HOST.fullmatch(host.decode("latin-1").strip())
    name = found["name"] if found else None
    if not name or len(name) > MOST_NAME_LENGTH:
        return "expected a name of this node in Host; --web.allowed-hosts adds names"
    return f"{name} is not known as a name of this node; --web.allowed-hosts={name} allows it"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class KnownHosts:
    """ASGI middleware: answers 421 to requests for other hosts; over TLS the certificate tells."""

    def __init__(self, app: ASGIApp, hosts: Hosts, refused: Callable[[str], None]) -> None:
        self._app = app
        self._hosts = hosts
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if scope["scheme"] != "http" or scope["path"] in EXEMPT or self._hosts.include(host):
            await self._app(scope, receive, send)
        else:
            self._refused("host")
            await refuse_plainly(scope, send, 421, misdirected(host))
