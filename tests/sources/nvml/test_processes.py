# SPDX-License-Identifier: Apache-2.0
"""The processes that the driver lists, and who they are by /proc."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import c_uint
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.model.reading import Process
from exporter.model.workload import Membership
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml import processes
from exporter.sources.nvml.processes import MOST_ENTRIES, GrowingArray, ProcessLists
from exporter.sources.proc import procfs
from tests.fake_nvml import DRIVER_470, fault
from tests.sources.conftest import Open

GIB = 2**30
V3_ONLY_535 = ("nvmlDeviceGetRunningProcessDetailList",)


def command(root: Path, pid: int, name: str) -> None:
    (root / str(pid)).mkdir(parents=True)
    (root / str(pid) / "comm").write_bytes(name.encode() + b"\n")


def read(rig: Any, root: Path, instances: list[int] | None = None) -> Any:
    return ProcessLists(rig.handle, rig.journal, str(root)).read(instances)


def test_the_cpus_of_a_real_process(open_gpu: Open) -> None:
    """A process that is bound to one CPU has that one; one that has gone, none."""
    [cpu, *_] = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bound:
        os.sched_setaffinity(bound.pid, {cpu})
        rig = open_gpu(processes=[{"pid": bound.pid, "bytes": 5}, {"pid": 2**22 + 1, "bytes": 4}])
        [one, gone] = read(rig, Path("/proc"))[None]
        bound.kill()

    assert (one.cpu_list, gone.cpu_list) == (str(cpu), None)


def test_a_cpu_list_that_is_too_long_is_not_known(tmp_path: Path) -> None:
    """A part of it would be another list."""
    listed = ",".join(map(str, range(0, 4096, 2)))
    command(tmp_path, 10, "python3")
    (tmp_path / "10/status").write_text(
        f"Name:\tx\nCpus_allowed_list:\t{listed}\nMems_allowed:\t1\n"
    )
    assert procfs.allowed_cpus(str(tmp_path), 10) is None
    (tmp_path / "10/status").write_text("Name:\tx\nCpus_allowed_list:\t0-3,8\nMems_allowed:\t1\n")
    assert procfs.allowed_cpus(str(tmp_path), 10) == "0-3,8"


def test_each_list_has_its_kind(open_gpu: Open, tmp_path: Path) -> None:
    """Compute, graphics and MPS processes are distinguished, with memory, command and owner."""
    command(tmp_path, 10, "python3")
    user = pwd.getpwuid(os.getuid()).pw_name
    listed = {"compute": (10, GIB), "graphics": (11, 5), "mps": (12, None)}
    rig = open_gpu(
        processes={kind: [{"pid": pid, "bytes": used}] for kind, (pid, used) in listed.items()}
    )
    first, *others = read(rig, tmp_path)[None]

    assert first == Process(10, "compute", GIB, "python3", user, "other")
    assert others == [Process(11, "graphics", 5), Process(12, "mps", None)]


@pytest.mark.parametrize(("product", "found"), [("h100-sxm", True), ("a100-sxm4-80gb", None)])
def test_what_computes_in_fp8_is_looked_for_where_there_is_fp8(
    open_gpu: Open, tmp_path: Path, product: str, found: bool | None
) -> None:
    """Among the compute processes of a Hopper; those of an Ampere are left alone."""
    command(tmp_path, 10, "python3")
    (tmp_path / "10" / "stat").write_text("10 (python3) S " + "0 " * 18 + "5\n")
    (tmp_path / "10" / "maps").write_text("7f00-7f01 r-xp 0 08:01 1 /x/libtransformer_engine.so\n")
    rig = open_gpu(product=product, processes=[{"pid": 10, "bytes": GIB}])
    (share,) = rig.session(SessionOptions(procfs=str(tmp_path))).read().shares
    assert share.processes is not None
    assert [process.transformer_engine for process in share.processes] == [found]


def test_each_process_carries_whose_it_is(open_gpu: Open, tmp_path: Path) -> None:
    """By its control group at each read: of a container, then moved into a job; else None."""
    command(tmp_path, 10, "python3")
    command(tmp_path, 11, "python3")
    groups = tmp_path / "10" / "cgroup"
    groups.write_text(f"0::/system.slice/docker-{'a' * 64}.scope\n")
    rig = open_gpu(processes={"compute": [{"pid": 10}, {"pid": 11}], "graphics": [{"pid": 10}]})
    lists = ProcessLists(rig.handle, rig.journal, str(tmp_path))

    def whose() -> list[tuple[int, Membership | None]]:
        found = (lists.read(None) or {})[None]
        return [(process.pid, process.membership) for process in found]

    docker = Membership(container_id="a" * 64, runtime="docker")
    assert whose() == [(10, docker), (11, None), (10, docker)]
    groups.write_text("0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n")
    job = Membership(slurm_job="5", slurm_step="0")
    assert whose() == [(10, job), (11, None), (10, job)]


def test_each_process_carries_the_cpu_time_that_it_uses(open_gpu: Open) -> None:
    """This process, which computes between two reads; the driver's other one is not there."""
    here, nobody = os.getpid(), 2**30
    rig = open_gpu(processes={"compute": [{"pid": here}, {"pid": nobody}]})
    lists = ProcessLists(rig.handle, rig.journal, "/proc")
    found: list[Process] = []
    for _ in range(2):
        found += (lists.read(None) or {})[None]
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass

    first, _, used, unknown = (process.cpu_cores for process in found)
    assert first is unknown is None
    assert used is not None
    assert used > 0.0


