# SPDX-License-Identifier: Apache-2.0
"""What the server asks of the web configuration before it lets a connection in."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Protocol

SCOPE_KEY = "roofline.terms"
"""Where a request's scope has the terms that its connection was let in under."""


class Terms(Protocol):
    """The terms at one moment."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """What TLS is agreed on with; None for plain HTTP."""

    @property
    def generation(self) -> int:
        """Which reading of the configuration these are."""

    @property
    def problem(self) -> str | None:
        """Why the configuration cannot be used; None while it can."""

    def admit(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client may come in that has this certificate, or none."""


class Access(Protocol):
    """The web configuration."""

    async def look(self) -> Terms:
        """Return the terms that hold now."""
