# SPDX-License-Identifier: Apache-2.0
"""The pages as the server sends them: useful without scripts, nothing from elsewhere, no trust."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from exporter import __version__
from exporter.model.snapshot import Holder
from exporter.model.workload import ShareWork, Workload
from exporter.web.static import HEADERS
from tests import snapshots
from tests.web.conftest import Daemon

PATHS = ("/", "/gpu/0", "/gpu/2?instance=1")
EVIL = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """Tags, links, what is loaded, the embedded view, and the words of each row by place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.attributes: set[str] = set()
        self.rows: list[dict[str, str]] = []
        self.text = ""
        self._place: str | None = None
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(found)
        if tag == "a":
            self.links.append(found["href"] or "")
        else:
            self.loads.extend(str(found[key]) for key in ("src", "href", "data") if key in found)
        self._in_data = found.get("type") == "application/json"
        if "data-key" in found and tag == "tr":
            self.rows.append({"class": found["class"] or ""})
        self._place = found.get("data-f")

    def handle_endtag(self, tag: str) -> None:
        self._place = None
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            return
        self.text += data
        if self._place is not None and self.rows:
            row = self.rows[-1]
            row[self._place] = row.get(self._place, "") + data


def test_gpu_model_and_links(client: TestClient) -> None:
    """The page names the GPU model and leads to everything else that is served."""
    text = client.get("/").text
    assert f"roofline-exporter {__version__}" in text
    links = Page(text).links
    assert {"./metrics", "./api/v1/gpus", "./-/ready"} <= set(links)
    assert any("github.com" in link for link in links)


@pytest.mark.parametrize("path", PATHS)
def test_links_are_relative_to_their_page(client: TestClient, path: str) -> None:
    """Below the path of a proxy they lead to pages below it, and all of them are there."""
    links = Page(client.get(path).text).links
    own = [link for link in links if "://" not in link and not link.startswith("#")]
    assert all(link.startswith(("./", "../")) for link in own), own
    for link in own:
        assert client.get(urljoin(path, link)).status_code == 200, link


@pytest.mark.parametrize("path", PATHS)
def test_nothing_comes_from_elsewhere(client: TestClient, path: str) -> None:
    """Only the daemon's own files are loaded; no style and no script is written into the page."""
    answer = client.get(path)
    page = Page(answer.text)
    assert page.loads
    for address in page.loads:
        assert re.match(r"\.\.?/static/[0-9a-f]+/", address), address
        assert client.get(urljoin(path, address)).status_code == 200, address
    assert "style" not in page.attributes | set(page.tags)
    assert not {name for name in page.attributes if name.startswith("on")}
    assert answer.text.count("<script") == answer.text.count("<script ")
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_hostile_names_stay_text(daemon: Daemon) -> None:
    """Names from the driver, owners and reasons cannot become markup, nor end a data block."""
    gpu, lost = snapshots.h100_training(0), snapshots.lost(1)
    pod = Workload("kubernetes", EVIL, EVIL, EVIL, id=EVIL)
    gpu = replace(
        gpu,
        device=replace(gpu.device, name=EVIL, source=EVIL, serial=EVIL),
        shares=(
            replace(
                gpu.shares[0],
                limiter=EVIL,
                holder=Holder(EVIL, EVIL, workload=pod),
                work=ShareWork((pod,), allocated=True),
            ),
        ),
    )
    lost = replace(lost, down_reason=EVIL)
    daemon.publish(replace(snapshots.snapshot(gpu, lost), problem=EVIL))
    for path in ("/", "/gpu/0", "/gpu/1"):
        text = daemon.client.get(path).text
        assert "<script>" not in text
        assert "alert(1)" in text
    first, second = Page(daemon.client.get("/").text).rows
    assert first["reason"] == EVIL
    assert second["name"] == EVIL
    assert second["holder"].startswith("<script>alert(1)")


def test_without_gpus_the_page_says_why(daemon: Daemon) -> None:
    """No table of nothing, but what was tried and what to do."""
    assert "No reading yet" in daemon.client.get("/").text
    daemon.publish(snapshots.NO_DRIVER)
    text = daemon.client.get("/").text
    assert "libnvidia-ml.so.1 cannot be loaded" in text
    assert "What to do" in text
    assert "--demo" in text
    assert '<div id="problem"><section aria-labelledby="problem-title">' in text
    assert '<div id="node" hidden>' in text


def test_two_gpus_of_one_index(daemon: Daemon) -> None:
    """A lost GPU and the one that got its index have different names everywhere."""
    here = snapshots.h100_training(1)
    gone = snapshots.lost(1)
    daemon.publish(snapshots.snapshot(gone, here))
    text = daemon.client.get("/").text
    name = f"GPU 1 (…{gone.device.uuid[-4:]})"
    assert [row["title"] for row in Page(text).rows] == [name, "GPU 1"]
    link = f'<span></span><a href="./gpu/{gone.device.uuid}">{name}</a><span> is lost'
    assert f'id="headline">{link}' in text
    by_index = Page(daemon.client.get("/gpu/1").text)
    assert [row["title"] for row in by_index.rows] == ["GPU 1"]
    assert name in Page(daemon.client.get(f"/gpu/{gone.device.uuid}").text).text


