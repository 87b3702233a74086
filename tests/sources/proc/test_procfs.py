# SPDX-License-Identifier: Apache-2.0
"""Who a process is, by a real /proc and by hostile ones."""

from __future__ import annotations

import mmap
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Memory
from exporter.sources.proc import procfs
from exporter.sources.proc.procfs import (
    TICKS_PER_SECOND,
    CpuUse,
    Identities,
    Identity,
    Mapped,
    host_memory,
    maps_transformer_engine,
)
from tests.sources.proc.processes import process
from tests.waiting import wait_until

ME = pwd.getpwuid(os.getuid()).pw_name
WAIT_FOR_INPUT = "import sys; sys.stdin.read()"


@contextmanager
def running(*command: str, **variables: str) -> Iterator[int]:
    """Run a command that waits for its standard input; give its number."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, env={**os.environ, **variables}
    ) as process:
        name = os.path.basename(command[0])[: procfs.LONGEST_NAME_BYTES]
        wait_until(lambda: procfs.command_name("/proc", process.pid) in (name, "python", "python3"))
        # A process has its new name a moment before its arguments.
        wait_until(lambda: procfs.arguments("/proc", process.pid))
        try:
            yield process.pid
        finally:
            process.kill()


def who(root: Path, pid: int = 7) -> Identity:
    return Identities(str(root)).of([pid])[pid]


def test_a_real_process() -> None:
    """The name, owner and class of a process that runs."""
    with running("cat") as pid:
        assert Identities("/proc").of([pid]) == {pid: Identity("cat", ME, "other")}
        assert procfs.arguments("/proc", pid) == ("cat",)
        assert procfs.start_time("/proc", pid) is not None


def test_a_real_worker_of_a_training_job() -> None:
    """RANK in the environment of a Python process says training; without it nothing does."""
    with running(sys.executable, "-c", WAIT_FOR_INPUT, RANK="3") as pid:
        wait_until(lambda: procfs.variable_names("/proc", pid))
        assert "RANK" in procfs.variable_names("/proc", pid)
        assert Identities("/proc").of([pid])[pid].work_class == "training"
    with running(sys.executable, "-c", WAIT_FOR_INPUT) as pid:
        assert Identities("/proc").of([pid])[pid].work_class == "other"


def test_arguments_and_environment_are_not_kept(tmp_path: Path) -> None:
    """A secret in them is in nothing that is handed over or remembered."""
    secret = "hunter2"
    process(
        tmp_path,
        7,
        cmdline=f"python\0train.py\0--token={secret}\0".encode(),
        environ=f"RANK={secret}\0TOKEN={secret}\0".encode(),
    )
    identities = Identities(str(tmp_path))
    found = identities.of([7])
    assert found[7].work_class == "training"
    assert secret not in repr(found)
    assert secret not in repr(vars(identities))
    assert secret not in repr(procfs.variable_names(str(tmp_path), 7))


def test_a_known_process_is_not_looked_at_again(tmp_path: Path) -> None:
    """Its class stays what it was found to be, until its name changes."""
    process(tmp_path, 7, cmdline=b"python\0train.py\0")
    identities = Identities(str(tmp_path))
    assert identities.of([7])[7].work_class == "training"
    (tmp_path / "7" / "cmdline").write_bytes(b"vllm\0")
    assert identities.of([7])[7].work_class == "training"
    process(tmp_path, 7, b"VLLM::EngineCor", cmdline=b"VLLM::EngineCore")
    assert identities.of([7])[7] == Identity("VLLM::EngineCor", ME, "serving")


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    """Another start time, another process: nothing of the old one remains."""
    process(tmp_path, 7, cmdline=b"python\0train.py\0")
    identities = Identities(str(tmp_path))
    identities.of([7])
    process(tmp_path, 7, started=200, cmdline=b"python\0-m\0ipykernel\0")
    assert identities.of([7])[7].work_class == "notebook"


def test_a_number_that_is_taken_while_it_is_read_is_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be of two processes, and the GPU's is the one that is gone."""
    process(tmp_path, 7)
    times = iter([100, 200, 200, 200])
    monkeypatch.setattr(procfs, "start_time", lambda root, pid: next(times))
    identities = Identities(str(tmp_path))
    assert identities.of([7]) == {7: Identity()}
    assert identities.of([7]) == {7: Identity("python3", ME, "other")}


def test_what_is_of_another_user_may_be_unreadable(tmp_path: Path) -> None:
    """Without command line and environment the name decides, else nothing."""
    process(tmp_path, 7, b"torchrun", cmdline=b"", environ=b"")
    for file in ("cmdline", "environ", "stat"):
        (tmp_path / "7" / file).unlink()
        (tmp_path / "7" / file).mkdir()  # root could read a file without permissions
    assert who(tmp_path) == Identity("torchrun", ME, "training")