def test_the_largest_are_looked_up(
    open_gpu: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others count, but to read thousands in /proc would look like a driver that hangs."""
    monkeypatch.setattr(processes, "MOST_LOOKED_UP", 3)
    for pid in range(1, 9):
        command(tmp_path, pid, f"command-{pid}")
    several = [{"pid": pid, "bytes": pid} for pid in (1, 8, 2, 6, 3, 4)]
    rig = open_gpu(processes={"compute": several, "graphics": [{"pid": 8, "bytes": 8}]})

    found = read(rig, tmp_path)[None]

    assert [each.used_bytes for each in found] == [1, 8, 2, 6, 3, 4, 8]
    looked = {each.pid for each in found if each.command == f"command-{each.pid}"}
    assert looked == {each.pid for each in found if each.command} == {8, 6, 4}


def test_idle_gpu_has_no_processes(open_gpu: Open, tmp_path: Path) -> None:
    """An empty list is known; it is not the same as an unknown one."""
    assert read(open_gpu(), tmp_path) == {None: ()}


OTHERS_NAMESPACE = "pid:[4026532201]"


@pytest.mark.parametrize("namespace", [OTHERS_NAMESPACE, None])
def test_empty_lists_outside_the_hosts_pid_namespace_are_unknown(
    open_gpu: Open,
    tmp_path: Path,
    pid_namespace: Callable[[str | None], None],
    namespace: str | None,
) -> None:
    """The driver hides other processes from a container with its own pid namespace; a namespace
    that cannot be read (no /proc/self/ns/pid) is treated the same."""
    pid_namespace(namespace)

    assert read(open_gpu(), tmp_path) is None
    assert read(open_gpu(mig={"instances": [{"gi": 2}]}), tmp_path, [2]) is None


def test_entries_outside_the_hosts_pid_namespace_are_used(
    open_gpu: Open, tmp_path: Path, pid_namespace: Callable[[str | None], None]
) -> None:
    """An older driver lists everything to everybody: then a share without a process is free."""
    pid_namespace(OTHERS_NAMESPACE)
    rig = open_gpu(
        processes=[{"pid": 10, "bytes": 1, "gi": 2, "ci": 0}],
        mig={"instances": [{"gi": 2}, {"gi": 3}]},
    )

    assert read(rig, tmp_path, [2, 3]) == {2: (Process(10, "compute", 1),), 3: ()}


@pytest.mark.parametrize("growth", [0, 30, 100])
def test_list_that_grows_between_two_calls_is_asked_for_again(
    open_gpu: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, growth: int
) -> None:
    """Each INSUFFICIENT_SIZE has the present size: the next array is twice as large."""
    rig = open_gpu(processes=listed(20))
    asked = grow_with_each_call(rig, monkeypatch, growth)
    found = read(rig, tmp_path)[None]

    assert len(found) == 20 + growth * (len(asked) - 1)
    assert 2 <= len(asked) <= 4
    assert rig.failures == {}


def test_list_that_outgrows_every_attempt_is_a_failure(
    open_gpu: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked for without end."""
    rig = open_gpu(processes=listed(20))
    monkeypatch.setattr("exporter.sources.nvml.processes.ATTEMPTS", 2)
    asked = grow_with_each_call(rig, monkeypatch, 100)

    assert read(rig, tmp_path) is None
    assert len(asked) == 2
    assert rig.failures == {"nvml": 1}


def listed(count: int) -> list[dict[str, int]]:
    return [{"pid": 1000 + number, "bytes": 1} for number in range(count)]


@pytest.mark.parametrize("size", [0, 200, 2**32 - 1])
def test_an_array_does_not_grow_without_end(size: int) -> None:
    """A driver that never finds the array large enough costs no more than a few MB."""
    rooms = []

    def fill(array: Any, count: c_uint) -> int:
        rooms.append(len(array))
        count.value = size
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)

    array = GrowingArray(pynvml.c_nvmlProcessInfo_v2_t)
    for _ in range(3):
        with pytest.raises(pynvml.NVMLError_InsufficientSize):
            array.read(fill)

    assert max(rooms) <= MOST_ENTRIES


