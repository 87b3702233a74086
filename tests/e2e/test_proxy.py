# SPDX-License-Identifier: Apache-2.0
"""The pages below a path of a proxy, as docs/live-page.md configures one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests import snapshots
from tests.conftest import require_tool
from tests.deploy.remote import blocks
from tests.e2e.conftest import OpenPage, Serve
from tests.e2e.processes import Process
from tests.serving import free_port

PREFIX = "/gpu-node-1/"
UPSTREAM = "http://gpu-node-1:19400/"
CONFIG = """\
daemon off;
error_log stderr notice;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""

StartProxy = Callable[[str], str]


@pytest.fixture
def start_proxy(folders: Iterator[Path], processes: list[Process]) -> StartProxy:
    """Starts an nginx before the daemon at a URL; returns where its pages are now."""
    program = require_tool("nginx")

    def launch(url: str) -> str:
        folder, port = next(folders), free_port()
        folder.mkdir(parents=True)
        (location,) = (text for kind, text in blocks("live-page.md") if kind == "nginx")
        assert UPSTREAM in location
        config = folder / "nginx.conf"
        location = location.replace(UPSTREAM, f"{url}/")
        config.write_text(CONFIG.format(folder=folder, port=port, location=location))
        proxy = Process([program, "-e", "stderr", "-c", str(config)], folder / "run")
        processes.append(proxy)
        proxy.find_in_line("start worker process")
        return f"http://127.0.0.1:{port}{PREFIX}"

    return launch


def test_pages_below_a_path(serve: Serve, view: OpenPage, start_proxy: StartProxy) -> None:
    """Every link, script, chart and the stream stays below it, and works."""
    live = serve(snapshots.snapshot(snapshots.h100_training(0), snapshots.h100_training(1)))
    home = start_proxy(live.url)
    shown = view()
    asked: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.open(f"{home}?sort=power")
    expect(shown.page.locator("svg.roofline .points > *")).to_have_count(2)
    shown.page.get_by_role("link", name="GPU 1", exact=True).click()
    shown.wait_live()
    assert shown.page.url.startswith(f"{home}gpu/GPU-")
    expect(shown.page.locator("#chart-power .u-wrap canvas")).to_be_visible()
    shown.page.get_by_role("link", name="← GPU 0").click()
    shown.wait_live()
    expect(shown.page.locator("#headline")).to_contain_text("GPU 0")
    shown.page.get_by_role("link", name="All GPUs").click()
    shown.wait_live()
    assert shown.page.url == home
    shown.load(f"{home}gpu/77").page.get_by_role("link", name="All GPUs").click()
    shown.wait_live()
    assert shown.page.url == home
    kinds = {re.sub(r"/[0-9a-f]{12}/.*|GPU-[^/?]*", "", url.removeprefix(home)) for url in asked}
    assert {"", "static", "gpu/", "api/v1/stream", "api/v1/roofline/trails"} <= kinds
    assert not [url for url in asked if not url.startswith(home)]
