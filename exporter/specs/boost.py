# SPDX-License-Identifier: Apache-2.0
"""The clock of a datasheet's peak, from the maximum SM clock that NVML reports.

On data-centre boards NVML's maximum is the boost clock. On the others it is the end of the chip's
voltage curve, which hardly differs within a generation (2100 MHz on Ampere, 3105 on Ada, 3090 on
Blackwell), while the boost clock is set for each GPU model, at 0.46 to 0.93 of it. NVML has no call
for that clock: ``nvmlDeviceGetMaxCustomerBoostClock`` answers on data-centre boards alone, with the
maximum again.
"""

from __future__ import annotations

from statistics import geometric_mean
from typing import Literal

from exporter.specs.gpu_class import GpuClass

Unit = Literal["vector", "tensor"]
UNITS: tuple[Unit, ...] = ("vector", "tensor")


_FIRST_WORKSTATION_ON_THE_CURVE = (7, 5)
_GB10 = (12, 1)
"""A data-centre board by name with a desktop chip."""


def on_the_curve(capability: tuple[int, int], gpu_class: GpuClass) -> bool:
    """Return whether NVML's maximum is the end of the voltage curve, and not the boost clock."""
    if capability == _GB10:
        return True
    if gpu_class in ("workstation", "compact_workstation"):
        return capability >= _FIRST_WORKSTATION_ON_THE_CURVE
    return gpu_class in ("geforce", "laptop", "low_power")


# By class and compute capability: the geometric mean of boost clock / end of the curve over the GPU
# models that gpus.yaml lists. The tests compute both tables, from the maxima that were seen.
_ON_THE_CURVE = """
                       6.1    7.5    8.6    8.9   12.0   12.1
geforce              0.823  0.786  0.808  0.812  0.807      -
workstation              -  0.800  0.810  0.813  0.783      -
compact_workstation      -  0.695  0.713  0.693  0.649      -
laptop               0.843  0.695  0.784  0.721  0.777      -
low_power            0.714  0.556      -  0.502  0.463      -
data_center              -      -      -      -      -  0.805
"""

# By unit and compute capability, of boards whose maximum is the boost clock: clock of the peak /
# maximum. 0.0 is of all other architectures.
_AT_THE_BOOST_CLOCK = """
           0.0     5.2     6.0     6.1  7.0  7.5  8.0  8.6  8.9     9.0    10.0    10.3  12.0
vector  0.9958       1  0.9902  0.9821    1    1    1    1    1       1       1  0.9744     1
tensor  0.9696       -       -       -    1    1    1    1    1  0.9089  0.9591  0.9134     1
"""

Factors = dict[tuple[tuple[int, int], str], float]


def _factors(text: str) -> Factors:
    first, *lines = text.strip().splitlines()
    capabilities = [tuple(map(int, each.split("."))) for each in first.split()]
    return {
        ((major, minor), name): float(value)
        for name, *values in map(str.split, lines)
        for (major, minor), value in zip(capabilities, values, strict=True)
        if value != "-"
    }


ON_THE_CURVE = _factors(_ON_THE_CURVE)
AT_THE_BOOST_CLOCK = _factors(_AT_THE_BOOST_CLOCK)


def boost_factor(capability: tuple[int, int], gpu_class: GpuClass, unit: Unit) -> float:
    """Return the clock of the datasheet's peak / NVML's maximum SM clock.

    On the voltage curve it is the mean of this architecture and class, or of the class on all
    architectures where none of it is listed; units do not differ there. Elsewhere it is that of
    the boards that were seen. The clock of a module's peak is its maximum.
    """
    if gpu_class == "module":
        return 1.0
    if not on_the_curve(capability, gpu_class):
        return AT_THE_BOOST_CLOCK.get((capability, unit), AT_THE_BOOST_CLOCK[(0, 0), unit])
    of_class = {each: factor for each, factor in ON_THE_CURVE.items() if each[1] == gpu_class}
    factor = of_class.get((capability, gpu_class))
    return geometric_mean(of_class.values()) if factor is None else factor
