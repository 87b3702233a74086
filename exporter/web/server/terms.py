# SPDX-License-Identifier: Apache-2.0
"""What the server asks of the web configuration before it lets a connection in."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Collection, Mapping
from typing import Any, Protocol

SCOPE_KEY = "roofline.terms"
"""Where a request's scope has the terms that its connection was let in under."""


class Terms(Protocol):
    """The terms at one moment."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """What TLS is agreed on with; None for plain HTTP."""

    @property
    def allowed_sans(self) -> Collection[str]:
        """Names of which a client's certificate must have one; empty if there is no such rule."""

    @property
    def generation(self) -> int:
        """Which reading of the configuration these are."""

    @property
    def problem(self) -> str | None:
        """Why the configuration cannot be used; None while it can."""


class Access(Protocol):
    """The web configuration."""

    async def look(self) -> Terms:
        """Return the terms that hold now."""


def is_allowed(certificate: Mapping[str, Any] | None, allowed_sans: Collection[str]) -> bool:
    """Return whether a client's certificate, as Python's ssl gives it, has one of these names."""
    if not allowed_sans:
        return True
    names = {_comparable(value) for _, value in (certificate or {}).get("subjectAltName", ())}
    return not names.isdisjoint(map(_comparable, allowed_sans))


def _comparable(name: object) -> str:
    text = str(name)
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text
