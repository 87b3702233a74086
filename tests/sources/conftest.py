# SPDX-License-Identifier: Apache-2.0
"""A GPU of the fake driver library, opened by this exporter's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.model.reading import Device
from exporter.sources.fleet import session
from exporter.sources.fleet.session import Session, SessionOptions
from exporter.sources.interface import OpenedGpu
from exporter.sources.nvml import GPM
from exporter.sources.nvml.gpm import GpmSource
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.reader import NvmlSource
from exporter.sources.proc import procfs
from exporter.sources.reading_state import Journal, Past
from exporter.sources.table import COUNTER_SOURCES
from tests.fake_nvml import FakeNvml

START = 1_000_000.0
GPM_ROWS = tuple(row for row in COUNTER_SOURCES if row.name == GPM)


@pytest.fixture(autouse=True)
def _only_gpm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open GPM and no other counter source: the fake driver library has its counters.

    What several sources give together is tested in fleet/test_counters.py.
    """
    monkeypatch.setattr(session, "COUNTER_SOURCES", GPM_ROWS)


@pytest.fixture(autouse=True)
def pid_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Put this process into a pid namespace, the host's until a test names another or none."""
    link = tmp_path / "pid_namespace"
    monkeypatch.setattr(procfs, "PID_NAMESPACE", str(link))

    def enter(namespace: str | None) -> None:
        link.unlink(missing_ok=True)
        if namespace is not None:
            link.symlink_to(namespace)

    enter(procfs.HOSTS_PID_NAMESPACE)
    return enter


class Rig:
    """GPU 0 of a scenario, on a clock that only `advance` moves.

    `monotonic` starts at zero where the driver's time starts at `START`.
    """

    def __init__(self, fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        self._now = START
        fake.activate(monkeypatch)
        self.library = Library(str(fake.library))
        self.library.start()
        self.handle = self.library.handle(0)
        self.past = Past()
        self.failures = self.past.failures
        self.journal = Journal("GPU 0", self.past)
        self._counted: dict[str, int] = {}

    def time(self) -> float:
        """Unix time; with `monotonic` this makes the rig a `Clock`."""
        return self._now

    def monotonic(self) -> float:
        return self._now - START

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self.fake.set_clock(self._now)
        self.journal.now = self.monotonic()

    def calls(self) -> dict[str, int]:
        """How often each driver function was called since the last time this was asked."""
        before, self._counted = self._counted, self.fake.calls()
        counts = {name: n - before.get(name, 0) for name, n in self._counted.items()}
        return {name: count for name, count in counts.items() if count}

    def source(self, procfs: str = "/proc") -> NvmlSource:
        sysfs = str(self.fake.directory / "sys")
        return NvmlSource(self.handle, 0, procfs, self.journal, sysfs=sysfs)

    def gpm(self, *shares: int | None) -> GpmSource:
        device = Device(index=0, uuid="GPU-a", name="x")
        return GpmSource(OpenedGpu(self.handle, device, shares or (None,), self.journal))

    def session(
        self,
        options: SessionOptions | None = None,
        progress: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> Session:
        options = options or SessionOptions()
        return Session(self.handle, 0, options, self, self.past, progress, sleep)


Open = Callable[..., Rig]


@pytest.fixture(name="open_gpu")
def _open_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open one GPU with these readings, so many seconds `after` the start; `top` and `missing` are
    for the whole scenario."""

    def open_gpu(
        *,
        after: float = 0.0,
        top: dict[str, Any] | None = None,
        missing: Sequence[str] = (),
        **device: Any,
    ) -> Rig:
        scenario = {"devices": [device], **(top or {})}
        rig = Rig(FakeNvml(tmp_path, scenario, missing=missing, clock=START), monkeypatch)
        rig.advance(after)
        return rig

    return open_gpu
