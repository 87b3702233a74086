# SPDX-License-Identifier: Apache-2.0
"""The state of one GPU from tick to tick: ceilings, totals, and its part of the snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from exporter.derive import NO_STALL
from exporter.model.reading import (
    SUSPENDED,
    Device,
    Place,
    Reading,
    ShareReading,
    SlotReport,
    XidRecord,
)
from exporter.model.snapshot import Ceilings, Gpu, Peer
from exporter.publisher.board import BoardIntegral
from exporter.publisher.ranks import Claims, GpuShares
from exporter.publisher.rules import Rules
from exporter.publisher.share import NodeCounts, Round, TrackedShare, share_picture, within_gap
from exporter.publisher.workloads import NodeWork
from exporter.specs import SpecBook, share_ceilings
from exporter.specs.precisions import UNSTATED, pipe_peak, reported_precision

FP8 = "fp8"
NOT_FRESH = "no fresh reading"
MOST_LOGGED_PRECISIONS = 16
"""Limit of distinct names in the log: jobs choose the names."""
FAULT = "is read, but its readings cannot be worked with"

log = logging.getLogger(__name__)


class TrackedGpu:
    """One physical GPU from its first report until it is forgotten."""

    def __init__(
        self,
        device: Device,
        specs: SpecBook,
        rules: Rules,
        now: float,
        counts: NodeCounts,
    ) -> None:
        self.device = device
        self.ceilings: Ceilings | None = None
        self.board = BoardIntegral()
        self.shares: dict[int | None, TrackedShare] = {}
        self.host_states: dict[str, str] = {}
        """By group: why the processes on its shares cannot be looked at from outside."""
        self.reading: Reading | None = None
        self.problem: str | None = None
        self.seen_at = now
        """Monotonic time of the last reading, or at which it was last found suspended."""
        self._specs = specs
        self._rules = rules
        self._engine = False
        self._counts = counts
        self._ceilings_of: tuple[object, ...] = ()
        self._fault: str | None = None
        self._logged_fault: type[Exception] | None = None
        """The type of error that was logged last; None once the GPU is up again."""

    def reconfigure(self, specs: SpecBook, rules: Rules) -> None:
        """Use other specs and rules from the next report on."""
        self._specs, self._rules = specs, rules

    @property
    def last_shares(self) -> GpuShares:
        """The GPU and its shares at the last reading."""
        return self.device, self.reading.shares if self.reading is not None else ()

    def take(self, report: SlotReport, claims: Claims, work: NodeWork, now: float) -> None:
        """Take the report after a round; integrate its reading if that is a new one.

        An exception takes down this GPU only, until a later reading succeeds.
        """
        self.problem = report.problem
        if report.problem == SUSPENDED:
            self.seen_at = now
        try:
            self._take(report, claims, work, now)
        except Exception as error:
            self._fault = self._log_fault(error)

    def _take(self, report: SlotReport, claims: Claims, work: NodeWork, now: float) -> None:
        reading = report.reading
        if reading is not None:
            self.device = reading.device
            self._engine = _loads_engine(reading, self._engine)
        precision = claims.precisions.get(self.device.uuid)
        present = (self._specs, self._rules, self.device, precision, self._engine)
        if present != self._ceilings_of:
            self._set_ceilings(precision)
        self._ceilings_of = present
        last = self.reading
        if reading is None or (
            last is not None and reading.monotonic_seconds <= last.monotonic_seconds
        ):
            return
        self.seen_at = now
        self.reading = reading  # even if it fails: no interval may count twice
        self._integrate(reading, last, claims, work)
        self._fault = None

    def _log_fault(self, error: Exception) -> str:
        """Log an error, each type once in a row; return the reason why the GPU is down."""
        if type(error) is not self._logged_fault:
            self._logged_fault = type(error)
            log.error("GPU %d (%s) %s", self.device.index, self.device.uuid, FAULT, exc_info=error)
        return f"{FAULT}: {type(error).__name__}"

    def _set_ceilings(self, precision: str | None) -> None:
        """Set the ceilings, with tensor work in the precision that the jobs report, else in the
        configured one, else in FP8 where a process loaded Transformer Engine."""
        wanted = self._rules.precision or (FP8 if self._engine else None)
        self.ceilings = self._specs.ceilings(self.device, wanted)
        if precision is not None and self.ceilings is not None:
            self.ceilings = self._assuming(precision, self.ceilings)
        for gpu_instance, share in self.shares.items():
            share.ceilings = self._share_ceilings(gpu_instance)

    def _assuming(self, precision: str, ceilings: Ceilings) -> Ceilings:
        """Return the ceilings with tensor work in the precision that the jobs report."""
        if ceilings.assumed_precision is None or precision.lower() in UNSTATED:
            return ceilings
        assumed = reported_precision(ceilings.peak_flops_per_second, precision)
        logged = self._counts.logged_precisions
        is_new = precision not in logged and len(logged) < MOST_LOGGED_PRECISIONS
        # FP32 work leaves the tensor cores of Volta and Turing idle.
        if assumed is None and is_new and pipe_peak(precision) != "fp32":
            logged.add(precision)
            log.warning(
                "GPU %d (%s): no tensor peak is known for precision %r, which its job reports:"
                " its FLOPs are only bounded",
                self.device.index,
                self.device.name,
                precision,
            )
        return replace(ceilings, assumed_precision=assumed)

    def _share_ceilings(self, gpu_instance: int | None) -> Ceilings | None:
        if gpu_instance is None or self.ceilings is None:
            return self.ceilings
        return share_ceilings(self.ceilings, self.device, gpu_instance)

    def _integrate(
        self, reading: Reading, last: Reading | None, claims: Claims, work: NodeWork
    ) -> None:
        seconds = 0.0 if last is None else reading.monotonic_seconds - last.monotonic_seconds
        if last is None or seconds > self._rules.longest_interval_seconds:
            read = Round(reading, None, 0.0)  # no interval spans a gap
        else:
            read = Round(reading, last, seconds)
        whole = reading.shares[0].activity if not reading.device.mig and reading.shares else None
        energy = self.board.add(reading.vitals, within_gap(whole, self._rules), read.seconds)
        present: dict[int | None, TrackedShare] = {}
        for share_reading in reading.shares:
            place = Place(reading.device.uuid, share_reading.gpu_instance)
            share = present[place.gpu_instance] = self._share(share_reading, reading)
            share.integrate(
                share_reading,
                read,
                self._rules,
                energy if place.gpu_instance is None else None,
                claims.stalls.get(place, NO_STALL),
                claims.work.get(place, ()),
                work.of(*place),
            )
        self.shares = present

    def _share(self, share_reading: ShareReading, reading: Reading) -> TrackedShare:
        """Return the share's state; a GPU instance that was created again starts over."""
        number = share_reading.gpu_instance
        identity = tuple(
            instance for instance in reading.device.instances if instance.gpu_instance == number
        )
        share = self.shares.get(number)
        if share is None or share.identity != identity:
            share = TrackedShare(
                identity, self._share_ceilings(number), reading.timestamp_seconds, self._counts
            )
        return share

    def picture(
        self, now: float, xids: Mapping[int, XidRecord], peers: tuple[Peer, ...] = ()
    ) -> Gpu:
        """Return its part of the snapshot at monotonic time `now`; after an exception, as down."""
        try:
            reading = self.reading
            problem = self.problem or self._fault
            stale_after = self._rules.stale_after_seconds
            if reading is None or now - reading.monotonic_seconds >= stale_after:
                problem = problem or NOT_FRESH
            if reading is None or problem is not None:
                return self._down(problem or NOT_FRESH, xids, peers)
            picture = Gpu(
                device=self.device,
                up=True,
                last_read_timestamp_seconds=reading.timestamp_seconds,
                ceilings=self.ceilings,
                vitals=reading.vitals,
                board=reading.board,
                health=reading.health,
                xids=xids,
                peers=peers,
                totals=self.board.totals(),
                shares=tuple(
                    share_picture(share_reading, self.shares[share_reading.gpu_instance], reading)
                    for share_reading in reading.shares
                ),
                states={**reading.states, **self.host_states},
                cadence_age_seconds=reading.cadence_age_seconds,
            )
        except Exception as error:
            return self._down(self._log_fault(error), xids, peers)
        if self._logged_fault is not None:
            self._logged_fault = None
            log.info("GPU %d (%s) is shown again", self.device.index, self.device.uuid)
        return picture

    def _down(self, problem: str, xids: Mapping[int, XidRecord], peers: tuple[Peer, ...]) -> Gpu:
        reading = self.reading
        return Gpu(
            device=self.device,
            up=False,
            down_reason=problem,
            last_read_timestamp_seconds=reading.timestamp_seconds if reading else None,
            ceilings=self.ceilings,
            xids=xids,
            peers=peers,
            states={"gpu": "suspended"} if problem == SUSPENDED else {},
        )


def _loads_engine(reading: Reading, before: bool) -> bool:
    """Return whether a process has loaded Transformer Engine; `before` while none are listed."""
    listed = [share.processes for share in reading.shares if share.processes is not None]
    if not listed:
        return before
    return any(process.transformer_engine for processes in listed for process in processes)
