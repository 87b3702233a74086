# SPDX-License-Identifier: Apache-2.0
"""From measured loads to the coefficients of the power model; pure arithmetic.

    P = idle + busy u + tensor T c + vector X c + dram D,      c = (f / f_ref)^g

Each coefficient becomes a range that holds what every measured load leaves possible:

* idle: between that without and that with a CUDA context.
* busy: at least what one thread draws, at most what reads from L2 draw: loads that keep neither a
  pipe nor the memory busy.
* tensor, vector, dram: from their kernels, with random operands and with zeros. What feeds a unit
  is its own; what runs beside it (up to a tenth of the other pipes, traffic up to the memory
  utilization) is taken off the lower end only.

Beyond that each end is 15 % wider: other kernels do other things with the same unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import ExporterError
from exporter.model.snapshot import PEAK_CLOCKS, Bounds, Ceilings, PowerModel
from exporter.specs.gpu_model import DERIVED
from exporter.specs.power import CLOCK_EXPONENT

WIDER = 1.15
"""Models with a value for each instruction are 11 to 14 % off (Wattchmen: V100, A100, H100)."""
SLOWEST_VECTOR = 0.5
"""Integer and conversion instructions pass at half the rate of FP32, and draw less."""
STRAY_RATIO = 0.1
"""Of the vector pipes, beside what a kernel is for: addresses and loop counters."""
TRAFFIC_RATIO = 0.5
"""Of the memory, beside a matrix product, where the memory utilization does not say."""
LEAST_WATTS = 1.0
"""Of a unit that always works."""
ERROR_RATIO = 0.05
"""Of the power limit: sensors are 5 W or 5 % off, and leakage grows with the temperature."""
LISTED_TOLERANCE, DERIVED_TOLERANCE = 0.05, 0.25
"""How far the peaks of a row and derived ones may be off."""
UNKNOWN_ACTIVITY = Bounds(0.5, 1.0)
"""Of what a kernel is for, where the peak is not known."""
LEAST_ACTIVITY, LEAST_UTILIZATION = 0.05, 0.5
"""Below these nothing is divided by them."""
MARGIN_STEP, LEAST_MARGIN = 0.02, 0.03
"""For the driver's whole percents, and what the margin is at least."""

