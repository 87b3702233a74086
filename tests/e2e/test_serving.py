# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes inference servers and a daemon, and the row *Serving* joins them."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import serving
from tests.dashboards.test_serving import PAGE, PAGES, RATES
from tests.dashboards.test_sums import substituted
from tests.e2e.conftest import MakeDriver, StartDaemon, StartPrometheus
from tests.e2e.processes import retry_once
from tests.e2e.prometheus import PrometheusServer
from tests.e2e.test_dcgm_page import GIVEN, H100, T4
from tests.serving import serving as served
from tests.sources.workload.kubernetes.kubelet import LIST, FakeKubelet
from tests.sources.workload.kubernetes.messages import Message, container, pod, pod_resources

SECONDS = 40.0
"""From the first scrape: rates are over 5 s."""
LLAMA, RESNET = "team-a/llama-0", "team-b/resnet-0"
SERVED = {"llama-0": "vllm", "resnet-0": "triton"}


PODS = (
    pod("team-a", "llama-0", container("vllm", GIVEN[0])),
    pod("team-b", "resnet-0", container("triton", GIVEN[1])),
)


class Handler(BaseHTTPRequestHandler):
    """Serves at /POD what such a server would: counters grow by `RATES`."""

    def do_GET(self) -> None:
        text = (PAGES / f"{SERVED[self.path.strip('/')]}.txt").read_text(encoding="utf-8")
        body = re.sub(r"^([a-z_:]+)(\{.*\}) (\S+)$", _grown, text, flags=re.MULTILINE)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *words: Any) -> None:
        pass


def _grown(found: re.Match[str]) -> str:
    name, labels, start = found.groups()
    return f"{name}{labels} {float(start) + time.monotonic() * RATES.get(name, 0.0)}"


def configuration(exporter: int, servers: int) -> str:
    """The relabelling of docs/serving.md, over what discovery in a cluster would find."""
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = next(yaml.safe_load(text) for text in texts if "scrape_configs" in text)
    (job,) = config["scrape_configs"]
    del job["kubernetes_sd_configs"]
    job["static_configs"] = [
        {
            "targets": [f"127.0.0.1:{servers}"],
            "labels": {
                "__metrics_path__": f"/{name}",
                "__meta_kubernetes_pod_label_app": "vllm",
                "__meta_kubernetes_pod_container_port_name": "http",
                "__meta_kubernetes_namespace": namespace,
                "__meta_kubernetes_pod_name": name,
            },
        }
        for namespace, _, name in (each.partition("/") for each in (LLAMA, RESNET))
    ]
    # The operator gives every series of ours the exporter's own pod.
    own = {"namespace": "monitoring", "pod": "roofline-exporter-x7k2p", "container": "exporter"}
    ours = {
        "job_name": "roofline-exporter",
        "static_configs": [{"targets": [f"127.0.0.1:{exporter}"], "labels": own}],
    }
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config["scrape_configs"].append(ours)
    return yaml.safe_dump(config)


@contextmanager
def kubelet(*pods: Message) -> Iterator[str]:
    """The flag that leads to a kubelet which gave GPUs to pods."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        served = FakeKubelet(Path(folder) / "kubelet.sock", LIST, pod_resources(*pods))
        served.start()
        yield f"--kubernetes.socket={served.path}"
        served.stop()


def wait_until_right(wrong: Callable[[], Sequence[str]], seconds: float) -> None:
    """Ask again and again what is wrong; fail with what still is after `seconds`."""
    deadline = time.monotonic() + seconds
    while (problems := wrong()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not problems, "\n".join(problems)


def _seen(server: PrometheusServer, expression: str) -> dict[str, float]:
    text = substituted(expression.replace("$__rate_interval", "5s"))
    return {
        "/".join(row["metric"][name] for name in serving.POD.split(", ")): float(row["value"][1])
        for row in server.query(text)
    }


@pytest.mark.slow
@retry_once
def test_servers_stand_beside_the_gpus_of_their_pods(
    make_driver: MakeDriver,
    start: StartDaemon,
    start_prometheus: StartPrometheus,
) -> None:
    """An H100 with counters and 500 W, of which 200 tokens/s make 0.4 a joule; a T4 with bounds."""
    wanted: Mapping[str, Mapping[str, Any]] = {
        serving.waiting(): {LLAMA: 8, RESNET: 12},
        serving.gpus(): {LLAMA: 1, RESNET: 1},
        serving.tokens(serving.GENERATED): {LLAMA: pytest.approx(200, rel=0.05)},
        serving.tokens_per_joule(): {LLAMA: pytest.approx(0.4, rel=0.1)},
        serving.of_server(serving.CACHE, "max"): {LLAMA: 0.5},
    }

    def wrong(server: PrometheusServer) -> list[str]:
        answers = ((query, _seen(server, query), right) for query, right in wanted.items())
        found = [f"{query}: {seen}, not {right}" for query, seen, right in answers if seen != right]
        least, most = _seen(server, serving.at_least()), _seen(server, serving.at_most())
        if not least.keys() == most.keys() == {LLAMA, RESNET}:
            return [*found, f"{least} {most}"]
        if least[LLAMA] != most[LLAMA] or not 0.5 < least[LLAMA] < 0.8:
            found.append(f"measured: {least} {most}")
        if least[RESNET] != 0 or not 0.3 <= most[RESNET] <= 1:
            found.append(f"bounded: {least} {most}")
        return found

    with kubelet(*PODS) as flag:
        daemon = start(make_driver({"devices": [H100, T4]}), flag)
        daemon.wait_for_page(15, "two GPUs up", gpu0=1, gpu1=1)
        with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
            server = start_prometheus(config=configuration(daemon.port, port))
            wait_until_right(lambda: wrong(server), SECONDS)
        # Their pods are gone.
        wait_until_right(lambda: list(_seen(server, serving.waiting())), SECONDS)
