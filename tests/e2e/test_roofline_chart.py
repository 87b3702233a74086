# SPDX-License-Identifier: Apache-2.0
"""The roofline in a real Chromium: drawn where its numbers are, for mouse and keyboard."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect

from exporter.model.snapshot import Bounds, Recent, Roofline, Snapshot
from exporter.web.live.stream import EVENT_SECONDS
from tests import snapshots
from tests.e2e.browser import SIZES, View
from tests.e2e.conftest import OpenPage, Serve
from tests.e2e.processes import retry_once
from tests.web.at_work import at_work

TOLERANCE_PIXELS = 2.0
MIXED = snapshots.EXAMPLES["mixed"]

# Where the axes put a value, as read from the ticks that are labelled with theirs.
_TICKS = """(axis) => [...document.querySelectorAll(`#roofline [data-${axis}]`)].map((tick) => {
  const lines = [...document.querySelectorAll("#roofline .grid path.line")];
  const labels = [...document.querySelectorAll("#roofline .grid text.tick")];
  const box = lines[labels.indexOf(tick)].getBoundingClientRect();
  const value = Number(tick.dataset[axis]);
  return [value, axis === "intensity" ? box.left + box.width / 2 : box.top + box.height / 2];
})"""
_CENTRE = """(node) => { const box = node.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2]; }"""
_CORNERS = """(node) => {
  const matrix = node.getScreenCTM();
  const length = node.getTotalLength();
  const at = (share) => { const p = node.getPointAtLength(length * share).matrixTransform(matrix);
    return [p.x, p.y]; };
  return [at(0), at(1)];
}"""


def _axis(shown: View, name: str) -> Any:
    """Return a function from a value to the pixel that two of the axis' ticks say."""
    ticks = shown.page.evaluate(_TICKS, name)
    assert len(ticks) >= 3
    (low, start), *_, (high, end) = ticks

    def at(value: float) -> float:
        share = math.log(value / low) / math.log(high / low)
        return float(start + share * (end - start))

    for value, pixel in ticks:
        assert at(value) == pytest.approx(pixel, abs=0.6), "the axis is not logarithmic"
    return at


_POINTS = """(node) => {
  const matrix = node.getScreenCTM();
  return [...node.getAttribute("d").matchAll(/([\\d.-]+) ([\\d.-]+)/g)].map(([, x, y]) => {
    const at = new DOMPoint(x, y).matrixTransform(matrix);
    return [at.x, at.y];
  });
}"""


@pytest.mark.parametrize("size", SIZES)
@retry_once
def test_points_and_roofs_lie_where_their_numbers_are(
    serve: Serve, view: OpenPage, size: str
) -> None:
    """Within 2 pixels, by the labelled ticks: a point, the ceilings, the slope and the ridge.

    Once more if not: the page may lay itself out between two looks at it.
    """
    gpu = snapshots.h100_training(0)
    shown = view(size).open(serve(snapshots.snapshot(gpu)).url)
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")
    roofline, ceilings = gpu.shares[0].roofline, gpu.shares[0].ceilings
    assert roofline is not None
    assert ceilings is not None
    intensity = roofline.intensity_flops_per_byte
    assert intensity is not None
    work = sum(roofline.flops_per_second.values())
    dot = shown.page.locator("#roofline .point .dot")
    left, top = dot.evaluate(_CENTRE)
    assert left == pytest.approx(x(intensity), abs=TOLERANCE_PIXELS)
    assert top == pytest.approx(y(work), abs=TOLERANCE_PIXELS)
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    assert bandwidth is not None
    for kind, peak, slope in (
        ("spec.assumed", 989.4e12, bandwidth),
        ("achievable.assumed", 0.8 * 989.4e12, 0.9 * bandwidth),
    ):
        roof = shown.page.locator(f"#roofline .roofs .roof.{kind}").first
        (from_x, from_y), (to_x, to_y) = roof.evaluate(_CORNERS)
        assert to_y == pytest.approx(y(peak), abs=TOLERANCE_PIXELS)
        start = 10 ** _inverse(x, from_x)
        assert from_y == pytest.approx(y(start * slope), abs=TOLERANCE_PIXELS)
        assert to_x > from_x
    knee = shown.page.locator("#roofline .knee").evaluate(_CENTRE)
    assert knee[0] == pytest.approx(x(989.4e12 / bandwidth), abs=TOLERANCE_PIXELS)
    assert knee[1] == pytest.approx(y(989.4e12), abs=TOLERANCE_PIXELS)


