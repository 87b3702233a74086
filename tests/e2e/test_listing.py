# SPDX-License-Identifier: Apache-2.0
"""The table of a node of many GPUs: short rows, troubled ones first, sorted and filtered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from exporter.model.snapshot import Bounds, Gpu, Holder, Snapshot
from exporter.web.live.stream import EVENT_SECONDS
from tests import snapshots
from tests.e2e.browser import SCHEMES
from tests.e2e.conftest import OpenPage, Serve, StartDaemon
from tests.e2e.test_layout import FAULTS

COUNT = 64
MOST_PIXELS = 24.0
"""Of a row in a window as wide as a laptop's."""
PHONE: ViewportSize = {"width": 390, "height": 844}
MOST_LINES_ON_A_PHONE = 2
OWNERS = ("ann", "bob", None)

_HEIGHTS = "(rows) => rows.map((row) => row.getBoundingClientRect().height)"
# Where the text of a node begins and ends.
_ENDS = """(node) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  const {left, right} = range.getBoundingClientRect();
  return [left, right];
}"""
# How many lines of text each row has: tops of its words that are apart.
_LINES = """(rows) => rows.map((row) => {
  const words = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  const tops = [];
  while (words.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(words.currentNode);
    for (const {top, height, width} of range.getClientRects()) {
      const middle = top + height / 2;
      if (width > 1 && !tops.some((each) => Math.abs(each - middle) < 6)) tops.push(middle);
    }
  }
  return tops.length;
})"""


def _starved(index: int) -> Gpu:
    gpu = snapshots.h100_starved(index)
    return replace(gpu, shares=(replace(gpu.shares[0], data_stall={"client": Bounds(0.4, 0.4)}),))


def _gpu(index: int) -> Gpu:
    """One of many: in six states, of two owners or nobody, and with numbers that differ."""
    kinds: tuple[Callable[[int], Gpu], ...] = (
        *(snapshots.h100_training, _starved, snapshots.h100_idle),
        *(snapshots.t4_estimate, snapshots.h100_training, snapshots.lost),
    )
    gpu = kinds[index % len(kinds)](index)
    owner = OWNERS[index % len(OWNERS)]
    device = replace(gpu.device, index=index, uuid=f"GPU-11111111-2222-3333-4444-{index:012d}")
    if not gpu.up:
        return replace(gpu, device=device)
    assert gpu.vitals is not None
    vitals = replace(gpu.vitals, power_watts=_watts(index))
    holder = Holder(owner, "python3") if owner else None
    shares = (replace(gpu.shares[0], held=holder is not None, holder=holder),)
    return replace(gpu, device=device, vitals=vitals, shares=shares)


def _watts(index: int) -> float:
    return 100.0 + 7 * (index * 29 % COUNT)


def _node(count: int = COUNT, **changed: Gpu) -> Snapshot:
    return snapshots.snapshot(*(changed.get(f"gpu{at}", _gpu(at)) for at in range(count)))


def _titles(page: Page) -> list[int]:
    found = page.locator("#gpus tbody th a").all_text_contents()
    return [int(title.removeprefix("GPU ")) for title in found]


def _sort(page: Page, column: str) -> None:
    page.locator("#gpus thead").get_by_role("button", name=column).click()


def _heads(page: Page) -> dict[str, str]:
    """Return by column how it is sorted, of those that are."""
    found = page.locator("#gpus thead th").evaluate_all(
        "(heads) => heads.map((head) => [head.textContent, head.ariaSort])"
    )
    return {name: way for name, way in found if way != "none"}


