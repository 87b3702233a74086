# SPDX-License-Identifier: Apache-2.0
"""What a board's power shows of the work on it, as bounds.

Over a window of some seconds, with means of the power P, of the share of time u in which anything
runs, and of the shares T, X and D in which the tensor pipe, the vector pipes and the memory work,

    P = idle + busy u + c (tensor T + vector X) + dram D + eps,  |eps| <= e,  c = (f / f_ref)^g
    0 <= T, X <= u          0 <= D <= max(u, m + margin)

with the SM clock f and the memory utilization m (`snapshot.PowerModel`). Every coefficient is known
within bounds, so a power fits many mixes of work: tensor work, FP32 work and traffic all raise it,
and by how much depends on the values of the data. What all of these mixes have in common are the
bounds; nothing within them is more likely. Coefficients need not stay the same within a window, as
long as they stay within their bounds.

A lower bound assumes the least of everything else at its dearest: what the GPU's other units
(caches, shared memory, special functions, issue) draw is part of `busy`, not of a unit. An upper
bound assumes that all power went into one unit at its cheapest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.derive.flops import tensor_rates
from exporter.derive.saturation import estimated
from exporter.derive.units import cut
from exporter.model.reading import Utilization
from exporter.model.snapshot import Bounds, Ceilings, PowerModel, Saturation

VECTOR_PIPES = ("fma", "int")
"""The vector pipes that the model is of on every GPU."""
LEAST_FP64_OVER_FP32 = 0.125
"""FP64 units that are fewer than that (1/32 or 1/64 on GeForce, RTX, T4, L4, L40S) draw so little
when they are full that no power shows it."""


@dataclass(frozen=True, slots=True)
class PowerMeans:
    """Means of one whole GPU over a window of some seconds."""

    power_watts: Bounds
    utilization: Bounds
    memory_upper_ratio: float | None
    """At most this was the driver's memory utilization."""
    clock_hertz: Bounds
    """Between these was the SM clock while anything ran; from 0 on where it cannot be trusted."""
    counted_seconds: float = 0.0
    """For how much time the totals take the window's rate of work with its last interval."""
    steady: bool = False
    """Whether power and utilization were much the same in all of its intervals."""

    def around(self, utilization: Utilization) -> PowerMeans:
        """Return the means with bounds of the utilization that hold the last interval's too."""
        memory, own = self.memory_upper_ratio, utilization.memory_upper_ratio
        return replace(
            self,
            utilization=Bounds(
                min(self.utilization.lower, cut(utilization.lower_ratio)),
                max(self.utilization.upper, cut(utilization.upper_ratio)),
            ),
            memory_upper_ratio=None if memory is None or own is None else max(memory, own),
        )

    @property
    def as_utilization(self) -> Utilization:
        """The utilization of the window, of which only the bounds are known."""
        lower, upper = self.utilization.lower, self.utilization.upper
        memory = self.memory_upper_ratio
        return Utilization(upper, upper, 0.0, None, memory, lower_ratio=lower)


@dataclass(frozen=True, slots=True)
class PowerBounds:
    """Bounds of what was active in a window, as shares of its time."""

    saturation: Bounds
    tensor: Bounds
    vector: Bounds
    """Of the busiest vector pipe."""
    dram: Bounds
    tensor_cycles_lower: float
    """The least mean of T f / f_ref: full cycles of the tensor pipe over those at f_ref."""


def power_bounds(
    window: PowerMeans, model: PowerModel, dram_upper_ratio: float, *, tensor_cores: bool = True
) -> PowerBounds | None:
    """Return what the power of a window leaves possible; None if nothing is: the model does not
    hold here.

    `dram_upper_ratio` is the bound of DRAM activity by other means.
    """
    busy, dearest, cheapest = window.utilization, *_costs(window, model, tensor_cores)
    floor = Bounds(
        model.idle_watts.lower + model.busy_watts.lower * busy.lower,
        model.idle_watts.upper + model.busy_watts.upper * busy.upper,
    )
    least = window.power_watts.lower - model.error_watts - floor.upper
    most = window.power_watts.upper + model.error_watts - floor.lower
    pipes = cut(busy.upper)
    caps = dict.fromkeys(dearest, pipes) | {"dram": cut(dram_upper_ratio)}
    if most < 0.0 or sum(dearest[unit] * cap for unit, cap in caps.items()) < least:
        return None
    upper = {
        unit: min(cap, most / cheapest[unit]) if cheapest[unit] else cap
        for unit, cap in caps.items()
    }
    whole = sum(dearest[unit] * upper[unit] for unit in upper)
    lower = {
        unit: max(0.0, least - whole + dearest[unit] * upper[unit]) / dearest[unit]
        if dearest[unit]
        else 0.0
        for unit in upper
    }
    bounds = {unit: Bounds(min(lower[unit], upper[unit]), upper[unit]) for unit in upper}
    tensor = bounds.get("tensor", Bounds(0.0, 0.0))
    return PowerBounds(
        saturation=Bounds(_filled(least, dearest, upper), _spread(most, cheapest, caps)),
        tensor=tensor,
        vector=bounds["vector"],
        dram=bounds["dram"],
        tensor_cycles_lower=tensor.lower and tensor.lower * _cycles_ratio(window, model),
    )


