# SPDX-License-Identifier: Apache-2.0
"""Measure GPU 0 by CUPTI, GPM, power, clock and the launches of a job; print JSON.

    python -m tests.gpu.sampled KERNEL|idle SECONDS sampling|not

The kernel runs in a process of its own (`kernel_job`), CUPTI in another: the exporter's own child.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

GPM = {
    "engine": 1,
    "sm": 2,
    "occupancy": 3,
    "tensor": 5,
    "dram": 10,
    "fp64": 11,
    "fp32": 12,
    "fp16": 13,
}
PATIENCE_SECONDS = 60.0
PERIOD_SECONDS = 0.25


class JsonProcess:
    """A child process that reads and prints JSON lines."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")

    def received(self) -> Iterator[dict[str, Any]]:
        """Yield the messages since the last call."""
        while not self._lines.empty():
            yield self._lines.get()

    def wait_line(self) -> dict[str, Any]:
        """Wait for a line."""
        return self._lines.get(timeout=PATIENCE_SECONDS)

    def end(self) -> None:
        """End it by the end of its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


class ChildMessages:
    """The messages of CUPTI's child about one GPU."""

    def __init__(self, child: JsonProcess) -> None:
        self._child = child
        self.activities: list[dict[str, Any]] = []
        self.state: str | None = None
        """Why there is no activity, in the child's words."""

    def receive(self) -> None:
        """Take the new messages."""
        for message in self._child.received():
            if "ratios" in message:
                self.activities.append(message)
            elif message.get("state", "ok") != "ok":
                self.state = f"{message['state']}: {message.get('message', '')}"

    def wait_first(self) -> None:
        """Wait for the first activity or an error; drop the activities so far."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.activities and self.state is None and time.monotonic() < deadline:
            time.sleep(0.1)
            self.receive()
        self.activities.clear()


def means(activities: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each ratio, over the time of the activities that have it."""
    seconds: dict[str, float] = defaultdict(float)
    sums: dict[str, float] = defaultdict(float)
    for each in activities:
        for name, ratio in each["ratios"].items():
            seconds[name] += each["seconds"]
            sums[name] += ratio * each["seconds"]
    return {name: total / seconds[name] for name, total in sums.items()}


def is_counted_by_gpm(nvml: Any, handle: Any) -> bool:
    """Return whether the GPU and its driver have GPM."""
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except nvml.NVMLError:
        return False


def gpm_between(nvml: Any, one: Any, two: Any) -> dict[str, float]:
    """Return GPM's ratios between two samples."""
    get = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(GPM))
    get.sample1, get.sample2 = one, two
    for position, number in enumerate(GPM.values()):
        get.metrics[position].metricId = number
    nvml.nvmlGpmMetricsGet(get)
    return {
        name: get.metrics[position].value / 100
        for position, name in enumerate(GPM)
        if get.metrics[position].nvmlReturn == 0
    }


def main() -> None:
    """Measure once."""
    kernel, seconds, sampling = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "sampling"
    import pynvml as nvml

    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    has_gpm = is_counted_by_gpm(nvml, handle)
    with ExitStack() as stack:
        job = counted = None
        if kernel != "idle":
            job = JsonProcess("tests.gpu.kernel_job", kernel)
            stack.callback(job.end)
            job.wait_line()
        if sampling:
            child = JsonProcess("exporter.sources.counters.programs", "cupti")
            stack.callback(child.end)
            child.send({})
            gpu = {"uuid": nvml.nvmlDeviceGetUUID(handle), "gpu_instances": []}
            child.send({"gpus": [gpu]})
            counted = ChildMessages(child)
            counted.wait_first()
        samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)] if has_gpm else []
        if has_gpm:
            nvml.nvmlGpmSampleGet(handle, samples[0])
        if job is not None:
            list(job.received())
        watts, hertz = [], []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(PERIOD_SECONDS)
            watts.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
            hertz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6)
        if has_gpm:
            nvml.nvmlGpmSampleGet(handle, samples[1])
        if counted is not None:
            counted.receive()
        done = [] if job is None else list(job.received())
    launches, busy_seconds = (sum(each[key] for each in done) for key in ("launches", "seconds"))
    found = {
        "name": nvml.nvmlDeviceGetName(handle),
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "state": None if counted is None else counted.state,
        "cupti": {} if counted is None else means(counted.activities),
        "gpm": gpm_between(nvml, *samples) if has_gpm else {},
        "watts": sum(watts) / len(watts),
        "hertz": sum(hertz) / len(hertz),
        "launches_per_second": launches / busy_seconds if launches else None,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
