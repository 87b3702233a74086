# SPDX-License-Identifier: Apache-2.0
"""The process that makes the loads: what it does on a pretended GPU, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.calibrate import child as module
from exporter.cli.calibrate.child import KERNELS, Child, Started, Work, find_python
from exporter.cli.calibrate.loads import LOADS, Load
from exporter.errors import ExporterError
from tests.cli.calibrate.ended import ended
from tests.conftest import unmet
from tests.waiting import wait_until

PRETENDED = str(Path(__file__).with_name("pretended"))
GPU = "GPU-5d1d4f2c"
SPIN = Load("spin", "", "spin")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PRETENDED, "PRETENDED_CUDA": "13.0", **more}


@pytest.fixture(name="start")
def _start() -> Iterator[Any]:
    started: list[Child] = []

    def start(**more: str) -> Child:
        child = Child(sys.executable, GPU, environment(**more))
        started.append(child)
        return child

    yield start
    for child in started:
        child.close()


def pid_of(child: Child) -> int:
    assert child._process is not None
    return child._process.pid


def worked(child: Child, before: Work) -> Work:
    """The work at a later time than this."""
    return wait_until(lambda: (now := child.work()).seconds > before.seconds and now)


def test_every_load_runs_and_counts_its_work(start: Any) -> None:
    """FLOPs of the matrix products, bytes of the copies, and nothing else."""
    child = start()
    assert child.start() == Started("2.9.0+pretended", "bf16_tensor")
    for load in LOADS:
        child.put(load)
        before = child.work()
        after = worked(child, before)
        assert (after.flops > before.flops) == (load.kernel in ("gemm", "fp32")), load.name
        assert (after.bytes > before.bytes) == (load.kernel == "copy"), load.name


@pytest.mark.parametrize(
    ("capability", "precision"),
    [("7.0", "fp16_tensor"), ("7.5", "fp16_tensor"), ("12.0", "bf16_tensor")],
)
def test_the_type_of_the_tensor_load(start: Any, capability: str, precision: str) -> None:
    """FP16 where there is no BF16."""
    assert start(PRETENDED_CAPABILITY=capability).start().precision == precision


def test_it_ends_when_it_is_closed(start: Any) -> None:
    """In the middle of a load, without being killed."""
    child = start()
    child.start()
    child.put(SPIN)
    process = child._process
    child.close()
    assert process.returncode == 0


def test_it_ends_with_the_process_that_started_it() -> None:
    """Even if that is killed: nothing is left on the GPU."""
    script = (
        "import os, sys, time\n"
        "from exporter.cli.calibrate.child import Child\n"
        "from exporter.cli.calibrate.loads import Load\n"
        f"child = Child(sys.executable, {GPU!r}, os.environ)\n"
        "child.start()\n"
        "child.put(Load('spin', '', 'spin'))\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join((PRETENDED, root))
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(PYTHONPATH=path),
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: ended(pid))


def test_a_terminal_interrupt_does_not_reach_it(start: Any) -> None:
    """It is in a session of its own, and is ended by its parent."""
    child = start()
    child.start()
    assert os.getsid(pid_of(child)) == pid_of(child) != os.getsid(0)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("spin:raise", "CUDA error: an illegal memory access was encountered Compile with ..."),
        (
            "spin:crash",
            r"the loads ended: terminate called without an active exception \(exit code 134\)",
        ),
    ],
)
def test_a_load_that_fails(start: Any, fault: str, problem: str) -> None:
    """In one line, and nothing is left."""
    child = start(PRETENDED_FAULT=fault)
    child.start()
    child.put(Load("context", ""))

    def run() -> None:
        child.put(SPIN)
        wait_until(lambda: child.work().seconds < 0)

    with pytest.raises(ExporterError, match=problem):
        run()
    child.close()
    assert ended(pid_of(child))


def test_a_load_that_hangs(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for, and killed at the end."""
    child = start(PRETENDED_FAULT="init:hang")
    monkeypatch.setattr(module, "START_SECONDS", 0.2)
    monkeypatch.setattr(module, "END_SECONDS", 0.2)
    with pytest.raises(ExporterError, match=r"the loads do not answer for 0\.2 s"):
        child.start()
    child.close()
    assert ended(pid_of(child))


