# SPDX-License-Identifier: Apache-2.0
"""On a real GPU: whether the loads of ``calibrate`` do what they are for, and what it writes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cli.calibrate.child import Child, Work
from exporter.cli.calibrate.loads import LOADS
from exporter.model.reading import Device
from exporter.model.snapshot import Ceilings
from exporter.specs import load_specs
from tests.gpu.elsewhere import python, skip_without

SECONDS = 5.0
LEAST_PRODUCT_RATIO, LEAST_COPY_RATIO = 0.5, 0.6
"""Of the datasheet's peaks; the power limit may hold the clock down."""

_DEVICE = """
import json, pynvml, torch
torch.zeros(1, device="cuda")
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
print(json.dumps({
    "uuid": pynvml.nvmlDeviceGetUUID(gpu),
    "name": pynvml.nvmlDeviceGetName(gpu),
    "capability": pynvml.nvmlDeviceGetCudaComputeCapability(gpu),
    "cores": pynvml.nvmlDeviceGetNumGpuCores(gpu),
    "limit": pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
}))
"""

Record = Callable[[str, object], None]


@pytest.fixture(scope="module", name="gpu")
def _gpu() -> Device:
    """The first GPU, with a torch that computes on it."""
    skip_without(_DEVICE, "no torch with a GPU on this machine")
    found = json.loads(python("-c", _DEVICE).stdout)
    major, minor = found["capability"]
    return Device(
        0,
        found["uuid"],
        found["name"],
        compute_capability=(major, minor),
        core_count=found["cores"],
        power_default_limit_watts=found["limit"],
    )


def ceilings_of(gpu: Device, path: Path | None = None) -> Ceilings:
    ceilings = load_specs(path).ceilings(gpu)
    assert ceilings is not None
    return ceilings


def rates(child: Child) -> Work:
    """FLOPs and bytes per second."""
    before = child.work()
    time.sleep(SECONDS)
    after = child.work()
    seconds = after.seconds - before.seconds
    return Work(1.0, (after.flops - before.flops) / seconds, (after.bytes - before.bytes) / seconds)


@pytest.mark.gpu
def test_the_loads_reach_the_units_that_they_are_for(gpu: Device, record_property: Record) -> None:
    """The matrix products come near the peak, and the copies near the bandwidth."""
    ceilings = ceilings_of(gpu)
    child = Child(sys.executable, gpu.uuid, os.environ)
    found: dict[str, Work] = {}
    try:
        precision = child.start().precision
        for load in LOADS:
            child.put(load)
            time.sleep(1.0)
            found[load.name] = rates(child)
    finally:
        child.close()
    for name, unit in (("gemm", precision), ("fp32", "fp32")):
        ratio = found[name].flops / ceilings.peak_flops_per_second[unit]
        record_property("measured", f"{name}: {ratio:.2f} of the peak")
        assert LEAST_PRODUCT_RATIO < ratio < 1.2
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    assert bandwidth is not None
    copy, half = found["copy"].bytes / bandwidth, found["copy-half"].bytes / bandwidth
    record_property("measured", f"copy: {copy:.2f} of the bandwidth, half of the time {half:.2f}")
    assert LEAST_COPY_RATIO < copy < 1.05
    assert 0.4 * copy < half < 0.6 * copy


@pytest.mark.gpu
def test_a_calibration_agrees_with_the_architecture(
    gpu: Device, tmp_path: Path, record_property: Record
) -> None:
    """Its file is taken, and each range meets the wide one that it takes the place of."""
    path = tmp_path / "power.yaml"
    words = ("-m", "exporter", "calibrate", "--gpu=0", "--measure=5s", f"--output={path}")
    done = python(*words, timeout_seconds=600)
    assert done.returncode == 0, done.stderr
    record_property("measured", " ".join(path.read_text(encoding="utf-8").split("\n")))
    power, wide = ceilings_of(gpu, path).power, ceilings_of(gpu).power
    assert power is not None
    assert power.calibrated
    if wide is None:
        return
    for name in ("idle_watts", "busy_watts", "tensor_watts", "vector_watts", "dram_watts"):
        found, expected = getattr(power, name), getattr(wide, name)
        assert found.lower <= expected.upper, name
        assert expected.lower <= found.upper, name
