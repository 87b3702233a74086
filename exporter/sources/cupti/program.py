# SPDX-License-Identifier: Apache-2.0
"""The child process that samples all GPUs with CUPTI, which takes 210 MB and may crash or hang.

It loads CUPTI when the first GPU is wanted, and sends a message per GPU every second.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.errors import LibraryUnavailable, SourceError
from exporter.sources.counters.wire import OK, PAUSED, Port
from exporter.sources.cupti.choice import Choices
from exporter.sources.cupti.gpu import ProcessSpent, SampledGpu
from exporter.sources.cupti.library import FAULTS, CuptiError, Driver, initialized
from exporter.sources.cupti.release import Unfit, fitting, installed
from exporter.sources.cupti.structures import ProfilerDeInitialize

PERIOD_SECONDS = 1.0
ENDED, AGAIN = 0, 1
"""Exit codes: ended by the exporter; to be started again."""
MIG = FAULTS[43]
CYCLE_SECONDS = 60.0
"""Of sampling at `duty`: one burst in each, so that a GPU changes between measured and bounded once
a minute, not every few seconds."""
SHORTEST_BURST_SECONDS = 3.0
"""A shorter one is lost in starting to sample; with a smaller duty a cycle is longer."""


class Duty:
    """One burst of sampling in each cycle, at a random time in it.

    So a job that repeats every minute is not always sampled at the same phase.
    """

    def __init__(self, ratio: float, began: float, draw: Callable[[], float]) -> None:
        """Sample a share `ratio` of the time since `began`; ``draw()`` is uniform in [0, 1)."""
        self._draw = draw
        self._cycle_seconds = max(CYCLE_SECONDS, SHORTEST_BURST_SECONDS / ratio)
        self._burst_seconds = ratio * self._cycle_seconds
        self._cycle_ends = began
        self._burst_begins = began

    def is_on(self, now: float) -> bool:
        """Return whether it is time to sample."""
        if now >= self._cycle_ends:
            is_late = now >= self._cycle_ends + self._cycle_seconds
            begins = now if is_late else self._cycle_ends
            self._cycle_ends = begins + self._cycle_seconds
            latest = self._cycle_seconds - self._burst_seconds
            self._burst_begins = begins + latest * self._draw()
        return self._burst_begins <= now < self._burst_begins + self._burst_seconds


class SamplingProgram:
    """Samples the GPUs that are wanted, until the exporter ends it."""

    def __init__(
        self,
        port: Port,
        options: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take the options ``duty`` (a ratio); ``library``, the path of a CUPTI to use instead of
        an installed one, or ``packages``, folders to look in for one instead of Python's."""
        self._port = port
        self._clock = clock
        self._library_path = options.get("library")
        self._packages = options.get("packages")
        self._period = float(options.get("period_seconds", PERIOD_SECONDS))
        self._duty = Duty(float(options.get("duty", 1.0)), clock(), draw)
        self._wanted: list[str] = []
        """The UUIDs of the GPUs that the exporter wants."""
        self._paused = False
        self._gpus: dict[str, SampledGpu] = {}
        self._listed: dict[str, int] = {}
        """CUDA's number of each GPU, by UUID."""
        self._unlisted: set[str] = set()
        self._choices: Choices | None = None
        """Once CUPTI is loaded."""

    def run(self) -> int:
        """Run until the exporter ends it, or it has to be started again; return the exit code."""
        try:
            # The exporter is patient until it first hears of this process: loading comes before.
            self._port.wait(self._period)
            self._handle_messages()
            next_step = self._clock()
            while not self._port.ended:
                now = self._clock()
                if now >= next_step:
                    next_step = max(next_step + self._period, now)
                    self._step()
                    self._port.beat()
                self._port.wait(max(next_step - self._clock(), 0.0))
                self._handle_messages()
        except (ProcessSpent, SourceError) as error:  # of this process, not of one GPU
            self._report(None, _state_of(error), str(error))
            return AGAIN
        finally:
            self._release()
            if self._choices is not None:
                with contextlib.suppress(CuptiError):
                    self._choices.library.call(ProfilerDeInitialize)
        return ENDED

    def _handle_messages(self) -> None:
        for message in self._port.messages():
            if "gpus" in message:
                self._set_wanted(message["gpus"])
            if message.get("pause"):
                self._paused = True
                self._release()
                self._report(None, PAUSED, "the counters are handed over until they are resumed")
            elif message.get("resume"):
                self._paused = False
                self._report(None, OK)

    def _set_wanted(self, gpus: list[dict[str, Any]]) -> None:
        self._wanted = []
        for gpu in gpus:
            if gpu["gpu_instances"]:
                self._report(gpu["uuid"], MIG.state, MIG.message)
            else:
                self._wanted.append(gpu["uuid"])
        for uuid in self._gpus.keys() - self._wanted:
            self._gpus.pop(uuid).release()

    def _step(self) -> None:
        """Read every GPU that is wanted, or open its session."""
        if self._wanted and not self._paused and self._choices is None:
            self._choices = self._load()
        if self._choices is None or self._paused or not self._duty.is_on(self._clock()):
            self._release()
            return
        for uuid in self._wanted:
            if uuid not in self._gpus:
                self._find(uuid, self._choices)
            gpu = self._gpus.get(uuid)
            message = None if gpu is None else gpu.step()
            if message is None:
                self._port.beat()  # opening a session takes long
            else:
                self._port.emit(message)

    def _find(self, uuid: str, choices: Choices) -> None:
        if uuid in self._listed:
            self._gpus[uuid] = SampledGpu(uuid, self._listed[uuid], choices, self._clock)
        elif uuid not in self._unlisted:
            self._unlisted.add(uuid)
            self._report(uuid, "unreachable", "the CUDA driver does not list this GPU")

    def _load(self) -> Choices:
        """Load the driver and CUPTI. After a first error of CUPTI no further call is safe."""
        driver = Driver()
        if self._library_path is not None:
            candidates = [Path(self._library_path)]
        else:
            fit = fitting(installed(self._packages), driver.cuda_version)
            candidates = [each.library for each in fit]
        library = initialized(driver, candidates)
        self._listed = driver.gpus()
        cuda = ".".join(map(str, driver.cuda_version))
        self._port.emit({"hello": {"cuda": cuda, "cupti": str(library.version)}})
        return Choices(library)

    def _release(self) -> None:
        for gpu in self._gpus.values():
            gpu.release()

    def _report(self, uuid: str | None, state: str, message: str = "") -> None:
        self._port.emit({"gpu": uuid, "state": state, "message": message})


def _state_of(error: Exception) -> str:
    if isinstance(error, CuptiError):
        return error.fault.state
    if isinstance(error, Unfit):
        return error.state
    return "missing" if isinstance(error, LibraryUnavailable) else "unreachable"


def run(options: Mapping[str, Any], port: Port) -> int:
    """Sample until the exporter ends it; return the exit code."""
    return SamplingProgram(port, options).run()
