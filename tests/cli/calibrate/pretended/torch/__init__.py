# SPDX-License-Identifier: Apache-2.0
"""As much of torch as ``kernels.py`` uses, with a GPU that only waits.

What a test wants of it stands in the environment: PRETENDED_CUDA (none: built without), and
PRETENDED_FAULT, the kernel in which it fails and how.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

__version__ = "2.9.0+pretended"

float32, float16, bfloat16 = "float32", "float16", "bfloat16"

print("a library that prints to standard output")


class version:
    cuda = os.environ.get("PRETENDED_CUDA") or None


def _run(kernel: str) -> None:
    where, _, how = os.environ.get("PRETENDED_FAULT", "").partition(":")
    if where == kernel:
        if how == "raise":
            message = "CUDA error: an illegal memory access was encountered\nCompile with ..."
            raise RuntimeError(message)
        if how == "crash":
            sys.stderr.write("terminate called without an active exception\n")
            sys.stderr.flush()
            os._exit(134)
        if how == "hang":
            time.sleep(1000)
    time.sleep(0.002)


class Tensor:
    def __init__(self, *_: object, device: object = None, dtype: str = float32) -> None:
        assert device == ("cuda", 0)
        self.dtype = dtype

    def expand(self, *_: int) -> Tensor:
        return self

    def amax(self) -> None:
        _run("cache")


rand = randn = zeros = empty = Tensor


def empty_like(tensor: Tensor) -> Tensor:
    return tensor


def abs(source: Tensor, out: Tensor) -> None:
    _run("copy")


def matmul(left: Tensor, right: Tensor, out: Tensor) -> None:
    assert left.dtype == right.dtype == out.dtype
    if left.dtype == float32:
        assert backends.cuda.matmul.allow_tf32 is False
    _run("fp32" if left.dtype == float32 else "gemm")


def device(kind: str, index: int) -> tuple[str, int]:
    return kind, index


class _Cuda:
    def is_available(self) -> bool:
        # As the driver: a GPU that is not there is none.
        return os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("GPU-")

    def init(self) -> None:
        _run("init")

    def synchronize(self) -> None:
        pass

    def get_device_capability(self, _: object) -> tuple[int, int]:
        major, minor = os.environ.get("PRETENDED_CAPABILITY", "9.0").split(".")
        return int(major), int(minor)

    def get_device_properties(self, _: object) -> Any:
        class Properties:
            total_memory = 80 << 30

        return Properties

    def mem_get_info(self, _: object) -> tuple[int, int]:
        return 80 << 30, 80 << 30

    def _sleep(self, cycles: int) -> None:
        assert cycles > 0
        _run("spin")


cuda = _Cuda()


class backends:
    class cuda:
        class matmul:
            allow_tf32 = True