def test_a_torch_without_cuda(start: Any) -> None:
    """One line that says whose it is."""
    with pytest.raises(
        ExporterError, match=r"torch 2\.9\.0\+pretended of .* was built without CUDA"
    ):
        start(PRETENDED_CUDA="").start()


def test_a_python_without_torch(tmp_path: Path) -> None:
    """One line that says which."""
    child = Child(python_in(tmp_path, "lacks", torch=False), GPU, environment())
    with pytest.raises(ExporterError, match=r"torch cannot be imported by .*: No module named"):
        child.start()
    child.close()


def test_a_gpu_that_torch_does_not_find() -> None:
    """CUDA may not see what the driver lists."""
    child = Child(sys.executable, "7", environment())
    with pytest.raises(ExporterError, match=r"finds no GPU that it can use"):
        child.start()
    child.close()


def test_a_python_that_cannot_be_run() -> None:
    """One line."""
    child = Child("/nonexistent/python", GPU, environment())
    with pytest.raises(ExporterError, match=r"/nonexistent/python cannot be run: No such file"):
        child.start()
    child.close()


@pytest.mark.parametrize("line", ["", "rubbish", "[1]", '{"kernel": "spin"}', "x" * 9000])
def test_rubbish_of_a_python_that_is_none(tmp_path: Path, line: str) -> None:
    """Its output is passed over; its end is what counts."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '%s\\n' '{line}'\necho no such option >&2\nexit 3\n")
    python.chmod(0o755)
    child = Child(str(python), GPU, environment())
    with pytest.raises(ExporterError, match=r"the loads ended: no such option \(exit code 3\)"):
        child.start()
    child.close()


def test_the_program_with_the_real_torch() -> None:
    """That of the CPU has no CUDA, which is said in one line."""
    try:
        import torch
    except ImportError:
        unmet("torch is not installed (group training)")
    if torch.version.cuda is not None:
        unmet("the torch that is installed has CUDA")
    done = subprocess.run(
        [sys.executable, str(KERNELS)], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert f"torch {torch.__version__} of " in json.loads(line)["problem"]
    assert "built without CUDA" in line


# Which Python.


PYTHON = sys.executable


def python_in(folder: Path, name: str, *, torch: bool) -> str:
    """A Python that has the pretended torch, or nothing but its standard library."""
    options, path = ("", PRETENDED) if torch else ("-S -I", "")
    script = folder / name
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{PYTHON}" {options} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_the_python_that_has_torch_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running one before that on the PATH; where neither has it, both are named."""
    has, lacks = (python_in(tmp_path, name, torch=name == "has") for name in ("has", "lacks"))
    folder = tmp_path / "bin"
    folder.mkdir()
    on_path = {"PATH": str(folder)}
    monkeypatch.setattr(sys, "executable", has)
    assert find_python(None, on_path) == has
    monkeypatch.setattr(sys, "executable", lacks)
    python3 = python_in(folder, "python3", torch=True)
    assert find_python(None, on_path) == python3
    python_in(folder, "python3", torch=False)
    with pytest.raises(ExporterError) as caught:
        find_python(None, on_path)
    assert str(caught.value) == (
        f"torch is not installed for {lacks} or {python3}: --python PATH names the Python of an "
        "environment that has it"
    )


def test_a_torch_without_cuda_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out before anything is measured."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "torch" / "version.py").write_text("cuda: object = None")
    without = tmp_path / "without"
    without.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{PYTHON}" "$@"\n')
    without.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(without))
    python3 = python_in(tmp_path, "python3", torch=False)
    with pytest.raises(ExporterError, match=f"^torch is built without CUDA for {without}: "):
        find_python(None, {"PATH": str(tmp_path)})
    python_in(tmp_path, "python3", torch=True)
    assert find_python(None, {"PATH": str(tmp_path)}) == python3


def test_the_python_that_was_asked_for(tmp_path: Path) -> None:
    """Whatever it has; by its name on the PATH, too."""
    lacks = python_in(tmp_path, "mine", torch=False)
    assert find_python(lacks, {}) == lacks
    assert find_python("mine", {"PATH": str(tmp_path)}) == lacks
    with pytest.raises(ExporterError, match=r"--python: yours is no program"):
        find_python("yours", {"PATH": str(tmp_path)})
