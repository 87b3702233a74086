# SPDX-License-Identifier: Apache-2.0
"""On a real GPU: CUPTI's samples agree with GPM, show other processes' work, and cost little.

What is measured is printed, for docs/cupti.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.sources.cupti.release import installed
from tests.conftest import MEASURED
from tests.gpu.python_process import python, skip_without
from tests.gpu.sampled import means

SECONDS = 15
AGREED = 0.02
"""Points that CUPTI and GPM may differ by."""
COMPARED = {
    "gemm": ("tensor", "dram", "sm", "engine", "occupancy"),
    "fma": ("fma", "dram", "sm", "engine"),
    "fp64": ("fp64", "sm", "engine"),
    "copy": ("dram", "sm", "engine"),
}
"""By kernel: the activities to compare; the first is the one that it loads."""
BUSY = 0.2
"""An activity above it comes from a kernel, not from a display."""
AS_BEFORE = 0.2
"""Power and clock of an idle GPU vary by as much."""
COST = 0.05
"""A matrix product may be slower by this share: third parties saw 0.4 % (H100)."""


@pytest.fixture(scope="module", name="gpu")
def _gpu() -> None:
    """A GPU that torch computes on, and CUPTI."""
    if not installed():
        pytest.skip("CUPTI is not installed: pip install --group cupti")
    skip_without("import torch; torch.zeros(1, device='cuda')", "no NVIDIA GPU on this machine")


def measured(kernel: str, *, sampling: bool = True) -> dict[str, Any]:
    """Return what `sampled` prints; skip where CUPTI may not sample this GPU."""
    words = ("-m", "tests.gpu.sampled", kernel, str(SECONDS), "sampling" if sampling else "not")
    done = python(*words, timeout_seconds=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if sampling and not found["cupti"]:
        pytest.skip(f"CUPTI does not sample the {found['name']}: {found['state']}")
    return found


def test_a_mean_is_of_the_time_that_was_counted() -> None:
    """Needs no GPU: intervals without an activity or without the ratio have no weight."""
    activities = [
        {"seconds": 1.0, "ratios": {"tensor": 0.5, "dram": 0.1}},
        {"seconds": 3.0, "ratios": {"tensor": 0.9}},
    ]
    assert means(activities) == pytest.approx({"tensor": 0.8, "dram": 0.1})
    assert means([]) == {}


def about(found: dict[str, Any]) -> str:
    return f"{found['name']}, driver {found['driver']}"


def gpm_of(found: dict[str, Any], name: str) -> float:
    """Return GPM's activity: of FP32 and FP16 together, which are one pipe, the sum."""
    gpm = found["gpm"]
    return float(gpm["fp32"] + gpm["fp16"] if name == "fma" else gpm[name])


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kernel", COMPARED)
def test_cupti_agrees_with_gpm(kernel: str, record_property: Any) -> None:
    """Within 2 points, on a Hopper or newer, while both count the same 15 s."""
    found = measured(kernel)
    if not found["gpm"]:
        pytest.skip(f"the {found['name']} has no GPM")
    both = {name: (found["cupti"][name], gpm_of(found, name)) for name in COMPARED[kernel]}
    text = ", ".join(f"{name} {cupti:.3f} / {gpm:.3f}" for name, (cupti, gpm) in both.items())
    record_property(MEASURED, f"{about(found)}, {kernel}, CUPTI / GPM: {text}")

    assert next(iter(both.values()))[0] > BUSY
    for name, (cupti, gpm) in both.items():
        assert cupti == pytest.approx(gpm, abs=AGREED), name


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_the_work_of_other_processes_is_seen(record_property: Any) -> None:
    """The sampling process launches nothing: all that it measures is another process's work."""
    idle, busy = measured("idle")["cupti"], measured("gemm")
    name = "tensor" if "tensor" in busy["cupti"] else "tensor_fp16"
    record_property(
        MEASURED, f"{about(busy)}, {name}: {idle[name]:.3f} idle, {busy['cupti'][name]:.3f} gemm"
    )

    assert idle[name] < AGREED
    assert busy["cupti"][name] > BUSY


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_what_sampling_does_to_an_idle_gpu(record_property: Any) -> None:
    """Power and clock without, with and again without sampling: they return to the first values."""
    before, during = measured("idle", sampling=False), measured("idle")
    after = measured("idle", sampling=False)
    for each, when in ((before, "before"), (during, "while sampled"), (after, "after")):
        text = f"{each['watts']:.1f} W, {each['hertz'] / 1e6:.0f} MHz"
        record_property(MEASURED, f"{about(each)}, idle {when}: {text}")

    assert after["watts"] == pytest.approx(before["watts"], rel=AS_BEFORE)
    assert after["hertz"] == pytest.approx(before["hertz"], rel=AS_BEFORE)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_what_sampling_costs_a_matrix_product(record_property: Any) -> None:
    """Its launches a second, its power and its clock with and without."""
    without, sampled = measured("gemm", sampling=False), measured("gemm")
    ratio = sampled["launches_per_second"] / without["launches_per_second"]
    record_property(
        MEASURED,
        f"{about(sampled)}, gemm while sampled: {ratio:.4f} of its speed, "
        f"{sampled['watts'] - without['watts']:+.1f} W, "
        f"{(sampled['hertz'] - without['hertz']) / 1e6:+.0f} MHz",
    )

    assert ratio > 1 - COST
