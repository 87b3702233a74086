# SPDX-License-Identifier: Apache-2.0
"""A scrape gets the format, encoding and families that it asks for, and never too many at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from exporter.exposition.formats import Format
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.web.metrics import MetricsEndpoint, Scrapes, dcgm_page, metrics_page
from exporter.web.responses import accepts_gzip
from tests import snapshots
from tests.web.conftest import Daemon

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        (
            PROMETHEUS,
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            "\n# EOF\n",
        ),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", "\n"),
        (
            "text/plain;version=1.0.0",
            "text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
            "\n",
        ),
    ],
)
def test_content_types(client: TestClient, accept: str, content_type: str, end: str) -> None:
    """Prometheus gets OpenMetrics, a browser text, each with its exact Content-Type."""
    answer = client.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == content_type
    assert answer.text.endswith(end)
    assert ("# EOF" in answer.text) == ("EOF" in end)
    assert answer.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.5, *;q=0", True),
        ("gzip;q=0.001", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000 , br", False),
        ("br, zstd", False),
        ("", False),
        ("*", False),
        (";;,,", False),
    ],
)
def test_gzip_is_negotiated(header: str, accepted: bool) -> None:
    """gzip only where the header names it with a weight above 0."""
    assert accepts_gzip(header) is accepted


def test_gzip_answer(client: TestClient) -> None:
    """The compressed page holds the plain one, and says how long it is."""
    plain = client.get("/metrics", headers={"accept-encoding": "identity"})
    zipped = client.get("/metrics", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) < int(plain.headers["content-length"])
    assert int(plain.headers["content-length"]) == len(plain.content)
    names = {line.split("{")[0] for line in plain.text.splitlines()}
    assert {line.split("{")[0] for line in zipped.text.splitlines()} >= {
        name for name in names if name.startswith("gpu_")
    }


def test_name_filter(client: TestClient) -> None:
    """name[] may be repeated, and holds in every format."""
    answer = client.get(
        "/metrics",
        params={"name[]": ["gpu_up", "gpu_power_watts"]},
        headers={"accept": PROMETHEUS},
    )
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert {line.split("{")[0] for line in lines} == {"gpu_up", "gpu_power_watts"}
    assert answer.text.endswith("# EOF\n")
    assert client.get("/metrics?name%5B%5D=nothing").text == ""
    assert "gpu_info" in client.get("/metrics?other=1&name[]=").text


def test_malformed_query_and_headers_are_harmless(client: TestClient) -> None:
    """Nothing that a client sends makes a server error."""
    assert client.get("/metrics?%ff=%fe&name[]=%80").status_code == 200
    odd = {"accept": "text/plain;version=a.b;q", "accept-encoding": "\xff, gzip;q=x"}
    encoded = {key: value.encode("latin-1") for key, value in odd.items()}
    assert client.get("/metrics", headers=encoded).status_code == 200  # type: ignore[arg-type]


def test_ready_pages_are_served_without_leaving_the_event_loop(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scraper that comes at each snapshot finds its page, without a thread."""
    for _ in range(2):
        daemon.publish(snapshots.EXAMPLES["training"])
        daemon.client.get("/metrics")
    daemon.publish(snapshots.EXAMPLES["idle"])

    def refuse(form: Format, zipped: bool) -> bytes:
        raise AssertionError((form, zipped))

    monkeypatch.setattr(daemon.pages, "page", refuse)
    assert daemon.client.get("/metrics").status_code == 200
    with pytest.raises(AssertionError):
        daemon.client.get("/metrics", headers={"accept": PROMETHEUS})


async def never() -> dict[str, Any]:
    raise AssertionError("the endpoint reads no body")


async def asked(endpoint: Any, query: bytes = b"", reading: asyncio.Event | None = None) -> int:
    """Return the status of an answer, whose body is taken once the client is `reading`."""
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": query}
    status: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
        elif reading is not None:
            await reading.wait()

    await endpoint(scope, never, send)
    return status[0]


def test_parallel_scrapes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all places make a page the next scrape gets 503, and counts; then it is served."""
    pages = Pages(RenderOptions())
    release = threading.Event()
    refused: list[str] = []

    def slowly(names: Any, form: Format, zipped: bool) -> bytes:
        release.wait(10)
        return b""

    monkeypatch.setattr(pages, "filtered", slowly)
    endpoint = MetricsEndpoint(pages, Scrapes(2, refused.append), metrics_page)

    async def run() -> None:
        slow = [asyncio.create_task(asked(endpoint, b"name[]=gpu_up")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await asked(endpoint) == 503
        release.set()
        assert await asyncio.gather(*slow) == [200, 200]
        assert await asked(endpoint) == 200

    asyncio.run(run())
    assert refused == ["scrapes"]


def test_whoever_does_not_read_keeps_nobody_else_from_a_page() -> None:
    """A place is free again before the page is sent."""
    pages = Pages(RenderOptions())
    pages.page("text-0.0.4", False)
    endpoint = MetricsEndpoint(pages, Scrapes(2), metrics_page)

    async def run() -> None:
        reading = asyncio.Event()
        stuck = [asyncio.create_task(asked(endpoint, b"", reading)) for _ in range(40)]
        await asyncio.sleep(0)
        reading.set()
        assert await asyncio.gather(*stuck) == [200] * 40

    asyncio.run(run())


# /metrics/dcgm

DCGM_PATH = "/metrics/dcgm"


@pytest.mark.parametrize("accept", [PROMETHEUS, "*/*", "application/json", ""])
def test_dcgm_is_text_whatever_is_accepted(client: TestClient, accept: str) -> None:
    """As dcgm-exporter answers."""
    answer = client.get(DCGM_PATH, headers={"accept": accept})
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
def test_the_names_of_dcgm_that_were_asked_for(client: TestClient, query: str, name: str) -> None:
    """Legacy unless `names` says something else; what else is asked is nothing to it."""
    answer = client.get(DCGM_PATH + query)
    assert answer.status_code == 200
    assert f"\n{name}{{" in answer.text


@pytest.mark.parametrize(
    "query", ["names=", "names=new", "names=legacy,current", "names=current&names=legacy"]
)
def test_other_names_of_dcgm_are_refused(client: TestClient, query: str) -> None:
    """In one line, which says what there is."""
    answer = client.get(f"{DCGM_PATH}?{query}")
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