def _inverse(axis: Any, pixel: float) -> float:
    """Return log10 of the value at a pixel of an axis."""
    one, ten = axis(1.0), axis(10.0)
    return float((pixel - one) / (ten - one))


def test_ceilings_are_labelled(serve: Serve, view: OpenPage) -> None:
    """Each precision's name and peak stand on its line, with slope and ridge."""
    page = view().open(serve(snapshots.snapshot(snapshots.h100_training(0))).url).page
    text = " ".join(page.locator("#roofline svg.roofline text").all_text_contents())
    for label in ("FP16/BF16 tensor", "FP8", "TF32", "FP64", "DRAM 3.35 TB/s", "ridge 295 FLOP/B"):
        assert label in text, text


def test_hover_click_and_keys(serve: Serve, view: OpenPage) -> None:
    """Hover gives the numbers, a click selects the GPU, and so do the arrow keys and Enter."""
    node = snapshots.snapshot(snapshots.h100_training(0), snapshots.h100_training(1))
    shown = view().open(serve(node).url)
    page = shown.page
    point = page.get_by_role("button", name="GPU 1")
    page.locator("#roofline .point .dot").last.hover()
    tip = page.locator("#roofline .tip")
    expect(tip).to_contain_text("FLOP/s at")
    expect(tip).to_contain_text("(spec)")
    page.locator("#roofline .point .dot").last.click()
    expect(shown.row("GPU 1")).to_have_class(re.compile(r"\bselected$"))
    expect(page.locator("#selected a")).to_have_text("Open GPU 1")
    expect(page.locator("#roofline .clock path")).to_have_count(1)
    page.locator("#roofline .point.selected").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="GPU 0")).to_have_attribute("aria-pressed", "true")
    expect(point).to_have_attribute("aria-pressed", "false")
    shown.row("GPU 1").locator(".state").click()
    expect(point).to_have_attribute("aria-pressed", "true")


def test_gpu_models_and_bounds(serve: Serve, view: OpenPage) -> None:
    """Each set of ceilings can be chosen; a GPU without counters is a ring."""
    live = serve(MIXED)
    shown = view().open(live.url)
    page = shown.page
    models = page.locator("#model option")
    expect(models).to_have_count(3)
    page.locator("#model").select_option(label="\u2068T4\u2069 (1)")
    point = page.locator("#roofline .point:not([hidden])")
    expect(point).to_have_count(1)
    expect(point).to_have_class("point series-1 estimate")
    expect(point).to_have_attribute(
        "aria-label", re.compile(r"^GPU 1: about 12.0 TFLOP/s at about \d+ FLOP/B, from the job")
    )
    shown.screenshot("bounds")
    shown.row("GPU 2/1").locator(".state").click()
    expect(page.locator("#model")).to_have_value("h100-sxm5-80gb/60sm/4of8/bf16_tensor")
    expect(page.locator("svg.roofline")).to_contain_text("2/1")
    # Its bounds are in words above the charts: it is not that nothing is known.
    absent = shown.open(f"{live.url}/gpu/1").page.locator("#absent")
    expect(absent).to_have_text(re.compile("^Not measured or reported: Where the time goes, "))


