# SPDX-License-Identifier: Apache-2.0
"""Maps the names that frameworks give precisions to tensor peaks."""

from __future__ import annotations

import re
from collections.abc import Mapping

UNSTATED = frozenset({"none", "unknown", "auto", ""})
"""Names that mean that no precision is stated."""

_NAMES: Mapping[str, str] = {
    "fp64_tensor": "fp64 float64 double f64 64",
    # FP32 that keeps the tensor pipe busy is TF32.
    "tf32_tensor": "tf32 tensorfloat32 fp32 float32 float f32 single 32 no full highest high",
    "fp16_tensor": "fp16 float16 half f16 16 o1 o2 o3",
    "bf16_tensor": "bf16 bfloat16 b16",
    "fp8_tensor": (
        "fp8 float8 f8 e4m3 e5m2 e4m3fn e4m3fnuz e5m2fnuz fp8_e4m3 fp8_e5m2 fp8_e4m3fn fp8_hybrid "
        "float8_e4m3 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e5m2fnuz float8_e4m3b11fnuz "
        "float8_dynamic float8_tensorwise float8_rowwise float8_blockwise fp8_delayed "
        "fp8_delayed_scaling fp8_current_scaling float8_current_scaling "
        "float8_block_scaling fp8_tensorwise fp8_rowwise fp8_blockwise "
        "fp8_block_scaling f8e4m3 f8e5m2 f8e4m3fn f8_e4m3 f8_e5m2 hybrid delayed delayed_scaling "
        "te_fp8 te_mxfp8 mxfp8 mxfp8_e4m3 mxfp8_e5m2 mxfp8_block_scaling mx_fp8 mxfloat8 "
        "transformer_engine transformer_engine_float16 float8_e8m0fnu"
    ),
    "fp4_tensor": (
        "fp4 float4 f4 mxfp4 mx_fp4 nvfp4 nv_fp4 nvfp4_block_scaling mxfp4_e2m1 nvfp4_e2m1 "
        "fp4_e2m1 fp4_e2m1fn e2m1 float4_e2m1 float4_e2m1fn float4_e2m1fn_x2"
    ),
    "int8_tensor": "int8 i8 uint8 qint8 w8a8",
    "int4_tensor": "int4 i4 uint4 w4a4",
}
TENSOR_PRECISIONS: Mapping[str, str] = {
    name: precision for precision, names in _NAMES.items() for name in names.split()
}
"""By normalised name of a precision: its tensor peak."""

_LIBRARY = re.compile(r"^(?:torch|jax_numpy|jnp|jax|numpy|np|tf|dtype|te|format)_(?=\w)")
_MIXED_FIRST = re.compile(r"^(?:amp|mixed|autocast|pure|full)_(?=\w)")
_MIXED_LAST = re.compile(
    r"(?<=\w)_(?:mixed|mixed_precision|true|amp|autocast|full|pure|training|tensor|precision)$"
)


def tensor_precision(reported: str) -> str | None:
    """Return the tensor peak of a precision by the name that a job reports; None if not known.

    The names are those of PyTorch (``torch.bfloat16``), Lightning (``bf16-mixed``, ``16-true``),
    Accelerate, Composer (``amp_bf16``), Keras, JAX and Transformer Engine (``MXFP8BlockScaling``).
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", reported.strip())
    name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for pattern in (_LIBRARY, _MIXED_FIRST, _MIXED_LAST, _MIXED_LAST):
        if name in TENSOR_PRECISIONS:
            break
        name = pattern.sub("", name)
    return TENSOR_PRECISIONS.get(name)


def pipe_peak(reported: str) -> str | None:
    """Return the peak of the pipe that matrix work in a reported precision runs on; None if that
    cannot be told.

    FP32 runs on the FP32 units, unless the job says that TF32 is in use.
    """
    precision = tensor_precision(reported)
    if (
        precision == "tf32_tensor"
        and re.search(r"tf32|tensorfloat|high$", reported.lower()) is None
    ):
        return "fp32"
    return None if precision in ("fp64_tensor", None) else precision


def reported_precision(peak_flops_per_second: Mapping[str, float], reported: str) -> str | None:
    """Return the peak for the tensor work of a job by its reported precision; None if that is not
    known or the GPU lacks it: FLOPs are only bounded then."""
    precision = tensor_precision(reported)
    return precision if precision in peak_flops_per_second else None
