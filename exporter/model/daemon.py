# SPDX-License-Identifier: Apache-2.0
"""Counts of the daemon itself: refused connections and requests, aborts, dropped log lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONNECTION_REFUSALS: Mapping[str, str] = {
    "limit": "as many connections as --web.max-connections are open",
    "address_limit": "its address has as many as --web.max-connections-per-address",
    "descriptors": "the process has no file descriptor left",
    "handshake": "TLS was not agreed on within 10 s, or at all",
    "client_name": "the client's certificate has none of the allowed names",
    "web_config": "the web configuration cannot be used",
}

REQUEST_REFUSALS: Mapping[str, str] = {
    "malformed": "it is not HTTP/1.1 or 1.0, or not of the methods that are answered",
    "head_size": "its head is longer than 32 kB",
    "head_count": "its head has more than 100 fields",
    "body": "it has a body, which nothing here reads",
    "host": "its Host is no name of this node",
    "password": "it has no valid user and password",
    "rate": "more requests than the web configuration's rate_limit",
    "scrapes": "more scrapes at once than --web.max-requests",
    "streams": "more live views at once than are served, or than one address may have",
    "web_config": "the web configuration cannot be used",
}
"""Why a request was refused before it was routed."""

REQUEST_ABORTS: Mapping[str, str] = {
    "head_timeout": "the head was not there after 10 s",
    "stalled": "the client took nothing of the answer for 10 s",
    "room": "unread answers took too much memory, and it had read nothing for a second",
}
"""Why an accepted connection was closed; the keep-alive timeout is not counted."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """Counts since the start of the process; every reason is listed."""

    connections_refused_total: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(CONNECTION_REFUSALS, 0)
    )
    requests_refused_total: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(REQUEST_REFUSALS, 0)
    )
    requests_aborted_total: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(REQUEST_ABORTS, 0)
    )
    log_lines_dropped_total: int = 0
    config_ok: bool = True
    """Whether the last reading of the configuration was taken."""
    web_config_ok: bool | None = None
    """Whether the file of --web.config.file is valid; None without one."""