def test_data_that_is_not_real_is_marked(daemon: Daemon) -> None:
    """Simulated or replayed GPUs are announced on every page; real ones are not."""
    said = "This data is recorded, and played back: it is not what the GPUs do now."
    daemon.publish(snapshots.EXAMPLES["training"])
    for path in ("/", "/gpu/0"):
        assert said not in daemon.client.get(path).text  # hidden is not hidden in curl
    gpu = snapshots.h100_training()
    daemon.publish(snapshots.snapshot(replace(gpu, device=replace(gpu.device, source="replay"))))
    for path in ("/", "/gpu/0"):
        assert f'<p id="banner" role="note">{said}</p>' in daemon.client.get(path).text
    for path in ("/api/v1/gpus", "/api/v1/gpus/0"):
        assert daemon.client.get(path).json()["notice"] == said


def test_reasons_that_hold_at_once_are_not_added(daemon: Daemon) -> None:
    """20 s of one, in 5 s of which the other holds too, are 20 s."""
    gpu = snapshots.h100_training()
    assert gpu.vitals is not None
    for second in range(30):
        both = {"sw_power_cap", "sw_thermal"} if second >= 25 else {"sw_power_cap"}
        reasons = frozenset(both if second >= 10 else ())
        held = replace(gpu, vitals=replace(gpu.vitals, throttle_reasons=reasons))
        node = snapshots.snapshot(held)
        daemon.store.publish(replace(node, timestamp_seconds=snapshots.NOW + second))

    said = "software power cap for 15 s, software power cap with software thermal slowdown for 5 s"
    assert f"Throttled (shaded): {said}." in daemon.client.get("/gpu/0").text


@pytest.mark.parametrize("path", ["/", "/gpu/0"])
def test_pages_are_compressed(client: TestClient, path: str) -> None:
    """For clients that accept gzip."""
    with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        zipped = b"".join(answer.iter_raw())
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(zipped) == plain.content
    assert len(zipped) < len(plain.content) / 2


def test_many_rows_are_compact_at_once(daemon: Daemon) -> None:
    """Before any script runs, so that the layout does not move."""
    for count, compact in ((16, False), (17, True)):
        daemon.publish(snapshots.snapshot(*map(snapshots.h100_training, range(count))))
        assert ('<body class="many">' in daemon.client.get("/").text) is compact
        assert '<body class="many">' not in daemon.client.get("/gpu/0").text


def facts(text: str, name: str) -> str:
    """The text of one of the cards below the charts."""
    return text.split(f'id="{name}"')[1].split("</section>")[0]


def test_the_facts_name_every_workload(daemon: Daemon) -> None:
    """With scheduler, all names, and for how long it is unopened."""
    gpu = snapshots.h100_idle(0)
    [share] = gpu.shares
    work = ShareWork(
        (
            Workload("container", container="trainer", id="4f1c0d9be2a7", runtime="docker"),
            Workload("kubernetes", "team-a", "p" * 253, "main", id="5d1b2b0e"),
            Workload("slurm", job="4711", user="ada", step="0"),
        ),
        allocated=True,
    )
    totals = replace(share.totals, allocated_unopened_seconds=7200.0, unopened_for_seconds=3660.0)
    unopened = replace(share, work=work, held=False, holder=None, totals=totals)
    daemon.publish(snapshots.snapshot(replace(gpu, shares=(unopened,))))
    text = daemon.client.get("/gpu/0").text
    whose = re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", facts(text, "whose"))
    assert whose == [
        ("Given away by a scheduler", "yes, and not opened for 1 h 1 min"),
        ("Given away and not opened, altogether", "2 h 0 min"),
        ("Container runtime", "trainer, runtime docker, id 4f1c0d9be2a7"),
        ("Kubernetes", f"team-a/{'p' * 112}…, container main, id 5d1b2b0e"),
        ("Slurm", "ada, job 4711, step 0"),
    ]
    row = Page(daemon.client.get("/").text).rows[0]
    assert (row["word"], row["idle"]) == ("unopened", "unopened 1 h 1 min")
    assert row["holder"] == f"given to team-a/{'p' * 52}…"
    free = replace(unopened, work=ShareWork(allocated=False), totals=share.totals)
    daemon.publish(snapshots.snapshot(replace(gpu, shares=(free,))))
    assert "<dd>to nobody</dd>" in facts(daemon.client.get("/gpu/0").text, "whose")