@pytest.mark.slow
def test_a_row_of_many_is_one_line(serve: Serve, view: OpenPage) -> None:
    """24 pixels at most for each of 64; two lines on a phone; nothing to be scrolled sideways."""
    shown = view().open(serve(_node()).url)
    rows = shown.page.locator("#gpus tbody tr")
    expect(rows).to_have_count(COUNT)
    for width in (1024, 1440, 2560):
        shown.page.set_viewport_size({"width": width, "height": 940})
        assert set(rows.evaluate_all(_LINES)) == {1}, width
        if width == 1440:
            assert max(rows.evaluate_all(_HEIGHTS)) <= MOST_PIXELS
    shown.page.set_viewport_size(PHONE)
    expect(shown.page.locator("#gpus thead button").first).to_be_visible()
    assert max(rows.evaluate_all(_LINES)) <= MOST_LINES_ON_A_PHONE
    assert max(rows.evaluate_all(_HEIGHTS)) < 50
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for scheme in SCHEMES:
        shown.page.emulate_media(color_scheme=scheme)
        assert shown.findings() == []
        shown.screenshot(f"many-phone-{scheme}", whole=True)


def test_eight_take_two_lines_each_on_a_phone_and_one_a_card(serve: Serve, view: OpenPage) -> None:
    """Also after the window was made narrower; a single GPU shows all that is known of it."""
    shown = view().open(serve(_node(8)).url)
    rows = shown.page.locator("#gpus tbody tr")
    assert min(rows.evaluate_all(_LINES)) > 1
    shown.page.set_viewport_size(PHONE)
    expect(shown.page.locator("body.many")).to_be_visible()
    assert max(rows.evaluate_all(_LINES)) <= MOST_LINES_ON_A_PHONE
    page = view("phone").open(serve(_node(1)).url).page
    expect(page.locator("#gpus")).to_contain_text("57/80 GiB")
    expect(page.get_by_text("Data stall", exact=True)).to_have_count(1)


def test_memory_that_is_the_hosts_covers_no_power_on_a_phone(serve: Serve, view: OpenPage) -> None:
    """Its words are longer than those of others."""
    page = view().open(serve(_node(3, gpu1=snapshots.gb10(1))).url).page
    page.set_viewport_size(PHONE)
    expect(page.locator("body.many")).to_be_visible()
    row = page.get_by_role("row", name="GPU 1")
    cells = (row.locator(f"[data-f={name}]") for name in ("memory", "power"))
    memory, power = (cell.evaluate(_ENDS) for cell in cells)
    assert memory[1] < power[0]
    assert power[1] <= PHONE["width"]


@pytest.mark.parametrize("scripts", [True, False])
def test_the_troubled_are_first(serve: Serve, view: OpenPage, scripts: bool) -> None:
    """Lost before starved before all others, each in the order of the GPUs."""
    shown = view(java_script_enabled=scripts)
    shown.load(serve(_node(24)).url)
    if scripts:
        shown.wait_live()
    others = [index for index in range(24) if index % 6 not in (1, 5)]
    assert _titles(shown.page) == [5, 11, 17, 23, 1, 7, 13, 19, *others]
    shown.close()


def test_rows_do_not_jump(serve: Serve, view: OpenPage) -> None:
    """A GPU that is lost is first after 10 s at the latest, but not while the pointer is there."""
    live = serve(_node(8))
    shown = view().open(live.url)
    page = shown.page
    before = _titles(page)
    assert before == [5, 1, 7, 0, 2, 3, 4, 6]
    gone = replace(snapshots.lost(6), device=_gpu(6).device)
    seconds = 0

    def publish(gpu: Gpu, later: int) -> None:
        nonlocal seconds
        seconds += 1
        page.wait_for_timeout(EVENT_SECONDS * 1100)
        page.evaluate(f"(() => {{ const now = Date.now; Date.now = () => now() + {later}; }})()")
        node = replace(_node(8, gpu6=gpu), timestamp_seconds=snapshots.NOW + seconds)
        live.publish(node)

    publish(gone, 0)
    expect(shown.row("GPU 6")).to_contain_text("lost")
    assert _titles(page) == before
    shown.row("GPU 6").hover()
    publish(_gpu(6), 11_000)
    expect(shown.row("GPU 6")).not_to_contain_text("lost")
    publish(gone, 0)
    expect(shown.row("GPU 6")).to_contain_text("lost")
    assert _titles(page) == before
    page.mouse.move(1, 1)
    publish(gone, 0)
    expect(page.locator("#gpus tbody tr").nth(1)).to_contain_text("GPU 6")