def _costs(
    window: PowerMeans, model: PowerModel, tensor_cores: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the most and the least that each unit draws when it works all the time, in watts."""
    clocks = _powers(window, model)
    dearest = {
        "vector": model.vector_watts.upper * clocks.upper,
        "dram": model.dram_watts.upper,
    }
    cheapest = {
        "vector": model.vector_watts.lower * clocks.lower,
        "dram": model.dram_watts.lower,
    }
    if tensor_cores:
        dearest["tensor"] = model.tensor_watts.upper * clocks.upper
        cheapest["tensor"] = model.tensor_watts.lower * clocks.lower
    return dearest, cheapest


def _powers(window: PowerMeans, model: PowerModel) -> Bounds:
    """Return the bounds of c = (f / f_ref)^g while anything ran."""
    reference, g = model.reference_clock_hertz, model.clock_exponent
    low, high = window.clock_hertz.lower / reference, window.clock_hertz.upper / reference
    return Bounds(min(low**g.lower, low**g.upper), max(high**g.lower, high**g.upper))


def _cycles_ratio(window: PowerMeans, model: PowerModel) -> float:
    """Return the least mean of T f / f_ref over the lower bound of T.

    That bound is y / max c with y = mean of T c. Work is T r = (T c) r^(1 - g) with r = f / f_ref,
    hence at least y times the least of r^(1 - g): at the highest clock from g = 1 on.
    """
    reference, clock = model.reference_clock_hertz, window.clock_hertz
    least: float = min(
        ((clock.upper if g >= 1.0 else clock.lower) / reference) ** (1.0 - g)
        for g in (model.clock_exponent.lower, model.clock_exponent.upper)
    )
    return _powers(window, model).upper * least


def _filled(watts: float, dearest: Mapping[str, float], upper: Mapping[str, float]) -> float:
    """Return the least s with which units that work for up to s of the time can draw so much.

    The power is spread over all units at their dearest (water-filling): what is left to the
    busiest is then the least.
    """
    if watts <= 0.0:
        return 0.0
    drawn, level = 0.0, 0.0
    rising = sorted(upper, key=upper.__getitem__)
    for position, unit in enumerate(rising):
        slope = sum(dearest[other] for other in rising[position:])
        step = slope * (upper[unit] - level)
        if slope and drawn + step >= watts:
            return level + (watts - drawn) / slope
        drawn, level = drawn + step, upper[unit]
    return level


def _spread(watts: float, cheapest: Mapping[str, float], caps: Mapping[str, float]) -> float:
    """Return the largest mean of s(t) = max(T, X, D) that so much power allows.

    Units may work one after the other, so that s is their sum at most: the cheapest first, each as
    long as it can.
    """
    total, left = 0.0, watts
    for unit in sorted(caps, key=cheapest.__getitem__):
        cost, cap = cheapest[unit], caps[unit]
        if cost * cap >= left:
            return min(1.0, total + (left / cost if cost else cap))
        total, left = total + cap, left - cost * cap
    return min(1.0, total)


def _narrowed(saturation: Saturation, power: PowerBounds, ceilings: Ceilings) -> Saturation:
    """Return an estimate of the same window, with what its power adds."""
    known = {"tensor": power.tensor, "dram": power.dram}
    known |= {pipe: Bounds(0.0, power.vector.upper) for pipe in VECTOR_PIPES}
    known["sm"] = Bounds(max(power.tensor.lower, power.vector.lower), 1.0)
    overall = power.saturation
    if _fp64_over_fp32(ceilings) >= LEAST_FP64_OVER_FP32:
        known["fp64"] = Bounds(0.0, power.vector.upper)
    else:
        overall = Bounds(overall.lower, 1.0)
    unmeasured = {
        resource: within_both(bounds, known[resource]) if resource in known else bounds
        for resource, bounds in saturation.unmeasured.items()
    }
    return replace(
        saturation, bounds=within_both(saturation.bounds, overall), unmeasured=unmeasured
    )


def _fp64_over_fp32(ceilings: Ceilings) -> float:
    """Return how many FP64 units there are for an FP32 unit; 0 where that is not known."""
    peaks = ceilings.peak_flops_per_second
    fp64, fp32 = peaks.get("fp64"), peaks.get("fp32")
    return fp64 / fp32 if fp64 is not None and fp32 else 0.0


def within_both(one: Bounds, other: Bounds) -> Bounds:
    """Return what lies within both; `one` as it is where nothing does."""
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    return Bounds(lower, upper) if lower <= upper else one


class ByPower(NamedTuple):
    """What is estimated of a window."""

    saturation: Saturation
    flops_lower_per_second: float = 0.0
    counted_flops: float = 0.0
    """What of this work the totals take with the interval that ends the window."""
    dram_bytes_per_second: Bounds | None = None
    """Set by `share`, which knows the bandwidth; None where that is not known."""
    fits: bool = True
    """Whether the model of its power holds: if not, these are the bounds without it."""


def saturation_by_power(
    window: PowerMeans, model: PowerModel, ceilings: Ceilings, *, tensor_cores: bool
) -> tuple[Saturation, PowerBounds | None]:
    """Return the bounds of a window by its utilization and its power together, and those by its
    power; None where the model does not hold: then the first are by the utilization alone.

    FP64 is bounded as a vector pipe where the GPU has enough such units. Where it has few, or it is
    not known how many, they may be full at any power: they keep their bounds by utilization, and so
    does the upper bound of the saturation, which holds them.
    """
    saturation = estimated(
        window.as_utilization,
        tensor_cores=tensor_cores,
        memory_margin_ratio=model.memory_margin_ratio,
    )
    dram = saturation.unmeasured["dram"].upper
    power = power_bounds(window, model, dram, tensor_cores=tensor_cores)
    if power is not None:
        saturation = _narrowed(saturation, power, ceilings)
    return saturation, power


def estimated_by_power(
    window: PowerMeans,
    model: PowerModel,
    ceilings: Ceilings,
    compute_capability: tuple[int, int] | None,
    tensor_reference_hertz: float | None,
    *,
    tensor_cores: bool,
) -> ByPower:
    """Return all that utilization and power show of a window.

    The FLOP/s are the tensor work that is certain, at the slowest precision.
    """
    saturation, power = saturation_by_power(window, model, ceilings, tensor_cores=tensor_cores)
    if power is None:
        return ByPower(saturation, fits=False)
    if not power.tensor_cycles_lower:
        return ByPower(saturation)
    slowest = tensor_rates(ceilings, compute_capability, 1.0, 1.0).anything.lower
    clock = model.reference_clock_hertz / (tensor_reference_hertz or float("inf"))
    flops = power.tensor_cycles_lower * clock * slowest
    return ByPower(saturation, flops, flops * window.counted_seconds)


def agreed(interval: Saturation, window: Saturation) -> Saturation:
    """Return the bounds of an interval, with what its window adds to each."""
    return replace(
        interval,
        bounds=within_both(interval.bounds, window.bounds),
        unmeasured={
            resource: within_both(bounds, window.unmeasured.get(resource, bounds))
            for resource, bounds in interval.unmeasured.items()
        },
    )


def with_certain_work(parts: Mapping[str, Bounds], certain_ratio: float) -> dict[str, Bounds]:
    """Return bounds of the time parts to integrate, where the totals take so much saturation.

    What was saturated, at whatever clock, was neither narrow nor unsaturated. It may be of any time
    of the window, so only sums over intervals hold: narrow, unsaturated <= 1 - idle - S. A bound of
    the interval itself must not be taken where it is narrower: another interval may rely on what
    this one leaves.
    """
    rest = Bounds(0.0, max(0.0, 1.0 - parts["idle"].lower - certain_ratio))
    return {**parts, "narrow": rest, "unsaturated": rest}
