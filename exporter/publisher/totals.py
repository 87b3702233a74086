# SPDX-License-Identifier: Apache-2.0
"""Ratios x time = counters: the running totals of one share and of one board.

Totals live as long as the process and outlive workers, sessions and changes of source. The
publisher leaves out every interval that is longer than three polls: nothing is integrated over a
gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from exporter.derive import Derived
from exporter.model.reading import THROTTLE_REASONS, Activity, Utilization, Vitals
from exporter.model.snapshot import LIMITERS, TIME_PARTS, BoardTotals, ShareTotals

PIPES: Mapping[str, str] = {
    "tensor": "tensor",
    "fp64": "fp64",
    "fp32": "fp32",
    "fp16": "fp16",
    "int": "integer",
}
"""By the label's value: the field of `Activity`."""
TENSOR_OPS = ("hmma", "imma", "dmma", "dfma")
CUT_TOLERANCE = 0.01
"""A counter may read a little above 1 from rounding; beyond that the value is wrong."""


def _sum(total: float | None, increment: float) -> float:
    return increment if total is None else total + increment


def _add(totals: dict[str, float], name: str, increment: float) -> None:
    totals[name] = totals.get(name, 0.0) + increment


class ShareIntegral:
    """The totals of one share since it was first seen."""

    def __init__(self, started_unix_seconds: float) -> None:
        self.cuts: Counter[str] = Counter()
        """By source: activities that had to be cut to 1 by more than rounding explains."""
        self._last_busy = started_unix_seconds
        self._busy: float | None = None
        self._observed: dict[str, float] = {}
        self._engine: float | None = None
        self._sm: float | None = None
        self._dram: float | None = None
        self._pipes: dict[str, float] = {}
        self._ops: dict[str, float] = {}
        self._saturation: float | None = None
        self._parts: dict[str, float] = {}
        self._flops: dict[str, float] = {}
        self._flops_lower: float | None = None
        self._flops_upper: float | None = None
        self._dram_bytes: float | None = None
        self._limited: dict[str, float] = {}
        self._idle: float | None = None
        self._idle_for: float | None = None
        self._held_idle: float | None = None
        self._idle_energy: float | None = None
        self._data_stall_lower: dict[str, float] = {}
        self._data_stall_upper: dict[str, float] = {}

    def add(
        self,
        utilization: Utilization | None,
        activity: Activity | None,
        derived: Derived,
        energy_joules: float | None,
        unix_seconds: float,
    ) -> None:
        """Add one interval that ends at `unix_seconds`.

        `energy_joules` is the board's energy over it, None where it cannot be said for the share.
        """
        if utilization is not None:
            self._busy = _sum(self._busy, utilization.ratio * utilization.seconds)
            _add(self._observed, "utilization", utilization.seconds)
        if activity is not None:
            self._add_activity(activity, derived)
        if activity is not None:
            seconds = activity.seconds
        elif utilization is not None:
            seconds = utilization.seconds
        else:
            return
        if derived.limiter is not None:
            if not self._limited:
                self._limited = dict.fromkeys(LIMITERS, 0.0)
            self._limited[derived.limiter] += seconds
        bounds = derived.flops_integral_bounds
        if bounds is not None:
            self._flops_lower = _sum(self._flops_lower, bounds.lower * seconds)
            self._flops_upper = _sum(self._flops_upper, bounds.upper * seconds)
        for method, stall in derived.data_stall.items():
            _add(self._data_stall_lower, method, stall.lower * seconds)
            _add(self._data_stall_upper, method, stall.upper * seconds)
        self._add_idle(derived, seconds, energy_joules, unix_seconds)

    def _add_activity(self, activity: Activity, derived: Derived) -> None:
        seconds = activity.seconds
        _add(self._observed, "activity", seconds)
        if activity.engine is not None:
            self._engine = _sum(self._engine, self._cut(activity.engine, activity.source) * seconds)
        if activity.sm is not None:
            self._sm = _sum(self._sm, self._cut(activity.sm, activity.source) * seconds)
        if activity.dram is not None:
            self._dram = _sum(self._dram, self._cut(activity.dram, activity.source) * seconds)
        for pipe, field in PIPES.items():
            ratio = getattr(activity, field)
            if ratio is not None:
                _add(self._pipes, pipe, self._cut(ratio, activity.source) * seconds)
        for op in TENSOR_OPS:
            ratio = getattr(activity, op)
            if ratio is not None:
                _add(self._ops, op, self._cut(ratio, activity.source) * seconds)
        saturation, parts, roofline = derived.saturation, derived.time_parts, derived.roofline
        if saturation is not None and saturation.ratio is not None:
            self._saturation = _sum(self._saturation, saturation.ratio * seconds)
        if parts is not None:
            for name in TIME_PARTS:
                _add(self._parts, name, getattr(parts, name) * seconds)
        if roofline is not None:
            for precision, rate in roofline.flops_per_second.items():
                _add(self._flops, precision, rate * seconds)
            if roofline.dram_bytes_per_second is not None:
                self._dram_bytes = _sum(self._dram_bytes, roofline.dram_bytes_per_second * seconds)

    def _cut(self, ratio: float, source: str) -> float:
        if ratio <= 1.0:
            return ratio
        if ratio > 1.0 + CUT_TOLERANCE:
            self.cuts[source] += 1
        return 1.0

    def _add_idle(
        self,
        derived: Derived,
        seconds: float,
        energy_joules: float | None,
        unix_seconds: float,
    ) -> None:
        if derived.idle is None:
            return
        idle_seconds = seconds if derived.idle else 0.0
        self._idle = _sum(self._idle, idle_seconds)
        if derived.held is not None:
            self._held_idle = _sum(self._held_idle, idle_seconds if derived.held else 0.0)
        if energy_joules is not None:
            self._idle_energy = _sum(self._idle_energy, energy_joules if derived.idle else 0.0)
        if derived.idle:
            self._idle_for = _sum(self._idle_for, seconds)
        else:
            self._idle_for = 0.0
            self._last_busy = unix_seconds

    def lose_sight(self, unix_seconds: float) -> None:
        """Take note that until `unix_seconds` nobody saw whether the share was idle."""
        self._idle_for = None
        self._last_busy = unix_seconds

    def totals(self) -> ShareTotals:
        """Return the totals so far."""
        return ShareTotals(
            busy_seconds=self._busy,
            observed_seconds=dict(self._observed),
            engine_active_seconds=self._engine,
            sm_active_seconds=self._sm,
            dram_active_seconds=self._dram,
            pipe_active_seconds=dict(self._pipes),
            tensor_op_active_seconds=dict(self._ops),
            saturation_seconds=self._saturation,
            time_seconds=dict(self._parts),
            flops=dict(self._flops),
            flops_lower=self._flops_lower,
            flops_upper=self._flops_upper,
            dram_bytes=self._dram_bytes,
            limited_seconds=dict(self._limited),
            idle_seconds=self._idle,
            held_idle_seconds=self._held_idle,
            idle_energy_joules=self._idle_energy,
            last_busy_timestamp_seconds=self._last_busy if self._idle is not None else None,
            idle_for_seconds=self._idle_for,
            data_stall_lower_seconds=dict(self._data_stall_lower),
            data_stall_upper_seconds=dict(self._data_stall_upper),
        )