def test_owners_are_not_looked_up_if_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--no-process.owner does not even ask."""
    monkeypatch.setattr(procfs, "owner", lambda root, pid: pytest.fail("asked"))
    process(tmp_path, 7)
    assert Identities(str(tmp_path), owners=False).of([7, 8]) == {
        7: Identity("python3", None, "other"),
        8: Identity(),
    }


def test_no_more_than_64_kib_is_read(tmp_path: Path) -> None:
    """A command line of megabytes costs no more than a long one; a name cut off is no harm."""
    process(
        tmp_path,
        7,
        cmdline=b"python\0job.py\0" + b"x" * 2_000_000,
        environ=b"A=" + b"x" * (procfs.MOST_BYTES - 4) + b"\0RANK=1\0",
    )
    assert sum(map(len, procfs.arguments(str(tmp_path), 7))) < procfs.MOST_BYTES
    assert procfs.variable_names(str(tmp_path), 7) == {"A"}
    assert who(tmp_path).work_class == "other"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\x1b[31mred", "\ufffd[31mred"),
        (b"a\nb", "a\ufffdb"),
        (b"\xff" * 15, "\ufffd" * 10),
        (b'}"\\', '}"\\'),
        ("\u202egnp.exe".encode(), "\ufffdgnp.exe"),
        (b") R 1 2", ") R 1 2"),
    ],
)
def test_hostile_names_are_printable_and_short(tmp_path: Path, name: bytes, shown: str) -> None:
    """No control characters and at most 32 bytes, whatever the process calls itself."""
    process(tmp_path, 7, name)
    assert who(tmp_path).command == shown
    assert procfs.start_time(str(tmp_path), 7) == 100


@pytest.mark.parametrize("line", [b"", b"7 (x) S 1", b"7 (x) S" + b" x" * 30, b"(((", b")" * 99])
def test_a_start_time_that_is_none(tmp_path: Path, line: bytes) -> None:
    """A damaged line is not known, no crash."""
    process(tmp_path, 7)
    (tmp_path / "7" / "stat").write_bytes(line)
    assert procfs.start_time(str(tmp_path), 7) is None


@given(
    name=st.binary(max_size=40),
    line=st.binary(max_size=200),
    environment=st.binary(max_size=200),
)
def test_any_bytes_are_an_identity(
    name: bytes, line: bytes, environment: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing that a process writes about itself does harm."""
    root = tmp_path_factory.getbasetemp() / "any"
    process(root, 7, name, cmdline=line, environ=environment)
    identity = who(root)
    command = identity.command or ""
    assert command.isprintable()
    assert len(command.encode()) <= 32
    assert identity.owner == ME


SPARK = """\
MemTotal:       125509308 kB
MemFree:         1873664 kB
MemAvailable:   62594076 kB
HugePages_Total:       0
"""


def test_used_host_memory_is_what_is_not_available(tmp_path: Path) -> None:
    """The page cache is available, though it is not free."""
    (tmp_path / "meminfo").write_text(SPARK)

    assert host_memory(str(tmp_path)) == Memory(
        125509308 * 1024, (125509308 - 62594076) * 1024, 62594076 * 1024, unified=True
    )


@pytest.mark.parametrize("text", [None, "", "MemTotal: 5 kB\n", SPARK.replace("62594076", "many")])
def test_host_memory_that_cannot_be_read_is_not_known(tmp_path: Path, text: str | None) -> None:
    """No file, no number (before Linux 3.14 none of what is available) or no number at all."""
    if text is not None:
        (tmp_path / "meminfo").write_text(text)

    assert host_memory(str(tmp_path)) is None


def test_the_memory_of_this_machine() -> None:
    """The kernel's own file, as it is."""
    found = host_memory("/proc")

    assert found is not None
    assert 0 < found.used_bytes < found.total_bytes


# How many CPU cores a process keeps busy


BUSY_AND_TELL = """
import sys, time
for line in sys.stdin:
    begin = time.process_time()
    while time.process_time() < begin + float(line):
        pass
    print(time.process_time(), flush=True)
"""


