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
from exporter.snapshot import Holder
from exporter.web.cards import duration_text
from tests import snapshots
from tests.web.conftest import Daemon

_U = "unknown"


class Page(HTMLParser):
    """The cards, links and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.cards: list[dict[str, str]] = []
        self._into: str | None = None
        self._card = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        if tag == "a":
            self.links.append(found["href"] or "")
        else:
            self.loads.extend(str(found[key]) for key in ("src", "href", "data") if key in found)
        if tag == "section":
            self.cards.append({"state": str(found["class"])})
            self._card = True
        if tag in ("h2", "small", "dt", "dd") or (tag == "p" and self._card):
            self._into = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._into:
            self._into = None
        if tag == "section":
            self._card = False

    def handle_data(self, data: str) -> None:
        if not self.cards or self._into is None:
            return
        card = self.cards[-1]
        if self._into == "dt":
            self._term = data
        key = self._term if self._into == "dd" else self._into
        card[key] = card.get(key, "") + data


def test_cards(client: TestClient) -> None:
    """One card for each GPU, or for each instance while MIG is on, in plain words."""
    cards = Page(client.get("/").text).cards
    training, estimate, first, second, lost, idle = cards

    assert [card["h2"].strip() for card in cards] == [
        "GPU 0",
        "GPU 1",
        "GPU 2, MIG instance 1",
        "GPU 2, MIG instance 2",
        "GPU 3",
        "GPU 4",
    ]
    assert training["small"] == "NVIDIA H100 80GB HBM3"
    assert training["Utilization"] == "99%"
    assert training["Saturation"] == "56% (gpm)"
    assert training["Of roof"] == "54%"
    assert training["Limited by"] == "compute"
    assert training["Idle for"] == "busy"
    assert training["Held by"] == "ada: python3 (training)"
    assert training["Ceilings"].startswith("989.4 TFLOP/s bf16 tensor, 3350 GB/s, ridge 295")
    assert estimate["Saturation"] == "0% to 43% (estimate)"
    assert estimate["Of roof"] == _U
    assert first["Saturation"] == "56% (gpm)"
    assert second["Limited by"] == _U
    assert (lost["state"], lost["p"]) == ("down", "Down: lost")
    assert idle["Idle for"] == "1 h 1 min"
    assert idle["Held by"] == "nobody"
    assert training["Training"] == (
        "resnet rank 0: waits for data 31% of the time, GPU idle for it 24%"
    )
    assert first["Training"] == (
        f"{snapshots.rank_on_instance().job} rank 0: waits for data 50% of the time"
    )
    assert not any("Training" in card for card in (estimate, second, lost, idle))


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


def test_ranks_on_a_card(daemon: Daemon) -> None:
    """Only live ranks of that GPU have a line, the first four of them; waits may be unknown."""
    rank = snapshots.rank_on_gpu()
    ended = replace(rank, job="ended", processes=0)
    new = replace(rank, job="x" * 4096, data_wait_ratio=None, data_stall_ratio=None)
    others = [replace(rank, job="more", rank=number) for number in range(5)]
    node = snapshots.snapshot(snapshots.h100_training(0), snapshots.h100_idle(1))
    daemon.publish(snapshots.with_training(node, ended, new, *others))
    first, second = Page(daemon.client.get("/").text).cards
    assert "Training" not in second
    assert first["Training"].startswith(f"{'x' * 119}… rank 0: no waiting time known yet")
    assert first["Training"].count("more rank ") == 3
    assert first["Training"].endswith("and 2 more ranks")
    assert "ended" not in first["Training"]


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
        shares=(replace(gpu.shares[0], limiter=evil, holder=Holder(evil, evil)),),
    )
    lost = replace(lost, down_reason=evil)
    daemon.publish(replace(snapshots.snapshot(gpu, lost), problem=evil))
    text = daemon.client.get("/").text
    page = Page(text)
    assert "script" not in page.tags
    first, second = page.cards
    assert first["small"] == evil
    assert first["Limited by"] == evil
    assert first["Held by"] == f"{evil}: {evil} (other)"
    assert second["p"] == f"Down: {evil}"


def test_long_names_are_cut(daemon: Daemon) -> None:
    """Four kilobytes of name do not make a page of them."""
    gpu = snapshots.h100_training(0)
    daemon.publish(snapshots.snapshot(replace(gpu, device=replace(gpu.device, name="x" * 4096))))
    [card] = Page(daemon.client.get("/").text).cards
    assert card["small"] == "x" * 119 + "…"


def test_without_gpus_the_page_says_why(daemon: Daemon) -> None:
    """No table of nothing, but the reason."""
    assert "Not ready: no snapshot yet" in daemon.client.get("/").text
    daemon.publish(snapshots.NO_DRIVER)
    text = daemon.client.get("/").text
    assert "libnvidia-ml.so.1 cannot be loaded" in text
    assert "<section" not in text


def test_data_that_is_not_real_is_marked(daemon: Daemon) -> None:
    """Simulated or replayed GPUs are announced; real ones are not."""
    daemon.publish(snapshots.EXAMPLES["training"])
    assert "Not real" not in daemon.client.get("/").text
    gpu = snapshots.h100_training()
    simulated = replace(gpu, device=replace(gpu.device, source="simulate"))
    daemon.publish(snapshots.snapshot(simulated))
    text = daemon.client.get("/").text
    assert "<strong>Not real GPUs:</strong> this data is simulated." in text
