# SPDX-License-Identifier: Apache-2.0
"""Which ceilings a GPU gets by what the driver's library really answers of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exporter.model.snapshot import Ceilings
from exporter.specs import load_specs

BOOK = load_specs()
Open = Callable[..., Any]


def ceilings(rig: Any) -> Ceilings | None:
    return BOOK.ceilings(rig.source().device)


@pytest.mark.parametrize(
    ("name", "capability", "cores", "max_mhz", "boost_mhz", "flops_per_clock"),
    [
        # The truth of each is the boost clock of a datasheet; PCI ids that nobody has.
        ("NVIDIA GeForce RTX 4090 Y", [8, 9], 16384, 3105, 2520, 512),
        ("NVIDIA GeForce RTX 5080 Y", [12, 0], 10752, 3090, 2617, 512),
        ("NVIDIA GeForce RTX 3080 Y", [8, 6], 8704, 2115, 1710, 512),
        ("NVIDIA RTX 6001 Ada Generation", [8, 9], 18176, 3105, 2505, 1024),
        ("NVIDIA GeForce RTX 4060 Laptop GPU Y", [8, 9], 3072, 3105, 2370, 512),
        ("NVIDIA L41S", [8, 9], 18176, 2520, 2520, 1024),
        ("NVIDIA H101 80GB HBM3", [9, 0], 16896, 1980, 1830, 4096),
        ("NVIDIA A101-SXM4-40GB", [8, 0], 6912, 1410, 1410, 2048),
    ],
)
def test_a_gpu_that_is_not_listed(
    open_gpu: Open,
    name: str,
    capability: list[int],
    cores: int,
    max_mhz: int,
    boost_mhz: int,
    flops_per_clock: int,
) -> None:
    """Its BF16 peak is within 8 % of SMs x FLOP per clock and SM x boost clock."""
    found = ceilings(
        open_gpu(
            product="unknown",
            name=name,
            pci_device_id=0xFFFF,
            compute_capability=capability,
            cores=cores,
            bus_width=384,
            max_clocks={"sm": max_mhz, "memory": 10501},
        )
    )
    assert found is not None
    assert found.spec == "derived"
    sms = cores // (64 if capability == [8, 0] else 128)
    assert found.peak_flops_per_second["bf16_tensor"] == pytest.approx(
        sms * flops_per_clock * boost_mhz * 1e6, rel=0.08
    )
    # What work at any clock is related to: the rate of the SMs stays exact.
    assert found.peak_flops_per_second["bf16_tensor"] == pytest.approx(
        sms * flops_per_clock * found.peak_clock_hertz["tensor"]
    )
    assert found.memory_bandwidth_bytes_per_second == pytest.approx(1008e9, rel=1e-3)


@pytest.mark.parametrize(
    "reading",
    [
        {"name": "GRID A100-1-5CME"},
        {"name": "GRID A100-7-40C"},
        {"name": "NVIDIA A100-40C"},
        {"name": "GRID A100DX-80C"},
        {"modes": {"virtualization": 2}},
    ],
)
def test_a_vgpu_has_no_ceilings(open_gpu: Open, reading: dict[str, Any]) -> None:
    """Its PCI id, cores, bus and clocks are those of the whole A100."""
    assert ceilings(open_gpu(product="a100-sxm4-80gb")) is not None
    assert ceilings(open_gpu(product="a100-sxm4-80gb", **reading)) is None


def test_a_gpu_that_is_passed_through_is_a_whole_one(open_gpu: Open) -> None:
    """So is a host that makes vGPUs of it."""
    for mode in (1, 3, 4):
        found = ceilings(open_gpu(product="a100-sxm4-80gb", modes={"virtualization": mode}))
        assert found is not None
        assert found.spec == "a100-sxm4-80gb"


@pytest.mark.parametrize(
    ("name", "capability"), [("Orin (nvgpu)", [8, 7]), ("NVIDIA Thor", [11, 0])]
)
def test_a_module_whose_cores_the_driver_does_not_count(
    open_gpu: Open, name: str, capability: list[int]
) -> None:
    """NVML of a Jetson may not know them: it is not taken for the largest module."""
    rig = open_gpu(
        product="unknown",
        name=name,
        compute_capability=capability,
        max_clocks={"sm": 1300},
        missing=("nvmlDeviceGetNumGpuCores",),
    )
    found = ceilings(rig)
    assert found is None or (
        found.peak_flops_per_second == {} and found.memory_bandwidth_bytes_per_second is None
    )


def test_an_architecture_that_no_rule_knows(open_gpu: Open) -> None:
    """Of it only the memory's bandwidth can be known."""
    found = ceilings(
        open_gpu(
            product="unknown",
            name="NVIDIA GeForce RTX 6090",
            compute_capability=[13, 0],
            cores=24576,
            bus_width=512,
            max_clocks={"sm": 3300, "memory": 16001},
        )
    )
    assert found is not None
    assert found.peak_flops_per_second == {}
    assert found.memory_bandwidth_bytes_per_second == pytest.approx(2048e9, rel=1e-3)
