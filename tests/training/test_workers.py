# SPDX-License-Identifier: Apache-2.0
"""What the workers of a loader do, and the cause that a real job names at its end.

The jobs are real, on real PyTorch: workers that compute burn CPU, and those that wait for storage
read from a filesystem that takes a while to answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline_job import workers
from tests.training.slow_storage import slow_storage
from tests.training.test_summary import ran

SOURCE = """
import os, time, torch
from roofline_job import phase
from torch.utils.data import DataLoader, Dataset
{first}
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def read(index, size, times):
    file = os.open("storage/data", os.O_RDONLY)
    for number in range(times):
        os.pread(file, size, (index * times + number) << 30)
    os.close(file)

class Data(Dataset):
    def __len__(self):
        return {batches}
    def __getitem__(self, index):
        {item}
        return torch.zeros(4)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Data(), 1, num_workers={workers}, persistent_workers={persistent})
    for epoch in range({epochs}):
        for number, batch in enumerate(loader):
            model(batch).sum().backward()
            optimizer.step()
            time.sleep(0.01)
            {body}
    {after}
"""
SAVE = "with phase('checkpoint'): time.sleep(0.3)"
LOG = "with phase('logging'): time.sleep(0.005)"
DEFAULTS = {
    "item": "time.sleep(0.001)",
    "workers": 2,
    "batches": 180,
    "epochs": 1,
    "persistent": False,
    "body": "",
    "after": "",
    "first": "",
}
STALL = re.compile(r"waited \S+ s \((\d+) % of the loop\) for data")


def line(folder: Path, **job: Any) -> str:
    """Return the line of a job that differs in so much from the usual one."""
    pytest.importorskip("torch")
    done = ran(folder, SOURCE.format(**{**DEFAULTS, **job}))
    assert done.returncode == 0, done.stderr
    return done.stderr


def causes(said: str) -> list[str]:
    """Return the causes that a line names, by the addresses in it."""
    return re.findall(r"docs/causes\.md#(\w+)\)", said)


def stall(said: str) -> int:
    """Return the share of the loop, in percent."""
    found = STALL.search(said)
    assert found, said
    return int(found[1])


def halved(said: str, folder: Path, **job: Any) -> str:
    """Return the line of a job that took the advice, and waits half as much at most; a busy machine
    has a second try."""
    for _ in range(2):
        better = line(folder, **job)
        if stall(better) <= stall(said) / 2:
            return better
    pytest.fail(f"{stall(better)} % after {stall(said)} %")


@pytest.mark.slow
@pytest.mark.parametrize("work", ["burn(0.012)", "time.sleep(0.012)"])
def test_a_loop_without_workers_is_told_so(tmp_path: Path, work: str) -> None:
    """Whatever its batches take. The advice is tried where they wait: cores are shared here."""
    said = line(tmp_path, item=work, workers=0, batches=120)
    assert causes(said) == ["no_workers"]
    assert ": the loader has no workers (num_workers=0): the training loop prepares" in said
    knob = re.search(r"Set num_workers=(\d+) and persistent_workers=True", said)
    assert knob
    if "sleep" in work:
        halved(said, tmp_path, item=work, workers=int(knob[1]), persistent=True, batches=120)


@pytest.mark.slow
def test_batches_that_no_worker_would_bring_sooner_name_no_cause(tmp_path: Path) -> None:
    """To hand a batch over takes a worker longer."""
    assert causes(line(tmp_path, item="burn(0.002)", workers=0, batches=200)) == []


@pytest.mark.slow
def test_workers_that_compute_are_told_from_workers_that_sleep(tmp_path: Path) -> None:
    """One that computes: whether a core is free for more is the machine's matter."""
    said = causes(line(tmp_path, item="burn(0.03)", workers=1, batches=100, persistent=True))
    assert said in (["too_few_workers"], ["workers_cpu_bound"])
    assert causes(line(tmp_path, item="time.sleep(0.05)", workers=2, batches=120)) == []


FREE_CORES = """
from roofline_job import workers as seen
seen._idle_seconds = lambda cores: 1.5 * time.monotonic()
"""
"""What /proc/stat counts where one and a half cores are free; here others have them."""
TIMED = "begun = time.monotonic(); burn(0.08); return torch.full((4,), time.monotonic() - begun)"
"""A batch that tells how long it took: the step takes 65 % of that, on a busy machine, too."""


@pytest.mark.slow
def test_too_few_workers_and_the_advice_halves_the_stall(tmp_path: Path) -> None:
    """One worker that computes all the time; of the machine, only its free cores are stated."""

    job: dict[str, Any] = {
        "item": TIMED,
        "batches": 100,
        "body": "time.sleep(0.65 * float(batch[0][0]))",
        "first": FREE_CORES,
    }
    said = line(tmp_path, workers=1, **job)
    assert causes(said) == ["too_few_workers"]
    knob = re.search(r"1\.5 cores are free\. Set num_workers=(\d+) \(it is 1\)", said)
    assert knob
    assert causes(halved(said, tmp_path, workers=int(knob[1]), **job)) == []


