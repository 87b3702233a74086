# SPDX-License-Identifier: Apache-2.0
"""The live view of the latest snapshot, made when it is asked for and once for all who ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from exporter.web.live.view import NodeView, node_view
from exporter.web.store import Store


class Views:
    """What page and stream show. Any thread may ask; nothing is made while nobody does."""

    def __init__(
        self,
        store: Store,
        poll_interval_seconds: Callable[[], float],
        tried: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Take where snapshots are, the poll interval in use, and where GPUs are looked for."""
        self.store = store
        self.tried = tried
        self._poll_interval_seconds = poll_interval_seconds
        self._lock = threading.Lock()
        self._latest: NodeView | None = None

    def latest(self) -> NodeView:
        """Return the view of the latest snapshot; it is not to be changed."""
        with self._lock:
            published = self.store.published()
            sequence = 0 if published is None else published.sequence
            view = self._latest
            if view is None or view["sequence"] != sequence:
                view = self._latest = node_view(
                    None if published is None else published.snapshot,
                    sequence=sequence,
                    interval_seconds=self._poll_interval_seconds(),
                )
            return view