AREAS: Sequence[tuple[tuple[float, float], tuple[float, float], list[tuple[float, float]]]] = (
    # The slope meets the left edge above the bottom.
    ((0, 8e12), (0, 320e9), [(0.1, 1e10), (0.1, 3.2e10), (25, 8e12), (1e4, 8e12), (1e4, 1e10)]),
    # It starts at the bottom.
    ((0, 8e12), (0, 50e9), [(0.2, 1e10), (160, 8e12), (1e4, 8e12), (1e4, 1e10)]),
    # All of the work is possible at the left edge.
    ((0, 2e10), (0, 320e9), [(0.1, 1e10), (0.1, 2e10), (1e4, 2e10), (1e4, 1e10)]),
    # The least traffic is a slope as well, cut at the right edge.
    (
        (1e12, 8e12),
        (2e8, 8e10),
        [(12.5, 1e12), (100, 8e12), (1e4, 8e12), (1e4, 2e12), (5000, 1e12)],
    ),
)
"""Bounds of work and traffic, and the corners between them."""


def test_the_area_of_an_estimate_follows_its_bounds(serve: Serve, view: OpenPage) -> None:
    """On axes from 0.1 to 1e4 FLOP/B and from 1e10 FLOP/s; known by hand."""
    shown = view().open(serve(snapshots.EXAMPLES["idle"]).url)
    found = shown.page.evaluate(
        """async (bounds) => {
          const {boundsCorners} = await import(
            document.querySelector("link[href$='geometry.js']").href);
          return bounds.map((each) => boundsCorners(...each, [0.1, 1e4], 1e10));
        }""",
        [[work, traffic] for work, traffic, _ in AREAS],
    )
    for area, (*_, corners) in zip(found, AREAS, strict=True):
        assert [corner for corner, _ in itertools.groupby(area)] == [
            pytest.approx(corner) for corner in corners
        ]


def _t4(**seen: Any) -> Snapshot:
    """A T4 beside one that is idle: D = 0.2 +- 0.12 of 320 GB/s is likely, 0.4 is the most."""
    t4 = snapshots.t4_estimate(1)
    [share] = t4.shares
    recent = Recent(
        seconds=10.0,
        saturation_bounds=Bounds(0.0, 0.4),
        flops_bounds_per_second=Bounds(0.0, 26e12),
        dram_bounds_bytes_per_second=Bounds(0.0, 0.4 * 320e9),
        estimates={"dram": 0.2},
        dram_estimate_bytes_per_second=64e9,
    )
    t4 = replace(t4, shares=(replace(share, recent=replace(recent, **seen)),))
    return snapshots.snapshot(replace(snapshots.t4_estimate(0), shares=()), t4)


def test_a_gpu_without_counters_and_work_is_a_band(serve: Serve, view: OpenPage) -> None:
    """FLOP/s = intensity x likely bytes/s, up to the most that its utilization allows."""
    shown = view().open(serve(_t4()).url)
    page = shown.page
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")
    assert page.locator("#roofline .points circle").count() == 0
    few, many, work = 0.08 * 320e9, 0.32 * 320e9, 26e12
    corners = page.locator("#roofline .region").evaluate(_POINTS)
    for corner, place in (
        (corners[1], (1, many)),
        (corners[3], (work / many, work)),
        (corners[4], (work / few, work)),
    ):
        assert [x(place[0]), y(place[1])] == pytest.approx(corner, abs=TOLERANCE_PIXELS)
    assert page.locator("#roofline .name", has_text="GPU 1 somewhere on this band").count() == 1
    band = shown.row("GPU 1").locator("[data-bar=band]")
    assert band.evaluate("(rect) => [rect.x, rect.width].map((each) => each.baseVal.value)") == [
        pytest.approx(each, abs=1)
        for each in band.evaluate("({ownerSVGElement}) => [0, 0.4 * ownerSVGElement.clientWidth]")
    ]
    assert "#hatch" in band.evaluate("(rect) => getComputedStyle(rect).fill")
    page.mouse.move(x(200), y(200 * 0.2 * 320e9))
    said = "somewhere below 26.0 TFLOP/s, at most 128 GB/s"
    expect(page.locator("#tip")).to_contain_text(said)
    page.mouse.click(x(200), y(200 * 0.2 * 320e9))
    expect(shown.row("GPU 1")).to_have_class(re.compile(r"\bselected$"))
    page.locator("#numbers summary").click()
    row = page.locator("#numbers tbody tr").last
    expect(row).to_contain_text(f"{said} of DRAM traffic, likely 25.6 GB/s to 102 GB/s")
    shown.screenshot("band")
    assert shown.findings() == []


