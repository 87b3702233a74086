# SPDX-License-Identifier: Apache-2.0
"""How the pages are laid out, from a phone to a wall: nothing is cut, covered or left empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect

from exporter.model.snapshot import Bounds, Gpu, Roofline, Snapshot
from tests import snapshots
from tests.e2e.browser import SCHEMES, SIZES
from tests.e2e.conftest import OpenPage, Serve
from tests.web.at_work import at_work

LEAST_USED = 0.58
"""Share of the window that cards take, as the page is opened."""

# Each letter of a chart's labels as a box on the screen, with the label it is of.
FAULTS = """() => {
  const found = [];
  const say = (kind, what) => found.push(`${kind}: ${what}`);
  const shown = (node) => node.checkVisibility({visibilityProperty: true});
  const wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth) say("wider than the window", wide.scrollWidth);

  const plot = document.querySelector("svg.roofline");
  const labels = [...plot.querySelectorAll("text")].filter(shown);
  const names = labels.map(({textContent}) => textContent);
  const letters = labels.map((text) => {
    const matrix = text.getScreenCTM();
    return Array.from({length: text.getNumberOfChars()}, (_, at) => {
      const box = text.getExtentOfChar(at);
      const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
      const {x, y} = middle.matrixTransform(matrix);
      return [x, y, box.width / 2, box.height / 3];
    });
  });
  const covers = ([x, y, w, h], [u, v, width, height]) =>
    Math.abs(x - u) < w + width - 1 && Math.abs(y - v) < h + height - 1;
  letters.forEach((one, index) => letters.slice(index + 1).forEach((other, more) => {
    if (one.some((letter) => other.some((each) => covers(letter, each))))
      say("labels overlap", `${names[index]} / ${names[index + 1 + more]}`);
  }));
  const edge = plot.getBoundingClientRect();
  letters.forEach((one, index) => {
    if (one.some(([x, y, w]) => x - w < edge.left - 1 || x + w > edge.right + 1))
      say("label is cut", names[index]);
  });
  for (const dot of plot.querySelectorAll(".point:not([hidden]) .dot")) {
    const box = dot.getBoundingClientRect();
    const [wide, high] = [box.width, box.height];
    const place = [box.left + wide / 2, box.top + high / 2, wide / 3, high / 3];
    letters.forEach((one, index) => {
      if (one.some((letter) => covers(letter, place))) say("a point covers", names[index]);
    });
  }

  const strokes = [...plot.querySelectorAll(".roof, .ridge")].flatMap((path) => {
    const [matrix, length] = [path.getScreenCTM(), path.getTotalLength()];
    return Array.from({length: Math.ceil(length)}, (_, at) => {
      const {x, y} = path.getPointAtLength(at).matrixTransform(matrix);
      return [x, y, 0, 0];
    });
  });
  labels.forEach((label, index) => {
    const struck = (letter) => strokes.some((each) => covers(letter, each));
    if (label.matches(".ceiling") && letters[index].some(struck))
      say("a line strikes through", names[index]);
  });

  for (const node of document.querySelectorAll("main *")) {
    const spoken = getComputedStyle(node).clipPath !== "none";  // not to be seen
    const scrolls = node.matches(".scroll") && innerWidth < 760;
    if (!shown(node) || spoken || scrolls || node.closest("svg")) continue;
    const {overflowX, overflowY} = getComputedStyle(node);
    const cut = (overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1)
      || (overflowY !== "visible" && node.scrollHeight > node.clientHeight + 1);
    if (cut && node.clientWidth && !node.title) say("cut", node.outerHTML.slice(0, 100));
  }
  for (const row of document.querySelectorAll("#gpus tr")) {
    const words = [...row.querySelectorAll("a, b, small, .value")].filter(shown);
    const boxes = words.map((each) => [each.getBoundingClientRect(), each.textContent]);
    boxes.forEach(([one, said], index) => boxes.slice(index + 1).forEach(([other, more]) => {
      const apart = one.right <= other.left + 1 || other.right <= one.left + 1
        || one.bottom <= other.top + 4 || other.bottom <= one.top + 4;
      if (!apart && one.width && other.width) say("words overlap", `${said} / ${more}`);
    }));
  }
  for (const cell of document.querySelectorAll("main :is(th, td, dt, h2, summary)")) {
    if (!shown(cell)) continue;
    const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
      for (const {0: word, index} of words.currentNode.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(words.currentNode, index);
        range.setEnd(words.currentNode, index + word.length);
        const lines = [...range.getClientRects()].filter(({width}) => width > 0);
        if (lines.some(({top}) => Math.abs(top - lines[0].top) > 3)) say("broken word", word);
      }
    }
  }
  return found;
}"""
# How much of the window cards cover.
_USED = """() => {
  let used = 0;
  for (const card of document.querySelectorAll("#node > section")) {
    const {left, right, top, bottom} = card.getBoundingClientRect();
    used += Math.max(0, Math.min(right, innerWidth) - left)
      * Math.max(0, Math.min(bottom, innerHeight) - top);
  }
  return used / (innerWidth * innerHeight);
}"""


def _spread(index: int) -> Gpu:
    """One of several GPUs that are near to each other below the roof, where its labels are."""
    work, traffic = 60e12 * (1 + 1.7 * index), (0.3 + 0.2 * (index % 5)) * 1e12
    gpu = at_work(work, traffic)
    device = replace(gpu.device, index=index, uuid=f"GPU-11111111-2222-3333-4444-{index:012d}")
    return replace(gpu, device=device)


def _uncounted(index: int) -> Gpu:
    """A GPU without counters, busy for another part of the time."""
    gpu, busy = snapshots.t4_estimate(index), (0.43, 0.99, 0.97, 0.05, 0.6, 1.0, 0.15, 0.97)[index]
    [share] = gpu.shares
    assert share.saturation is not None
    bounds = dict.fromkeys(share.saturation.unmeasured, Bounds(0.0, busy))
    saturation = replace(share.saturation, bounds=Bounds(0.0, busy), unmeasured=bounds)
    roofline = Roofline(flops_bounds_per_second=Bounds(0.0, busy * 65e12))
    return replace(gpu, shares=(replace(share, saturation=saturation, roofline=roofline),))


def _various(index: int) -> Gpu:
    """One of many GPUs, of which some are in trouble, and several in the same place."""
    kinds = (snapshots.h100_training, snapshots.h100_starved, snapshots.h100_idle, snapshots.lost)
    gpu = _spread(index % 8) if index % 2 else kinds[index // 2 % 4](index)
    device = replace(gpu.device, index=index, uuid=f"GPU-11111111-2222-3333-4444-{index:012d}")
    return replace(gpu, device=device)


def _divided(index: int) -> Gpu:
    gpu = snapshots.h100_mig(index)
    uuid = f"GPU-11111111-2222-3333-4444-{index:012d}"
    return replace(gpu, device=replace(gpu.device, index=index, uuid=uuid))


NODES: dict[str, Snapshot] = {
    "one": snapshots.with_training(
        snapshots.snapshot(snapshots.h100_training(0)), snapshots.rank_on_gpu(0)
    ),
    "two": snapshots.snapshot(_spread(0), _spread(1)),
    "eight": snapshots.snapshot(*(_spread(index) for index in range(8))),
    "sixteen": snapshots.snapshot(*(_spread(index) for index in range(16))),
    "uncounted": snapshots.snapshot(snapshots.t4_estimate(0)),
    "eight-uncounted": snapshots.snapshot(*(_uncounted(index) for index in range(8))),
    "sixty-four": snapshots.snapshot(*map(_various, range(64))),
    "many-divided": snapshots.snapshot(*map(_divided, range(8))),
    "divided": snapshots.snapshot(snapshots.h100_mig(0), snapshots.h100_mig(1)),
    "mixed": snapshots.EXAMPLES["mixed"],
}


OF_KINDS = {"two", "sixteen", "sixty-four", "divided", "many-divided", "uncounted"}
"""`make test` tries one of each kind: MIG instances are in "mixed", too."""


@pytest.mark.parametrize(
    "node",
    [pytest.param(node, marks=pytest.mark.slow if node in OF_KINDS else ()) for node in NODES],
)
def test_the_node_at_every_size(serve: Serve, view: OpenPage, node: str) -> None:
    """No label over another, nothing cut, no word broken, the window used, in both schemes."""
    shown = view("phone").open(serve(NODES[node]).url)
    page = shown.page
    faults: dict[str, Any] = {}
    for size in SIZES:
        shown.resize(size)
        used = page.evaluate(_USED)
        page.locator("#numbers summary").click()
        faults[size] = page.evaluate(FAULTS)
        page.locator("#numbers summary").click()
        if used < LEAST_USED:
            faults[size].append(f"only {used:.0%} of the window is used")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        faults[scheme] = shown.findings()
    assert not any(faults.values()), faults


BESIDE = """() => {
  const [roofline, use] = ["chart", "chart-use"].map(
    (id) => document.getElementById(id)?.getBoundingClientRect());
  return !roofline?.height || !use?.height || roofline.y === use.y;
}"""
"""Whether the first chart of the history is beside the roofline, where both are shown."""


@pytest.mark.parametrize(("node", "ceilings"), [("one", 11), ("uncounted", 6)])
def test_the_view_of_one_gpu_at_every_size(
    serve: Serve, view: OpenPage, node: str, ceilings: int
) -> None:
    """All ceilings and heads are seen without scrolling, with all tables unfolded."""
    history = (
        replace(NODES[node], timestamp_seconds=snapshots.NOW + second) for second in range(90)
    )
    shown = view("phone").open(f"{serve(*history).url}/gpu/0")
    page = shown.page
    expect(page.locator("#chart-power canvas")).to_be_visible()
    for summary in page.locator("main summary:visible").all():
        summary.click()
    expect(page.locator("#table-clock tbody tr")).to_have_count(3)
    heads = ["Time", "SM clock", *(["throttled by"] if node == "one" else [])]  # not read of a T4
    expect(page.locator("#table-clock thead th")).to_have_text(heads)
    expect(page.locator("#ceilings tbody tr")).to_have_count(ceilings)
    faults = {}
    for size in SIZES:
        shown.resize(size)
        if size != "phone":
            page.wait_for_function(BESIDE)
        faults[size] = page.evaluate(FAULTS)
    assert not any(faults.values()), faults
