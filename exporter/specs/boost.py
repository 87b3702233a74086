# SPDX-License-Identifier: Apache-2.0
"""The clock of a datasheet's peak, from the maximum SM clock that NVML reports.

On data-centre boards NVML's maximum is the boost clock. On the others it is the end of the chip's
voltage curve, which hardly differs within a generation (2100 MHz on Ampere, 3105 on Ada, 3090 on
Blackwell), while the boost clock is set for each GPU model, at 0.46 to 0.93 of it. NVML has no call
for that clock: ``nvmlDeviceGetMaxCustomerBoostClock`` answers on data-centre boards alone, with the
maximum again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal, cast

from exporter.specs.gpu_class import GpuClass

Unit = Literal["vector", "tensor"]
UNITS: tuple[Unit, ...] = ("vector", "tensor")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A GPU model with a published NVML maximum SM clock; clocks in MHz."""

    capability: tuple[int, int]
    gpu_class: GpuClass
    max_mhz: float
    clock_mhz: Mapping[Unit, float]
    """The clock of the datasheet's peaks: the boost clock, or the one that the peak implies."""
    name: str


# Compute capability, class, maximum by NVML, clock of the vector peak, clock of the tensor peak
# ("=" for the same, "-" for none), source, name; of boards whose maximum is the boost clock.
#   CAP  utkuozdemir/nvidia_gpu_exporter, internal/captures (nvidia-smi -q)
#   SMI  output of nvidia-smi (clocks.max.sm, or Max Clocks of -q) in public repositories
#   ISS  nvidia-smi -q in issues NVIDIA/nvidia-docker 642 and 829 and mrirecon/bart 323
#   REF  device logs named in the sources of the GPU model's row of gpus.yaml
_SIGHTINGS = """
5.2   data_center  1112  1112  -     REF  Tesla M40
6.0   data_center  1329  1303  -     REF  Tesla P100-PCIE-16GB
6.0   data_center  1480  1480  -     REF  Tesla P100-SXM2-16GB
6.1   data_center  1114  1063  -     REF  Tesla P4
6.1   data_center  1531  1531  -     REF  Tesla P40
6.1   workstation  1657  1645  -     ISS  Quadro P6000
7.0   data_center  1380  1380  =     REF  Tesla V100-PCIE-16GB
7.0   data_center  1530  1530  =     REF  Tesla V100-SXM2-16GB
7.0   data_center  1597  1597  =     REF  Tesla V100S-PCIE-32GB
7.5   data_center  1590  1590  =     REF  Tesla T4
8.0   data_center  1410  1410  =     REF  A100-SXM4-80GB
8.0   data_center  1440  1440  =     REF  A30
8.6   data_center  1695  1695  =     REF  A10
8.6   data_center  1740  1740  =     REF  A40
8.9   data_center  2040  2040  =     REF  L4
8.9   data_center  2520  2520  =     CAP  L40S
9.0   data_center  1755  1755  1620  REF  H100 PCIe
9.0   data_center  1785  1785  1545  REF  H100 NVL
9.0   data_center  1980  1980  1830  CAP  H100 80GB HBM3
9.0   data_center  1980  1980  1830  CAP  H200
10.0  data_center  1965  1965  1856  SMI  B200
10.0  data_center  2062  2062  2008  REF  GB200
10.3  data_center  2032  1980  1856  REF  B300 SXM6 AC
12.0  data_center  2430  2430  =     REF  RTX PRO 6000 Blackwell Server Edition
"""


def sighting(line: str) -> Sighting:
    """Parse a line of the table."""
    capability, kind, max_mhz, vector, tensor, _, name = line.split(maxsplit=6)
    major, minor = capability.split(".")
    clocks: dict[Unit, float] = {"vector": float(vector)}
    if tensor != "-":
        clocks["tensor"] = float(vector if tensor == "=" else tensor)
    return Sighting(
        capability=(int(major), int(minor)),
        gpu_class=cast("GpuClass", kind),
        max_mhz=float(max_mhz),
        clock_mhz=clocks,
        name=name,
    )


SIGHTINGS = tuple(map(sighting, _SIGHTINGS.strip().splitlines()))

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
# models that gpus.yaml lists. The tests compute it, from the ends that were seen.
_FACTORS = """
                       6.1    7.5    8.6    8.9   12.0   12.1
geforce              0.823  0.786  0.808  0.812  0.807      -
workstation              -  0.800  0.810  0.813  0.783      -
compact_workstation      -  0.695  0.713  0.693  0.649      -
laptop               0.843  0.695  0.784  0.721  0.777      -
low_power            0.714  0.556      -  0.502  0.463      -
data_center              -      -      -      -      -  0.805
"""


def _factors(text: str) -> dict[tuple[tuple[int, int], GpuClass], float]:
    first, *lines = text.strip().splitlines()
    capabilities = [tuple(map(int, each.split("."))) for each in first.split()]
    factors: dict[tuple[tuple[int, int], GpuClass], float] = {}
    for line in lines:
        kind, *values = line.split()
        for (major, minor), value in zip(capabilities, values, strict=True):
            if value != "-":
                factors[(major, minor), cast("GpuClass", kind)] = float(value)
    return factors


FACTORS = _factors(_FACTORS)


def boost_factor(capability: tuple[int, int], gpu_class: GpuClass, unit: Unit) -> float | None:
    """Return the clock of the datasheet's peak / NVML's maximum SM clock, or None.

    On the voltage curve it is the mean of this architecture and class, or of the class on all
    architectures where none of it is listed; units do not differ there. Elsewhere it is that of
    the boards that were seen. The clock of a module's peak is its maximum.
    """
    if gpu_class == "module":
        return 1.0
    if not on_the_curve(capability, gpu_class):
        return seen_factor(capability, unit, SIGHTINGS)
    alike = {each: factor for each, factor in FACTORS.items() if each[1] == gpu_class}
    factor = alike.get((capability, gpu_class))
    return geometric_mean(alike.values()) if factor is None else factor


def seen_factor(
    capability: tuple[int, int], unit: Unit, sightings: Iterable[Sighting]
) -> float | None:
    """Return the mean over the boards of this architecture, else over all of them."""
    boards = [each for each in sightings if unit in each.clock_mhz]
    group = [each for each in boards if each.capability == capability] or boards
    if not group:
        return None
    return geometric_mean(each.clock_mhz[unit] / each.max_mhz for each in group)
