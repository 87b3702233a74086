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
from statistics import geometric_mean, median
from typing import Literal, cast

from exporter.specs.gpu_class import GpuClass

Unit = Literal["vector", "tensor"]
UNITS: tuple[Unit, ...] = ("vector", "tensor")


@dataclass(frozen=True, slots=True)
class Sighting:
    """One GPU model whose maximum SM clock by NVML somebody has published; clocks in MHz."""

    capability: tuple[int, int]
    gpu_class: GpuClass
    max_mhz: float
    clock_mhz: Mapping[Unit, float]
    """At which the peaks of the datasheet hold: the boost clock, or what the peak implies."""
    source: str
    name: str


# Compute capability, class, maximum by NVML, clock of the vector peak, clock of the tensor peak
# ("=" for the same, "-" for none), source, name. Peaks of a laptop GPU are at the upper end of the
# range that its datasheet gives.
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
6.1   geforce      1911  1468  -     SMI  GeForce GT 1030
6.1   geforce      1911  1392  -     SMI  GeForce GTX 1050 Ti
6.1   geforce      1911  1582  -     ISS  GeForce GTX 1080 Ti
7.0   data_center  1380  1380  =     REF  Tesla V100-PCIE-16GB
7.0   data_center  1530  1530  =     REF  Tesla V100-SXM2-16GB
7.0   data_center  1597  1597  =     REF  Tesla V100S-PCIE-32GB
7.5   data_center  1590  1590  =     REF  Tesla T4
7.5   geforce      2145  1785  -     SMI  GeForce GTX 1660 SUPER
7.5   geforce      2130  1710  =     SMI  GeForce RTX 2080
7.5   geforce      2145  1815  =     CAP  GeForce RTX 2080 SUPER
8.0   data_center  1410  1410  =     REF  A100-SXM4-80GB
8.0   data_center  1440  1440  =     REF  A30
8.6   data_center  1695  1695  =     REF  A10
8.6   data_center  1740  1740  =     REF  A40
8.6   geforce      2100  1665  =     SMI  GeForce RTX 3060 Ti
8.6   geforce      2115  1710  =     SMI  GeForce RTX 3080
8.6   geforce      2100  1695  =     SMI  GeForce RTX 3090
8.6   compact_workstation  2100  1560  =  SMI  RTX A4000
8.6   workstation  2100  1800  =     ISS  RTX A6000
8.6   laptop       2100  1620  =     SMI  GeForce RTX 3070 Laptop GPU
8.9   data_center  2040  2040  =     REF  L4
8.9   data_center  2520  2520  =     CAP  L40S
8.9   geforce      3105  2475  =     SMI  GeForce RTX 4070
8.9   geforce      3105  2505  =     SMI  GeForce RTX 4080
8.9   geforce      3165  2550  =     CAP  GeForce RTX 4080 SUPER
8.9   geforce      3105  2520  =     SMI  GeForce RTX 4090
8.9   workstation  3105  2505  =     SMI  RTX 6000 Ada Generation
8.9   laptop       3105  2370  =     SMI  GeForce RTX 4050 Laptop GPU
8.9   laptop       3105  2370  =     SMI  GeForce RTX 4060 Laptop GPU
8.9   laptop       3105  2175  =     SMI  GeForce RTX 4070 Laptop GPU
8.9   laptop       3105  2190  =     SMI  RTX 5000 Ada Generation Laptop GPU
9.0   data_center  1755  1755  1620  REF  H100 PCIe
9.0   data_center  1785  1785  1545  REF  H100 NVL
9.0   data_center  1980  1980  1830  CAP  H100 80GB HBM3
9.0   data_center  1980  1980  1830  CAP  H200
10.0  data_center  1965  1965  1856  SMI  B200
10.0  data_center  2062  2062  2008  REF  GB200
10.3  data_center  2032  1980  1856  REF  B300 SXM6 AC
12.0  data_center  2430  2430  =     REF  RTX PRO 6000 Blackwell Server Edition
12.0  workstation  3090  2617  =     SMI  RTX PRO 6000 Blackwell Workstation Edition
12.0  geforce      3090  2572  =     SMI  GeForce RTX 5060 Ti
12.0  geforce      3090  2617  =     SMI  GeForce RTX 5080
12.0  geforce      3090  2407  =     SMI  GeForce RTX 5090
12.0  laptop       3090  2347  =     SMI  GeForce RTX 5070 Laptop GPU
12.1  data_center  3003  2418  -     SMI  GB10
"""


def _sighting(line: str) -> Sighting:
    capability, kind, max_mhz, vector, tensor, source, name = line.split(maxsplit=6)
    major, minor = capability.split(".")
    clocks: dict[Unit, float] = {"vector": float(vector)}
    if tensor != "-":
        clocks["tensor"] = float(vector if tensor == "=" else tensor)
    return Sighting(
        capability=(int(major), int(minor)),
        gpu_class=cast("GpuClass", kind),
        max_mhz=float(max_mhz),
        clock_mhz=clocks,
        source=source,
        name=name,
    )


SIGHTINGS = tuple(map(_sighting, _SIGHTINGS.strip().splitlines()))

_FIRST_WORKSTATION_ON_THE_CURVE = (7, 5)
_GB10 = (12, 1)
"""Its name looks like a data-centre board's, and its chip is one for desktops."""


