# SPDX-License-Identifier: Apache-2.0
"""The precision that the operators of a job compute in.

A GPU may compute FP32 products in TF32, on tensor cores, where PyTorch lets it: by default
convolutions, and matrix products not. PyTorch's attention in FP32 does three TF32 products for
each, which is neither.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

PRECISIONS = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
PREVAILING_RATIO = 0.95
"""The share of the counted work that has to be of one precision, for that to be the job's."""
TF32_CAPABILITY = (8, 0)
NO_TF32 = "NVIDIA_TF32_OVERRIDE"
"""With 0 this variable keeps NVIDIA's libraries from TF32, whatever PyTorch lets them do."""


def computed_in(torch: Any, operator: str, tensor: Any) -> str | None:
    """Return the precision in which an operator multiplies a tensor; None if unclear."""
    if "_scaled_mm" in operator:
        return "fp8"
    precision = PRECISIONS.get(str(tensor.dtype))
    if precision != "fp32" or not tensor.is_cuda:
        return precision
    if torch.cuda.get_device_capability(tensor.device) < TF32_CAPABILITY:
        return "fp32"
    if "attention" in operator:
        return None
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    newer, older = (getattr(cudnn, "conv", None), cudnn) if "conv" in operator else (matmul, matmul)
    # Where a job has set the newer switch, to read the older one raises.
    lets = getattr(newer, "fp32_precision", None) or ("tf32" if older.allow_tf32 else "ieee")
    return "tf32" if lets == "tf32" and os.environ.get(NO_TF32) != "0" else "fp32"


def prevailing(flops: Mapping[str | None, float]) -> str | None:
    """Return the precision of nearly all counted work; FP8 where any is, None where mixed."""
    if "fp8" in flops:
        return "fp8"
    most = max(flops, key=lambda precision: flops[precision], default=None)
    return most if flops.get(most, 0.0) >= PREVAILING_RATIO * sum(flops.values()) else None
