# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked: on the page in a real Chromium, and in the API."""

from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import expect

from exporter.derive.topology import peers
from exporter.model.reading import NVSWITCH
from exporter.model.snapshot import Gpu
from tests import snapshots
from tests.e2e.browser import SIZES
from tests.e2e.conftest import OpenPage, Serve

GPUS = 16


def _gpu(index: int) -> Gpu:
    """One of 16 on two sockets: four with NVLinks, four below a switch, the others all over."""
    gpu = snapshots.h100_training(index)
    root = (0, 0, 0, index)[index // 4]
    ports = (f"a{index // 8}", f"b{index // 4}", f"c{index}")[: 3 if index > 3 else 1]
    device = replace(
        gpu.device,
        nvlink_ends={NVSWITCH: 18} if index < 4 else {},
        pci_path=(f"pci0000:{root:02x}", *ports, f"0000:{index + 1:02x}:00.0"),
        numa_affinity=index // 14,
        cpu_affinity="0-55,112-167" if index < 14 else "56-111,168-223",
    )
    return replace(gpu, device=device)


def _node() -> tuple[Gpu, ...]:
    gpus = [_gpu(index) for index in range(GPUS)]
    linked = peers([gpu.device for gpu in gpus])
    return tuple(replace(gpu, peers=linked[gpu.device.uuid]) for gpu in gpus)


def test_the_picture(serve: Serve, view: OpenPage) -> None:
    """Text in each cell, a legend of what there is, no serious finding, also of 16 on a phone."""
    live = serve(snapshots.snapshot(*_node()))
    shown = view("phone").open(live.url)
    page = shown.page
    expect(page.locator("#topology")).to_be_hidden()
    page.locator("summary", has_text="How the GPUs are linked").click()
    rows = page.locator("#topology tbody tr")
    expect(rows).to_have_count(GPUS)
    expect(rows.nth(0).locator("td").nth(0)).to_have_text("·")
    expect(rows.nth(0).locator("td").nth(1)).to_have_text("NV18")
    expect(rows.nth(4).locator("td").nth(5)).to_have_text("PIX")
    expect(rows.nth(4).locator("td").nth(0)).to_have_text("PXB")
    expect(rows.nth(4).locator("td").nth(8)).to_have_text("PHB")
    expect(rows.nth(4).locator("td").nth(12)).to_have_text("NODE")
    expect(rows.nth(15).locator("td").nth(0)).to_have_text("SYS")
    expect(rows.nth(15)).to_contain_text("56-111,168-223")
    expect(page.locator("#topology .legend b")).to_have_text(
        ["NV#", "PIX", "PXB", "PHB", "NODE", "SYS"]
    )
    for size in SIZES:
        shown.resize(size)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert shown.findings() == []
        shown.screenshot(f"topology-{size}", whole=True)


def test_one_gpu_has_no_picture(serve: Serve, view: OpenPage) -> None:
    """Nor has a node of which no link is known."""
    for count in (1, 2):
        live = serve(snapshots.snapshot(*map(snapshots.h100_training, range(count))))
        page = view().open(live.url).page
        expect(page.locator("#gpus tbody tr")).to_have_count(count)
        expect(page.locator("#topology")).to_have_count(0)
