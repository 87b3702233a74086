# SPDX-License-Identifier: Apache-2.0
"""Which GPU model a GPU is taken for, and which ceilings that gives."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Device
from exporter.model.snapshot import PRECISIONS
from exporter.specs import GpuModel, assumed_precision, load_specs
from exporter.specs.book import bare_name
from exporter.specs.gpu_class import MODULE_CAPABILITIES
from exporter.specs.gpu_model import DERIVED, pcie_bytes_per_second

BOOK = load_specs()


def _key(name: str, **fields: object) -> str | None:
    model = BOOK.find(Device(0, "GPU-1", name, **fields))  # type: ignore[arg-type]
    return None if model is None else model.key


NEAR_NAMES = """
NVIDIA GeForce RTX 4090 Other | NVIDIA T4 | Tesla T4. | NVIDIA H200 MIG 7g.141gb | NVIDIA A40-48Q
Orin (nvgpu) | NVIDIA Thor | NVIDIA RTX 6000 | NVIDIA H100 80GB | nvidia h100 pcie | H |
NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU | NVIDIA RTX A2000 Laptop GPU
NVIDIA GeForce RTX 3050 6GB Laptop GPU | NVIDIA RTX 2000E Ada Generation
"""
"""They contain the name of a listed GPU model, or are contained in one, and are others."""


def test_names_are_matched_whole() -> None:
    """Without a PCI id only the exact name counts, with or without "NVIDIA " before it."""
    for name in re.split(r" ?[|\n] ?", NEAR_NAMES):
        assert _key(name) is None, name
    assert _key("A100-SXM4-40GB") == _key("NVIDIA A100-SXM4-40GB") == "a100-sxm4-40gb"
    assert _key("NVIDIA H100") == "h100-sxm5-94gb"
    assert _key("Tesla T4") == "t4"


@pytest.mark.parametrize("key", sorted(BOOK.models))
def test_every_gpu_model_finds_itself(key: str) -> None:
    """Each row is found by name and PCI id; by name alone if it is the first of that name."""
    model = BOOK.models[key]
    for name in model.names:
        first = next(each for each in BOOK.models.values() if _has_name(each, name))
        # The modules of one name are told by their cores.
        alone = None if first.compute_capability in MODULE_CAPABILITIES else first.key
        assert _key(name) == alone
        for pci_id in model.pci_ids:
            assert (
                _key(
                    name,
                    pci_device_id=pci_id,
                    compute_capability=model.compute_capability,
                    core_count=model.core_count,
                    memory_bus_width_bits=model.memory_bus_width_bits,
                    clock_max_hertz=model.peak_clock_hertz,
                )
                == key
            )


def _has_name(model: GpuModel, name: str) -> bool:
    return bare_name(name) in map(bare_name, model.names)


def test_pci_id_decides_over_the_name() -> None:
    """A PCI id of one row decides, whatever the name, even if it is no text."""
    for name in ("NVIDIA H200 with a suffix", "NVIDIA H20", "�", ""):
        assert _key(name, pci_device_id=0x2335) == "h200-sxm"


WHOLE_A100 = {
    "compute_capability": (8, 0),
    "core_count": 6912,
    "memory_bus_width_bits": 5120,
    "clock_max_hertz": {"sm": 1410e6, "memory": 1215e6},
    "pcie_generation_max": 4,
    "pcie_width_max": 16,
}


_PARTS = """
GRID A100-1-5CME 20B0 | GRID A100-40C 20B0 | GRID A100-7-40C 20B0 | GRID T4-4Q 1EB8
GRID V100D-32Q - | NVIDIA A40-48Q 2235 | NVIDIA L40S-8C 26B9 | NVIDIA RTX 6000 Ada-12Q -
NVIDIA A16-2B - | NVIDIA H100XM-1-10CME - | GRID P40-1B4 - | NVIDIA H200 MIG 1g.18gb 2335
NVIDIA RTX Pro 6000 Blackwell DC-1-24Q - | NVIDIA A100-SXM4-40GB 20B0
"""
"""Names of vGPUs, of MIG devices and, at last, of a GPU that is passed through; with PCI ids."""


@pytest.mark.parametrize("part", re.split(r" ?[|\n] ?", _PARTS.strip()))
def test_a_part_of_a_gpu_never_has_a_whole_gpus_ceilings(part: str) -> None:
    """Nor has the largest profile: it shares the GPU's time, and what is left is not known."""
    name, pci_id = part.rsplit(maxsplit=1)
    fields: dict[str, object] = {"virtualized": "SXM4" in name}
    if pci_id != "-":
        fields["pci_device_id"] = int(pci_id, 16)
    device = Device(0, "GPU-1", name, **(WHOLE_A100 | fields))  # type: ignore[arg-type]
    assert BOOK.find(device) is None
    assert BOOK.ceilings(device) is None