@pytest.mark.slow
def test_more_workers_than_cores(tmp_path: Path) -> None:
    """That compute; as many that wait are none too many."""
    many = 2 * len(os.sched_getaffinity(0))
    said = line(tmp_path, item="burn(0.05)", workers=many, batches=60 * many // 2)
    assert causes(said) == ["cpu_oversubscribed"]
    assert f"{many} workers share {many // 2} cores" in said
    assert causes(line(tmp_path, item="time.sleep(0.002)", workers=many)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "cause"), [("20_000, 8", "small_files"), ("1_000_000, 3", "storage_bound")]
)
def test_workers_that_wait_for_storage(read: str, cause: str, tmp_path: Path) -> None:
    """The size of their reads tells the two apart."""
    with slow_storage(tmp_path / "storage", 0.03):
        said = line(tmp_path, item=f"read(index, {read})", batches=40)
    assert causes(said) == [cause]


@pytest.mark.slow
def test_workers_that_start_anew_in_each_epoch(tmp_path: Path) -> None:
    """With persistent workers that is gone, and so is half of the stall."""
    said = line(tmp_path, batches=10, epochs=50)
    assert causes(said) == ["epoch_respawn"]
    assert causes(halved(said, tmp_path, batches=10, epochs=50, persistent=True)) == []


@pytest.mark.slow
def test_checkpoints_and_logs_that_come_too_often(tmp_path: Path) -> None:
    """Of which one is none, at the end or early, in however many files."""
    often = line(tmp_path, body=f"if number % 30 == 29:\n                {SAVE}\n            {LOG}")
    assert causes(often) == ["checkpoint_too_frequent", "logging_too_frequent"]
    assert ". Checkpoints take " in often
    early = f"if number == 9:\n                {SAVE}\n                {SAVE}"
    assert causes(line(tmp_path, body=early, after=SAVE)) == []


def test_a_worker_that_is_gone_is_left_out() -> None:
    """Between two looks, or before the first."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    before = workers.look(0, [child.pid])
    child.communicate(b"\n")
    now = workers.look(1, [child.pid])
    assert list(before.workers) == [child.pid]
    assert not now.workers
    assert workers.between(before, now) == {}
    assert workers.rates(workers.between(before, before)) == {}


@pytest.mark.parametrize(
    ("around", "quota", "used", "found"),
    [
        ("pod", "150000 100000", "usage_usec 3000000\nuser_usec 1", (1.5, 3.0)),
        ("pod", "max 100000", "usage_usec 3000000", None),
        ("pod", "", "", None),
        (".", "200000 100000", "usage_usec 1000000", (2.0, 1.0)),
    ],
)
def test_a_quota_counts_where_it_is_least(
    around: str,
    quota: str,
    used: str,
    found: tuple[float, float] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a group or one around it; in a namespace of its own a container's group is the root."""
    for folder in ("self", "pod/job"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "self/cgroup").write_text("1:name=systemd:/\n0::/pod/job\n", encoding="utf-8")
    (tmp_path / "pod/job/cpu.max").write_text("400000 100000", encoding="utf-8")
    (tmp_path / around / "cpu.max").write_text(quota, encoding="utf-8")
    (tmp_path / around / "cpu.stat").write_text(used, encoding="utf-8")
    monkeypatch.setattr(workers, "PROC", str(tmp_path))
    monkeypatch.setattr(workers, "CGROUPS", str(tmp_path))
    assert workers.quota() == found


def test_a_kernel_that_shows_nothing_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc nothing is known but the cores."""
    monkeypatch.setattr(workers, "PROC", str(tmp_path))
    activity = workers.Activity()
    for second in (1, 2, 3):
        time_ns = second * 10**9
        activity.pass_by({"data": time_ns}, time_ns, second, lambda: [1])
    assert activity.recent().keys() == {"seconds", "workers", "cores"}
    assert activity.whole()["cores"] >= 1
    activity.pass_by({"data": 3 * 10**9}, 4 * 10**9, 4, list)
    assert activity.recent() == {}


def test_the_quota_of_a_container_counts_for_a_group_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a namespace of its own the container's group is the root."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/init\n", encoding="utf-8")
    (tmp_path / "cpu.max").write_text("200000 100000", encoding="utf-8")
    (tmp_path / "cpu.stat").write_text("usage_usec 1000000", encoding="utf-8")
    monkeypatch.setattr(workers, "PROC", str(tmp_path))
    monkeypatch.setattr(workers, "CGROUPS", str(tmp_path))
    assert workers.quota() == (2.0, 1.0)
