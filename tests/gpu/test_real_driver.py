# SPDX-License-Identifier: Apache-2.0
"""On a real GPU and driver: what the fake driver cannot prove."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", name="page")
def _page() -> dict[str, list[tuple[dict[str, str], float]]]:
    """The page of `once`, by sample name."""
    probe = (
        "from exporter.sources.nvml.library import Library; library = Library(); library.start(); "
        "print(library.device_count())"
    )
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    if found.returncode or found.stdout.strip() in ("", "0"):
        pytest.skip("no NVIDIA GPU answers on this machine")
    once = subprocess.run(
        [sys.executable, "-m", "exporter", "once"], capture_output=True, text=True, timeout=60
    )
    assert once.returncode == 0, once.stderr
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(once.stdout):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_every_gpu_is_up_and_named(page: dict[str, list[tuple[dict[str, str], float]]]) -> None:
    """Identity is read, and ceilings are known or derived."""
    assert all(value == 1 for _, value in page["gpu_up"])
    for labels, _ in page["gpu_info"]:
        assert labels["name"]
        assert labels["spec"]


def test_ratios_are_ratios(page: dict[str, list[tuple[dict[str, str], float]]]) -> None:
    """No unit was mistaken: activities and bounds are 0 to 1, bounds in order."""
    for name, rows in page.items():
        if name.endswith("_ratio") and name != "gpu_roof_ratio":
            assert all(0 <= value <= 1.1 and math.isfinite(value) for _, value in rows), name
    lower = {str(labels): value for labels, value in page["gpu_saturation_lower_ratio"]}
    for labels, upper in page["gpu_saturation_upper_ratio"]:
        assert lower[str(labels)] <= upper


def test_power_and_clocks_are_plausible(
    page: dict[str, list[tuple[dict[str, str], float]]],
) -> None:
    """Watts below twice the limit, SM clocks between 100 MHz and 4 GHz."""
    limits = {labels["uuid"]: value for labels, value in page.get("gpu_power_limit_watts", [])}
    for labels, watts in page.get("gpu_power_watts", []):
        assert 0 < watts < 2 * limits.get(labels["uuid"], math.inf)
    for labels, hertz in page["gpu_clock_hertz"]:
        if labels["clock"] == "sm":
            assert 100e6 <= hertz <= 4e9
