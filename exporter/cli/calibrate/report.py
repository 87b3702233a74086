# SPDX-License-Identifier: Apache-2.0
"""What a calibration writes: the section of a spec file, and a short table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator

from exporter.cli.calibrate.loop import Calibration
from exporter.errors import one_line
from exporter.model.snapshot import Bounds, PowerModel
from exporter.version import version

_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z][a-z0-9.-]*")
"""Keys that YAML takes for text without quotes, whatever they are."""


def ranges(power: PowerModel) -> dict[str, Bounds]:
    """Return the coefficients that are ranges, by their key in a spec file."""
    return {
        "idle_watts": power.idle_watts,
        "busy_watts": power.busy_watts,
        "tensor_watts": power.tensor_watts,
        "vector_watts": power.vector_watts,
        "dram_watts": power.dram_watts,
        "clock_exponent": power.clock_exponent,
    }


def section(found: Calibration, date: str) -> str:
    """Return the spec file of a calibration; its numbers are rounded outwards."""
    power, device = found.power, found.device
    origin = (
        f"{device.name}, driver {device.driver_version or 'unknown'}, torch {found.torch}, "
        f"power limit {found.limit_watts:g} W"
    )
    lines = [
        f"# Measured by roofline-exporter calibrate {version()} on {date}.",
        f"# {one_line(origin)}",
        "power:",
        f"  {_key(found.key)}:",
        *(
            f"    {name}: [{_down(bounds.lower):g}, {_up(bounds.upper):g}]"
            for name, bounds in ranges(power).items()
        ),
        f"    reference_clock_mhz: {power.reference_clock_hertz / 1e6:.1f}",
        f"    error_watts: {_up(power.error_watts):g}",
    ]
    if power.memory_margin_ratio is not None:
        lines.append(f"    memory_margin_ratio: {_up(power.memory_margin_ratio, 100):g}")
    return "\n".join([*lines, ""])


def _key(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _rounded(value: float, round_to: Callable[[float], int], parts: int) -> float:
    nearest = round(value * parts)
    whole = nearest if math.isclose(nearest, value * parts) else round_to(value * parts)
    return whole / parts


def _down(value: float, parts: int = 10) -> float:
    return _rounded(value, math.floor, parts)


def _up(value: float, parts: int = 10) -> float:
    return _rounded(value, math.ceil, parts)


_MEANING = {
    "idle_watts": "nothing runs",
    "busy_watts": "on top while anything runs",
    "tensor_watts": "on top while the tensor pipe always works",
    "vector_watts": "the same of FP32, FP16, FP64 and integer pipes",
    "dram_watts": "the same of the memory",
}


def table(found: Calibration, file: str | None) -> Iterator[str]:
    """Yield what was found in a few lines, and how to use it."""
    power = found.power
    yield f"{one_line(found.device.name)}: {_key(found.key)}"
    for name, meaning in _MEANING.items():
        bounds = ranges(power)[name]
        title = name.removesuffix("_watts")
        yield f"  {title:<7}{_down(bounds.lower):7.1f} to {_up(bounds.upper):6.1f} W  {meaning}"
    clock = power.reference_clock_hertz / 1e6
    yield f"  pipes at {clock:.0f} MHz; the sum is within {_up(power.error_watts):g} W"
    if power.memory_margin_ratio is not None:
        points = 100 * _up(power.memory_margin_ratio, 100)
        yield f"  memory activity is at most {points:.0f} points above memory utilization"
    if found.capped:
        yield (
            f"warning: the power limit of {found.limit_watts:g} W held the clock down in "
            f"{', '.join(found.capped)}; the ranges hold at other clocks, too, and are wider there"
        )
    if file is not None:
        yield f"written to {one_line(file)}: use it with --specs {one_line(file)}"
