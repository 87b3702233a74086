# SPDX-License-Identifier: Apache-2.0
"""Pages of a GPU that does what a test says, as Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml import GPM
from exporter.specs import load_specs
from tests.fake_nvml import FakeNvml
from tests.rules.promtool import STEP_SECONDS
from tests.rules.scrapes import Scrapes
from tests.sources.conftest import START, Rig
from tests.sources.dcgm.nodes import OneGpu

POLL_SECONDS = 5


class _OneGpu(OneGpu):
    """The readers of one GPU whose session a test reads in its own thread."""

    def __init__(self, rig: Rig) -> None:
        self._session = rig.session(SessionOptions(counters=(GPM,)))

    def round(self, wait_seconds: float) -> None:
        self.reading = self._session.read()


class Node:
    """A fake driver's GPU through pynvml, session, publisher and page."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, names: Collection[str], **device: Any
    ) -> None:
        """Read such a GPU; what is scraped of it are the metrics of these names."""
        fake = FakeNvml(folder, {"devices": [device]}, clock=START)
        self._rig = Rig(fake, monkeypatch)
        self._pages = Pages(RenderOptions())
        self._specs = load_specs()
        self._publisher = Publisher(
            _OneGpu(self._rig), self._specs, self._rules(None), self._rig, (self._pages.publish,)
        )
        self.scrapes = Scrapes("node-1:19400", names)

    @staticmethod
    def _rules(precision: str | None) -> Rules:
        return Rules(interval_seconds=POLL_SECONDS, precision=precision)

    def run(self, scrapes: int, *, precision: str | None = None, **device: Any) -> None:
        """Go on for some scrapes, as a GPU with these readings and tensor work of a precision."""
        self._publisher.reconfigure(self._specs, self._rules(precision))
        if device:
            self._rig.fake.device(0, **device)
        for _ in range(scrapes):
            for _ in range(STEP_SECONDS // POLL_SECONDS):
                self._rig.advance(POLL_SECONDS)
                self._publisher.tick()
            self.scrapes.add(self._pages.page("text-0.0.4", zipped=False))
