# SPDX-License-Identifier: Apache-2.0
"""The clock that published tensor peaks imply."""

from __future__ import annotations

import pytest

from exporter.model.reading import Device
from exporter.specs import load_specs
from exporter.specs.derived import RULES
from exporter.specs.tensor_clock import implied_tensor_clock

BOOK = load_specs()


@pytest.mark.parametrize(
    ("key", "megahertz"),
    [("b200", 1856), ("gb200", 2008), ("b300", 1856), ("h100-sxm5-80gb", 1830)],
)
def test_published_peaks_name_their_clock(key: str, megahertz: float) -> None:
    """2250 TFLOP/s / (148 SMs x 8192) = 1856 MHz, and so on."""
    model = BOOK.models[key]
    device = Device(0, "GPU", model.names[0], compute_capability=model.compute_capability)
    ceilings = BOOK.ceilings(device)
    assert ceilings is not None
    assert ceilings.peak_clock_hertz["tensor"] == pytest.approx(megahertz * 1e6, rel=1e-3)


def test_a_gpu_without_sms_in_its_row_takes_those_of_the_driver() -> None:
    """2500 TFLOP/s / (152 x 8192) = 2008 MHz, below its highest clock."""
    device = Device(
        0,
        "GPU",
        "NVIDIA GB300",
        compute_capability=(10, 3),
        core_count=152 * 128,
        clock_max_hertz={"sm": 2.07e9},
    )
    ceilings = BOOK.ceilings(device)
    assert ceilings is not None
    peak = ceilings.peak_flops_per_second["bf16_tensor"]
    assert ceilings.peak_clock_hertz["tensor"] == pytest.approx(peak / (152 * 8192), rel=0.02)


BLACKWELL = RULES[10, 0].flops_per_clock


@pytest.mark.parametrize(
    ("peaks", "sms", "highest", "expected"),
    [
        ({"bf16_tensor": 2250e12}, 148, 1.965e9, 2250e12 / (148 * 8192)),
        ({"bf16_tensor": 2250e12, "fp8_tensor": 4400e12}, 148, 1.965e9, 4400e12 / (148 * 16384)),
        ({"bf16_tensor": 1000e12}, 148, 1.965e9, None),
        ({"bf16_tensor": 2600e12}, 148, 1.965e9, None),
        ({"bf16_tensor": 2400e12}, 148, 1.965e9, 2400e12 / (148 * 8192)),
        ({"fp64_tensor": 37e12, "int8_tensor": 4500e12}, 148, 1.965e9, None),
        ({"bf16_tensor": 2250e12}, None, 1.965e9, None),
        ({"bf16_tensor": 2250e12}, 148, None, None),
        ({}, 148, 1.965e9, None),
    ],
)
def test_only_a_plausible_clock_is_implied(
    peaks: dict[str, float], sms: int | None, highest: float | None, expected: float | None
) -> None:
    """The lowest of those of all precisions; a cut GPU model's peaks imply none."""
    found = implied_tensor_clock(peaks, BLACKWELL, sms, highest)
    assert found == (None if expected is None else pytest.approx(expected))
