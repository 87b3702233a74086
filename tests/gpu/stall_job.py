# SPDX-License-Identifier: Apache-2.0
"""Training jobs on a real GPU that report what the client measured beside what the profiler saw.

``python -m tests.gpu.stall_job SCENARIO [WORKERS]`` prints one JSON object.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from roofline_job import degraded, watch
from roofline_job.cuda_idle import IdleMeter
from roofline_job.process import PROCESS
from tests.gpu.profiler_trace import exposed_loading_seconds

torch: Any = importlib.import_module("torch")

WARM_UP_STEPS = 20
STEPS = 100
STEP_MS = 10.0
LOADING_SECONDS = 0.02
WIDTH = 4096


class Sleeping:
    """A dataset whose items take 20 ms each and are small."""

    def __len__(self) -> int:
        return WARM_UP_STEPS + STEPS

    def __getitem__(self, index: int) -> Any:
        time.sleep(LOADING_SECONDS)
        return torch.full((1024,), float(index))


def loader(workers: int) -> Any:
    """Return a DataLoader over it; an item is a batch."""
    return torch.utils.data.DataLoader(Sleeping(), batch_size=None, num_workers=workers)


class Model:
    """Layers repeated until forward, backward and optimizer take about 10 ms of GPU time."""

    def __init__(self, *, compiled: bool = False) -> None:
        self.net = torch.nn.Sequential(
            *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        ).to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6)
        self.input = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.forward = torch.compile(self.net, mode="reduce-overhead") if compiled else self.net
        self.repeats = 1
        self._step_once()
        for _ in range(3):
            milliseconds = self._milliseconds()
            self.repeats = max(1, round(self.repeats * STEP_MS / milliseconds))

    def _step_once(self) -> None:
        self.forward(self.input).mean().backward()

    def _milliseconds(self) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / 5 * 1e3

    def step(self) -> None:
        """Train one step; nothing here waits for the GPU."""
        for _ in range(self.repeats):
            self._step_once()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def agreement(batches: Iterable[Any], step: Callable[[Any], None]) -> dict[str, Any]:
    """Train over the batches; return the client's and the profiler's share of the step time."""
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    )
    account = PROCESS.account("stall-truth")
    assert account is not None
    began_seconds = 0.0
    before: tuple[int, int] = (0, 0)

    def measured() -> tuple[int, int]:
        torch.cuda.synchronize()
        account.meter.collect()
        return account.meter.idle_ns["data"], account.phase_ns.get("data", 0)

    iterator = iter(watch(batches, job="stall-truth"))
    for number, batch in enumerate(iterator):
        step(batch)
        if number == WARM_UP_STEPS - 1:
            before = measured()
            profiler.start()
            began_seconds = time.perf_counter()
        if number == WARM_UP_STEPS + STEPS - 2:
            # The last next(), which finds the end, is left out on both sides.
            break
    after = measured()
    seconds = time.perf_counter() - began_seconds
    profiler.stop()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        exposed_seconds = exposed_loading_seconds(json.loads(path.read_text()))
    return {
        "client_share": (after[0] - before[0]) / 1e9 / seconds,
        "wait_share": (after[1] - before[1]) / 1e9 / seconds,
        "profiler_share": exposed_seconds / seconds,
        "step_ms": seconds / (STEPS - 1) * 1e3,
    }


def default_stream(workers: int) -> dict[str, Any]:
    """Wait and compute on the default stream."""
    model = Model()
    return agreement(loader(workers), lambda batch: model.step())


def side_stream(workers: int) -> dict[str, Any]:
    """Loop on the default stream, compute on another."""
    model = Model()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step(batch: Any) -> None:
        with torch.cuda.stream(side):
            model.step()

    return agreement(loader(workers), step)


class Prefetcher:
    """Copies the next batch on a stream of its own while the model computes."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches
        self.copies = torch.cuda.Stream()

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.batches)
        ahead = self._ahead(iterator)
        while ahead is not None:
            torch.cuda.current_stream().wait_stream(self.copies)
            batch, ahead = ahead, self._ahead(iterator)
            yield batch

    def _ahead(self, iterator: Iterator[Any]) -> Any:
        with torch.cuda.stream(self.copies):
            batch = next(iterator, None)
            return None if batch is None else batch.pin_memory().to("cuda", non_blocking=True)