def test_the_cores_of_a_real_process() -> None:
    """What it uses while it computes, and nothing while it waits; the kernel counts in ticks."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_AND_TELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        into, out = child.stdin, child.stdout
        assert into is not None
        assert out is not None

        def compute(seconds: float) -> float:
            print(seconds, file=into, flush=True)
            return float(out.readline())

        begun = compute(0.0)
        use, pid = CpuUse("/proc"), child.pid
        assert use.of([pid], 100.0) == {}
        used = compute(0.5) - begun
        assert used >= 0.5
        assert use.of([pid], 102.0)[pid] == pytest.approx(used / 2, abs=1.5 / TICKS_PER_SECOND)
        assert use.of([pid], 103.0)[pid] <= 1.5 / TICKS_PER_SECOND
        into.close()


def test_threads_count_and_children_do_not(tmp_path: Path) -> None:
    """User and system time of all threads, over the time between the reads: 3 s in 2 s."""
    use = CpuUse(str(tmp_path))
    process(tmp_path, 7, b"a) b", times=(10 * TICKS_PER_SECOND, 5 * TICKS_PER_SECOND))
    assert use.of([7], 50.0) == {}
    process(tmp_path, 7, b"a) b", times=(12 * TICKS_PER_SECOND, 6 * TICKS_PER_SECOND))
    assert use.of([7, 7], 52.0) == {7: 1.5}
    assert use.of([7], 52.0) == {}, "no time has passed"


def test_a_pid_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    """So does one that was not asked for meanwhile; a count that falls is 0."""
    use = CpuUse(str(tmp_path))
    process(tmp_path, 7, times=(1, 1))
    process(tmp_path, 8, times=(100, 0))
    use.of([7, 8], 1.0)
    process(tmp_path, 7, times=(900, 900), started=200)
    process(tmp_path, 8, times=(50, 0))
    assert use.of([7, 8], 2.0) == {8: 0.0}
    use.of([], 3.0)
    assert use.of([8], 4.0) == {}


@pytest.mark.parametrize("times", [("x", 1), (1, "1.5"), ("1e5", 1), ("-", "-")])
def test_a_line_that_cannot_be_read_is_left_out(
    tmp_path: Path, times: tuple[object, object]
) -> None:
    """And a process that is not there."""
    process(tmp_path, 7, times=times)
    use = CpuUse(str(tmp_path))
    for now in (1.0, 2.0):
        assert use.of([7, 8], now) == {}


# Which processes have loaded Transformer Engine


TORCH = "7f00-7f01 r-xp 0000 08:01 12  /venv/lib/python3.11/site-packages/torch/lib/libtorch.so\n"


def maps(library: str) -> str:
    return TORCH * 50 + TORCH.replace("torch/lib/libtorch.so", library)


@pytest.mark.parametrize(
    ("library", "found"),
    [
        ("transformer_engine/libtransformer_engine.so", True),
        ("transformer_engine_torch.cpython-311-x86_64-linux-gnu.so", True),
        ("transformer_engine_jax.cpython-312-x86_64-linux-gnu.so", True),
        ("transformer_engine/__init__.py", False),
        ("torch/lib/libtorch.so", False),
        ("not_transformer_engine_torch.so", False),
    ],
)
def test_libraries(tmp_path: Path, library: str, found: bool) -> None:
    process(tmp_path, 10, maps=maps(library))
    assert maps_transformer_engine(str(tmp_path), 10) is found


def test_what_may_not_be_read_is_not_known(tmp_path: Path) -> None:
    process(tmp_path, 10)
    assert Mapped(str(tmp_path)).of([10, 11], 0.0) == {10: None, 11: None}


def test_a_real_process_that_maps_a_file_of_that_name(tmp_path: Path) -> None:
    assert maps_transformer_engine("/proc", os.getpid()) is False
    library = tmp_path / "libtransformer_engine.so"
    library.write_bytes(b"\0" * mmap.PAGESIZE)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert maps_transformer_engine("/proc", os.getpid()) is True


def test_a_late_import_is_found_and_few_looks_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute; what was found is not looked for again."""
    looks: list[float] = []
    now = 0.0

    def look(procfs: str, pid: int) -> bool | None:
        looks.append(now)
        return maps_transformer_engine(procfs, pid)

    monkeypatch.setattr(procfs, "maps_transformer_engine", look)
    process(tmp_path, 10, maps=maps("torch/lib/libtorch.so"))
    seen = Mapped(str(tmp_path))
    for second in range(0, 200, 10):
        now = float(second)
        if second == 100:
            process(tmp_path, 10, maps=maps("libtransformer_engine.so"))
        assert seen.of([10], now) == {10: second >= 120}
    assert looks == [0.0, 60.0, 120.0]


def test_another_process_with_the_same_pid_is_looked_at_anew(tmp_path: Path) -> None:
    process(tmp_path, 10, maps=maps("libtransformer_engine.so"))
    seen = Mapped(str(tmp_path))
    assert seen.of([10], 0.0) == {10: True}
    process(tmp_path, 10, started=6, maps=maps("torch/lib/libtorch.so"))
    assert seen.of([10], 1.0) == {10: False}
    assert seen.of([], 2.0) == {}
