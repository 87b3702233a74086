# SPDX-License-Identifier: Apache-2.0
"""On which terms connections are let in and requests answered."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.web.access.hashes import Hash
from exporter.web.access.sans import allowed
from exporter.web.access.schema import RateLimit


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds at a moment. While the files are broken: what held before, and the problem."""

    context: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    allowed_sans: frozenset[str] = frozenset()
    """Names of which a client's certificate must have one; none if there is no such rule."""
    generation: int = 0
    """Grows when the files change; what was let in under an older one ends after its answer."""
    problem: str | None = None
    """Why the files cannot be used, in one line."""
    users: Mapping[str, Hash] = field(default_factory=dict, repr=False)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case, and values, that every answer has."""
    rate_limit: RateLimit | None = None

    def admit(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client may come in that has this certificate, or none."""
        return allowed(certificate, self.allowed_sans)

    @property
    def refuses_requests(self) -> bool:
        """Whether nothing may be served, because the files are broken.

        Who is on an encrypted connection was let in while they were not. On another, or by a
        password, nobody can be known.
        """
        return self.problem is not None and (self.context is None or bool(self.users))