@pytest.mark.parametrize(
    ("name", "capability"), [("Orin (nvgpu)", (8, 7)), ("NVIDIA Thor", (11, 0))]
)
def test_a_module_without_a_core_count_has_no_ceilings(
    name: str, capability: tuple[int, int]
) -> None:
    """The largest of its name would be a guess."""
    clocks = {"sm": 1300e6}
    device = Device(0, "GPU-1", name, compute_capability=capability, clock_max_hertz=clocks)
    assert BOOK.ceilings(device) is None


# PCI id, cores, bus width in bits, memory clock in MHz by NVML, the row that is meant, name.
# A new PCI id of a name that desktop and laptop GPUs have may be either; modules of one name are
# told by their cores.
_BOARDS_OF_ONE_NAME = """
2504   -     -     -     rtx-3060-12gb              NVIDIA GeForce RTX 3060
2487   -     192   -     rtx-3060-12gb              NVIDIA GeForce RTX 3060
2487   -     128   -     rtx-3060-8gb               NVIDIA GeForce RTX 3060
-      -     384   -     rtx-3080-12gb              NVIDIA GeForce RTX 3080
24C9   -     -     -     rtx-3060-ti-gddr6x         NVIDIA GeForce RTX 3060 Ti
1C03   -     -     4004  gtx-1060-6gb               NVIDIA GeForce GTX 1060 6GB
1C03   -     -     -     gtx-1060-6gb               NVIDIA GeForce GTX 1060 6GB
1F82   -     -     5001  -                          NVIDIA GeForce GTX 1650
2786   -     -     10001 rtx-4070-gddr6             NVIDIA GeForce RTX 4070
1F03   1920  -     -     rtx-2060                   NVIDIA GeForce RTX 2060
1F03   2176  -     -     rtx-2060-12gb              NVIDIA GeForce RTX 2060
1E90   -     -     -     rtx-2080-laptop            NVIDIA GeForce RTX 2080
1E90   -     -     -     rtx-2080-max-q             NVIDIA GeForce RTX 2080 with Max-Q Design
FFFF   -     -     -     -                          NVIDIA GeForce RTX 2080
1E78   -     -     -     quadro-rtx-6000-passive    Quadro RTX 6000
FFFF   -     -     -     -                          Quadro RTX 6000
-      -     -     -     quadro-rtx-6000            Quadro RTX 6000
1E78   -     -     -     -                          Quadro RTX 9000
25B6   -     -     -     a2                         NVIDIA A2
25B6   -     -     -     a16                        A16
FFFF   -     -     -     l4                         NVIDIA L4
-      -     -     -     -                          Orin (nvgpu)
-      2048  -     -     jetson-agx-orin-64gb       Orin (nvgpu)
-      1024  -     -     -                          Orin (nvgpu)
2B00   -     -     -     -                          NVIDIA Thor
-      2560  -     -     jetson-thor-t5000          NVIDIA Thor
2B00   2560  -     -     jetson-thor-t5000          NVIDIA Thor
2B00   1536  -     -     -                          NVIDIA Thor
"""


@pytest.mark.parametrize("line", _BOARDS_OF_ONE_NAME.strip().splitlines())
def test_other_hardware_of_one_name_has_a_row(line: str) -> None:
    """PCI id, cores, bus width and the memory's clock say which board of a name it is, and the name
    which board of a PCI id."""
    pci_id, cores, bits, memory_mhz, key, name = line.split(maxsplit=5)
    fields: dict[str, object] = {}
    if pci_id != "-":
        fields["pci_device_id"] = int(pci_id, 16)
    if cores != "-":
        fields["core_count"] = int(cores)
    if bits != "-":
        fields["memory_bus_width_bits"] = int(bits)
    if memory_mhz != "-":
        fields["clock_max_hertz"] = {"memory": float(memory_mhz) * 1e6}
    assert _key(name, **fields) == (None if key == "-" else key)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("NVIDIA GeForce RTX 3060", {"pci_device_id": 0x2504, "memory_bus_width_bits": 128}),
        ("NVIDIA GeForce RTX 3080", {"memory_bus_width_bits": 256}),
        ("NVIDIA H200", {"compute_capability": (9, 1)}),
        ("NVIDIA A10G", {"core_count": 9216}),
    ],
)
def test_other_hardware_of_the_same_name(name: str, fields: dict[str, object]) -> None:
    """A row whose capability, cores or bus width NVML contradicts is not used."""
    assert _key(name) is not None
    assert _key(name, **fields) is None


