# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium: what they say, draw, load and cost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
from playwright.sync_api import expect

from exporter.model.reading import Process
from exporter.model.snapshot import Bounds, Holder, Snapshot
from exporter.model.workload import ShareWork
from exporter.web.live.stream import EVENT_SECONDS
from tests import snapshots
from tests.conftest import MEASURED
from tests.e2e import browser
from tests.e2e.browser import SCHEMES, SIZES, View
from tests.e2e.conftest import OpenPage, Serve, StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import retry_once

GPUS = 8

MOST_MAIN_THREAD = 0.1
AUDITED = ("phone", "laptop")
"""Between these sizes the layout changes, and with it what can be found wrong."""
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The demo, once it has read every GPU; one for all that changes nothing of it."""
    daemon = Daemon(tmp_path_factory.mktemp("demo"), {}, ("--demo",))
    try:
        daemon.wait_for_gpus(GPUS)
        yield daemon
    finally:
        daemon.kill()


# How often each live region says something else.
_LISTEN = """() => { window.said = [];
  for (const region of document.querySelectorAll("[role=status], [aria-live]"))
    new MutationObserver(() => window.said.push(region.textContent.trim()))
      .observe(region, {subtree: true, childList: true, characterData: true}); }"""


def _fits(shown: View, size: str) -> bool:
    """Whether nothing has to be scrolled sideways for."""
    wide: int = shown.page.evaluate("document.documentElement.scrollWidth")
    return wide <= SIZES[size][0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_demo(demo: Daemon, view: OpenPage, scheme: str) -> None:
    """Rows, sentence, totals, roofline and banner in every size, without a serious finding."""
    shown = view("phone", color_scheme=scheme).open(demo.url)
    page = shown.page
    for size in SIZES:
        shown.resize(size)
        expect(page.locator("#gpus tbody tr")).to_have_count(GPUS)
        expect(page.locator("#banner")).to_contain_text("simulated")
        expect(page.locator("#headline")).not_to_be_empty()
        expect(page.locator("#totals")).to_contain_text("8 GPUs:")
        expect(shown.row("GPU 0")).to_contain_text("limited by compute")
        expect(shown.row("GPU 3")).to_contain_text("underused")
        expect(shown.row("GPU 6")).to_contain_text("software power cap")
        expect(page.locator("svg.roofline .point:not([hidden])").first).to_be_visible()
        assert _fits(shown, size)
        shown.screenshot(f"node-{size}-{scheme}", whole=True)
        if size in AUDITED:
            assert shown.findings(fingers=True) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_gpu_of_the_demo(demo: Daemon, view: OpenPage, scheme: str) -> None:
    """Charts with numbers, a table behind each, the job's phases, ceilings and their sources."""
    shown = view("phone", color_scheme=scheme).open(f"{demo.url}/gpu/2")
    page = shown.page
    page.locator("#chart-stall summary").click()
    for size in SIZES:
        shown.resize(size)
        expect(page.locator(".u-wrap canvas")).to_have_count(6)
        expect(page.locator("#chart-use .u-legend")).to_contain_text("utilization")
        expect(page.locator("#jobs")).to_contain_text("bob-training rank 0")
        expect(page.locator("#ceilings")).to_contain_text("989 TFLOP/s")
        expect(page.locator("#roofline .dot")).to_be_attached()
        assert _fits(shown, size)
        expect(page.locator("#chart-stall details tbody tr").first).to_contain_text("%")
        shown.screenshot(f"gpu-{size}-{scheme}", whole=True)
        if size in AUDITED:
            assert shown.findings(fingers=True) == []


def test_the_charts_go_on(demo: Daemon, view: OpenPage) -> None:
    """A point a second follows the history, without another request for it."""
    page = view().open(f"{demo.url}/gpu/0").page
    table = page.locator("#chart-power summary")
    newest = page.locator("#chart-power details tbody th").first
    table.click()
    expect(newest).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = newest.inner_text()
    table.click()
    page.wait_for_timeout(2500)
    table.click()
    expect(newest).not_to_have_text(before)
    assert not [url for url in asked if "history" in url]


