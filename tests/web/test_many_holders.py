# SPDX-License-Identifier: Apache-2.0
"""Any user can have thousands of processes in groups of their own: no answer grows by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.derive.workloads import OnShare, work_of_shares
from exporter.exposition.processes import ProcessRows
from exporter.exposition.render import RenderOptions
from exporter.model.reading import Instance, Process
from exporter.model.snapshot import Snapshot
from exporter.model.workload import Membership
from tests import snapshots
from tests.web.conftest import Daemon

PATHS = (
    "/metrics",
    "/metrics/dcgm",
    "/metrics/dcgm?names=current",
    "/api/v1/gpus",
    "/api/v1/gpus/2",
    "/",
    "/gpu/2",
    "/gpu/2?instance=1",
)
MOST_BYTES = 600_000
"""Of one GPU with seven instances: 5,000 holders without a bound took 12.8 MB."""


def holders(count: int, first: int) -> tuple[Process, ...]:
    """As many processes, each in a container of its own."""
    return tuple(
        Process(
            pid,
            "compute",
            used_bytes=2**20,
            command="python",
            owner="eve",
            membership=Membership(container_id=f"{pid:064x}", runtime="docker"),
            sm_utilization_ratio=0.001,
        )
        for pid in range(first, first + count)
    )


def held(count: int, *, divided: bool) -> Snapshot:
    """A GPU that so many processes hold, or seven instances of one."""
    gpu = snapshots.h100_mig(2) if divided else snapshots.h100_training(2)
    numbers = range(1, 8) if divided else [None]
    share = gpu.shares[0]
    if divided:
        instances = tuple(Instance(each, 0, "1g.10gb", f"MIG-{each}") for each in range(1, 8))
        gpu = replace(gpu, device=replace(gpu.device, instances=instances))
    shares = [
        replace(
            share,
            gpu_instance=number,
            processes=holders(count // len(numbers), (number or 0) * 10**6),
        )
        for number in numbers
    ]
    work = work_of_shares(
        [], [OnShare(gpu.device, each.gpu_instance, each.processes) for each in shares]
    )
    shares = [replace(each, work=of) for each, of in zip(shares, work.values(), strict=True)]
    return snapshots.snapshot(replace(gpu, shares=tuple(shares)))


@pytest.mark.parametrize("divided", [False, True], ids=["whole", "seven instances"])
def test_no_answer_grows_with_the_holders(daemon: Daemon, *, divided: bool) -> None:
    """Thirty thousand need no more room than five thousand, wherever they are shown."""
    lengths: list[dict[str, int]] = []
    rows = ProcessRows(memory=True, utilization=True)
    daemon.pages.reconfigure(RenderOptions(processes=rows))
    for count in (5_000, 30_000):
        daemon.publish(held(count, divided=divided))
        answers = {path: daemon.client.get(path) for path in PATHS}
        assert {path: answer.status_code for path, answer in answers.items()} == {
            path: 404 if path.endswith("=1") and not divided else 200 for path in PATHS
        }
        lengths.append({path: len(answer.content) for path, answer in answers.items()})
        lengths[-1]["view"] = len(str(daemon.views.latest()))
    few, many = lengths
    assert max(many.values()) < MOST_BYTES
    for path, length in many.items():
        assert length == pytest.approx(few[path], rel=0.02, abs=300), path