@pytest.mark.parametrize(
    ("name", "key", "fields"),
    [
        ("NVIDIA B200", "b200", {"memory_bus_width_bits": 8192}),
        ("NVIDIA H200", "h200-sxm", {"memory_bus_width_bits": 6144}),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb", {"core_count": 6272, "mig": True}),
        ("NVIDIA GB300", "gb300", {"core_count": 20480}),
        ("NVIDIA H200", "h200-sxm", {"core_count": 0, "memory_bus_width_bits": 0}),
    ],
)
def test_differences_that_drivers_make(name: str, key: str, fields: dict[str, object]) -> None:
    """Spare memory channels, SMs lost to MIG and counts of 0 are no other hardware."""
    assert _key(name, **fields) == key


def test_listed_gpu_model_has_what_its_row_has() -> None:
    """Ceilings of a listed GPU are its row's, and the rule of its architecture fills nothing."""
    device = Device(
        index=0,
        uuid="GPU-1",
        name="NVIDIA H800 PCIe",
        pci_device_id=0x2322,
        compute_capability=(9, 0),
        core_count=14592,
        clock_max_hertz={"sm": 1755e6, "memory": 1593e6},
        memory_bus_width_bits=5120,
    )
    ceilings = BOOK.ceilings(device)
    assert ceilings is not None
    assert ceilings.spec == "h800-pcie"
    assert ceilings.architecture == "Hopper"
    assert "fp64" not in ceilings.peak_flops_per_second
    assert ceilings.peak_flops_per_second["bf16_tensor"] == 756.5e12
    assert ceilings.peak_clock_hertz == {"vector": 1755e6, "tensor": 1620e6, "memory": 1593e6}
    assert ceilings.memory_bandwidth_bytes_per_second == 2000e9
    assert ceilings.memory_bus_width_bits == 5120
    assert ceilings.sm_count == 114
    assert (ceilings.share_of_sms, ceilings.share_of_memory) == (1, 1)
    assert ceilings.assumed_precision == "bf16_tensor"


@pytest.mark.parametrize(
    ("name", "fields", "links"),
    [
        ("NVIDIA H200", {"nvlink_count": 18}, {"pcie": 63.0, "nvlink": 450}),
        (
            "NVIDIA H100 PCIe",
            {"nvlink_count": 0, "pcie_generation_max": 4, "pcie_width_max": 16},
            {"pcie": 31.5},
        ),
        ("NVIDIA L4", {"pcie_generation_max": 5, "pcie_width_max": 16}, {"pcie": 31.5}),
        ("NVIDIA L4", {"pcie_generation_max": 9, "pcie_width_max": 16}, {"pcie": 31.5}),
        ("NVIDIA GH200 480GB", {}, {"pcie": 63.0, "nvlink": 450, "c2c": 450}),
        (
            "NVIDIA GB200",
            {"c2c_bandwidth_bytes_per_second": 225e9},
            {"pcie": 63.0, "nvlink": 900, "c2c": 225},
        ),
        (
            "unknown",
            {
                "pcie_generation_max": 3,
                "pcie_width_max": 16,
                "nvlink_bandwidth_bytes_per_second": 100e9,
            },
            {"pcie": 15.75, "nvlink": 100},
        ),
    ],
)
def test_links(name: str, fields: dict[str, object], links: dict[str, float]) -> None:
    """Per direction in GB/s; PCIe is the lesser of row and NVML, unused NVLink is left out."""
    ceilings = BOOK.ceilings(Device(0, "GPU-1", name, **fields))  # type: ignore[arg-type]
    assert ceilings is not None
    assert ceilings.link_bandwidth_bytes_per_second == pytest.approx(
        {link: rate * 1e9 for link, rate in links.items()}, rel=1e-3
    )


def test_nothing_known() -> None:
    """A GPU of which nothing is known has no ceilings at all."""
    assert BOOK.ceilings(Device(0, "GPU-1", "unknown")) is None
    assert BOOK.ceilings(Device(0, "GPU-1", "unknown", compute_capability=(9, 0))) is None


