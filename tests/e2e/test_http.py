# SPDX-License-Identifier: Apache-2.0
"""What clients get over real HTTP: formats, levels, paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.e2e.daemons import Daemon, Page
from tests.fake_nvml import FakeNvml, square

SCENARIO = {
    "devices": [
        {
            "product": "h100-sxm",
            "utilization": square(period=0.7, duty=0.5, high=100),
            "gpm": {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20, "fp32": 4, "fp16": 2},
        },
        {"product": "t4", "utilization": 40},
    ]
}
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0; charset=utf-8"}
TEXT_1_0_0 = {"Accept": "text/plain; version=1.0.0; escaping=allow-utf-8"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests here: they only ask it."""
    driver = FakeNvml(tmp_path_factory.mktemp("driver"), SCENARIO)
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), driver.environment(), ())
    try:
        daemon.wait_for_gpus(2)
        yield daemon
    finally:
        daemon.kill()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One that publishes core families only, and not all of these."""
    driver = FakeNvml(tmp_path_factory.mktemp("driver"), SCENARIO)
    daemon = Daemon(
        tmp_path_factory.mktemp("daemon"),
        driver.environment(),
        ("--metrics.level=core", "--metrics.exclude=gpu_peak_.*|process_.*"),
    )
    try:
        daemon.wait_for_gpus(2)
        yield daemon
    finally:
        daemon.kill()


def _steady(page: Page) -> frozenset[object]:
    """The series of a page, without their values."""
    return frozenset(page.samples)


def test_all_formats_hold_the_same_series(daemon: Daemon) -> None:
    """Text 0.0.4 by default, text 1.0.0 and OpenMetrics 1.0.0 where asked for."""
    plain = daemon.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    newer = daemon.get("/metrics", TEXT_1_0_0)
    assert newer.headers["content-type"].startswith("text/plain; version=1.0.0")
    openmetrics = daemon.get("/metrics", OPENMETRICS)
    assert openmetrics.headers["content-type"].startswith(
        "application/openmetrics-text; version=1.0.0"
    )
    assert openmetrics.text.endswith("# EOF\n")
    pages = [Page(answer.text) for answer in (plain, newer, openmetrics)]
    assert _steady(pages[0]) == _steady(pages[1]) == _steady(pages[2])
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    families = list(parse(openmetrics.text))
    assert {"counter", "gauge", "info"} <= {family.type for family in families}
    assert all(family.documentation for family in families)


def test_level_and_exclusion_hold_in_every_format(daemon: Daemon, small: Daemon) -> None:
    """Core is a part of full; an excluded family is nowhere, asked for by name or not."""
    full, core = daemon.metrics(), small.metrics()
    excluded = {name for name in full.names if name.startswith(("gpu_peak_", "process_"))}
    assert excluded
    assert core.names < full.names - excluded
    assert {"gpu_up", "gpu_saturation_lower_ratio", "gpu_time_seconds_total"} <= core.names
    assert _steady(Page(small.get("/metrics", OPENMETRICS).text)) == _steady(core)
    assert small.get("/metrics?name[]=gpu_peak_clock_hertz").body == b""
    for gpu in range(2):
        assert len(core.gpu(gpu)) <= 100
        assert len(full.gpu(gpu)) <= 200


def test_other_paths(daemon: Daemon) -> None:
    """The page, the API and what is not there, each with its own type."""
    page = daemon.get("/", {"Accept": "text/html"})
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "H100 80GB HBM3" in page.text
    uuid = daemon.metrics().rows("gpu_up", gpu="1")[0][0]["uuid"]
    for path in (
        "/api/v1/gpus",
        f"/api/v1/gpus/{uuid}",
        "/api/v1/roofline",
        "/api/v1/specs",
        "/api/openapi.json",
    ):
        answer = daemon.get(path)
        assert answer.status == 200, path
        assert answer.headers["content-type"].startswith("application/json"), path
        assert json.loads(answer.body), path
    for path in ("/nothing", "/api/v1/gpus/GPU-nothing", "/api/nothing"):
        assert daemon.get(path).status == 404, path
    assert daemon.request("/metrics", method="POST").status == 405