def on_the_curve(capability: tuple[int, int], gpu_class: GpuClass) -> bool:
    """Return whether NVML's maximum is the end of the voltage curve, and not the boost clock."""
    if capability == _GB10:
        return True
    if gpu_class in ("workstation", "compact_workstation"):
        return capability >= _FIRST_WORKSTATION_ON_THE_CURVE
    return gpu_class in ("geforce", "laptop", "low_power")


CURVE_END_MHZ: Mapping[tuple[int, int], float] = {
    capability: median(
        each.max_mhz
        for each in SIGHTINGS
        if each.capability == capability and on_the_curve(capability, each.gpu_class)
    )
    for capability in sorted(
        {each.capability for each in SIGHTINGS if on_the_curve(each.capability, each.gpu_class)}
    )
}
"""By compute capability, where it was seen."""

# By class and compute capability: the geometric mean of boost clock / end of the curve over the GPU
# models that gpus.yaml lists. The tests compute it.
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
        return _seen_factor(capability, unit, SIGHTINGS)
    alike = {each: factor for each, factor in FACTORS.items() if each[1] == gpu_class}
    factor = alike.get((capability, gpu_class))
    return geometric_mean(alike.values()) if factor is None else factor


def _seen_factor(
    capability: tuple[int, int], unit: Unit, sightings: Iterable[Sighting]
) -> float | None:
    """Return the mean over the boards of this architecture whose maximum is the boost clock."""
    boards = [
        each
        for each in sightings
        if unit in each.clock_mhz and not on_the_curve(each.capability, each.gpu_class)
    ]
    group = [each for each in boards if each.capability == capability] or boards
    if not group:
        return None
    return geometric_mean(each.clock_mhz[unit] / each.max_mhz for each in group)


def seen_errors() -> dict[str, float]:
    """Return by name how far the factor of all other boards is off, by unit the larger one.

    Of the boards whose maximum is the boost clock. Estimate / datasheet - 1: above 0 where a
    derived ceiling is too high.
    """
    errors: dict[str, float] = {}
    for left_out in SIGHTINGS:
        if on_the_curve(left_out.capability, left_out.gpu_class):
            continue
        others = [each for each in SIGHTINGS if each is not left_out]
        for unit, clock in left_out.clock_mhz.items():
            factor = _seen_factor(left_out.capability, unit, others)
            if factor is not None:
                error = factor * left_out.max_mhz / clock - 1
                errors[left_out.name] = max(errors.get(left_out.name, 0.0), error, key=abs)
    return errors