NUMBERS = st.none() | st.integers() | st.integers(0, 20000)
RATES = st.floats() | st.floats(1e6, 1e10) | st.integers(-1, 10**18)
DEVICES = st.builds(
    Device,
    index=st.integers(),
    uuid=st.text(),
    name=st.text()
    | st.sampled_from([name for each in BOOK.models.values() for name in each.names])
    | st.sampled_from(["NVIDIA GeForce RTX 9090", "NVIDIA T1000", "NVIDIA GeForce GTX 1660"]),
    architecture=st.none() | st.text(),
    compute_capability=st.none()
    | st.tuples(st.integers(), st.integers())
    | st.sampled_from([(6, 1), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0)]),
    pci_device_id=st.none() | st.integers() | st.sampled_from([0x2335, 0x25B6, 0x2504]),
    core_count=NUMBERS | st.integers(1, 300).map(lambda sms: sms * 128),
    memory_bus_width_bits=NUMBERS,
    memory_bytes=NUMBERS,
    clock_max_hertz=st.dictionaries(st.sampled_from(["sm", "memory", "video"]), RATES),
    pcie_generation_max=NUMBERS | st.integers(1, 6),
    pcie_width_max=NUMBERS | st.integers(1, 32),
    nvlink_count=NUMBERS,
    nvlink_bandwidth_bytes_per_second=st.none() | RATES,
    c2c_bandwidth_bytes_per_second=st.none() | RATES,
    mig=st.booleans(),
)


@given(DEVICES, st.none() | st.text() | st.sampled_from(PRECISIONS))
def test_any_device(device: Device, precision: str | None) -> None:
    """Whatever NVML says, lookup does not fail and every ceiling is positive and finite."""
    ceilings = BOOK.ceilings(device, precision)
    if ceilings is None:
        return
    numbers = [
        *ceilings.peak_flops_per_second.values(),
        *ceilings.peak_clock_hertz.values(),
        *ceilings.link_bandwidth_bytes_per_second.values(),
        *(
            each
            for each in (ceilings.memory_bandwidth_bytes_per_second, ceilings.sm_count)
            if each is not None
        ),
    ]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert set(ceilings.peak_flops_per_second) <= set(PRECISIONS)
    assert set(ceilings.peak_clock_hertz) <= {"tensor", "vector", "memory"}
    assert (
        ceilings.assumed_precision is None
        or ceilings.assumed_precision in ceilings.peak_flops_per_second
    )
    assert ceilings.spec == DERIVED or ceilings.spec in BOOK.models


_ASSUMED = """
h100-sxm5-80gb  bf16_tensor  -
h100-sxm5-80gb  bf16_tensor  bf16 fp4 fp32 nonsense
h100-sxm5-80gb  fp16_tensor  fp16_tensor
h100-sxm5-80gb  tf32_tensor  tf32
h100-sxm5-80gb  fp8_tensor   fp8
h100-sxm5-80gb  fp64_tensor  fp64
h100-sxm5-80gb  int8_tensor  int8
b200            fp4_tensor   fp4_tensor
a100-sxm4-80gb  bf16_tensor  fp8
v100-sxm2-16gb  fp16_tensor  - bf16 int8
t4              fp16_tensor  -
t4              int8_tensor  int8
p100-sxm2       -            -
p40             -            int8
"""


@pytest.mark.parametrize("row", _ASSUMED.strip().splitlines())
def test_assumed_precision(row: str) -> None:
    """The wanted precision if the GPU model has it on tensor cores, else bf16, else fp16."""
    key, assumed, *wishes = row.split()
    peaks = BOOK.models[key].peak_flops_per_second
    for wanted in wishes:
        found = assumed_precision(peaks, None if wanted == "-" else wanted)
        assert found == (None if assumed == "-" else assumed)


def test_pcie_per_direction_after_encoding() -> None:
    """Lanes add up; an unknown generation or an impossible width has no rate."""
    for generation, gb_s in enumerate((0.25, 0.5, 0.98462, 1.96923, 3.93846, 7.5625), start=1):
        for lanes in (1, 16):
            rate = pcie_bytes_per_second(generation, lanes)
            assert rate == pytest.approx(lanes * gb_s * 1e9, rel=1e-5)
    impossible = ((None, 16), (5, None), (0, 16), (7, 16), (5, 0), (5, 33), (-1, -1))
    assert [pcie_bytes_per_second(*each) for each in impossible] == [None] * len(impossible)
