# SPDX-License-Identifier: Apache-2.0
"""What a board draws for what it does, where nobody has calibrated its GPU model.

The coefficients are shares of the board's default power limit, by architecture and kind of board.
They are wide on purpose: what follows from them must hold on every board and for every load.

What makes them wide, with sources:

* idle: with a CUDA context it is 1.5 to 3.7 times that without one (arXiv 2605.23918: H100, A100
  and L40S; NVIDIA open-gpu-kernel-modules issue 874: A40).
* busy: its upper end is that of loads that keep caches and issue slots busy, and no pipe. Reads
  from L2 alone bring an H100 PCIe to its limit (chipsandcheese.com, 2 July 2023).
* tensor, vector: one GEMM draws up to 40 % less for other operands (arXiv 2409.18324). At the limit
  the clock gives way (H100 SXM with random operands: about 1430 of 1830 MHz), so that at the clock
  of the datasheet a full pipe would draw more than the limit; several times as much where a large
  chip has a low limit (T4, L4, A10).
* exponent: in games an RTX 4090 draws 268, 305 and 347 W at 2443, 2602 and 2726 MHz
  (hardwaretimes.com), which makes 2.9 at the end of the voltage curve; it is 1 where the voltage is
  at its lowest.
* error: models with all counters are 11 to 14 % off (Wattchmen), but by one value for each
  instruction; here most of that lies within the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from exporter.model.reading import Device
from exporter.model.snapshot import Bounds, Ceilings, PowerModel
from exporter.specs.derived import RULES, positive
from exporter.specs.gpu_class import GpuClass, gpu_class
from exporter.specs.gpu_model import GpuModel
from exporter.specs.tensor_clock import tensor_rate_ratio

Kind = Literal["hbm", "geforce", "gddr", "small"]
"""Boards with HBM; GeForce, whose limit fits the chip; all other boards; and those of at most
SMALL_WATTS and GPUs of laptops, whose chip could draw several times their limit."""

SMALL_WATTS = 100.0
CLOCK_EXPONENT = Bounds(1.0, 3.5)
ERROR_RATIO = 0.1
"""Of what lies between the least idle power and the limit."""
LEAST_TENSOR_RATE = 0.4
"""Of the architecture's: tensor cores that were slowed down further (H20) draw less than the limit
lets expect. Half of it, as GeForce has, is within the ranges."""

# Shares of the default power limit at the clock of the datasheet's tensor peak, lower-upper.
_RANGES = """
         CAP   idle       busy       tensor     vector     dram
