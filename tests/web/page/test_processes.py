# SPDX-License-Identifier: Apache-2.0
"""The processes of a GPU on its page: who they are, what they use, whose work they are."""

from __future__ import annotations

import re
from dataclasses import replace

from exporter.model.reading import Process
from exporter.model.snapshot import Share
from exporter.model.workload import NO_WORK, ShareWork, Workload
from exporter.web.page.processes import MOST_ROWS, gpu_processes
from tests import snapshots
from tests.web.conftest import Daemon

UNKNOWN = "not known"
EVIL = "<script>alert(1)</script>\"'&"
JOB = Workload("slurm", job="4711", user="ada")


def share_with(
    *processes: Process, work: ShareWork = NO_WORK, instance: int | None = None
) -> Share:
    (share,) = snapshots.h100_training().shares
    return replace(share, processes=processes, work=work, gpu_instance=instance)


def table(html: str) -> list[list[str]]:
    """Return the cells of each row, the headings first."""
    rows = re.findall("<tr>(.*?)</tr>", html)
    return [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def section(daemon: Daemon, path: str) -> str:
    """Return the place that scripts renew."""
    text = daemon.client.get(path).text
    return text.split('id="processes"')[1].split("</section>")[0]


def test_the_processes_of_a_gpu(daemon: Daemon) -> None:
    """The largest first, with memory, SM time, CPU time and workload; of each process a line."""
    share = share_with(
        Process(9, "graphics", 2**20, "Xorg", "root", cpu_cores=0.0),
        Process(7, "compute", 3 * 2**30, "python3", "ada", cpu_cores=1.5, sm_utilization_ratio=0.9),
        Process(7, "graphics", 3 * 2**30, "python3", "ada", cpu_cores=1.5),
        Process(8, "mps", None),
        work=ShareWork((JOB,), of_process={7: JOB}),
    )
    gpu = replace(snapshots.h100_training(), shares=(share,))
    daemon.publish(snapshots.snapshot(gpu))

    shown = section(daemon, "/gpu/0")

    assert table(shown) == [
        ["PID", "Kind", "Owner", "Command", "Memory", "SM time", "CPU", "Workload"],
        ["7", "compute, graphics", "ada", "python3", "3072 MiB", "90 %", "150 %", "ada, job 4711"],
        ["9", "graphics", "root", "Xorg", "1 MiB", UNKNOWN, "0 %", ""],
        ["8", "mps", *[UNKNOWN] * 5, ""],
    ]
    assert "100 % is one core" in shown


def test_what_is_not_known_of_any_has_no_column() -> None:
    """Such as owners with --no-process.owner, and instances on the page of one."""
    assert table(gpu_processes([share_with(Process(7, "compute"), instance=1)])) == [
        ["PID", "Kind"],
        ["7", "compute"],
    ]


def test_a_divided_gpu_lists_those_of_its_instances() -> None:
    """With the instance of each; an instance that is not read is no reason to say nothing."""
    one, two = share_with(Process(7, "compute", 1), instance=1), share_with(instance=2)
    three = share_with(Process(8, "compute", 2**30), instance=3)

    rows = table(gpu_processes([one, two, replace(two, processes=None), three]))

    assert [row[:2] for row in rows] == [["PID", "MIG instance"], ["8", "3"], ["7", "1"]]


def test_no_process_is_said() -> None:
    """None listed, none that can be listed, and a GPU that is down."""
    none = gpu_processes([share_with()])
    assert "<p>The driver lists no process on it.</p>" in none
    assert "100 %" not in none
    unknown = gpu_processes([replace(share_with(), processes=None)])
    assert "Not known: the driver does not list them here." in unknown
    assert "<p>Not readable.</p>" in gpu_processes([])


def test_many_are_counted() -> None:
    """The page of a node with thousands stays small."""
    listed = [Process(pid, "compute", pid) for pid in range(1, MOST_ROWS + 4)]
    html = gpu_processes([share_with(*listed)])

    assert len(table(html)) == 1 + MOST_ROWS
    assert html.endswith("<p>and 3 more</p></div></section>")
    assert table(html)[1][0] == str(MOST_ROWS + 3), "the largest first"


def test_hostile_names_stay_text() -> None:
    """Of commands and owners of a recording, and of pods; none is longer than a line."""
    pod = Workload("kubernetes", EVIL, "p" * 253)
    work = ShareWork((pod,), of_process={7: pod})
    html = gpu_processes([share_with(Process(7, "compute", 1, EVIL, "o" * 4096), work=work)])

    assert "<script>" not in html
    assert "alert(1)" in html
    assert max(len(cell) for row in table(html) for cell in row) < 120
