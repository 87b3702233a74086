# SPDX-License-Identifier: Apache-2.0
"""From measured loads to the coefficients of the power model; pure arithmetic.

    P = idle + busy u + tensor T c + vector X c + dram D,      c = (f / f_ref)^g

Each coefficient becomes a range that holds what every measured load leaves possible:

* idle: between that without and that with a CUDA context.
* busy: the lower end makes `idle + busy` what one thread draws, from the lower idle; the upper end
  what reads from L2 draw, from the higher idle: loads that keep neither a pipe nor the memory busy.
* tensor, vector, dram: what their kernels draw beyond one thread, with random operands and with
  zeros. At the lower end what may run beside it is taken off: up to a tenth of the vector pipes,
  and traffic up to the memory utilization, as these draw with the same operands.

Beyond that each end is 15 % wider: other kernels do other things with the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.errors import ExporterError
from exporter.model.snapshot import PEAK_CLOCKS, Bounds, Ceilings, PowerModel
from exporter.specs.gpu_model import DERIVED
from exporter.specs.power import CLOCK_EXPONENT

WIDER = 1.15
"""Models with a value for each instruction are 11 to 14 % off (Wattchmen: V100, A100, H100)."""
SLOWEST_VECTOR = 0.5
"""Integer instructions pass at half the rate of FP32, and draw less."""
STRAY_RATIO = 0.1
"""Of the vector pipes, beside what a kernel is for: addresses and loop counters."""
TRAFFIC_RATIO = 0.5
"""Of the memory, beside a matrix product, where the memory utilization does not say."""
LEAST_WATTS = 1.0
"""Of a unit that always works."""
ERROR_RATIO = 0.03
"""Of the power limit: leakage grows with the temperature. That a sensor is 5 % off cancels out: the
coefficients have its error too."""
LISTED_TOLERANCE, DERIVED_TOLERANCE = 0.05, 0.25
"""How far the peaks of a row and derived ones may be off."""
UNKNOWN_ACTIVITY = Bounds(0.5, 1.0)
"""Of what a kernel is for, where the peak is not known."""
LEAST_ACTIVITY, LEAST_UTILIZATION = 0.05, 0.5
"""Below these nothing is divided by them."""
MARGIN_STEP, LEAST_MARGIN = 0.02, 0.03
"""For the driver's whole percents, and what the margin is at least."""

OPERANDS = ("", "-zeros")
"""After the name of a kernel that makes the name of a load."""
COPIES = ("copy", "copy-zeros", "copy-half")
BESIDE: Mapping[str, tuple[str, ...]] = {
    "copy": ("fp32",),
    "fp32": ("copy",),
    "gemm": ("copy", "fp32"),
}
"""By kernel: those of the units that may also work in it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One load: means over its time."""

    watts: float
    noise_watts: float
    """How far the mean may be off by chance."""
    utilization: float
    memory_utilization: float | None
    sm_clock_hertz: float
    flops_per_second: float = 0.0
    bytes_per_second: float = 0.0


def fit(
    measured: Mapping[str, Measured],
    ceilings: Ceilings,
    limit_watts: float,
    precision: str = "bf16_tensor",
) -> PowerModel:
    """Return the coefficients that these loads show, by the names of ``loads.py``.

    `precision` is that of the tensor GEMM. A GPU without tensor cores has no such load, and gets
    the watts of its vector pipes in their place.

    Raises:
        ExporterError: no load draws more than idle.
    """
    bench = _Bench(measured, ceilings, precision)
    dram, vector = bench.unit_watts("copy"), bench.unit_watts("fp32")
    if max(dram.upper, vector.upper) <= LEAST_WATTS:
        raise ExporterError("no load draws more power than idle: nothing can be fitted")
    slowest = SLOWEST_VECTOR * bench.lower_watts("fp32", OPERANDS[0]) / WIDER
    return PowerModel(
        idle_watts=bench.idle_watts(),
        busy_watts=bench.busy_watts(),
        tensor_watts=bench.unit_watts("gemm") if "gemm" in measured else vector,
        vector_watts=Bounds(max(LEAST_WATTS, min(vector.lower, slowest)), vector.upper),
        dram_watts=dram,
        clock_exponent=CLOCK_EXPONENT,
        reference_clock_hertz=bench.reference_hertz,
        error_watts=ERROR_RATIO * limit_watts + max(each.noise_watts for each in measured.values()),
        memory_margin_ratio=bench.margin,
        calibrated=True,
    )