class Tally:
    """A counter that is either the driver's total or our own sum, whichever came first.

    It never changes from one to the other, so it never jumps.
    """

    __slots__ = ("_ours", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        """None while the driver does not tell its total, which may go on meanwhile."""
        self._ours: bool | None = None
        """None until either came."""

    def follow(self, total: float | None) -> None:
        """Take the driver's total, or that it is not known now."""
        if self._ours:
            return
        if total is not None:
            self._ours = False
        self.value = total

    def add(self, increment: float | None) -> None:
        """Add to our own sum; no effect where the driver counts."""
        if increment is not None and self._ours is not False:
            self._ours = True
            self.value = (self.value or 0.0) + increment


class BoardIntegral:
    """The totals of one board since it was first seen."""

    def __init__(self) -> None:
        self._energy = Tally()
        self._throttle = {reason: Tally() for reason in THROTTLE_REASONS}
        self._pcie_transmit = Tally()
        self._pcie_receive = Tally()
        self._nvlink_transmit = Tally()
        self._nvlink_receive = Tally()
        self._c2c_transmit = Tally()
        self._c2c_receive = Tally()

    def add(self, vitals: Vitals, activity: Activity | None, seconds: float) -> float | None:
        """Add the interval of `seconds` that ends with `vitals`; return the energy used in it.

        With ``seconds = 0`` (the first read, or after a gap) only the driver's totals are taken.
        """
        before = self._energy.value
        self._energy.follow(vitals.energy_joules)
        if vitals.power_watts is not None:
            self._energy.add(vitals.power_watts * seconds)
        after = self._energy.value
        self._add_throttle(vitals, seconds)
        self._nvlink_transmit.follow(vitals.nvlink_transmit_bytes_total)
        self._nvlink_receive.follow(vitals.nvlink_receive_bytes_total)
        if activity is not None:
            self._pcie_transmit.add(activity.pcie_transmit_bytes)
            self._pcie_receive.add(activity.pcie_receive_bytes)
            self._nvlink_transmit.add(activity.nvlink_transmit_bytes)
            self._nvlink_receive.add(activity.nvlink_receive_bytes)
            self._c2c_transmit.add(activity.c2c_transmit_bytes)
            self._c2c_receive.add(activity.c2c_receive_bytes)
        if activity is None or activity.pcie_transmit_bytes is None:
            self._pcie_transmit.add(vitals.pcie_transmit_bytes)
            self._pcie_receive.add(vitals.pcie_receive_bytes)
        if not seconds or before is None or after is None or after < before:
            return None
        return after - before

    def _add_throttle(self, vitals: Vitals, seconds: float) -> None:
        holding: Iterable[str] | None = vitals.throttle_reasons
        for reason, tally in self._throttle.items():
            tally.follow(vitals.throttle_seconds.get(reason))
            if holding is not None:
                tally.add(seconds if reason in holding else 0.0)

    def totals(self) -> BoardTotals:
        """Return the totals so far."""
        return BoardTotals(
            energy_joules=self._energy.value,
            throttle_seconds={
                reason: tally.value
                for reason, tally in self._throttle.items()
                if tally.value is not None
            },
            pcie_transmit_bytes=self._pcie_transmit.value,
            pcie_receive_bytes=self._pcie_receive.value,
            nvlink_transmit_bytes=self._nvlink_transmit.value,
            nvlink_receive_bytes=self._nvlink_receive.value,
            c2c_transmit_bytes=self._c2c_transmit.value,
            c2c_receive_bytes=self._c2c_receive.value,
        )
