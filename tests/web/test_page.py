# SPDX-License-Identifier: Apache-2.0
"""The page at / shows each GPU in plain words, loads nothing and trusts nobody."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from exporter import __version__
from exporter.web.page import duration_text
from tests import snapshots
from tests.web.conftest import Daemon

_U = "unknown"


class Page(HTMLParser):
    """The cells, links and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.rows: list[list[str]] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        if tag == "a":
            self.links.append(found["href"] or "")
        else:
            self.loads.extend(str(found[key]) for key in ("src", "href", "data") if key in found)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        self._cell = tag == "td"

    def handle_endtag(self, tag: str) -> None:
        self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data


def test_rows(client: TestClient) -> None:
    """One row for each GPU, or for each instance while MIG is on."""
    page = Page(client.get("/").text)
    name = "NVIDIA H100 80GB HBM3"
    assert page.rows[1:] == [
        ["0", name, "99%", "56% (gpm)", "54%", "compute", "busy", "yes", "up"],
        ["1", "Tesla T4", "42%", "0% to 43% (estimate)", _U, _U, "1 s", "yes", "up"],
        ["2, MIG instance 1", name, _U, "56% (gpm)", "54%", "compute", "busy", "yes", "up"],
        ["2, MIG instance 2", name, _U, _U, _U, _U, _U, "no", "up"],
        ["3", name, "", "", "", "", "", "", "down: lost"],
        ["4", name, "0%", "0% (gpm)", "0%", "idle", "1 h 1 min", "no", "up"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min"),
        (3600.0, "1 h 0 min"),
        (7860.0, "2 h 11 min"),
        (277200.0, "3 d 5 h"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    """As a person would say them, rounded down."""
    assert duration_text(seconds) == text


def test_product_and_links(client: TestClient) -> None:
    """The page names the product and leads to everything else that is served."""
    text = client.get("/").text
    assert f"roofline-exporter {__version__}" in text
    page = Page(text)
    for link in page.links:
        if link.startswith("/"):
            assert client.get(link).status_code == 200, link
    assert {"/metrics", "/api/v1/gpus", "/-/ready"} <= set(page.links)
    assert any("github.com" in link for link in page.links)


def test_nothing_is_loaded(client: TestClient) -> None:
    """No script, image, font or style sheet; the policy forbids them as well."""
    answer = client.get("/")
    page = Page(answer.text)
    assert page.loads == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy


def test_hostile_names_stay_text(daemon: Daemon) -> None:
    """Names from the driver and reasons cannot become markup."""
    evil = "<script>alert(1)</script>\"'&"
    gpu, lost = snapshots.h100_training(0), snapshots.lost(1)
    gpu = replace(
        gpu,
        device=replace(gpu.device, name=evil, source=evil),
        shares=(replace(gpu.shares[0], limiter=evil),),
    )
    lost = replace(lost, down_reason=evil)
    daemon.publish(replace(snapshots.snapshot(gpu, lost), problem=evil))
    text = daemon.client.get("/").text
    page = Page(text)
    assert "script" not in page.tags
    assert page.rows[1][1] == evil
    assert page.rows[1][5] == evil
    assert page.rows[2][-1] == f"down: {evil}"


def test_without_gpus_the_page_says_why(daemon: Daemon) -> None:
    """No table of nothing, but the reason."""
    assert "Not ready: no snapshot yet" in daemon.client.get("/").text
    daemon.publish(snapshots.NO_DRIVER)
    text = daemon.client.get("/").text
    assert "libnvidia-ml.so.1 cannot be loaded" in text
    assert "<table>" not in text


def test_data_that_is_not_real_is_marked(daemon: Daemon) -> None:
    """Simulated or replayed GPUs are announced; real ones are not."""
    daemon.publish(snapshots.EXAMPLES["training"])
    assert "Not a real GPU" not in daemon.client.get("/").text
    gpu = snapshots.h100_training()
    simulated = replace(gpu, device=replace(gpu.device, source="simulate"))
    daemon.publish(snapshots.snapshot(simulated))
    assert "Not a real GPU: this data comes from simulate." in daemon.client.get("/").text