class _Bench:
    """The loads of one GPU, and what each unit did in them."""

    def __init__(
        self, measured: Mapping[str, Measured], ceilings: Ceilings, precision: str
    ) -> None:
        self._measured, self._ceilings, self._precision = measured, ceilings, precision
        derived = ceilings.spec == DERIVED
        self._tolerance = DERIVED_TOLERANCE if derived else LISTED_TOLERANCE
        self._context, self._spin = measured["context"], measured["spin"]
        self._spin_watts = max(0.0, self._above(self._spin, self._context.watts))
        self.reference_hertz = (measured.get("gemm") or measured["fp32"]).sm_clock_hertz
        self.margin = self._memory_margin()

    def idle_watts(self) -> Bounds:
        """Return what it draws without a load."""
        still = self._measured["idle"], self._context
        return Bounds(
            max(0.0, min(load.watts - load.noise_watts for load in still)),
            max(load.watts + load.noise_watts for load in still),
        )

    def busy_watts(self) -> Bounds:
        """Return what loads draw on top that keep neither a pipe nor the memory busy."""
        idle, cache = self.idle_watts(), self._measured["cache"]
        least = self._above(self._spin, idle.lower + self._spin.noise_watts) / WIDER
        most = self._above(cache, self._context.watts - self._noise(cache))
        return Bounds(max(0.0, least), max(least, self._spin_watts, most) * WIDER)

    def unit_watts(self, kernel: str) -> Bounds:
        """Return what the unit of a kernel draws when it always works, at the reference clock."""
        lower = min(self.lower_watts(kernel, operands) for operands in OPERANDS)
        upper = max(self._upper_watts(kernel, operands) for operands in OPERANDS)
        return Bounds(max(LEAST_WATTS, lower / WIDER), max(LEAST_WATTS, upper * WIDER))

    def lower_watts(self, kernel: str, operands: str) -> float:
        """Return the least that the unit draws with these operands."""
        load = self._measured[kernel + operands]
        drawn = self._drawn(load) - self._noise(load) - self._beside(kernel, operands)
        by_clock = self._clocks(kernel, load, self.reference_hertz)
        return drawn / self._active(kernel, load).upper * by_clock.lower

    def _upper_watts(self, kernel: str, operands: str, hertz: float | None = None) -> float:
        """Return the most that the unit draws with these operands at a clock."""
        load = self._measured[kernel + operands]
        drawn = self._drawn(load) + self._noise(load)
        by_clock = self._clocks(kernel, load, hertz or self.reference_hertz)
        return max(0.0, drawn) / self._active(kernel, load).lower * by_clock.upper

    def _beside(self, kernel: str, operands: str) -> float:
        """Return the most that other units draw in a load."""
        load = self._measured[kernel + operands]
        shares = {"fp32": STRAY_RATIO, "copy": self._traffic(load)}
        return sum(
            shares[other] * self._upper_watts(other, operands, load.sm_clock_hertz)
            for other in BESIDE[kernel]
        )

    def _traffic(self, load: Measured) -> float:
        """Return an upper bound of D."""
        if load.memory_utilization is None or self.margin is None:
            return TRAFFIC_RATIO
        return min(1.0, load.memory_utilization + self.margin)

    def _active(self, kernel: str, load: Measured) -> Bounds:
        """Return D of a copy, T of a GEMM, X of an FP32 product."""
        roof = self._ceilings.memory_bandwidth_bytes_per_second
        work = load.bytes_per_second
        if kernel != "copy":
            unit, precision = ("tensor", self._precision) if kernel == "gemm" else ("fma", "fp32")
            clocks, peaks = self._ceilings.peak_clock_hertz, self._ceilings.peak_flops_per_second
            known = [clocks[name] for name in PEAK_CLOCKS[unit] if name in clocks]
            peak = peaks.get(precision)
            roof = peak * load.sm_clock_hertz / known[0] if peak and known else None
            work = load.flops_per_second
        if not roof:
            return UNKNOWN_ACTIVITY
        ratio = work / roof
        ends = ratio * (1.0 - self._tolerance), ratio * (1.0 + self._tolerance)
        return Bounds(*(min(1.0, max(LEAST_ACTIVITY, end)) for end in ends))

    def _clocks(self, kernel: str, load: Measured, hertz: float) -> Bounds:
        """Return the bounds of the power at a clock over that at the load's; 1 for the memory."""
        ratio = 1.0 if kernel == "copy" else hertz / load.sm_clock_hertz
        ends = ratio**CLOCK_EXPONENT.lower, ratio**CLOCK_EXPONENT.upper
        return Bounds(min(ends), max(ends))

    def _memory_margin(self) -> float | None:
        """Return how far DRAM activity was above the memory utilization at most, or None."""
        if not self._ceilings.memory_bandwidth_bytes_per_second:
            return None
        above = [LEAST_MARGIN]
        for name in COPIES:
            load = self._measured[name]
            if load.memory_utilization is None:
                return None
            active = self._active("copy", load).upper
            above.append(active - load.memory_utilization + MARGIN_STEP)
        return min(1.0, max(above))

    def _above(self, load: Measured, watts: float) -> float:
        """Return what a load draws above some watts, over its utilization."""
        return (load.watts - watts) / max(load.utilization, LEAST_UTILIZATION)

    def _drawn(self, load: Measured) -> float:
        """Return what a load draws beyond one thread."""
        return load.watts - self._context.watts - self._spin_watts * load.utilization

    def _noise(self, load: Measured) -> float:
        """Return how far `_drawn` may be off by chance."""
        return load.noise_watts + self._context.noise_watts + self._spin.noise_watts
