# SPDX-License-Identifier: Apache-2.0
"""``/metrics/dcgm``: one format, two generations of names, and the limits of every scrape."""

from __future__ import annotations

import asyncio

import pytest
from starlette.testclient import TestClient

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.web.metrics import MetricsEndpoint, Scrapes, dcgm_page, metrics_page
from tests.web.test_metrics import PROMETHEUS, asked

PATH = "/metrics/dcgm"


@pytest.mark.parametrize("accept", [PROMETHEUS, "*/*", "application/json", ""])
def test_it_is_text_whatever_is_accepted(client: TestClient, accept: str) -> None:
    """As dcgm-exporter answers."""
    answer = client.get(PATH, headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "\nDCGM_FI_DEV_GPU_TEMP{" in answer.text
    assert "# EOF" not in answer.text


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "DCGM_FI_DEV_GPU_TEMP"),
        ("?names=legacy", "DCGM_FI_DEV_GPU_TEMP"),
        ("?names=current", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        ("?name[]=DCGM_FI_DEV_GPU_UTIL&other=1", "DCGM_FI_DEV_GPU_TEMP"),
    ],
)
def test_the_names_that_were_asked_for(client: TestClient, query: str, name: str) -> None:
    """Legacy unless `names` says something else; what else is asked is nothing to it."""
    answer = client.get(PATH + query)
    assert answer.status_code == 200
    assert f"\n{name}{{" in answer.text


@pytest.mark.parametrize(
    "query", ["names=", "names=new", "names=legacy,current", "names=current&names=legacy"]
)
def test_other_names_are_refused(client: TestClient, query: str) -> None:
    """In one line, which says what there is."""
    answer = client.get(f"{PATH}?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "names can be legacy or current\n"


def test_both_pages_have_one_limit() -> None:
    """A scrape of one that is being made counts for the other; a refused name holds no place."""
    refused: list[str] = []
    pages, scrapes = Pages(RenderOptions()), Scrapes(1, refused.append)
    dcgm = MetricsEndpoint(pages, scrapes, dcgm_page)
    metrics = MetricsEndpoint(pages, scrapes, metrics_page)

    async def both() -> None:
        assert await asked(dcgm, b"names=new") == 400
        assert {*await asyncio.gather(asked(dcgm), asked(metrics))} == {200, 503}

    asyncio.run(both())
    assert refused == ["scrapes"]
