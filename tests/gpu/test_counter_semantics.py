# SPDX-License-Identifier: Apache-2.0
"""On a real GPU: whether GPM's activities are shares of cycles or of time.

A half-duty matrix product with free clocks (which fall in the pauses) and with locked ones. Both
readings are printed beside 2MNK / t: by cycles, activity x mean clock of the whole interval; by
time, activity x clock of the busy time. With locked clocks they agree; with free clocks one is off.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.specs.derived import RULES
from tests.gpu.python_process import python, skip_without

PERIODS = (0.5, 5.0)
TILES_RATIO = 0.05
"""Padding of tiles, and products that were cut short by the edges."""
DECIDED_RATIO = 0.1
"""Below this difference of the clocks the test cannot decide."""


@pytest.fixture(scope="module", name="gpm")
def _gpm() -> None:
    """Require a GPU with torch and GPM; probed in another process, to keep CUDA out of this one."""
    probe = (
        "import torch, pynvml; torch.zeros(1, device='cuda'); pynvml.nvmlInit(); "
        "h = pynvml.nvmlDeviceGetHandleByIndex(0); "
        "assert pynvml.nvmlGpmQueryDeviceSupport(h).isSupportedDevice"
    )
    skip_without(probe, "no GPU with GPM on this machine")


@contextlib.contextmanager
def _locked(*, locked: bool) -> Iterator[bool]:
    """Lock the SM clock to its highest for a while; False where that is not permitted."""
    if not locked:
        yield True
        return
    done = subprocess.run(
        ["nvidia-smi", "-i", "0", "-lgc", "tdp,tdp"], capture_output=True, check=False
    )
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["nvidia-smi", "-i", "0", "-rgc"], capture_output=True, check=False)


def both_readings(found: dict[str, Any]) -> tuple[float, float]:
    """Return FLOP/s by shares of cycles and by shares of time."""
    rule = RULES[tuple(found["capability"])]
    sms = found["cores"] / rule.cores_per_sm
    per_hertz = found["gpm"]["tensor"] * sms * rule.flops_per_clock["bf16_tensor"]
    return per_hertz * found["mean_clock_hertz"], per_hertz * found["busy_clock_hertz"]


def test_both_readings_of_an_example() -> None:
    """Needs no GPU: half of the time at 1980 MHz, full, is 85 % of the cycles."""
    found = {
        "capability": [9, 0],
        "cores": 132 * 128,
        "gpm": {"tensor": 0.5 * 1980 / 1162.5},
        "mean_clock_hertz": 1162.5e6,
        "busy_clock_hertz": 1980e6,
    }
    by_cycles, by_time = both_readings(found)
    assert by_cycles == pytest.approx(0.5 * 132 * 4096 * 1980e6)
    assert by_time / by_cycles == pytest.approx(1980 / 1162.5)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpm")
@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("locked", [False, True])
def test_which_reading_is_right(
    capsys: pytest.CaptureFixture[str], period: float, locked: bool
) -> None:
    """Shares of cycles give 2MNK / t; where clocks moved, shares of time do not."""
    with _locked(locked=locked) as permitted:
        if not permitted:
            pytest.skip("clocks cannot be locked without being root")
        done = python("-m", "tests.gpu.gemm_job", str(period))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["mean_clock_hertz"] is None:
        pytest.skip("this driver keeps no samples of the clock")
    by_cycles, by_time = both_readings(found)
    true = found["true_flops_per_second"]
    with capsys.disabled():
        print(
            f"\n{found['name']}, driver {found['driver']}, period {period} s,"
            f" clocks {'locked' if locked else 'free'}:"
            f" mean {found['mean_clock_hertz'] / 1e6:.0f} MHz,"
            f" busy {found['busy_clock_hertz'] / 1e6:.0f} MHz, GPM {found['gpm']};"
            f" 2MNK/t {true / 1e12:.1f} TFLOP/s,"
            f" by cycles {by_cycles / 1e12:.1f} ({by_cycles / true:.3f}),"
            f" by time {by_time / 1e12:.1f} ({by_time / true:.3f})"
        )
    assert by_cycles == pytest.approx(true, rel=TILES_RATIO)
    if abs(found["busy_clock_hertz"] / found["mean_clock_hertz"] - 1) > DECIDED_RATIO:
        assert by_time != pytest.approx(true, rel=TILES_RATIO)
