# SPDX-License-Identifier: Apache-2.0
"""The source `nccl-ras`: asks NCCL every 15 s, while a job with it runs on this node."""

from __future__ import annotations

from exporter.clock import Clock
from exporter.model.training import Collectives
from exporter.sources.interface import NCCL_RAS
from exporter.sources.nccl.client import ask
from exporter.sources.nccl.status import collectives
from exporter.sources.poller import PolledSource

INTERVAL_SECONDS = 15.0
KEPT_SECONDS = 60.0
"""A status that is older says nothing of now."""


class NcclRas(PolledSource[Collectives]):
    """What NCCL's RAS says; nothing while no job answers, which is no fault."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        super().__init__(NCCL_RAS, self._ask, clock, INTERVAL_SECONDS, comes_and_goes=True)
        self._host = host
        self._port = port

    def collectives(self) -> Collectives | None:
        """Return what was said last, if that is of now."""
        with self._lock:
            old = self._clock.monotonic() - self._read_at > KEPT_SECONDS
            return None if old else self._report

    def _ask(self) -> Collectives | None:
        said = ask(self._host, self._port)
        return None if said is None else collectives(said)
