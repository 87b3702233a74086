# SPDX-License-Identifier: Apache-2.0
"""GPUs are found in the CUDA driver by what NVML says of them."""

from __future__ import annotations

import pytest

from exporter.sources.cupti.driver import CudaGpu, bus_place, find_gpu
from tests.fake_cupti import uuid_of

GPUS = [CudaGpu(0, uuid_of(4), "0000:01:00.0"), CudaGpu(1, uuid_of(7), "0001:C1:00.0")]


@pytest.mark.parametrize(
    ("uuid", "place", "found"),
    [
        (uuid_of(7), None, GPUS[1]),
        ("GPU-of-another-spelling", "00000001:c1:00.0", GPUS[1]),
        (uuid_of(4), "00000001:C1:00.0", GPUS[0]),
        *((uuid_of(9), place, None) for place in (None, "", "nonsense", "0002:01:00.0")),
    ],
)
def test_a_gpu_is_found_by_its_uuid_or_else_its_bus_id(
    uuid: str, place: str | None, found: CudaGpu | None
) -> None:
    """Whatever its index; where the two disagree, the UUID counts."""
    assert find_gpu(GPUS, uuid, place) is found


def test_both_ways_to_write_a_bus_id_are_the_same_place() -> None:
    assert bus_place("00000000:3B:00.0") == bus_place("0000:3b:00.0") == (0, 0x3B, 0, 0)
