# SPDX-License-Identifier: Apache-2.0
"""What frameworks call their precisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.snapshot import PRECISIONS
from exporter.specs.precisions import TENSOR_PRECISIONS, reported_precision, tensor_precision

NAMES = {
    "bf16_tensor": (
        "bf16 bfloat16 torch.bfloat16 bf16-mixed bf16-true amp_bf16 mixed_bfloat16 bf16_tensor "
        "jnp.bfloat16 BF16 bf16-full BFloat16"
    ),
    "fp16_tensor": "fp16 float16 half torch.float16 torch.half 16 16-mixed 16-true amp_fp16 O1",
    "tf32_tensor": "tf32 fp32 float32 torch.float32 float 32 32-true no full F32 TF32 high highest",
    "fp64_tensor": "fp64 float64 double torch.float64 64-true",
    "fp8_tensor": (
        "fp8 mxfp8 fp8_e4m3 float8_e5m2 torch.float8_e4m3fn E4M3 HYBRID amp_fp8 DelayedScaling "
        "MXFP8BlockScaling Float8CurrentScaling Float8BlockScaling transformer-engine "
        "transformer-engine-float16 fp8-mixed float8_rowwise Format.HYBRID Format.E4M3"
    ),
    "fp4_tensor": "fp4 mxfp4 nvfp4 torch.float4_e2m1fn_x2 NVFP4BlockScaling te_nvfp4",
    "int8_tensor": "int8 torch.int8 int8-training",
    "int4_tensor": "int4",
}


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, precision) for precision, names in NAMES.items() for name in names.split()],
)
def test_names_of_frameworks(name: str, precision: str) -> None:
    """PyTorch, Lightning, Accelerate, Composer, Keras, JAX and Transformer Engine."""
    assert tensor_precision(name) == precision


@pytest.mark.parametrize(
    "name", ["nf4", "fp6", "mxfp6", "mixed", "amp", "posit8", "w4a16", "", "-"]
)
def test_other_names_are_unknown(name: str) -> None:
    """No guess: the work is bounded."""
    assert tensor_precision(name) is None


def test_only_what_the_gpu_has() -> None:
    """A Hopper has no FP4, a Volta no TF32."""
    hopper = {"bf16_tensor": 1.0, "fp8_tensor": 2.0, "tf32_tensor": 0.5}
    assert reported_precision(hopper, "mxfp8") == "fp8_tensor"
    assert reported_precision(hopper, "nvfp4") is None
    assert reported_precision({"fp16_tensor": 1.0}, "fp32") is None


def test_every_name_leads_to_a_ceiling() -> None:
    """The table names peaks that there are."""
    assert {*TENSOR_PRECISIONS.values()} <= {*PRECISIONS}


@given(st.text(max_size=64))
def test_any_text_is_answered(name: str) -> None:
    """Reports are untrusted."""
    assert tensor_precision(name) in {None, *PRECISIONS}