def grow_with_each_call(rig: Any, monkeypatch: pytest.MonkeyPatch, growth: int) -> list[int]:
    """Let so many compute processes start after each time that they are asked for."""
    monkeypatch.setattr(processes, "ENTRIES", 8)
    function = pynvml._nvmlGetFunctionPointer
    asked: list[int] = []

    def pointer(name: str) -> Any:
        call = function(name)
        if name != "nvmlDeviceGetComputeRunningProcesses_v3":
            return call

        def counted(*arguments: Any) -> Any:
            code = call(*arguments)
            asked.append(code)
            rig.fake.device(0, processes=listed(20 + growth * len(asked)))
            return code

        return counted

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pointer)
    return asked


@pytest.mark.parametrize("missing", [DRIVER_470, V3_ONLY_535], ids=["470", "wide-entries"])
def test_older_drivers_are_asked_the_older_call(
    open_gpu: Open, tmp_path: Path, missing: tuple[str, ...]
) -> None:
    """Without the newest lists, or where the binding would misread their entries, the lists of
    version 2 answer."""
    rig = open_gpu(missing=missing, processes=[{"pid": 10, "bytes": GIB}])

    assert read(rig, tmp_path) == {None: (Process(10, "compute", GIB),)}
    assert rig.journal.states == {}
    assert "nvmlDeviceGetComputeRunningProcesses_v3" not in rig.calls()


def test_refused_list_is_unknown(open_gpu: Open, tmp_path: Path) -> None:
    """A list that is refused makes the processes unknown, not none."""
    rig = open_gpu(processes=[{"pid": 10}])
    rig.fake.update(faults=[fault("nvmlDeviceGetComputeRunningProcesses*", error=4)])
    lists = ProcessLists(rig.handle, rig.journal, str(tmp_path))

    assert lists.read(None) is None
    assert rig.journal.states == {"compute_processes": "no_permission"}


def test_other_lists_may_be_missing(open_gpu: Open, tmp_path: Path) -> None:
    """A GPU model without graphics or MPS lists still has its compute processes."""
    rig = open_gpu(processes=[{"pid": 10, "bytes": 1}])
    rig.fake.update(faults=[fault("nvmlDeviceGet[GM]*RunningProcesses*", error=3)])

    assert read(rig, tmp_path) == {None: (Process(10, "compute", 1),)}
    assert set(rig.journal.states) == {"graphics_processes", "mps_processes"}


def test_processes_by_instance(open_gpu: Open, tmp_path: Path) -> None:
    """Under MIG a process belongs to its GPU instance; one of no known instance to none."""
    rig = open_gpu(
        processes=[
            {"pid": 10, "bytes": 1, "gi": 2, "ci": 0},
            {"pid": 11, "bytes": 2, "gi": 2, "ci": 1},
            {"pid": 12, "bytes": 3, "gi": 3, "ci": 0},
            {"pid": 13, "bytes": 4, "gi": 9, "ci": 0},
            {"pid": 14, "bytes": 5},
        ],
        mig={"instances": [{"gi": 2}, {"gi": 3}, {"gi": 4}]},
    )
    found = read(rig, tmp_path, [2, 3, 4])

    pids = {share: [process.pid for process in listed] for share, listed in found.items()}
    assert pids == {2: [10, 11], 3: [12], 4: []}


def test_owner_without_a_name_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that this host does not know keeps his number."""
    (tmp_path / "1").mkdir()

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert procfs.owner(str(tmp_path), 1) == str(os.getuid())
