# SPDX-License-Identifier: Apache-2.0
"""Launch one kernel on GPU 0 repeatedly until standard input ends.

    python -m tests.gpu.kernel_job gemm|fma|fp64|copy

The first line is printed when it has warmed up; after that, one every half second with how many
launches there were, and how long they took.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

WARM_UP_SECONDS = 3.0
REPORT_SECONDS = 0.5

torch: Any = importlib.import_module("torch")


def gemm() -> Callable[[], object]:
    """The tensor cores: a matrix product in bf16."""
    one, two = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, two, out=out)


def fma() -> Callable[[], object]:
    """The FP32 units: a matrix product without tensor cores."""
    torch.backends.cuda.matmul.allow_tf32 = False
    one, two = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, two, out=out)


def fp64() -> Callable[[], object]:
    """The FP64 units: a function of many operations, of numbers that stay in the cache."""
    numbers = torch.rand(1 << 21, device="cuda", dtype=torch.float64)
    out = torch.empty_like(numbers)
    return lambda: torch.erf(numbers, out=out)


def copy() -> Callable[[], object]:
    """The memory: from one gigabyte to another."""
    one = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    two = torch.empty_like(one)
    return lambda: two.copy_(one)


KERNELS = {"gemm": gemm, "fma": fma, "fp64": fp64, "copy": copy}


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main() -> None:
    """Launch, and wait for the GPU often enough that little is under way at the end."""
    launch = KERNELS[sys.argv[1]]()
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
    warm_until = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < warm_until:
        launch()
        torch.cuda.synchronize()
    print(json.dumps({"device": torch.cuda.get_device_name()}), flush=True)
    while not over.is_set():
        launches, began = 0, time.monotonic()
        while time.monotonic() - began < REPORT_SECONDS:
            for _ in range(8):
                launch()
            torch.cuda.synchronize()
            launches += 8
        seconds = time.monotonic() - began
        print(json.dumps({"launches": launches, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