hbm      7.0   0.06-0.24  0.00-0.40  0.20-2.20  0.10-1.50  0.08-0.50
hbm      8.0   0.08-0.28  0.00-0.40  0.20-2.20  0.10-1.50  0.08-0.50
hbm      9.0   0.06-0.30  0.00-0.42  0.15-2.20  0.10-1.50  0.08-0.50
hbm      10.0  0.06-0.28  0.00-0.42  0.15-2.20  0.08-1.50  0.08-0.50
hbm      10.3  0.06-0.28  0.00-0.42  0.15-2.20  0.08-1.50  0.08-0.50
geforce  7.5   0.01-0.35  0.00-0.40  0.10-1.80  0.10-1.60  0.05-0.50
geforce  8.6   0.01-0.35  0.00-0.40  0.10-1.80  0.10-1.60  0.05-0.50
geforce  8.9   0.01-0.30  0.00-0.40  0.10-1.80  0.10-1.60  0.05-0.45
geforce  12.0  0.01-0.30  0.00-0.40  0.10-1.80  0.10-1.60  0.05-0.45
gddr     7.5   0.01-0.35  0.00-0.40  0.10-2.80  0.10-2.20  0.05-0.60
gddr     8.6   0.02-0.42  0.00-0.40  0.10-3.50  0.10-2.60  0.05-0.60
gddr     8.9   0.03-0.36  0.00-0.40  0.10-3.00  0.10-2.40  0.05-0.50
gddr     12.0  0.02-0.36  0.00-0.40  0.10-3.00  0.10-2.40  0.05-0.50
small    7.5   0.03-0.45  0.00-0.40  0.12-5.00  0.10-4.00  0.08-0.90
small    8.6   0.03-0.45  0.00-0.40  0.12-5.00  0.10-4.00  0.08-0.90
small    8.9   0.03-0.45  0.00-0.40  0.12-5.00  0.10-4.00  0.08-0.80
small    12.0  0.03-0.45  0.00-0.40  0.12-5.00  0.10-4.00  0.08-0.80
"""


@dataclass(frozen=True, slots=True)
class Shares:
    """Coefficients as shares of the default power limit."""

    idle: Bounds
    busy: Bounds
    tensor: Bounds
    vector: Bounds
    dram: Bounds


def _shares(text: str) -> dict[tuple[Kind, tuple[int, int]], Shares]:
    found: dict[tuple[Kind, tuple[int, int]], Shares] = {}
    for line in text.strip().splitlines()[1:]:
        kind, capability, *columns = line.split()
        major, minor = capability.split(".")
        ranges = (Bounds(*map(float, column.split("-"))) for column in columns)
        found[cast("Kind", kind), (int(major), int(minor))] = Shares(*ranges)
    return found


SHARES = _shares(_RANGES)

_HBM_CAPABILITIES = frozenset(capability for kind, capability in SHARES if kind == "hbm")
_LARGE_CHIP_LOW_LIMIT: frozenset[GpuClass] = frozenset({"laptop", "low_power"})


def default_power(device: Device, model: GpuModel | None, whole: Ceilings) -> PowerModel | None:
    """Return the wide coefficients of this GPU's architecture and kind of board, or None.

    They are shares of the default power limit, else of the row's TDP; for a laptop of the limit
    alone, which its maker chose. None before Volta, for modules (their power is that of the CPU as
    well), for what is no ordinary board (mining, H20), and where limit or clock are not known.
    """
    of_class = gpu_class(device)
    capability = device.compute_capability if model is None else model.compute_capability
    limit = positive(device.power_default_limit_watts)
    if limit is None and model is not None and of_class != "laptop":
        limit = positive(model.tdp_watts)
    clocks = whole.peak_clock_hertz
    clock = clocks.get("tensor") or clocks.get("vector") or device.clock_max_hertz.get("sm")
    clock = positive(clock)
    if capability is None or of_class is None or limit is None or clock is None:
        return None
    if model is not None and _is_slowed(model, whole.sm_count, clock):
        return None
    shares = SHARES.get((_kind(capability, of_class, limit), capability))
    if shares is None:
        return None
    idle = _scaled(shares.idle, limit)
    return PowerModel(
        idle_watts=idle,
        busy_watts=_scaled(shares.busy, limit),
        tensor_watts=_scaled(shares.tensor, limit),
        vector_watts=_scaled(shares.vector, limit),
        dram_watts=_scaled(shares.dram, limit),
        clock_exponent=CLOCK_EXPONENT,
        reference_clock_hertz=clock,
        error_watts=ERROR_RATIO * (limit - idle.lower),
    )


def _is_slowed(model: GpuModel, sm_count: int | None, clock_hertz: float) -> bool:
    """Return whether the tensor cores have less of the architecture's rate than the ranges allow
    for."""
    rule = RULES.get(model.compute_capability)
    if rule is None:
        return False
    peaks, flops_per_clock = model.peak_flops_per_second, rule.flops_per_clock
    rate = tensor_rate_ratio(peaks, flops_per_clock, sm_count, clock_hertz)
    return rate is not None and rate < LEAST_TENSOR_RATE


def _kind(capability: tuple[int, int], of_class: GpuClass, limit_watts: float) -> Kind:
    if capability in _HBM_CAPABILITIES:
        return "hbm"
    if limit_watts <= SMALL_WATTS or of_class in _LARGE_CHIP_LOW_LIMIT:
        return "small"
    return "geforce" if of_class == "geforce" else "gddr"


def _scaled(shares: Bounds, limit_watts: float) -> Bounds:
    return Bounds(shares.lower * limit_watts, shares.upper * limit_watts)
