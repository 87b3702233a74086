# SPDX-License-Identifier: Apache-2.0
"""A half-duty matrix product on GPU 0, with the GPM counters read around it; prints JSON.

    python -m tests.gpu.gemm_job PERIOD_SECONDS

The product runs for half of each period and the GPU rests for the other half. The last line has
what was done (2MNK of each product, over the time), what GPM said, and the clocks.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SIZE = 8192
SECONDS = 20.0
IDS = {"engine": 1, "sm": 2, "tensor": 5, "hmma": 7, "dmma": 8, "dram": 10}
ELAPSED_CYCLES = 248
BUFFER_PERIOD_SECONDS = 0.5


class Clocks:
    """The driver's samples of the SM clock and the utilization."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._seen = {nvml.NVML_PROCESSOR_CLK_SAMPLES: 0, nvml.NVML_GPU_UTILIZATION_SAMPLES: 0}
        self.values: dict[int, list[int]] = {kind: [] for kind in self._seen}
        self.take()
        self.values = {kind: [] for kind in self._seen}

    def take(self) -> None:
        for kind, last in self._seen.items():
            try:
                _, samples = self._nvml.nvmlDeviceGetSamples(self._handle, kind, last)
            except self._nvml.NVMLError:
                continue
            self._seen[kind] = max([last, *(sample.timeStamp for sample in samples)])
            self.values[kind] += [sample.sampleValue.uiVal for sample in samples]

    def mean(self, kind: int) -> float | None:
        values = self.values[kind]
        return sum(values) / len(values) if values else None


def main() -> None:
    period = float(sys.argv[1])
    import pynvml
    import torch

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    one, two = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize()
    for _ in range(20):
        one @ two
    torch.cuda.synchronize()
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    clocks = Clocks(pynvml, handle)
    products = 0
    pynvml.nvmlGpmSampleGet(handle, samples[0])
    started = time.monotonic()
    taken = started
    busy_clocks: list[int] = []
    while time.monotonic() - started < SECONDS:
        begun = time.monotonic()
        while time.monotonic() - begun < period / 2:
            one @ two
            torch.cuda.synchronize()
            products += 1
        busy_clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        time.sleep(max(0.0, begun + period - time.monotonic()))
        if time.monotonic() - taken > BUFFER_PERIOD_SECONDS:
            taken = time.monotonic()
            clocks.take()
    seconds = time.monotonic() - started
    pynvml.nvmlGpmSampleGet(handle, samples[1])
    clocks.take()
    get = pynvml.c_nvmlGpmMetricsGet_t(
        version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(IDS) + 1
    )
    get.sample1, get.sample2 = samples
    for position, number in enumerate((*IDS.values(), ELAPSED_CYCLES)):
        get.metrics[position].metricId = number
    pynvml.nvmlGpmMetricsGet(get)
    found = {
        name: get.metrics[position].value / 100
        for position, name in enumerate(IDS)
        if get.metrics[position].nvmlReturn == 0
    }
    print(
        json.dumps(
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "driver": pynvml.nvmlSystemGetDriverVersion(),
                "seconds": seconds,
                "true_flops_per_second": 2.0 * SIZE**3 * products / seconds,
                "gpm": found,
                "mean_clock_hertz": _hertz(clocks.mean(pynvml.NVML_PROCESSOR_CLK_SAMPLES)),
                "busy_clock_hertz": _hertz(sum(busy_clocks) / len(busy_clocks)),
                "cores": pynvml.nvmlDeviceGetNumGpuCores(handle),
                "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle),
            }
        )
    )


def _hertz(megahertz: float | None) -> float | None:
    return None if megahertz is None else megahertz * 1e6


if __name__ == "__main__":
    main()