def test_what_is_old_is_not_now(serve: Serve, view: OpenPage) -> None:
    """The legends of a GPU that was lost say nothing of it, instead of what it did last."""
    node = snapshots.snapshot(snapshots.h100_training(0))
    live = serve(node)
    page = view().open(f"{live.url}/gpu/0").page
    legend = page.locator("#chart-power .u-legend")
    expect(legend).to_contain_text("641 W")
    lost = replace(snapshots.lost(1), device=replace(snapshots.H100_DEVICE, index=0))
    away = snapshots.snapshot(lost)
    live.publish(replace(away, timestamp_seconds=node.timestamp_seconds + 2))
    page.wait_for_timeout(EVENT_SECONDS * 1100)
    live.publish(replace(away, timestamp_seconds=node.timestamp_seconds + 62))
    expect(legend).to_contain_text("not known")
    expect(legend).not_to_contain_text("641 W")
    expect(page.locator("#chart-clock .u-legend")).not_to_contain_text("nothing")


def test_the_charts_of_a_gpu_that_was_down_when_its_page_was_opened(
    serve: Serve, view: OpenPage
) -> None:
    """They come once there is a history, without another load."""
    node = snapshots.snapshot(snapshots.h100_training(0))
    lost = replace(snapshots.lost(1), device=replace(snapshots.H100_DEVICE, index=0))
    live = serve(snapshots.snapshot(lost))
    shown = view().open(f"{live.url}/gpu/0")
    expect(shown.page.locator("#gpus")).to_contain_text("lost")
    shown.wait_live()
    opened: list[str] = []
    shown.page.on("request", lambda request: opened.append(request.url))
    legend = shown.page.locator("#chart-power .u-legend")
    for second in range(60, 90):
        live.publish(replace(node, timestamp_seconds=node.timestamp_seconds + second))
        shown.page.wait_for_timeout(1000)
        if legend.count() and "641 W" in legend.inner_text():
            break
    expect(legend).to_contain_text("641 W")
    assert not [url for url in opened if "stream" in url]


def test_a_gpu_that_is_gone_is_not_shown_as_if_it_were_there(serve: Serve, view: OpenPage) -> None:
    """After a restart with other GPUs its page says so, and leads to those; it may come back."""
    node = snapshots.snapshot(snapshots.h100_training(0), snapshots.h100_training(1))
    live = serve(node)
    page = view().open(f"{live.url}/gpu/1").page
    parts = [page.locator(place) for place in ("svg.roofline", "#facts", "#gpus", "#chart-power")]
    links = page.locator("nav a:visible")
    for part in parts:
        expect(part).to_be_visible()
    expect(links).to_have_text(["All GPUs", "← GPU 0"])
    one = snapshots.snapshot(snapshots.h100_training(0))
    live.publish(replace(one, timestamp_seconds=snapshots.NOW + 1))
    expect(page.locator("#totals")).to_have_text("The exporter does not list this GPU now.")
    for part in parts:
        expect(part).to_be_hidden()
    expect(links).to_have_text(["All GPUs"])
    page.wait_for_timeout(EVENT_SECONDS * 1100)
    live.publish(replace(node, timestamp_seconds=snapshots.NOW + 3))
    for part in parts:
        expect(part).to_be_visible()
    expect(page.locator("#chart-power .u-wrap canvas")).to_be_visible()


