# SPDX-License-Identifier: Apache-2.0
"""A job whose NCCL answers on this node, as Prometheus sees it."""

from __future__ import annotations

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.sources.nccl.ras_server import RasServer, absent, rank, status
from tests.waiting import wait_until


def test_a_dead_rank_is_on_the_page(make_driver: MakeDriver, start: StartDaemon) -> None:
    """Without the flag nobody is asked."""
    driver = make_driver({"devices": [{"product": "h100-sxm"}]})
    with RasServer(status(([rank(0, 100)], [absent(1, 101, dead=True)]))) as ras:
        address = f"--nccl.ras-address=127.0.0.1:{ras.port}"
        quiet = start(driver.environment(), address)
        daemon = start(driver.environment(), "--source.nccl-ras", address)

        def dead() -> float | None:
            return daemon.metrics().get("gpu_nccl_ras_ranks", state="dead")

        assert wait_until(dead, 20.0, "the answer of the job") == 1.0
        page = daemon.metrics()
        assert page.get("gpu_nccl_ras_ranks", state="responding") == 1.0
        assert page.get("roofline_exporter_source_up", source="nccl-ras") == 1.0
        assert "gpu_nccl_ras_ranks" not in quiet.metrics().names
        assert "nccl-ras" not in quiet.get("/metrics").text