def test_sorting(serve: Serve, view: OpenPage) -> None:
    """By each column, turned around by a second press, by keyboard too; the address keeps it."""
    live = serve(_node(12))
    shown = view().open(live.url)
    page = shown.page
    assert _heads(page) == {"State": "descending"}
    known = sorted((0, 1, 2, 3, 4, 6, 7, 8, 9, 10), key=_watts)
    _sort(page, "Power")
    assert _titles(page) == [*known[::-1], 5, 11]
    assert _heads(page) == {"Power": "descending"}
    assert page.url == f"{live.url}/?sort=power"
    _sort(page, "Power")
    assert _titles(page) == [*known, 5, 11]
    assert _heads(page) == {"Power": "ascending"}
    shown.open(page.url)
    assert _titles(page) == [*known, 5, 11]
    head = page.locator("#gpus thead").get_by_role("button", name="GPU")
    head.focus()
    page.keyboard.press("Enter")
    assert _titles(page) == list(range(12))
    assert _heads(page) == {"GPU": "ascending"}
    page.keyboard.press("Space")
    assert _titles(page) == list(range(11, -1, -1))
    assert shown.findings() == []
    for column in ("Utilization, saturation", "Data stall", "Memory", "Idle, holder"):
        _sort(page, column)
        assert _heads(page) == {column: "descending"}
    assert _titles(page)[0] % 6 == 2  # idle for longest
    _sort(page, "State")
    assert page.url == f"{live.url}/"
    shown.open(f"{live.url}/?sort=nonsense")
    assert _heads(page) == {"State": "descending"}


def test_filters(serve: Serve, view: OpenPage) -> None:
    """By state and owner, of table and roofline; the address keeps them, and leads back to them."""
    live = serve(_node(24))
    shown = view().open(live.url)
    page = shown.page
    rows, points = page.locator("#gpus tbody tr"), page.locator(".point:not([hidden])")
    expect(points).to_have_count(12)
    state, owner = page.get_by_label("state"), page.get_by_label("owner")
    assert owner.locator("option").all_text_contents() == ["all", "ann", "bob"]
    state.select_option("busy")
    expect(rows).to_have_count(12)
    expect(page.locator("#heads [role=status]")).to_have_text("12 of 24 shown")
    owner.select_option("bob")
    assert _titles(page) == [4, 10, 16, 22]
    expect(points).to_have_count(4)
    assert page.url == f"{live.url}/?state=busy&owner=bob"
    assert shown.findings() == []
    rows.first.get_by_role("link").click()
    expect(page.locator("#facts")).to_be_visible()
    page.go_back()
    assert _titles(page) == [4, 10, 16, 22]
    expect(owner).to_have_value("bob")
    # What was chosen and is not there now stays chosen, and can be taken back.
    shown.open(f"{live.url}/?owner=%3Cb%3Ezoe")
    expect(rows).to_have_count(0)
    expect(owner).to_have_value("<b>zoe")
    owner.select_option("all")
    expect(rows).to_have_count(24)
    assert page.url == f"{live.url}/"


def test_what_filters_nothing_is_not_offered(serve: Serve, view: OpenPage) -> None:
    """One GPU, or one owner of all, needs no choice."""
    page = view().open(serve(_node(1)).url).page
    expect(page.get_by_label("state")).to_be_hidden()
    expect(page.get_by_label("owner")).to_be_hidden()