def test_counted_work_over_likely_traffic_is_a_dot_with_bars(serve: Serve, view: OpenPage) -> None:
    """The ring is no measured dot; its bars span the bounds, to the right without an end."""
    node = _t4(stated_flops_per_second=8e12, flops_bounds_per_second=Bounds(5e12, 26e12))
    shown = view().open(serve(node).url)
    page = shown.page
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")
    point = page.locator("#roofline .point:not([hidden])")
    expect(point).to_have_class("point series-1 estimate")
    ring = point.locator(".dot")
    assert ring.evaluate(_CENTRE) == pytest.approx([x(125), y(8e12)], abs=TOLERANCE_PIXELS)
    white = page.locator(".card, #node > section").first
    surface = white.evaluate("(node) => getComputedStyle(node).backgroundColor")
    assert ring.evaluate("(node) => getComputedStyle(node).fill") == surface
    start, foot, *_ = page.locator("#roofline .bounds .bar:not([hidden])").evaluate(_POINTS)
    assert start == pytest.approx([x(8e12 / 128e9), y(8e12)], abs=TOLERANCE_PIXELS)
    assert foot == pytest.approx([x(125), y(5e12)], abs=TOLERANCE_PIXELS)
    expect(point).to_have_attribute(
        "aria-label",
        re.compile("^GPU 1: about 8.00 TFLOP/s at about 125 FLOP/B, from the job and the driver"),
    )
    assert page.locator("#roofline .region").get_attribute("d") == ""
    shown.screenshot("dot")
    assert shown.findings() == []


def test_without_an_estimate_a_gpu_without_counters_has_no_place(
    serve: Serve, view: OpenPage
) -> None:
    """What its utilization alone allows would fill the chart."""
    shown = view().open(serve(_t4(estimates={})).url)
    expect(shown.page.locator("#roofline .region")).to_have_attribute("d", "")
    expect(shown.page.locator("#roofline .note")).to_contain_text("Not on the chart")


def test_bands_of_many_do_not_hide_what_is_below(serve: Serve, view: OpenPage) -> None:
    """Only that of the selected GPU is filled, so that 64 of one kind are no opaque area."""
    gpus = [snapshots.t4_estimate(index) for index in range(17)]
    shown = view().open(serve(snapshots.snapshot(*gpus)).url)
    bands = shown.page.locator("#roofline .region")
    expect(bands).to_have_count(17)
    filled = "(nodes) => nodes.filter((node) => getComputedStyle(node).fillOpacity > 0).length"
    assert bands.evaluate_all(filled) == 0
    shown.row("GPU 3").click()
    expect(shown.row("GPU 3")).to_have_class(re.compile(r"\bselected$"))
    assert bands.evaluate_all(filled) == 1


def test_a_band_stays_below_the_roofs(serve: Serve, view: OpenPage) -> None:
    """At a clock above the datasheet's; DRAM that is counted beside pipes that are not, a line."""
    t4 = snapshots.t4_estimate(1)
    [share] = t4.shares
    assert share.saturation is not None
    roofline = Roofline(
        flops_bounds_per_second=Bounds(0.0, 400e12),
        dram_bounds_bytes_per_second=Bounds(0.0, 400e9),
        dram_estimate_bytes_per_second=400e9,
    )
    above = replace(share, roofline=roofline)
    unmeasured = {key: Bounds(0.0, 1.0) for key in ("tensor", "fma", "sm", "dram")}
    high = replace(
        share.saturation,
        bounds=Bounds(0.0, 1.0),
        unmeasured=unmeasured,
        estimates={"dram": 0.9},
    )
    live = serve(snapshots.snapshot(replace(t4, shares=(replace(above, saturation=high),))))
    shown = view().open(live.url)
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")
    corners = shown.page.locator("#roofline .region").evaluate(_POINTS)
    assert [x(260e12 / 320e9), y(260e12)] == pytest.approx(corners[3], abs=TOLERANCE_PIXELS)
    counted = replace(
        share.saturation, unmeasured={key: Bounds(0.0, 0.43) for key in ("tensor", "fma", "sm")}
    )
    roofline = Roofline(
        flops_per_second={"fp32": 1e12},
        flops_bounds_per_second=Bounds(1e12, 8e12),
        dram_bytes_per_second=1e11,
    )
    partly = replace(share, saturation=counted, roofline=roofline)
    node = snapshots.snapshot(replace(t4, shares=(partly,)))
    live.publish(replace(node, timestamp_seconds=snapshots.NOW + 1))
    point = shown.page.locator("#roofline .point")
    expect(point).to_have_attribute(
        "aria-label",
        "GPU 1: somewhere from 1.00 TFLOP/s to 8.00 TFLOP/s, 100 GB/s of DRAM traffic",
    )
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")  # what is above it may have wrapped
    edge = shown.page.locator("#roofline .edge").evaluate(_POINTS)
    assert [x(10), y(1e12)] == pytest.approx(edge[0], abs=TOLERANCE_PIXELS)
    assert [x(80), y(8e12)] == pytest.approx(edge[-1], abs=TOLERANCE_PIXELS)


