# SPDX-License-Identifier: Apache-2.0
"""The program that puts loads on a GPU, run by the Python of an environment that has torch.

It needs the standard library and torch alone, of Python 3.9 on, and imports nothing of this
package. It reads one JSON object on each line of standard input and ends with it:

    {"kernel": "spin" | "cache" | "copy" | "gemm" | "fp32" | null, "zeros": false, "duty": 1.0}

and writes one on each line of standard output:

    {"ready": {"torch": "2.9.0", "precision": "bf16_tensor"}}
    {"kernel": "gemm", "seconds": 12.5, "flops": 9.1e15, "bytes": 0.0}    all done so far, and when
    {"problem": "why it cannot go on, in one line"}

The GPU is the first that CUDA shows it. Clocks and limits are left as they are.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Emit = Callable[[Any], None]

STEP_SECONDS = 0.05
"""How long kernels run before the next command is looked for."""
REPORT_SECONDS = 0.25
SPIN_CYCLES = 20_000_000
COPY_BYTES = 256 << 20
"""Of one buffer: more than any L2 cache has."""
CACHED_VALUES = 256 << 10
"""Of FP32, 1 MiB: less than any L2 cache has, and more than an L1 cache."""
READS_OF_CACHE = 4096
GEMM_SIZE = 8192
SMALL_GEMM_SIZE = 4096
SMALL_MEMORY_BYTES = 4 << 30


class Spin:
    """One thread that waits for the clock."""

    flops = bytes = 0.0

    def __init__(self, torch: Any, device: Any, zeros: bool) -> None:
        self._sleep = torch.cuda._sleep

    def launch(self) -> None:
        """Start it once."""
        self._sleep(SPIN_CYCLES)


class Cache:
    """Reads of the same megabyte, over and over: no memory traffic, and little arithmetic."""

    flops = bytes = 0.0

    def __init__(self, torch: Any, device: Any, zeros: bool) -> None:
        values = torch.rand(CACHED_VALUES, device=device)
        self._values = values.expand(READS_OF_CACHE, CACHED_VALUES)

    def launch(self) -> None:
        """Start it once."""
        self._values.amax()


class Copy:
    """One buffer into another, by a kernel: torch's own copies may be made without one."""

    flops = 0.0

    def __init__(self, torch: Any, device: Any, zeros: bool) -> None:
        free, _ = torch.cuda.mem_get_info(device)
        values = min(COPY_BYTES, free // 8) // 4
        make = torch.zeros if zeros else torch.randn
        self._torch, self._source = torch, make(values, device=device)
        self._target = torch.empty_like(self._source)
        self.bytes = 2.0 * 4 * values

    def launch(self) -> None:
        """Start it once."""
        self._torch.abs(self._source, out=self._target)


class Gemm:
    """A matrix product on the tensor cores, with FP32 accumulation."""

    bytes = 0.0

    def __init__(self, torch: Any, device: Any, zeros: bool) -> None:
        self._multiply(torch, device, zeros, tensor_type(torch, device), GEMM_SIZE)

    def _multiply(self, torch: Any, device: Any, zeros: bool, kind: Any, size: int) -> None:
        if torch.cuda.get_device_properties(device).total_memory < SMALL_MEMORY_BYTES:
            size = SMALL_GEMM_SIZE
        make = torch.zeros if zeros else torch.randn
        self._torch = torch
        self._left = make((size, size), device=device, dtype=kind)
        self._right = make((size, size), device=device, dtype=kind)
        self._out = torch.empty((size, size), device=device, dtype=kind)
        self.flops = 2.0 * size**3

    def launch(self) -> None:
        """Start it once."""
        self._torch.matmul(self._left, self._right, out=self._out)


class Fp32(Gemm):
    """A matrix product on the FP32 units."""

    def __init__(self, torch: Any, device: Any, zeros: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self._multiply(torch, device, zeros, torch.float32, SMALL_GEMM_SIZE)


KERNELS = {"spin": Spin, "cache": Cache, "copy": Copy, "gemm": Gemm, "fp32": Fp32}


class Problem(Exception):
    """Why the program cannot go on, in one line."""


def tensor_type(torch: Any, device: Any) -> Any:
    """Return the type of the tensor GEMM: bfloat16, and float16 before Ampere."""
    ampere = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if ampere else torch.float16


def load_torch() -> tuple[Any, Any]:
    """Return torch, and the first GPU that it sees."""
    try:
        import torch
    except ImportError as error:
        raise Problem(f"torch cannot be imported by {sys.executable}: {error}") from error
    version = getattr(torch, "__version__", "of unknown version")
    if torch.version.cuda is None:
        raise Problem(f"torch {version} of {sys.executable} was built without CUDA")
    if not torch.cuda.is_available():
        raise Problem(f"torch {version} of {sys.executable} finds no GPU that it can use")
    return torch, torch.device("cuda", 0)


class Commands:
    """The lines of standard input, which another thread waits for."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def next(self, wait_seconds: float) -> dict[str, Any] | None:
        """Return the newest command, None at the end; raise queue.Empty where there is none."""
        command = self._queue.get(timeout=wait_seconds) if wait_seconds else self._queue.get(False)
        while command is not None and not self._queue.empty():
            command = self._queue.get(False)
        return command


class Program:
    """Runs what the last command says."""

    def __init__(self, torch: Any, device: Any, emit: Emit) -> None:
        self._torch, self._device, self._emit = torch, device, emit
        self._load: Any = None
        self._name: str | None = None
        self._duty, self._launches = 1.0, 1
        self._flops = self._bytes = 0.0
        self._reported = float("-inf")

    @property
    def idle(self) -> bool:
        """Whether nothing is to run."""
        return self._load is None

    def take(self, command: dict[str, Any]) -> None:
        """Prepare what a command says."""
        self._load = None  # its memory first
        self._name, self._duty, self._launches = command["kernel"], command.get("duty", 1.0), 1
        if self._name is not None:
            make = KERNELS[self._name]
            self._load = make(self._torch, self._device, command.get("zeros", False))
        self._torch.cuda.synchronize()
        self._reported = float("-inf")
        self.report()

    def step(self) -> None:
        """Run kernels for about STEP_SECONDS, and rest as the duty says."""
        started = time.monotonic()
        for _ in range(self._launches):
            self._load.launch()
        self._torch.cuda.synchronize()
        seconds = time.monotonic() - started
        self._flops += self._launches * self._load.flops
        self._bytes += self._launches * self._load.bytes
        if seconds < STEP_SECONDS / 2:
            self._launches *= 2
        if self._duty < 1.0:
            time.sleep(seconds * (1.0 / self._duty - 1.0))

    def report(self) -> None:
        """Write how much was done so far, now and then."""
        now = time.monotonic()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self._emit(
                {"kernel": self._name, "seconds": now, "flops": self._flops, "bytes": self._bytes}
            )


def run(commands: Commands, emit: Emit) -> None:
    """Obey commands until their end."""
    torch, device = load_torch()
    torch.cuda.init()
    torch.zeros(1, device=device)
    precision = "bf16_tensor" if tensor_type(torch, device) is torch.bfloat16 else "fp16_tensor"
    emit({"ready": {"torch": torch.__version__, "precision": precision}})
    program = Program(torch, device, emit)
    while True:
        try:
            command = commands.next(REPORT_SECONDS if program.idle else 0.0)
        except queue.Empty:
            pass
        else:
            if command is None:
                return
            program.take(command)
        if not program.idle:
            program.step()
        program.report()


def main() -> int:
    """Run the program; return its exit code."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != own]
    # What torch prints goes to standard error.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    try:
        run(Commands(sys.stdin), emit)
    except BrokenPipeError:
        return 1
    except Exception as error:
        emit({"problem": " ".join(str(error).split()) or type(error).__name__})
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # not waiting for the thread that reads, nor for a driver that hangs