def prefetcher(workers: int) -> dict[str, Any]:
    """Watch a prefetcher instead of its loader."""
    model = Model()
    return agreement(Prefetcher(loader(workers)), lambda batch: model.step())


def compiled(workers: int) -> dict[str, Any]:
    """Replay CUDA graphs that ``torch.compile`` captured in the first steps."""
    model = Model(compiled=True)
    return agreement(loader(workers), lambda batch: model.step())


def capture(workers: int) -> dict[str, Any]:
    """Capture graphs in another thread all the while; the steps themselves allocate nothing."""
    matrix = torch.randn(WIDTH, WIDTH, device="cuda")
    product = torch.empty_like(matrix)
    torch.mm(matrix, matrix, out=product)
    cell = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    over = threading.Event()
    captured: list[str] = []

    def capturing() -> None:
        while not over.is_set():
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    graph.capture_begin(capture_error_mode="global")
                    try:
                        for _ in range(3):
                            cell.add_(1)
                            over.wait(0.015)
                    finally:
                        graph.capture_end()
                captured.append("")
            except RuntimeError as error:
                captured.append(str(error))
            over.wait(0.06)

    other = threading.Thread(target=capturing)
    account = PROCESS.account("stall-truth")
    assert account is not None
    for number, _ in enumerate(watch(loader(workers), job="stall-truth")):
        if number == WARM_UP_STEPS:
            other.start()
        torch.mm(matrix, matrix, out=product)
    over.set()
    other.join()
    torch.cuda.synchronize()
    account.meter.collect()
    return {
        "captures": len(captured),
        "failed_captures": [error for error in captured if error],
        "idle_seconds": account.meter.idle_ns["data"] / 1e9,
        "wait_seconds": account.phase_ns["data"] / 1e9,
    }


def context(workers: int) -> dict[str, Any]:
    """Watch a loop that does not use CUDA, then let a forked child be the first that does."""
    for _ in watch(loader(workers), job="stall-truth"):
        pass
    initialized = torch.cuda.is_initialized()
    active = _has_context()
    child = os.fork()
    if not child:
        status = 1
        try:
            torch.zeros(1, device="cuda").sum().item()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return {"initialized": initialized, "context": active, "child_status": status}


def _has_context() -> bool:
    """Ask the driver whether this process has a context on GPU 0; an answer needs no context."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), 0):
        return False  # nobody has called cuInit
    driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def cost(workers: int) -> dict[str, Any]:
    """Time the event pairs alone, and 10 ms steps with and without ``watch``."""
    model = Model()
    meter = IdleMeter()
    meter.find_cuda()
    for warm in (True, False):
        torch.cuda.synchronize()
        began = time.perf_counter()
        pairs = 200 if warm else 20_000
        for _ in range(pairs):
            pair = meter.start()
            if pair is not None:
                meter.stop(pair, "data", 0)
            meter.remember_stream()
        pair_microseconds = (time.perf_counter() - began) / pairs * 1e6

    def epoch(batches: Iterable[int]) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in batches:
            model.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / STEPS

    ratios = []
    step_ms = 0.0
    for _ in range(10):
        plain = epoch(range(STEPS))
        watched = epoch(watch(range(STEPS), job="stall-truth"))
        ratios.append(watched / plain)
        step_ms = plain * 1e3
    return {
        "pair_microseconds": pair_microseconds,
        "step_ms": step_ms,
        "slowdown": statistics.median(ratios) - 1,
    }


SCENARIOS: dict[str, Callable[[int], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (default_stream, side_stream, prefetcher, compiled, capture, context, cost)
}


def main(words: list[str]) -> None:
    """Run one scenario."""
    name, workers = words[0], int(words[1]) if len(words) > 1 else 0
    found = SCENARIOS[name](workers)
    print(json.dumps({**found, "degraded": degraded.FOUND}))


if __name__ == "__main__":
    main(sys.argv[1:])
