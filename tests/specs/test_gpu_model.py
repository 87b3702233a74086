# SPDX-License-Identifier: Apache-2.0
"""Which precision tensor work is counted in."""

from __future__ import annotations

import pytest

from exporter.model.snapshot import PRECISIONS
from exporter.specs import assumed_precision, load_specs

MODELS = load_specs().models


@pytest.mark.parametrize(
    ("key", "wanted", "assumed"),
    [
        ("h100-sxm5-80gb", None, "bf16_tensor"),
        ("h100-sxm5-80gb", "bf16", "bf16_tensor"),
        ("h100-sxm5-80gb", "fp16_tensor", "fp16_tensor"),
        ("h100-sxm5-80gb", "tf32", "tf32_tensor"),
        ("h100-sxm5-80gb", "fp8", "fp8_tensor"),
        ("h100-sxm5-80gb", "fp64", "fp64_tensor"),
        ("h100-sxm5-80gb", "int8", "int8_tensor"),
        ("h100-sxm5-80gb", "fp4", "bf16_tensor"),
        ("h100-sxm5-80gb", "fp32", "bf16_tensor"),
        ("h100-sxm5-80gb", "nonsense", "bf16_tensor"),
        ("b200", "fp4_tensor", "fp4_tensor"),
        ("a100-sxm4-80gb", "fp8", "bf16_tensor"),
        ("v100-sxm2-16gb", None, "fp16_tensor"),
        ("v100-sxm2-16gb", "bf16", "fp16_tensor"),
        ("v100-sxm2-16gb", "int8", "fp16_tensor"),
        ("t4", None, "fp16_tensor"),
        ("t4", "int8", "int8_tensor"),
        ("p100-sxm2", None, None),
        ("p40", "int8", None),
    ],
)
def test_assumed_precision(key: str, wanted: str | None, assumed: str | None) -> None:
    """The wanted precision if the GPU model has it on tensor cores, else bf16, else fp16."""
    assert assumed_precision(MODELS[key].peak_flops_per_second, wanted) == assumed


def test_precisions_are_the_contracts() -> None:
    """The names are those of ``gpu_peak_flops_per_second``."""
    assert set(PRECISIONS) == {
        *("fp64", "fp64_tensor", "fp32", "fp16", "bf16", "tf32_tensor", "fp16_tensor"),
        *("bf16_tensor", "fp8_tensor", "int8", "int8_tensor", "int4_tensor", "fp4_tensor"),
        *("fp16_tensor_fp16acc", "fp8_tensor_fp16acc"),
    }
