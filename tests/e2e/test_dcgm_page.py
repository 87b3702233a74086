# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes `/metrics/dcgm`, and what people ask of dcgm-exporter has its answer.

The questions are those of the dashboard that dcgm-exporter ships (12239 at grafana.com), and of
public alerts and dashboards; the answers are what the driver was scripted to do.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.e2e.conftest import MakeDriver, StartDaemon, StartPrometheus
from tests.e2e.processes import retry_once
from tests.e2e.prometheus import PrometheusServer
from tests.fake_nvml import FakeNvml
from tests.sources.workload.kubernetes.kubelet import LIST, FakeKubelet
from tests.sources.workload.kubernetes.messages import container, pod, pod_resources

MIB = 2**20
ANSWERED_SECONDS = 30.0
"""From the first scrape: rates are over 5 s."""
CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: dcgm-exporter
    metrics_path: /metrics/dcgm
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
    params: {{names: [{names}]}}
"""
NODE = "node-17"

GIVEN = (
    "GPU-00000000-1111-2222-3333-444444444444",
    "GPU-00000001-1111-2222-3333-444444444444",
    "MIG-00000000-0000-0000-0000-000000000020",
)
"""To a pod, to a job of Slurm, and to another pod."""

H100: dict[str, Any] = {
    "product": "h100-sxm",
    "uuid": GIVEN[0],
    "utilization": 90,
    "power": 500,
    "temperature": {"gpu": 88},
    "memory": {"total": 81559 * MIB, "reserved": 559 * MIB, "used": 60750 * MIB},
    "throttle": {"power": 0.25},
    "gpm": {
        "graphics": 80,
        "sm": 70,
        "occupancy": 30,
        "tensor": 60,
        "hmma": 60,
        "dram": 40,
        "fp64": 0,
        "fp32": 10,
        "fp16": 5,
        "int": 8,
        "nvdec": 20,
    },
}
T4: dict[str, Any] = {
    "product": "t4",
    "uuid": GIVEN[1],
    "utilization": 30,
    "power": 50,
    "temperature": {"gpu": 60},
}
MIG: dict[str, Any] = {
    "product": "h100-sxm",
    "power": 300,
    "temperature": {"gpu": 50},
    "mig": {
        "instances": [
            {
                "gi": gi,
                "ci": 0,
                "profile": "3g.40gb",
                "uuid": f"MIG-00000000-0000-0000-0000-0000000000{gi}0",
                "memory_mb": 40000,
                "memory_used": used * MIB,
                "gpm": {"graphics": graphics, "sm": 10, "tensor": 5, "dram": 5, "occupancy": 5},
            }
            for gi, used, graphics in ((1, 10000, 50), (2, 20000, 20))
        ]
    },
}
F = 'instance=~"127.*", gpu=~"0|1|2"'


class Asked(NamedTuple):
    """One question in both generations, and its answer by the GPU, and by instance where there is
    one; or one number for all."""

    legacy: str
    current: str
    answer: dict[str, float] | float
    tolerance: float = 0.02
    """Relative."""


ASKED = (
    # The shipped dashboard. From 4.9 on utilization is a ratio.
    Asked(
        f"DCGM_FI_DEV_GPU_TEMP{{{F}}}",
        f"DCGM_FI_DEV_GPU_TEMP_CELSIUS{{{F}}}",
        {"0": 88, "1": 60, "2/1": 50, "2/2": 50},
        0,
    ),
    Asked(
        f"sum(DCGM_FI_DEV_POWER_USAGE{{{F}}})", f"sum(DCGM_FI_DEV_BOARD_POWER_WATTS{{{F}}})", 850
    ),
    Asked(
        f"DCGM_FI_DEV_GPU_UTIL{{{F}}}",
        f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{F}}} * 100",
        {"0": 90, "1": 30},
    ),
    Asked(
        'DCGM_FI_DEV_FB_USED{instance=~"127.*", gpu=~"0|2"}',
        'DCGM_FI_DEV_FB_USED_BYTES{instance=~"127.*", gpu=~"0|2"} / 1024^2',
        {"0": 60750, "2/1": 10000, "2/2": 20000},
        0,
    ),
    # Its newer form, which also knows MIG.
    Asked(
        'max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname=~"node.*", gpu=~".*"})'
        " by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
        'max(DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{hostname=~"node.*", gpu=~".*"})'
        " by (hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
        {"0": 0.8, "2/1": 0.5, "2/2": 0.2},
    ),
    # Alerts.
    Asked(
        'DCGM_FI_DEV_XID_ERRORS{err_code="79"}',
        'DCGM_FI_DEV_XID_ERROR{err_code="79"}',
        {"1": 79},
        0,
    ),
    Asked(
        '100 * rate(DCGM_FI_DEV_POWER_VIOLATION{gpu="0"}[5s]) / 1e9',
        '100 * rate(DCGM_FI_DEV_POWER_VIOLATION{gpu="0"}[5s]) / 1e9',
        {"0": 25},
        0.1,
    ),
    Asked(
        'rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"}[5s]) / 1000',
        'rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{gpu="0"}[5s])',
        {"0": 500},
        0.1,
    ),
    # Whose work it is.
    Asked(
        'sum by (gpu) (DCGM_FI_DEV_GPU_TEMP{namespace="team-a", pod="train-0", container="main"})',
        "sum by (gpu) (DCGM_FI_DEV_GPU_TEMP_CELSIUS"
        '{namespace="team-a", pod="train-0", container="main"})',
        {"0": 88},
        0,
    ),
    Asked(
        'sum by (gpu, GPU_I_ID) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""})',
        'sum by (gpu, GPU_I_ID) (DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{pod!=""})',
        {"0": 0.8, "2/2": 0.2},
    ),
    Asked(
        'sum by (gpu) (DCGM_FI_DEV_GPU_TEMP{hpc_job="4711"})',
        'sum by (gpu) (DCGM_FI_DEV_GPU_TEMP_CELSIUS{hpc_job="4711"})',
        {"1": 60},
        0,
    ),
)


def _key(labels: dict[str, str]) -> str:
    return "/".join(labels[name] for name in ("gpu", "GPU_I_ID") if name in labels)


def _wrong(server: PrometheusServer, expression: str, asked: Asked) -> str | None:
    """Return what is wrong with an answer; None if it is the right one."""
    found = {_key(row["metric"]): float(row["value"][1]) for row in server.query(expression)}
    wanted = asked.answer if isinstance(asked.answer, dict) else {"": asked.answer}
    right = found == {
        key: pytest.approx(value, rel=asked.tolerance) for key, value in wanted.items()
    }
    return None if right else f"{expression}: {found}, not {wanted}"


@pytest.fixture
def schedulers(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The flags that lead to a kubelet, and to the files of a Slurm prolog."""
    jobs = tmp_path / "gpustat"
    jobs.mkdir()
    (jobs / GIVEN[1]).write_text("4711 ada\n")
    said = pod_resources(
        pod("team-a", "train-0", container("main", GIVEN[0])),
        pod("team-b", "serve-0", container("vllm", GIVEN[2], resource="nvidia.com/mig-3g.40gb")),
    )
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        kubelet = FakeKubelet(Path(folder) / "kubelet.sock", LIST, said)
        kubelet.start()
        yield f"--kubernetes.socket={kubelet.path}", f"--slurm.gpustat={jobs}"
        kubelet.stop()