@pytest.mark.parametrize("scripts", [True, False])
def test_the_headline_leads_to_its_gpu(serve: Serve, view: OpenPage, scripts: bool) -> None:
    """The GPU that it names is a link to its page; where it names none there is no link."""
    live = serve(_node(2))
    shown = view(java_script_enabled=scripts).load(live.url)
    link = shown.page.locator("#headline a")
    expect(link).to_have_text("GPU 1")
    link.click()
    expect(shown.page).to_have_url(f"{live.url}/gpu/{_gpu(1).device.uuid}")
    bare = serve(snapshots.snapshot(snapshots.bare(0), snapshots.bare(1)))
    shown.load(bare.url)
    expect(shown.page.locator("#headline")).to_have_text("2 GPUs do not report how busy they are")
    expect(link).to_be_hidden()
    shown.close()


@pytest.mark.parametrize("path", ["/", "/gpu/0"])
def test_the_window_is_said_once(serve: Serve, view: OpenPage, path: str) -> None:
    """Above the table, not in its rows, and as long as it is."""
    gpu = snapshots.h100_training(0)
    [share] = gpu.shares
    assert share.recent is not None
    live = serve(snapshots.snapshot(gpu, snapshots.h100_starved(1)))
    page = view().open(live.url + path).page
    expect(page.locator("#heads")).to_contain_text("means of the last 10 s")
    expect(page.locator("#gpus")).not_to_contain_text("of the last")
    begun = replace(gpu, shares=(replace(share, recent=replace(share.recent, seconds=3.0)),))
    for gpus, said in (
        ((begun, snapshots.h100_starved(1)), "means of the last 3 to 10 s"),
        ((begun,), "means of the last 3 s"),
    ):
        page.wait_for_timeout(EVENT_SECONDS * 1100)
        live.publish(
            replace(snapshots.snapshot(*gpus), timestamp_seconds=snapshots.NOW + len(said))
        )
        expect(page.locator("#window")).to_have_text(said)


@pytest.mark.parametrize("path", ["/", "/gpu/0"])
def test_the_key_explains_the_hatch_where_there_is_one(
    serve: Serve, view: OpenPage, path: str
) -> None:
    """Utilization and saturation always, their bounds only beside a bar that has them."""
    for gpu, said in (
        (snapshots.h100_training(0), ["utilization", "saturation"]),
        (snapshots.t4_estimate(0), ["utilization", "saturation", "between its bounds"]),
    ):
        page = view().open(serve(snapshots.snapshot(gpu)).url + path).page
        expect(page.locator("#heads li:visible")).to_have_text(said)


_MODELS = (
    *("h100-sxm5-80gb", "a100-sxm4-80gb", "v100-sxm2-16gb", "t4", "rtx-4090", "l40s", "a10"),
    *("b200", "h200-sxm", "rtx-3090"),
)


@pytest.mark.slow
def test_no_line_strikes_through_the_label_of_a_roof(
    start: StartDaemon, view: OpenPage, tmp_path: Any
) -> None:
    """Of ten GPU models, alone and with the roof at its clock, on a phone and on a laptop."""
    scenario = tmp_path / "models.yaml"
    gpus = "\n".join(f"  - {{spec: {spec}, story: training}}" for spec in _MODELS)
    scenario.write_text(f"gpus:\n{gpus}\n", encoding="utf-8")
    daemon = start({}, "--demo", f"--demo.scenario={scenario}", wait_for=len(_MODELS))
    shown = view().open(daemon.url)
    page = shown.page
    models = page.locator("#model option").evaluate_all("(all) => all.map(({value}) => value)")
    assert len(models) == len(_MODELS)
    for index in range(len(_MODELS)):
        shown.row(f"GPU {index}").locator(".state").click()
        name = page.locator("#model option:checked").inner_text()
        for size in ("phone", "laptop"):
            shown.resize(size)
            struck = [each for each in page.evaluate(FAULTS) if each.startswith("a line strikes")]
            assert struck == [], (name, size)
            labels = page.locator("svg.roofline .ceiling:visible").all_text_contents()
            assert any(re.search(r"tensor|FP32", each) for each in labels), (name, size, labels)