def test_a_load_that_a_change_of_networks_ended_leaves_no_complaint(
    serve: Serve, view: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script that draws charts is missing once, and another says so."""
    monkeypatch.setattr(browser, "NETWORK_CHANGED", "ERR_CONNECTION_ABORTED")
    live = serve(snapshots.snapshot(snapshots.h100_training(0)))
    shown = view()
    shown.page.add_init_script("addEventListener('DOMContentLoaded', () => uPlot)")
    shown.page.route("**/uPlot*", lambda route: route.abort("connectionaborted"), times=1)
    shown.open(f"{live.url}/gpu/0")
    expect(shown.page.locator("#chart-power .u-wrap canvas")).to_be_visible()
    assert shown.violations() == []


def test_a_limit_that_is_lowered_was_not_so_before(serve: Serve, view: OpenPage) -> None:
    """Chart and table of the power have the limit of each time, also after another load."""
    gpu = snapshots.h100_training(0)
    assert gpu.board is not None
    lowered = replace(gpu, board=replace(gpu.board, power_limit_watts=350.0))
    live = serve(
        *(
            replace(snapshots.snapshot(gpu), timestamp_seconds=snapshots.NOW + second)
            for second in range(31)
        )
    )
    shown = view().open(f"{live.url}/gpu/0")
    page = shown.page
    expect(page.locator("#chart-power .u-legend")).to_contain_text("700 W")
    now = snapshots.NOW + 31
    live.publish(replace(snapshots.snapshot(lowered), timestamp_seconds=now))
    expect(page.locator("#chart-power .u-legend")).to_contain_text("350 W")
    for _ in range(2):
        page.locator("#chart-power summary").click()
        limits = page.locator("#chart-power details tbody tr td:nth-child(3)")
        expect(limits).to_have_text(["350 W", "700 W"])
        shown.open(page.url)
        expect(page.locator("#chart-power .u-wrap")).to_be_visible()


def test_one_tick_of_other_bounds_leaves_the_rest_known(serve: Serve, view: OpenPage) -> None:
    """The upper bound of a measured GPU is known also where it is the lower one again."""
    gpu = snapshots.h100_training(0)
    [share] = gpu.shares
    assert share.saturation is not None
    assert share.recent is not None
    apart = replace(share.saturation, ratio=None, bounds=Bounds(0.5, 0.7))
    recent = replace(share.recent, saturation_ratio=None, saturation_bounds=apart.bounds)
    other = replace(gpu, shares=(replace(share, saturation=apart, recent=recent),))
    nodes = [snapshots.snapshot(each) for each in (gpu, other, gpu)]
    live = serve(
        *(
            replace(node, timestamp_seconds=snapshots.NOW + second)
            for second, node in enumerate(nodes)
        )
    )
    shown = view().open(f"{live.url}/gpu/0")
    live.publish(replace(nodes[0], timestamp_seconds=snapshots.NOW + 3))
    legend = shown.page.locator("#chart-use .u-legend")
    expect(legend).to_contain_text(re.compile(r"saturation, at least\s*56 %"))
    expect(legend).to_contain_text(re.compile(r"saturation, at most\s*56 %"))
    shown.page.wait_for_timeout(EVENT_SECONDS * 1100)
    expect(legend).not_to_contain_text("not known")


def test_an_instance_without_counters_has_no_charts(serve: Serve, view: OpenPage) -> None:
    """It says what is missing, and nothing of the points of charts that are not there."""
    node = snapshots.snapshot(snapshots.h100_mig(0))
    live = serve(
        *(replace(node, timestamp_seconds=snapshots.NOW + 60 * minute) for minute in range(5))
    )
    page = view().open(f"{live.url}/gpu/0?instance=2").page
    expect(page.locator("#absent")).to_contain_text("Utilization and saturation")
    expect(page.locator("#means")).to_be_empty()


def test_tab_stops_have_names(demo: Daemon, view: OpenPage) -> None:
    """Each stop of the keyboard says what it is; to the points of the roofline there is one."""
    page = view().open(demo.url).page
    expect(page.locator(".point[tabindex='0']")).to_have_count(1)
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            "(({tagName, id, textContent, ariaLabel}) =>"
            " [tagName, id, (ariaLabel ?? textContent).trim().slice(0, 40)])"
            "(document.activeElement)"
        )
        if stop[0] == "BODY":
            break
        stops.append(stop)
    assert all(name for _, _, name in stops), stops
    assert [name[:3] for tag, _, name in stops if tag == "g"] == ["GPU"], stops


def test_what_is_announced(serve: Serve, view: OpenPage) -> None:
    """Live regions announce changes of state, not the seconds that pass."""
    gpu = snapshots.h100_idle(0)
    share = replace(gpu.shares[0], held=True, holder=Holder("ann", "python3"))

    def after(seconds: float) -> Snapshot:
        now = snapshots.NOW + seconds
        idle = replace(share, totals=replace(share.totals, idle_for_seconds=3600 + seconds))
        held = replace(gpu, shares=(idle,), last_read_timestamp_seconds=now)
        return replace(snapshots.snapshot(held), timestamp_seconds=now)

    live = serve(after(0))
    page = view().open(live.url).page
    headline = page.locator("#headline")
    expect(headline).to_contain_text(" for ")
    page.evaluate(_LISTEN)
    before = headline.inner_text()
    for tick in range(1, 4):
        page.wait_for_timeout(EVENT_SECONDS * 1100)
        live.publish(after(60 * tick))
    expect(headline).not_to_have_text(before)
    assert page.evaluate("window.said") == []
    expect(page.locator("#announced")).to_have_text("GPU 0 is held idle by ann (python3)")
    page.wait_for_timeout(EVENT_SECONDS * 1100)
    lost = snapshots.snapshot(snapshots.lost(0))
    live.publish(replace(lost, timestamp_seconds=snapshots.NOW + 300))
    expect(page.locator("#announced")).to_contain_text("GPU 0 is lost")
    assert [said for said in page.evaluate("window.said") if "lost" in said]


def test_long_names_take_a_line(serve: Serve, view: OpenPage) -> None:
    """A name of 60 letters makes no row higher; a tooltip has all of it."""
    gpu = snapshots.h100_training(0)
    name = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition (Max-Q) 96GB"
    other = snapshots.h100_training(1)
    long = replace(other, device=replace(other.device, name=name))
    live = serve(snapshots.snapshot(gpu, long))
    for size in ("phone", "laptop"):
        page = view(size).open(live.url).page
        heights = page.evaluate(
            "[...document.querySelectorAll('#gpus tbody tr')].map((row) => row.clientHeight)"
        )
        assert abs(heights[0] - heights[1]) < 2, heights
        expect(page.locator("#gpus tbody small[data-f=name]").last).to_have_attribute(
            "title", re.compile(r"^RTX PRO 6000 .*96GB$")
        )


def test_a_gpu_without_scripts(demo: Daemon, view: OpenPage) -> None:
    """The tables behind the charts have numbers, and there is no box of a chart."""
    shown = view(java_script_enabled=False)
    page = shown.load(f"{demo.url}/gpu/0").page
    figures = page.locator("figure[id^=chart-]")
    expect(figures).to_have_count(6)
    for name in ("use", "parts", "pipes", "clock", "power"):  # not yet reported: the stall
        figure = page.locator(f"#chart-{name}")
        figure.locator("summary").click()
        expect(figure.locator("tbody tr").first).to_contain_text(
            re.compile(r"\d\d:\d\d:\d\d UTC.*\d")
        )
        expect(figure.locator(".canvas")).to_be_hidden()
    shown.screenshot("gpu-without-scripts", whole=True)
    shown.close()


def test_both_sides_say_the_same(serve: Serve, view: OpenPage) -> None:
    """Rows as the server wrote them are rows as the script writes them, for GPUs of every kind."""
    live = serve(snapshots.EXAMPLES["mixed"])
    words = """() => [...document.querySelectorAll("#gpus tbody tr")].map((row) =>
      [row.className, ...[...row.querySelectorAll("[data-f]")].map((node) =>
        node.textContent.replace(" UTC", "")),
       ...[...row.querySelectorAll("rect")].map((node) =>
        ["x", "width"].map((name) => parseFloat(node.getAttribute(name)).toFixed(1)).join())])"""
    bare = view()
    page = bare.page
    # The page without its scripts: what they would do is blocked, reading it is not.
    page.route("**/*.js", lambda route: route.abort())
    bare.load(live.url)
    first = page.evaluate(words)
    page.unroute("**/*.js")
    shown = view().open(live.url)
    assert shown.page.evaluate(words) == first
    assert len(first) == 7


def test_names_from_outside_stay_text(serve: Serve, view: OpenPage) -> None:
    """Markup in the names of devices, owners and jobs, and 4 kB of them, is text, and cut."""
    gpu = snapshots.h100_training(0)
    share = replace(gpu.shares[0], holder=Holder(EVIL, "x" * 4096), limiter=EVIL)
    evil = replace(gpu, device=replace(gpu.device, name=EVIL + "x" * 4096), shares=(share,))
    rank = replace(snapshots.rank_on_gpu(), job=EVIL + "y" * 4096)
    lost = replace(snapshots.lost(1), down_reason=EVIL + "z" * 4096)
    live = serve(snapshots.with_training(snapshots.snapshot(evil, lost), rank))
    for path in ("/", "/gpu/0", "/gpu/1"):
        shown = view().open(live.url + path)
        assert shown.page.locator("body img").count() == 0
        text = shown.page.locator("body").inner_text()
        assert "<script>alert(1)" in text
        assert not re.search("x{200}|y{200}|z{200}", text)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= SIZES["laptop"][0]
        shown.screenshot(f"hostile{path.replace('/', '-')}", whole=True)


@pytest.mark.slow
def test_a_hang_and_a_restart_are_survived(start: StartDaemon, view: OpenPage) -> None:
    """Of a daemon that is stopped in its tracks, and of one that is started anew: the page says
    since when it is stale, and goes on without being loaded again."""
    daemon = start({}, "--demo", wait_for=GPUS)
    again = f"--web.listen-address=127.0.0.1:{daemon.port}"
    shown = view().open(daemon.url)
    shown.page.evaluate("window.mark = 1")
    daemon.signal(SIGSTOP)
    began = time.monotonic()
    shown.wait_stale()
    assert time.monotonic() - began < 15
    daemon.signal(SIGCONT)
    shown.wait_live()
    daemon.stop()
    shown.wait_stale()
    shown.screenshot("stale")
    expect(shown.page).to_have_title(re.compile(r"^stale since [\d:]{8} · roofline-exporter$"))
    start({}, "--demo", again, wait_for=GPUS)
    shown.wait_live()
    expect(shown.page).not_to_have_title(re.compile("stale|^roofline"))
    expect(shown.page.locator("#gpus tbody tr")).to_have_count(GPUS)
    assert shown.page.evaluate("window.mark") == 1


def test_a_problem_comes_and_goes(serve: Serve, view: OpenPage) -> None:
    """What to do is said once no GPU is up, and no more once one is, without another load."""
    node = snapshots.snapshot(snapshots.h100_training(0))
    live = serve(node)
    shown = view().open(live.url)
    shown.page.evaluate("window.mark = 1")
    problem = shown.page.locator("#problem")
    expect(problem).to_be_empty()
    away = replace(snapshots.EXAMPLES["lost"], timestamp_seconds=snapshots.NOW + 1)
    live.publish(away)
    expect(problem).to_contain_text("No GPU is up")
    expect(problem).to_contain_text("dmesg")
    shown.page.wait_for_timeout(EVENT_SECONDS * 1100)
    live.publish(replace(node, timestamp_seconds=snapshots.NOW + 2))
    expect(problem).to_be_empty()
    assert shown.page.evaluate("window.mark") == 1


@pytest.mark.slow
@retry_once
def test_64_gpus(start: StartDaemon, view: OpenPage, tmp_path: Path) -> None:
    """All rows are there, and a second of them takes at most 100 ms of the main thread."""
    scenario = tmp_path / "many.yaml"
    stories = ("training", "inference", "starved", "power-capped")
    gpus = "\n".join(f"  - {{spec: h100-sxm5-80gb, count: 16, story: {each}}}" for each in stories)
    scenario.write_text(f"gpus:\n{gpus}\n", encoding="utf-8")
    daemon = start({}, "--demo", f"--demo.scenario={scenario}", wait_for=64)
    shown = view().open(daemon.url)
    expect(shown.page.locator("#gpus tbody tr")).to_have_count(64)
    shown.page.wait_for_timeout(1500)
    share = shown.main_thread_seconds(4000)
    assert share <= MOST_MAIN_THREAD, share


@pytest.mark.parametrize("path", ["/", "/gpu/0"])
def test_the_title_of_a_tab_in_the_background(demo: Daemon, view: OpenPage, path: str) -> None:
    """It gets no data, and what it is called says so instead of a number of yesterday."""
    page = view().open(f"{demo.url}{path}").page
    fresh = page.title()
    page.evaluate(
        """Object.defineProperty(document, "hidden", {configurable: true, get: () => true});
        document.dispatchEvent(new Event("visibilitychange"))"""
    )
    name = "roofline-exporter" if path == "/" else fresh
    expect(page).to_have_title(re.compile(rf"^stale since [\d:]{{8}} · {name}$"))
    page.evaluate(
        """delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))"""
    )
    expect(page).not_to_have_title(re.compile("stale|^roofline"))


def test_merge_patches(serve: Serve, view: OpenPage) -> None:
    """What the page does with a diff is what RFC 7386 says, by the examples of its appendix."""
    shown = view().open(serve(snapshots.EXAMPLES["idle"]).url)
    cases: list[list[dict[str, Any]]] = [
        [{"a": "b"}, {"a": "c"}, {"a": "c"}],
        [{"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}],
        [{"a": "b"}, {"a": None}, {}],
        [{"a": "b", "b": "c"}, {"a": None}, {"b": "c"}],
        [{"a": ["b"]}, {"a": "c"}, {"a": "c"}],
        [{"a": "c"}, {"a": ["b"]}, {"a": ["b"]}],
        [{"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}],
        [{"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}],
        [{"e": None}, {"a": 1}, {"e": None, "a": 1}],
        [{}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}],
    ]
    merged = shown.page.evaluate(
        """async (cases) => {
          const {mergePatch} = await import(
            document.querySelector("link[href$='stream.js']").href);
          return cases.map(([target, patch]) => mergePatch(target, patch));
        }""",
        cases,
    )
    assert merged == [wanted for *_, wanted in cases]


def test_means_of_a_long_history(serve: Serve, view: OpenPage) -> None:
    """Points that are too many to be seen become means; holes stay, reasons are united. The last
    one is the mean of as many seconds as the others, and what is left of the first is none."""
    shown = view().open(f"{serve(snapshots.EXAMPLES['idle']).url}/gpu/0")
    condensed = shown.page.evaluate(
        """async () => {
          const {condense} = await import(
            document.querySelector("link[href$='history.js']").href);
          return condense({timestamps: [9, 10, 11, 12, 13, 14],
            columns: {power: [9, 1, 3, null, null, 5], throttled: [8, 1, 4, 0, 2, 0]}}, 2);
        }"""
    )
    assert condensed["timestamps"] == [10.5, 12.5, 13.5]
    assert condensed["columns"] == {"power": [2, None, 5], "throttled": [5, 2, 2]}


def test_a_history_goes_on_after_the_clock_was_set_back(serve: Serve, view: OpenPage) -> None:
    """What lies ahead is forgotten, as the daemon does it; a late event is none of these."""
    shown = view().open(f"{serve(snapshots.EXAMPLES['idle']).url}/gpu/0")
    found = shown.page.evaluate(
        """async () => {
          const {History} = await import(
            document.querySelector("link[href$='history.js']").href);
          const history = new History("");
          history.add(7, {power: 9}, 1);
          Object.assign(history, {timestamps: [50, 100, 101, 102], columns: {power: [0, 1, 2, 3]}});
          for (const time of [101, 102, 103, 60, 61, 62]) history.add(time, {power: time}, 1);
          return [history.timestamps, history.columns.power];
        }"""
    )
    assert found == [[50, 59, 60, 61, 62], [0, None, 60, 61, 62]]


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


MOST_BYTES = 135_000


MOST_BYTES_ON_THE_WIRE = 80_000


FIRST_PAINT = """() => new Promise((done) =>
  new PerformanceObserver((list) => done(list.getEntries()[0].startTime))
    .observe({type: 'paint', buffered: true}))"""
"""In milliseconds; a page can be loaded before it is painted."""


def test_weight_and_first_paint(
    start: StartDaemon, view: OpenPage, record_property: Callable[[str, object], None]
) -> None:
    """All files of both pages are under 135 kB; each page with them is 80 kB on the wire, before
    there is much of a history."""
    demo = start({}, "--demo", wait_for=GPUS)
    plain: dict[str, int] = {}
    for path in ("/", "/gpu/0"):
        shown = view()
        paints = []
        for _ in range(3):
            shown.open(demo.url + path)
            paints.append(shown.page.evaluate(FIRST_PAINT))
            shown.page.wait_for_load_state()  # else the next visit takes its scripts away
        fresh = view().open(demo.url + path)
        sizes = fresh.page.evaluate(
            "[...performance.getEntriesByType('navigation'),"
            " ...performance.getEntriesByType('resource')"
            ".filter(({name}) => name.includes('/static/'))]"
            ".map((each) => [each.name, each.encodedBodySize, each.decodedBodySize])"
        )
        total = sum(size for _, size, _ in sizes)
        assert 10_000 < total < MOST_BYTES_ON_THE_WIRE, sizes
        plain |= {name: size for name, _, size in sizes if "/static/" in name}
        record_property(MEASURED, f"page {path}: {total / 1000:.0f} kB, {min(paints):.0f} ms")
    assert 100_000 < sum(plain.values()) < MOST_BYTES, plain
