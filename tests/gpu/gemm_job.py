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

from tests.gpu.sampled import gpm_between

SIZE = 8192
SECONDS = 20.0
BUFFER_PERIOD_SECONDS = 0.5


class Clock:
    """The driver's samples of the SM clock."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._last = 0
        self.megahertz: list[int] = []
        self.take()
        self.megahertz.clear()

    def take(self) -> None:
        kind = self._nvml.NVML_PROCESSOR_CLK_SAMPLES
        try:
            _, samples = self._nvml.nvmlDeviceGetSamples(self._handle, kind, self._last)
        except self._nvml.NVMLError:
            return
        self._last = max([self._last, *(sample.timeStamp for sample in samples)])
        self.megahertz += [sample.sampleValue.uiVal for sample in samples]


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
    clock = Clock(pynvml, handle)
    products = 0
    pynvml.nvmlGpmSampleGet(handle, samples[0])
    started = time.monotonic()
    taken = started
    busy: list[int] = []
    while time.monotonic() - started < SECONDS:
        begun = time.monotonic()
        while time.monotonic() - begun < period / 2:
            one @ two
            torch.cuda.synchronize()
            products += 1
        busy.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        time.sleep(max(0.0, begun + period - time.monotonic()))
        if time.monotonic() - taken > BUFFER_PERIOD_SECONDS:
            taken = time.monotonic()
            clock.take()
    seconds = time.monotonic() - started
    pynvml.nvmlGpmSampleGet(handle, samples[1])
    clock.take()
    found = {
        "name": pynvml.nvmlDeviceGetName(handle),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "true_flops_per_second": 2.0 * SIZE**3 * products / seconds,
        "gpm": gpm_between(pynvml, *samples),
        "mean_clock_hertz": _mean_hertz(clock.megahertz),
        "busy_clock_hertz": _mean_hertz(busy),
        "cores": pynvml.nvmlDeviceGetNumGpuCores(handle),
        "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle),
    }
    print(json.dumps(found))


def _mean_hertz(megahertz: list[int]) -> float | None:
    return 1e6 * sum(megahertz) / len(megahertz) if megahertz else None


if __name__ == "__main__":
    main()
