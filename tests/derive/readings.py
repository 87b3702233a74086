# SPDX-License-Identifier: Apache-2.0
"""GPUs with round figures from their datasheets, and readings to derive from."""

from __future__ import annotations

from typing import TypeVar

from exporter.derive.clocks import Clocks
from exporter.model.reading import Activity, Device
from exporter.model.snapshot import Ceilings

TERA = 1e12
H100 = Device(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    clock_max_hertz={"sm": 1.98e9, "memory": 2.619e9},
    memory_bus_width_bits=5120,
)
H100_CEILINGS = Ceilings(
    spec="h100-sxm5-80gb",
    peak_flops_per_second={
        "fp64": 33.5 * TERA,
        "fp64_tensor": 66.9 * TERA,
        "fp32": 66.9 * TERA,
        "fp16": 133.8 * TERA,
        "bf16": 133.8 * TERA,
        "tf32_tensor": 494.7 * TERA,
        "fp16_tensor": 989.4 * TERA,
        "bf16_tensor": 989.4 * TERA,
        "fp8_tensor": 1978.9 * TERA,
        "int8_tensor": 1978.9 * TERA,
    },
    peak_clock_hertz={"tensor": 1.83e9, "vector": 1.98e9, "memory": 2.619e9},
    memory_bandwidth_bytes_per_second=3.35e12,
    achievable_ratio={"bf16_tensor": 0.8, "memory": 0.9},
    memory_bus_width_bits=5120,
    sm_count=132,
    link_bandwidth_bytes_per_second={"pcie": 63e9, "nvlink": 450e9},
    assumed_precision="bf16_tensor",
)
A100 = Device(
    index=0,
    uuid="GPU-a",
    name="A100",
    compute_capability=(8, 0),
    clock_max_hertz={"sm": 1.41e9, "memory": 1.593e9},
)
A100_CEILINGS = Ceilings(
    spec="a100-sxm4-80gb",
    peak_flops_per_second={
        "fp64": 9.7 * TERA,
        "fp64_tensor": 19.5 * TERA,
        "fp32": 19.5 * TERA,
        "fp16": 78 * TERA,
        "bf16": 39 * TERA,
        "tf32_tensor": 156 * TERA,
        "fp16_tensor": 312 * TERA,
        "bf16_tensor": 312 * TERA,
        "int8_tensor": 624 * TERA,
        "int4_tensor": 1248 * TERA,
    },
    peak_clock_hertz={"tensor": 1.41e9, "vector": 1.41e9, "memory": 1.593e9},
    memory_bandwidth_bytes_per_second=2.039e12,
    memory_bus_width_bits=5120,
    sm_count=108,
    assumed_precision="bf16_tensor",
)


def clocks_at(sm: float | None = 1.98e9, memory: float | None = 2.619e9) -> Clocks:
    """H100 clocks with the SM and memory clock given in hertz."""
    return Clocks(
        sm=sm,
        memory=memory,
        sm_max=1.98e9,
        tensor_reference=1.83e9,
        vector_reference=1.98e9,
        memory_reference=2.619e9,
    )


def counters(**values: float | None) -> Activity:
    """One second of complete counters, all zero except what is given."""
    quiet: dict[str, float | None] = dict.fromkeys(
        ("engine", "sm", "dram", "tensor", "fp64", "fp32", "fp16"), 0.0
    )
    quiet["seconds"] = 1.0
    return Activity(source="gpm", **{**quiet, **values})  # type: ignore[arg-type]


T = TypeVar("T")


def known(value: T | None) -> T:
    """Return what must not be None here."""
    assert value is not None
    return value
