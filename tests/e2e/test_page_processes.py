# SPDX-License-Identifier: Apache-2.0
"""The processes on the page of a GPU, in a browser, and with the switch that hides their owners."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from exporter.model.reading import Process
from exporter.model.snapshot import Snapshot
from exporter.model.workload import ShareWork
from tests import snapshots
from tests.e2e.browser import SIZES
from tests.e2e.conftest import OpenPage, Serve


def at_work(cpu_cores: float, count: int = 3) -> Snapshot:
    """A GPU with so many processes, each with a workload."""
    gpu = snapshots.h100_training(0)
    processes = tuple(
        Process(pid, "compute", pid * 2**20, "python3", "ada", cpu_cores=cpu_cores)
        for pid in range(4001, 4001 + count)
    )
    pod = snapshots.SIDE_POD
    work = ShareWork((pod,), of_process={each.pid: pod for each in processes})
    share = replace(gpu.shares[0], processes=processes, work=work)
    return snapshots.snapshot(replace(gpu, shares=(share,)))


@pytest.mark.parametrize("size", ["phone", pytest.param("laptop", marks=pytest.mark.slow)])
def test_the_processes_of_a_gpu(serve: Serve, view: OpenPage, size: str) -> None:
    """They fit, without a serious finding, and are new every 10 s; what is unfolded stays so."""
    live = serve(at_work(1.5, 40))
    shown = view(size).open(f"{live.url}/gpu/0")
    page = shown.page
    cells = page.locator("#processes tbody tr").first.locator("th, td")
    expect(cells).to_have_text(
        ["4040", "compute", "ada", "python3", "4040 MiB", "150 %", "team-a/notebook-7"]
    )
    expect(page.locator("#processes tbody tr")).to_have_count(40)
    for table in ("processes", "ceilings"):
        height = "(head) => head.getBoundingClientRect().height"
        assert page.locator(f"#{table} thead").first.evaluate(height) > 10, table
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert shown.findings() == []
    shown.screenshot(f"processes-{size}", whole=True)
    page.locator("#ceilings summary").first.click()

    later = at_work(0.25, 2)
    live.publish(replace(later, timestamp_seconds=later.timestamp_seconds + 1))

    expect(page.locator("#processes tbody tr")).to_have_count(2)
    expect(cells).to_contain_text(["4002", "25 %"])
    expect(page.locator("#ceilings details[open]").first).to_be_visible()
