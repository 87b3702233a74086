# SPDX-License-Identifier: Apache-2.0
"""A whole daemon on GPUs whose drivers answer otherwise than a data-centre board's."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from tests.e2e.conftest import MakeDriver, RunCommand, StartDaemon
from tests.e2e.daemons import Page
from tests.waiting import wait_until

GIB = 2**30
NO_SENSOR = {"temperature": {"memory": 0}}
COUNTED = {"utilization": 90, "gpm": {"graphics": 90, "sm": 80, "tensor": 50, "dram": 40}}
GUISES: tuple[dict[str, Any], ...] = (
    {"product": "gb10", "power": 40, "utilization": 96, "memory_utilization": 0},
    {"product": "jetson-thor", "utilization": 50},
    {"product": "rtx-4090-laptop", "power": 60, "utilization": 30, "clock_event_reasons": 0x25},
    {"product": "t4", "utilization": 60, "memory_utilization": 40, **NO_SENSOR},
    {"product": "l40s", "utilization": 60, "memory_utilization": 40, **NO_SENSOR},
    {"product": "rtx-3090", "utilization": 60, "memory_utilization": 40},
    {"product": "b300", "power": 717, "power_limits": {"enforced": 500}, **COUNTED},
    {"product": "gh200", "memory": {"used": 20 * GIB}, **COUNTED},
)
GB10, THOR, LAPTOP, T4, L40S, RTX3090, B300, GH200 = range(8)
GH200_BYTES = 102625181696
UNIFIED = (GB10, THOR)
NONSENSE = re.compile(r"\b(?:None(?!:)|nan|NaN|null|undefined|inf)\b|-[1-9]\d* (?:%|W|GiB)|e\+\d\d")


def _words(text: str) -> str:
    """What a reader of a page of HTML is told."""
    seen = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", seen)).split())


def _gpus(page: Page, name: str) -> set[int]:
    found = {int(of["gpu"]) for of, _ in page.rows(name)}
    assert found, name
    return found


def test_what_a_driver_lacks_is_absent_or_marked(
    make_driver: MakeDriver, start: StartDaemon, command: RunCommand, tmp_path: Path
) -> None:
    """On both pages of metrics, on the page and in `status`; nothing there makes no sense. The
    host has 120 GiB and uses half of it."""
    kib = GIB // 1024
    tmp_path.joinpath("meminfo").write_text(
        f"MemTotal: {120 * kib} kB\nMemAvailable: {60 * kib} kB\n"
    )
    driver = make_driver({"devices": list(GUISES)})
    daemon = start(driver, f"--path.procfs={tmp_path}", wait_for=len(GUISES))
    page, dcgm = daemon.metrics(), Page(daemon.get("/metrics/dcgm").text)

    for name, value in (("unified", 1), ("total_bytes", 120 * GIB), ("used_bytes", 60 * GIB)):
        found = {int(of["gpu"]): value for of, value in page.rows(f"gpu_memory_{name}")}
        assert [found[gpu] for gpu in UNIFIED] == [value] * len(UNIFIED)
        assert found.get(GH200) == {"unified": None, "used_bytes": 20 * GIB}.get(name, GH200_BYTES)
    for name in (
        *("gpu_memory_controller_utilization_ratio", "gpu_dram_estimate_bytes_per_second"),
        "gpu_power_limit_watts",
    ):
        assert _gpus(page, name).isdisjoint(UNIFIED), name
    assert _gpus(page, "gpu_resource_saturation_estimate_ratio") == {LAPTOP, T4, L40S, RTX3090}
    watts = {gpu: page.value("gpu_power_watts", gpu=str(gpu)) for gpu in (GB10, B300)}
    assert watts == {GB10: 40.0, B300: 717.0}
    assert page.value("gpu_power_limit_watts", gpu=str(LAPTOP)) == 95.0
    sensors = page.rows("gpu_temperature_celsius", sensor="memory")
    assert {int(of["gpu"]) for of, _ in sensors} == {B300, GH200}
    assert not page.rows("roofline_exporter_reading_state", state="old_driver")
    assert _gpus(dcgm, "DCGM_FI_DEV_MEMORY_TEMP") == {B300, GH200}
    assert _gpus(dcgm, "DCGM_FI_DEV_FB_USED").isdisjoint(UNIFIED)

    wait_until(
        lambda: "often idle" in daemon.get("/gpu/1").text, 10.0, "a mean of the last seconds"
    )
    table = command({}, "status", f"--url={daemon.url}").stdout.decode()
    pages = [_words(daemon.get(f"/gpu/{gpu}").text) for gpu in range(len(GUISES))]
    shares = [gpu["shares"][0] for gpu in json.loads(daemon.get("/api/v1/gpus").text)["gpus"]]

    assert table.count("60/120 unified") == len(UNIFIED)
    assert "717/500" in table
    assert [share["memory"].get("unified") for share in shares[:4]] == [True, True, None, None]
    for gpu in UNIFIED:
        assert "60/120 GiB unified" in pages[gpu]
        assert "Memory 120 GiB, unified: the host's" in pages[gpu]
    assert "60/95 W" in pages[LAPTOP]
    assert "software power cap with software thermal slowdown for" in pages[LAPTOP]
    for text in (table, _words(daemon.get("/").text), *pages):
        assert not NONSENSE.search(text), text