def test_the_legend_names_what_is_drawn(serve: Serve, view: OpenPage) -> None:
    """The clock's roof only over the ceilings that the selected GPU has."""
    h100, t4 = snapshots.h100_training(0), snapshots.t4_estimate(1)
    shown = view().open(serve(snapshots.snapshot(h100, t4)).url)
    page = shown.page
    legend = page.locator("#roofline .legend li:visible")
    clock = page.locator("#roofline .clock path")
    clock_words = re.compile(r"at the clock of GPU 0, 1\.\d+ GHz")
    trail = re.compile("measured, with its last three minutes")
    expect(legend).to_have_text(["datasheet", "best public kernels", trail])
    shown.row("GPU 0").locator(".state").click()
    expect(legend).to_have_text(
        ["datasheet", "best public kernels", clock_words, trail, re.compile("bounds")]
    )
    expect(clock).to_have_count(1)
    page.locator("#model").select_option(index=1)
    estimate = [re.compile("from the job and the driver"), re.compile("bounds")]
    expect(legend).to_have_text(["datasheet", *estimate])
    expect(clock).to_have_count(0)
    shown.row("GPU 1").locator(".state").click()
    expect(legend).to_have_text(["datasheet", re.compile("at the clock of GPU 1, "), *estimate])
    expect(clock).to_have_count(1)


def test_a_page_of_one_gpu_draws_its_own_roof(serve: Serve, view: OpenPage) -> None:
    """Also of a lost GPU on a node of several GPU models; none is offered that it does not have."""
    t4 = snapshots.t4_estimate(1)
    gone = replace(t4, up=False, down_reason="lost", shares=())
    lost = serve(snapshots.snapshot(snapshots.h100_training(0), snapshots.h100_training(2), gone))
    for path, bandwidth in (("gpu/1", "DRAM 320 GB/s"), ("gpu/0", "DRAM 3.35 TB/s")):
        page = view().open(f"{lost.url}/{path}").page
        expect(page.locator("#roofline .marks")).to_contain_text(bandwidth)
        expect(page.locator("#roofline .model")).to_be_hidden()
        expect(page.locator("#model option")).to_have_count(1)
    expect(page.locator("#model option")).to_have_text("\u2068H100 80GB HBM3\u2069 (1)")
    unknown = replace(gone, ceilings=None)
    live = serve(snapshots.snapshot(snapshots.h100_training(0), unknown))
    expect(view().open(f"{live.url}/gpu/1").page.locator("#chart")).to_be_hidden()


def test_a_gpu_without_ceilings_is_named(serve: Serve, view: OpenPage) -> None:
    """Below the chart, beside others as alone: it lacks a roof, not work."""
    unknown = snapshots.bare(5)
    text = "Not on the chart, for lack of known ceilings: GPU 5."
    for node in ((snapshots.h100_training(0), unknown), (unknown,)):
        page = view().open(serve(snapshots.snapshot(*node)).url).page
        expect(page.locator("#roofline .note")).to_have_text(text)
        table = page.locator("#numbers")
        table.locator("summary").click()
        expect(table.locator("tr", has_text="GPU 5")).to_contain_text("ceilings are not known")


