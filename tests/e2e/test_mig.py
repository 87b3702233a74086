# SPDX-License-Identifier: Apache-2.0
"""A GPU that is divided, divided anew and made whole again while the daemon runs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.divided import COMPUTE_INSTANCES, HEALTHY, SEVEN, instance
from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Daemon, Page
from tests.e2e.processes import retry_once
from tests.waiting import wait_until

LAYOUTS: tuple[tuple[list[dict[str, Any]], int], ...] = (
    (COMPUTE_INSTANCES, 1),
    ([instance(1, "3g.40gb", uuid="MIG-anew")], 1),
    ([], 1),
    ([], 0),
)


def _shares(page: Page) -> set[str | None]:
    """The GPU instances of GPU 0, as their memory is published; None for the whole."""
    rows = page.rows("gpu_memory_total_bytes", gpu="0")
    return {labels.get("gpu_instance") for labels, _ in rows}


def _readings(daemon: Daemon) -> dict[tuple[str, int | None], str]:
    answer = json.loads(daemon.get("/api/v1/gpus/0").text)
    return {
        (each["reading"], each.get("gpu_instance")): each["state"]
        for each in reversed(answer["readings"])
    }


@retry_once
def test_layouts_come_and_go(make_driver: MakeDriver, start: StartDaemon) -> None:
    """The board is up and complete on every page, and no counter of it or of the other GPU falls;
    instances are never shown beside the whole."""
    driver = make_driver(
        {"devices": [{**HEALTHY, "mig": {"instances": SEVEN, "current": 1}}, HEALTHY]}
    )
    daemon = start(driver, wait_for=2)
    pages: list[Page] = []

    def shows(*numbers: str | None) -> bool:
        pages.append(daemon.metrics())
        return _shares(pages[-1]) == set(numbers)

    wait_until(lambda: shows(*(str(each["gi"]) for each in SEVEN)))
    assert _readings(daemon)["activity", 7] == "ok"
    for layout, on in LAYOUTS:
        driver.device(0, mig={"instances": layout, "current": on})
        numbers: list[str | None] = [str(each["gi"]) for each in layout] if on else [None]
        wait_until(partial(shows, *numbers), what=f"for {numbers}")
    assert _readings(daemon)["utilization", None] == "ok"

    highest: dict[Any, float] = {}
    for page in pages:
        shares = _shares(page)
        assert shares == {None} or None not in shares
        assert all(page.value("gpu_up", gpu=gpu) == 1 for gpu in "01")
        board = {"location": "dram", "severity": "corrected"}
        assert page.get("gpu_ecc_errors_total", gpu="0", **board) is not None
        for (name, labels), value in page.counters().items():
            if name.startswith("gpu_") and dict(labels).get("gpu") == "1":
                assert value >= highest.get((name, labels), 0.0)
                highest[name, labels] = value
    assert len(highest) > 20
    assert [line.partition("MIG is ")[2] for line in daemon.lines("MIG is ")] == [
        'on: 1c.3g.40gb, 2c.3g.40gb, 3g.40gb"',
        'on: 3g.40gb"',
        'on: no instance"',
        'off"',
    ]
