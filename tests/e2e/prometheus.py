# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes one target."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.processes import Process
from tests.serving import answer_of

CONFIG = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {timeout}
scrape_configs:
  - job_name: gpu
    static_configs:
      - targets: ['127.0.0.1:{port}']
"""
LISTENING = r'msg="Listening on" (?:component=web )?address=(127\.0\.0\.1:\d+)'
"""In the log; the component is Prometheus 3's."""


class PrometheusServer(Process):
    """Prometheus with its defaults, on a port that it chose itself."""

    def __init__(
        self,
        program: str,
        directory: Path,
        port: int,
        interval: str,
        config_text: str = "",
        flags: Sequence[str] = (),
    ) -> None:
        """Scrape one port, or do what a configuration of its own says."""
        directory.mkdir(parents=True)
        config = directory / "prometheus.yml"
        text = CONFIG.format(interval=interval, timeout=interval, port=port)
        config.write_text(config_text or text)
        super().__init__(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                *flags,
            ],
            directory,
        )
        found = self.find_in_line(LISTENING)
        self.address = found[1]
        self.find_in_line("Server is ready to receive web requests")

    def get(self, path: str, **fields: str) -> Any:
        """The data of an answer of its API."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
        answer = json.loads(answer_of(url))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Evaluate an expression, now or at a Unix time; the answer's result."""
        time = {} if at is None else {"time": f"{at:.3f}"}
        result: list[dict[str, Any]] = self.get("query", query=expression, **time)["result"]
        return result

    def by_gpu(self, expression: str, at: float) -> dict[int, float]:
        """The value of an expression by GPU index."""
        return {
            int(row["metric"]["gpu"]): float(row["value"][1]) for row in self.query(expression, at)
        }
