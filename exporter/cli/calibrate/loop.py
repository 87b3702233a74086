# SPDX-License-Identifier: Apache-2.0
"""Puts one load after the other on a GPU, measures each, and fits the coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exporter.cli.calibrate.child import Loader, Work
from exporter.cli.calibrate.fit import Measured, fit
from exporter.cli.calibrate.loads import IDLE, LOADS, Load
from exporter.cli.calibrate.measure import Means, Meter
from exporter.derive.idle import IdleRules, holding, is_held
from exporter.errors import ExporterError
from exporter.model.reading import Device, Reading
from exporter.model.snapshot import Ceilings, PowerModel
from exporter.specs import SpecBook
from exporter.specs.gpu_model import DERIVED

THERMAL = frozenset({"sw_thermal", "hw_thermal"})
POWER = frozenset({"sw_power_cap", "hw_power_brake"})
IDLE_RATIO = 0.05
"""More utilization than this without a load of ours is that of somebody else."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long each load runs."""

    measure_seconds: float = 15.0
    settle_seconds: float = 4.0
    """Before it is measured: power and clocks follow a load within a second or two."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found of one GPU."""

    device: Device
    key: str
    """Of its GPU model, or its name where it has no row."""
    power: PowerModel
    measured: dict[str, Measured]
    capped: tuple[str, ...]
    """The loads in which the power limit held the clock down."""
    limit_watts: float
    torch: str


class Bench:
    """One GPU that is measured under one load after the other."""

    def __init__(
        self, meter: Meter, rules: IdleRules, times: Times, say: Callable[[str], object]
    ) -> None:
        self._meter, self._rules, self._times, self._say = meter, rules, times, say
        self.measured: dict[str, Measured] = {}
        self.capped: list[str] = []

    def free(self) -> Reading:
        """Return a reading of the GPU.

        Raises:
            ExporterError: somebody holds it.
        """
        reading = self._meter.reading()
        for share in reading.shares:
            coherent = reading.device.coherent_memory
            if is_held(share.processes, share.memory, self._rules, coherent_memory=coherent):
                raise ExporterError(f"GPU {reading.device.index} is in use{self._by(reading)}")
        return reading

    def idle(self) -> None:
        """Measure the GPU while nothing holds it."""
        means = self._measure()
        self.free()
        self._note(IDLE, means, None, None)

    def load(self, load: Load, loader: Loader) -> None:
        """Measure the GPU under one load.

        Raises:
            ExporterError: the load fails, somebody else came, or the GPU is too hot.
        """
        loader.put(load)
        self._meter.rest(self._times.settle_seconds)
        before = loader.work()
        means = self._measure()
        after = loader.work()
        reading = self._meter.reading()
        held = [holding(share.processes or (), self._rules) for share in reading.shares]
        # By number: in a container the ids are not those that the driver lists.
        if sum(map(len, held)) > 1:
            raise ExporterError(
                f"GPU {reading.device.index} is not free any more{self._by(reading)}"
            )
        self._note(load, means, before, after)

    def _measure(self) -> Means:
        return self._meter.measure(self._times.measure_seconds)

    def _by(self, reading: Reading) -> str:
        processes = [each for share in reading.shares for each in share.processes or ()]
        commands = sorted(
            {each.command or f"process {each.pid}" for each in holding(processes, self._rules)}
        )
        return f": {', '.join(commands)}" if commands else ""

    def _note(self, load: Load, means: Means, before: Work | None, after: Work | None) -> None:
        if means.throttled & THERMAL:
            celsius = means.temperature_celsius
            at = "" if celsius is None else f" ({celsius:.0f} °C)"
            raise ExporterError(f"its temperature{at} throttles the GPU in the load {load.name}")
        if load.kernel is None and means.utilization > IDLE_RATIO:
            raise ExporterError(
                f"the GPU is in use: its utilization is {100 * means.utilization:.0f} % while it "
                "should be idle"
            )
        if means.sm_clock_hertz is None:
            raise ExporterError("the driver does not report the SM clock of this GPU")
        if means.throttled & POWER:
            self.capped.append(load.name)
        done = _rates(before, after)
        self.measured[load.name] = Measured(
            watts=means.watts,
            noise_watts=means.noise_watts,
            utilization=means.utilization,
            memory_utilization=means.memory_utilization,
            sm_clock_hertz=means.sm_clock_hertz,
            flops_per_second=done[0],
            bytes_per_second=done[1],
        )
        megahertz = means.sm_clock_hertz / 1e6
        self._say(f"{load.name:<11}{means.watts:7.1f} W {megahertz:5.0f} MHz  {load.shows}")


def calibrate(
    bench: Bench, make_loader: Callable[[Device], Loader], specs: SpecBook
) -> Calibration:
    """Measure every load and fit the coefficients.

    Raises:
        ExporterError: it cannot be done, with the reason. The loads are ended in any case.
    """
    first = bench.free()
    device = first.device
    ceilings, limit = _known(first, specs)
    bench.idle()
    loader = make_loader(device)
    try:
        started = loader.start()
        for load in LOADS:
            if load.kernel != "gemm" or ceilings.assumed_precision is not None:
                bench.load(load, loader)
    finally:
        loader.close()
    return Calibration(
        device=device,
        key=device.name if ceilings.spec == DERIVED else ceilings.spec,
        power=fit(bench.measured, ceilings, limit, started.precision),
        measured=bench.measured,
        capped=tuple(bench.capped),
        limit_watts=limit,
        torch=started.torch,
    )


def _known(reading: Reading, specs: SpecBook) -> tuple[Ceilings, float]:
    """Return ceilings and power limit of the GPU.

    Raises:
        ExporterError: it cannot be calibrated, with the reason.
    """
    device = reading.device
    if device.mig:
        raise ExporterError("MIG is on: the power of the board is not that of an instance")
    ceilings = specs.ceilings(device)
    if ceilings is None:
        raise ExporterError(f"{device.name} has no ceilings: it is a part of a GPU, or not known")
    limit = reading.board.power_limit_watts or device.power_default_limit_watts
    if limit is None:
        raise ExporterError("the driver does not report the power limit of this GPU")
    return ceilings, limit


def _rates(before: Work | None, after: Work | None) -> tuple[float, float]:
    """Return FLOP/s and bytes per second between the two."""
    if before is None or after is None or after.seconds <= before.seconds:
        return 0.0, 0.0
    seconds = after.seconds - before.seconds
    return (after.flops - before.flops) / seconds, (after.bytes - before.bytes) / seconds