BEFORE_THE_HOLE, AFTER_THE_HOLE = (2e13, 4e11), (3e14, 1e12)
"""FLOP/s and bytes/s."""
_TRAIL = """() => [...document.querySelectorAll("#roofline .trail path[d^=M]")].map((path) => {
  const matrix = path.getScreenCTM();
  return [...path.getAttribute("d").matchAll(/([ML])([\\d.-]+) ([\\d.-]+)/g)].map((found) => {
    const at = new DOMPoint(found[2], found[3]).matrixTransform(matrix);
    return [found[1], at.x, at.y];
  });
}).filter((path) => path.length)"""


def _at_work(second: float, work: float, traffic: float) -> Snapshot:
    """An H100 so many seconds after the start."""
    node = snapshots.snapshot(at_work(work, traffic))
    return replace(node, timestamp_seconds=snapshots.NOW + second)


@pytest.mark.parametrize("path", ["/", "/gpu/0"])
def test_the_trail_is_there_when_the_page_opens(serve: Serve, view: OpenPage, path: str) -> None:
    """Where the GPU was is drawn within 2 pixels, and not across the time without readings."""
    history = [(second, *BEFORE_THE_HOLE) for second in range(60)]
    history += [(second, *AFTER_THE_HOLE) for second in range(100, 140)]
    live = serve(*(_at_work(*each) for each in history))
    shown = view().open(live.url + path)
    expect(shown.page.locator("#roofline .trail path[d^=M]")).to_have_count(5)
    x, y = _axis(shown, "intensity"), _axis(shown, "flops")
    places = [(x(work / traffic), y(work)) for work, traffic in (BEFORE_THE_HOLE, AFTER_THE_HOLE)]
    paths = shown.page.evaluate(_TRAIL)
    seen = set()
    for pieces in paths:
        on_it = {
            index
            for _, left, top in pieces
            for index, place in enumerate(places)
            if (left, top) == pytest.approx(place, abs=TOLERANCE_PIXELS)
        }
        assert len(on_it) == 1, "a piece lies elsewhere, or leads across the hole"
        seen |= on_it
    assert seen == {0, 1}
    # The stream goes on where the history ends.
    live.publish(_at_work(140, *AFTER_THE_HOLE))
    expect(shown.page.locator("#roofline .trail path[d^=M]")).to_have_count(6)
    assert {step for pieces in shown.page.evaluate(_TRAIL)[1:] for step, *_ in pieces} == {"M", "L"}


def test_a_hole_in_the_stream_is_none_in_the_trail(serve: Serve, view: OpenPage) -> None:
    """After a time without readings a trail begins anew instead of jumping."""
    live = serve(_at_work(0, *BEFORE_THE_HOLE), _at_work(1, *BEFORE_THE_HOLE))
    shown = view().open(live.url)
    for second, place in ((2, BEFORE_THE_HOLE), (42, AFTER_THE_HOLE), (43, AFTER_THE_HOLE)):
        live.publish(_at_work(second, *place))
        shown.page.wait_for_timeout(EVENT_SECONDS * 1100)
    expect(shown.page.locator("#roofline .trail path[d^=M]")).to_have_count(2)
    *_, newest = shown.page.evaluate(_TRAIL)
    assert [step for step, *_ in newest] == ["M", "L"]
    (_, *first), (_, *second) = newest
    assert first == pytest.approx(second, abs=0.1)


def test_the_axes_hold_the_trail(serve: Serve, view: OpenPage) -> None:
    """Where a GPU was outside of the usual ranges they are wider, by whole decades."""
    live = serve(*(_at_work(second, 3e10, 1e11) for second in range(30)), _at_work(30, 3e14, 1e12))
    page = view().open(live.url).page
    expect(page.locator("#roofline [data-intensity='0.1']")).to_have_count(1)
    expect(page.locator("#roofline [data-flops='10000000000']")).to_have_count(1)
