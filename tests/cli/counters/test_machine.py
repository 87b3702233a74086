# SPDX-License-Identifier: Apache-2.0
"""``counters check`` on this machine: yes or no, and the next command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.cli.counters.check import compared, machine_of, pairs
from exporter.cli.counters.machine import ALLOW, NOTHING, SAMPLE, Machine, capability, restricted
from exporter.cli.terminal.screen import Screen
from exporter.model.snapshot import Recent, Snapshot
from exporter.sources.cupti.release import Release, Unfit
from tests import snapshots

NONE, PERFMON = "0" * 16, "0000004000000000"
SYS_ADMIN, ROOT = "0000000000200000", "000001ffffffffff"
RESTRICTED = "EnableMSI: 1\nRmProfilingAdminOnly: 1\nX: 0\n"
FOUND = Release("nvidia-cuda-cupti", "13.1.115", Path("/"))
MISSING = Unfit("missing", "CUPTI is not installed", "pip install x")


@pytest.mark.parametrize(
    ("effective", "params", "may", "said"),
    [
        (NONE, RESTRICTED, False, "no, the driver gives them to adm.*; this process has no CAP_P"),
        (NONE, "RmProfilingAdminOnly: 0\n", True, "yes, the driver gives them to every user"),
        (NONE, "EnableMSI: 1\n", None, "not known, the driver does not say"),
        (None, None, None, "not known, the driver does not say"),
        (PERFMON, RESTRICTED, True, "yes, the driver gives them to adm.*; .* has CAP_PERFMON$"),
        (SYS_ADMIN, RESTRICTED, True, "yes, the driver gives them to adm.* has CAP_SYS_ADMIN$"),
        (ROOT, None, True, "yes, the driver does not say"),
    ],
)
def test_whether_this_user_may_read_counters(
    tmp_path: Path, effective: str | None, params: str | None, may: bool | None, said: str
) -> None:
    """By the capabilities in effect and the option of the driver; not known where neither says."""
    status = f"Name:\tx\nCapPrm:\t{ROOT}\nCapEff:\t{effective}\nCapBnd:\t{ROOT}\n"
    for file, text in (("self/status", effective and status), ("driver/nvidia/params", params)):
        (tmp_path / file).parent.mkdir(parents=True)
        if text is not None:
            (tmp_path / file).write_text(text)
    machine = Machine(FOUND, capability(tmp_path), restricted(tmp_path))
    found, counters, _ = machine.lines()

    assert machine.allowed is may
    assert found == "Library: yes, nvidia-cuda-cupti 13.1.115"
    assert re.match(f"Counters: {said}", counters)


@pytest.mark.parametrize(
    ("machine", "next_"),
    [
        (Machine(MISSING, None, True), "pip install x"),
        (Machine(FOUND, None, True), ALLOW),
        (Machine(FOUND, None, None), SAMPLE),
        (Machine(FOUND, "CAP_PERFMON", True), SAMPLE),
        (Machine(MISSING, None, True, all_measured=True), NOTHING),
    ],
)
def test_the_next_command(machine: Machine, next_: str) -> None:
    """One at a time: what is missing first, and nothing where all is measured already."""
    assert list(machine.lines())[-1] == f"Next: {next_}"
    assert machine.json["next"] == next_


def test_where_a_daemon_measures_every_gpu_nothing_is_next(tmp_path: Path) -> None:
    """One that is only bounded, and a node without GPUs, still want CUPTI."""
    h100, t4 = snapshots.h100_training(0), snapshots.t4_estimate(1)
    asked = ((h100,), (h100, t4), ())
    found = [machine_of(tmp_path, None, snapshots.snapshot(*gpus)) for gpus in asked]

    assert [each.all_measured for each in found] == [True, False, False]


def h100(memory: float | None, dram: float | None) -> Snapshot:
    """An H100 of which these means are known."""
    gpu = snapshots.h100_training()
    (share,) = gpu.shares
    active = {} if dram is None else {"dram": dram}
    recent = Recent(seconds=10.0, memory_utilization_ratio=memory, active_ratio=active)
    return snapshots.snapshot(replace(gpu, shares=(replace(share, recent=recent),)))


def test_memory_utilization_stands_beside_the_dram_activity() -> None:
    """With the estimate that a GPU without counters would have."""
    (pair,) = pairs(h100(0.6, 0.5))
    header, row, *note = compared([pair], h100(0.6, 0.5), Screen(100))

    assert header.split() == ["GPU", "m", "0.77", "m", "D"]
    assert row.split() == ["0", "60", "%", "46", "%", "50", "%"]
    assert " ".join(note).startswith("Means of the last 10 s. m: the driver's memory utilization")
    assert pair._asdict() == {
        "gpu": "0",
        "memory_utilization_ratio": 0.6,
        "dram_estimate_ratio": pytest.approx(0.462),
        "dram_ratio": 0.5,
    }


@pytest.mark.parametrize(("memory", "dram"), [(None, 0.5), (0.6, None)])
def test_a_gpu_that_lacks_one_of_both_has_no_pair(memory: float | None, dram: float | None) -> None:
    """As GPUs without counters, and MIG instances; and a GPU before its second reading."""
    assert pairs(h100(memory, dram)) == []
    assert pairs(snapshots.snapshot(snapshots.t4_estimate())) == []