COPY = ("copy", "copy-zeros")
COPIES = (*COPY, "copy-half")
GEMM = ("gemm", "gemm-zeros")
FP32 = ("fp32", "fp32-zeros")


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
    vector_upper = bench.upper_watts(FP32, bench.vector)
    dram_upper = bench.upper_watts(COPY, bench.dram)
    if max(vector_upper, dram_upper) <= LEAST_WATTS:
        raise ExporterError("no load draws more power than idle: nothing can be fitted")
    margin = bench.memory_margin()

    def traffic(load: Measured) -> float:
        memory = load.memory_utilization
        if memory is None or margin is None:
            return dram_upper * TRAFFIC_RATIO
        return dram_upper * min(1.0, memory + margin)

    def strays(load: Measured) -> float:
        return vector_upper * STRAY_RATIO * bench.clocks(load).upper

    def both(load: Measured) -> float:
        return traffic(load) + strays(load)

    vector = Bounds(bench.lower_watts(FP32, bench.vector, traffic), vector_upper)
    tensor = vector
    if GEMM[0] in measured:
        tensor = Bounds(
            bench.lower_watts(GEMM, bench.tensor, both), bench.upper_watts(GEMM, bench.tensor)
        )
    still = [measured[name] for name in ("idle", "context")]
    noise = max(load.noise_watts for load in measured.values())
    return PowerModel(
        idle_watts=Bounds(
            max(0.0, min(load.watts - load.noise_watts for load in still)),
            max(load.watts + load.noise_watts for load in still),
        ),
        busy_watts=Bounds(bench.spin_watts / WIDER, bench.busiest_watts() * WIDER),
        tensor_watts=tensor,
        vector_watts=Bounds(max(LEAST_WATTS, vector.lower * SLOWEST_VECTOR), vector.upper),
        dram_watts=Bounds(bench.lower_watts(COPY, bench.dram, strays), dram_upper),
        clock_exponent=CLOCK_EXPONENT,
        reference_clock_hertz=bench.reference_hertz,
        error_watts=ERROR_RATIO * limit_watts + noise,
        memory_margin_ratio=margin,
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
        self._base_watts = measured["context"].watts
        spin = measured["spin"]
        drawn = max(0.0, spin.watts - self._base_watts)
        self.spin_watts = drawn / max(spin.utilization, LEAST_UTILIZATION)
        self.reference_hertz = (measured.get("gemm") or measured["fp32"]).sm_clock_hertz

    def clocks(self, load: Measured) -> Bounds:
        """Return the bounds of c."""
        ratio = load.sm_clock_hertz / self.reference_hertz
        ends = ratio**CLOCK_EXPONENT.lower, ratio**CLOCK_EXPONENT.upper
        return Bounds(min(ends), max(ends))

    def busiest_watts(self) -> float:
        """Return what loads draw that keep neither a pipe nor the memory busy."""
        cache = self._measured["cache"]
        drawn = cache.watts - self._base_watts + self._noise(cache)
        return max(self.spin_watts, drawn / max(cache.utilization, LEAST_UTILIZATION))

    def tensor(self, load: Measured) -> Bounds:
        """Return T of a load, times c."""
        return self._pipe(load, self._precision, "tensor")

    def vector(self, load: Measured) -> Bounds:
        """Return X of a load, times c."""
        return self._pipe(load, "fp32", "fma")

    def _pipe(self, load: Measured, precision: str, unit: str) -> Bounds:
        clocks = self._ceilings.peak_clock_hertz
        peak_clock = next((clocks[name] for name in PEAK_CLOCKS[unit] if name in clocks), None)
        peak = self._ceilings.peak_flops_per_second.get(precision)
        active = UNKNOWN_ACTIVITY
        if peak and peak_clock:
            roof = peak * load.sm_clock_hertz / peak_clock
            active = self._active(load.flops_per_second / roof)
        by_clock = self.clocks(load)
        return Bounds(active.lower * by_clock.lower, active.upper * by_clock.upper)

    def dram(self, load: Measured) -> Bounds:
        """Return D of a load."""
        bandwidth = self._ceilings.memory_bandwidth_bytes_per_second
        return self._active(load.bytes_per_second / bandwidth) if bandwidth else UNKNOWN_ACTIVITY

    def _active(self, ratio: float) -> Bounds:
        lower, upper = ratio * (1.0 - self._tolerance), ratio * (1.0 + self._tolerance)
        return Bounds(*(min(1.0, max(LEAST_ACTIVITY, each)) for each in (lower, upper)))

    def memory_margin(self) -> float | None:
        """Return how far DRAM activity was above the memory utilization at most, or None."""
        if not self._ceilings.memory_bandwidth_bytes_per_second:
            return None
        above = [LEAST_MARGIN]
        for name in COPIES:
            load = self._measured[name]
            if load.memory_utilization is None:
                return None
            above.append(self.dram(load).upper - load.memory_utilization + MARGIN_STEP)
        return min(1.0, max(above))

    def upper_watts(self, names: Sequence[str], active: Callable[[Measured], Bounds]) -> float:
        """Return the most that a unit draws when it always works, by these loads."""
        most = max(
            (self._drawn(load) + self._noise(load)) / active(load).lower
            for load in self._loads(names)
        )
        return max(LEAST_WATTS, most * WIDER)

    def lower_watts(
        self,
        names: Sequence[str],
        active: Callable[[Measured], Bounds],
        beside: Callable[[Measured], float],
    ) -> float:
        """Return the least, where `beside` is what other units may draw."""
        least = min(
            (self._drawn(load) - self._noise(load) - beside(load)) / active(load).upper
            for load in self._loads(names)
        )
        return max(LEAST_WATTS, least / WIDER)

    def _loads(self, names: Sequence[str]) -> list[Measured]:
        return [self._measured[name] for name in names]

    def _drawn(self, load: Measured) -> float:
        return load.watts - self._base_watts - self.spin_watts * load.utilization

    def _noise(self, load: Measured) -> float:
        """Return how far `_drawn` may be off by chance."""
        others = self._measured["context"].noise_watts, self._measured["spin"].noise_watts
        return load.noise_watts + sum(others)
