# SPDX-License-Identifier: Apache-2.0
"""Counters of refused connections and requests, which are never logged, and what else a page says
of the daemon."""

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
        self.connections_refused = dict.fromkeys(CONNECTION_REFUSALS, 0)
        self.requests_refused = dict.fromkeys(REQUEST_REFUSALS, 0)
        self.requests_aborted = dict.fromkeys(REQUEST_ABORTS, 0)
        self._config_ok = True
        self._log_lines_dropped = log_lines_dropped
        self._web_config_ok = web_config_ok

    def refuse_request(self, reason: str) -> None:
        """Count one; raises KeyError for a reason that is not in REQUEST_REFUSALS."""
        self.requests_refused[reason] += 1

    def note_config(self, ok: bool) -> None:
        """Note whether a reading of the configuration was taken."""
        self._config_ok = ok

    def read(self) -> Daemon:
        """Return the counts now."""
        return Daemon(
            connections_refused_total=dict(self.connections_refused),
            requests_refused_total=dict(self.requests_refused),
            requests_aborted_total=dict(self.requests_aborted),
            log_lines_dropped_total=self._log_lines_dropped(),
            config_ok=self._config_ok,
            web_config_ok=self._web_config_ok(),
        )
