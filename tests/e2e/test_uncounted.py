# SPDX-License-Identifier: Apache-2.0
"""A GeForce without counters, to whoever looks at it; and a GPU that measures what it estimates."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.waiting import wait_until

BUSY = {"product": "rtx-4090", "utilization": 97, "memory_utilization": 49, "power": 310}
HOPPER = {
    "product": "h100-sxm",
    "utilization": 97,
    "memory_utilization": 60,
    "gpm": {"graphics": 97, "sm": 90, "tensor": 50, "dram": 45, "fp64": 0, "fp32": 4, "fp16": 2},
}
MEMORY = "memory 26 to 50 % busy"


def test_the_page_of_a_geforce_begins_with_what_is_certain(
    make_driver: MakeDriver, start: StartDaemon, command: RunCommand
) -> None:
    """Never with bounds of 0 and 99 %; one line says what would measure it. `status` says so too,
    and the metrics keep both bounds."""
    driver = make_driver({"devices": [BUSY]})
    daemon = start(driver, wait_for=1)

    certain = f"GPU 0: 97 % used, {MEMORY}, 310 of 450 W; what its compute units do is not measured"
    wait_until(lambda: certain in daemon.get("/").text, 30, certain)
    text = daemon.get("/").text
    daemon.get("/api/v1/gpus")  # the first answer is made while the API is loaded
    status = command(driver, "status", "--url", daemon.url).stdout.decode()

    assert f"saturation not known, {MEMORY}" in text
    for said in (text, " ".join(status.split())):
        assert re.search(r"\b9\d % saturated|0(\u2013| to )9\d %", said) is None
        assert "--source.cupti" in said
        assert "NVreg_RestrictProfilingToAdminUsers=0" in said
        assert "roofline-exporter run --count-flops -- python train.py" in said
    assert daemon.metrics().value("gpu_saturation_upper_ratio", gpu="0") > 0.9


def test_a_hopper_is_a_check_of_the_estimate(
    make_driver: MakeDriver, start: StartDaemon, command: RunCommand
) -> None:
    """The API has both means, and `counters check` prints them with what would be estimated."""
    driver = make_driver({"devices": [HOPPER, BUSY]})
    daemon = start(driver, wait_for=2)

    def recent() -> dict[str, Any] | None:
        gpus = json.loads(daemon.get("/api/v1/gpus").text)["gpus"]
        found: dict[str, Any] = gpus[0]["shares"][0].get("recent", {})
        return found if found.get("seconds", 0) > 2 and found["active_ratio"] else None

    means = wait_until(recent, 30, "the second reading")
    check = command(driver, "counters", "check", "--url", daemon.url)
    _, row, *_ = check.stdout.decode().split("\n\n")[1].splitlines()

    assert means["memory_utilization_ratio"] == pytest.approx(0.6, abs=0.02)
    assert means["active_ratio"]["dram"] == pytest.approx(0.45, abs=0.02)
    percents = [float(each) for each in row.replace("%", "").split()]
    assert percents == pytest.approx([0, 60, 46, 45], abs=2)
