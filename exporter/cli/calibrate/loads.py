# SPDX-License-Identifier: Apache-2.0
"""The loads that a calibration puts on a GPU, in their order, and what each of them shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kernel = Literal["spin", "cache", "copy", "gemm", "fp32"]
"""As ``kernels.py`` names them."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load, for the time of one measurement."""

    name: str
    shows: str
    kernel: Kernel | None = None
    """None: nothing runs."""
    zeros: bool = False
    """Operands are zeros in place of random numbers: the least that such a kernel draws."""
    duty: float = 1.0
    """The share of time in which it runs."""


IDLE = Load("idle", "nothing holds the GPU")
"""Measured before the child is started that makes the other loads."""

LOADS: tuple[Load, ...] = (
    Load("context", "a CUDA context and no kernel"),
    Load("spin", "one thread on one SM", "spin"),
    Load("cache", "reads from L2", "cache"),
    Load("copy", "memory traffic, random data", "copy"),
    Load("copy-zeros", "memory traffic, zeros", "copy", zeros=True),
    Load("copy-half", "the same for half of the time", "copy", duty=0.5),
    Load("gemm", "tensor pipe, random data", "gemm"),
    Load("gemm-zeros", "tensor pipe, zeros", "gemm", zeros=True),
    Load("fp32", "FP32 pipe, random data", "fp32"),
    Load("fp32-zeros", "FP32 pipe, zeros", "fp32", zeros=True),
)