OPENCOST = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: dcgm-exporter
    metrics_path: /metrics/dcgm
    relabel_configs: {relabelings}
    static_configs:
      - targets: ['127.0.0.1:{port}']
        labels: {{namespace: monitoring, pod: roofline-exporter-x7k2p, container: exporter}}
"""
"""With the labels that the operator gives to a target: those of the exporter's own pod."""
TRAIN, SERVE = ("main", "train-0", "team-a"), ("vllm", "serve-0", "team-b")
ASKED_BY_OPENCOST: dict[str, dict[tuple[str, str, str], float]] = {
    'avg(avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=""}[5s]))'
    " by (container, pod, namespace, uid, cluster_id)": {TRAIN: 0.8, SERVE: 0.2},
    'max(max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=""}[5s]))'
    " by (container, pod, namespace, uid, cluster_id)": {TRAIN: 0.8, SERVE: 0.2},
    'avg(avg_over_time(DCGM_FI_DEV_DEC_UTIL{container!="",}[5s]))'
    " by (container, pod, namespace, device, modelName, UUID, uid, cluster_id)": {TRAIN: 20},
}
"""The queries of modules/prometheus-source/pkg/prom/metricsquerier.go of opencost/opencost, without
its filter of the cluster. The driver does not know the decoder of a MIG instance."""


def _wrong_for_opencost(server: PrometheusServer) -> list[str]:
    """What is wrong with its answers: they are of the containers that have a GPU or an instance,
    and not of the exporter's own, which has none."""
    found = []
    for query, right in ASKED_BY_OPENCOST.items():
        seen = {
            tuple(row["metric"][name] for name in ("container", "pod", "namespace")): float(
                row["value"][1]
            )
            for row in server.query(query)
        }
        if seen != {pod: pytest.approx(value, rel=0.02) for pod, value in right.items()}:
            found.append(f"{query}: {seen}, not {right}")
    return found


@retry_once
def test_prometheus_asks_what_it_asks_of_dcgm_exporter(
    make_driver: MakeDriver,
    start: StartDaemon,
    schedulers: tuple[str, ...],
    start_prometheus: StartPrometheus,
) -> None:
    """In both generations, of one daemon: every question has the scripted answer. OpenCost finds
    the use of each container."""
    driver = make_driver({"devices": [H100, T4, MIG]})
    daemon = start({**driver.environment(), "NODE_NAME": NODE}, *schedulers)
    daemon.wait_for_page(15, "three GPUs up", gpu0=1, gpu1=1, gpu2=1)
    _send_xid(driver)
    servers = {
        names: start_prometheus(config=CONFIG.format(port=daemon.port, names=names))
        for names in ("legacy", "current")
    }
    config = OPENCOST.format(port=daemon.port, relabelings=_documented_relabelings())
    opencost = start_prometheus(config=config)

    def wrong() -> list[str]:
        answers = (
            _wrong(servers[names], getattr(asked, names), asked)
            for asked in ASKED
            for names in servers
        )
        found = [answer for answer in answers if answer is not None]
        return [*found, *_wrong_for_opencost(opencost)]

    deadline = time.monotonic() + ANSWERED_SECONDS
    while (problems := wrong()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not problems, "\n".join(problems)


def _documented_relabelings() -> str:
    """Those of docs/dcgm.md, which are called the same in a scrape configuration."""
    page = (Path(__file__).parents[2] / "docs" / "dcgm.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(podMetricsEndpoints.*?)```", page, re.DOTALL)
    return json.dumps(yaml.safe_load(text)["podMetricsEndpoints"][0]["relabelings"])


def _send_xid(driver: FakeNvml) -> None:
    """Let GPU 1 report Xid 79 while the daemon listens."""
    driver.update(xids=[{"at": driver.now() - driver.epoch + 1.0, "gpu": 1, "xid": 79}])
