# SPDX-License-Identifier: Apache-2.0
"""Counters of refused connections and requests, which are never logged."""

from __future__ import annotations

from collections.abc import Callable

from exporter.model.daemon import CONNECTION_REFUSALS, REQUEST_ABORTS, REQUEST_REFUSALS, Daemon


def uncounted(_: str) -> None:
    """Ignore the reason of a refusal."""


class Counts:
    """The event loop counts, any thread reads."""

    def __init__(
        self,
        log_lines_dropped: Callable[[], int] = lambda: 0,
        web_config_ok: Callable[[], bool | None] = lambda: None,
    ) -> None:
        """Take the functions that return the other two values of `Daemon`."""
        self._connections = dict.fromkeys(CONNECTION_REFUSALS, 0)
        self._requests = dict.fromkeys(REQUEST_REFUSALS, 0)
        self._aborts = dict.fromkeys(REQUEST_ABORTS, 0)
        self._log_lines_dropped = log_lines_dropped
        self._web_config_ok = web_config_ok

    def refuse_connection(self, reason: str) -> None:
        """Count one; raises KeyError for a reason that is not in CONNECTION_REFUSALS."""
        self._connections[reason] += 1

    def refuse_request(self, reason: str) -> None:
        """Count one; raises KeyError for a reason that is not in REQUEST_REFUSALS."""
        self._requests[reason] += 1

    def abort(self, reason: str) -> None:
        """Count one; raises KeyError for a reason that is not in REQUEST_ABORTS."""
        self._aborts[reason] += 1

    def read(self) -> Daemon:
        """Return the counts now."""
        return Daemon(
            connections_refused_total=dict(self._connections),
            requests_refused_total=dict(self._requests),
            requests_aborted_total=dict(self._aborts),
            log_lines_dropped_total=self._log_lines_dropped(),
            web_config_ok=self._web_config_ok(),
        )
