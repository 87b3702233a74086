# SPDX-License-Identifier: Apache-2.0
"""``calibrate`` as a command: its options, its exit codes, and one line for each problem."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.calibrate import loop
from exporter.cli.calibrate.command import length_seconds, settings_for
from exporter.cli.calibrate.fit import fit
from exporter.cli.calibrate.loop import Calibration
from exporter.cli.config import Settings
from exporter.errors import ConfigError
from exporter.model.reading import Device
from exporter.specs import load_specs
from tests.cli.calibrate.ended import ended
from tests.cli.calibrate.truth import CEILINGS, Board
from tests.cli.outcomes import outcome
from tests.fake_nvml import FakeNvml
from tests.terminals import REPOSITORY
from tests.waiting import wait_until

NO_LIBRARY = "--nvml.library=/nonexistent/libnvidia-ml.so.1"
PRETENDED = Path(__file__).with_name("pretended")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "x"], "--gpu: expected the index of a GPU such as 0, got 'x'"),
        (["--gpu=-1"], "--gpu: expected the index of a GPU such as 0, got '-1'"),
        (["--measure", "1s"], "--measure: expected a duration"),
        (["--measure", "soon"], "--measure: expected a duration"),
        (["--demo"], "--demo: calibrate needs a real GPU"),
        (["--no-source.nvml"], "--no-source.nvml: calibrate needs a real GPU"),
        (["--output", "/nonexistent/power.yaml"], "/nonexistent/power.yaml: expected the path of"),
        (["--specs", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read"),
        (["now"], "unexpected argument 'now'"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, before a driver is looked for."""
    code, out, err = outcome(capsys, "calibrate", NO_LIBRARY, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"roofline-exporter: {message}")


def test_a_file_that_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not overwritten unless that is asked for."""
    path = tmp_path / "power.yaml"
    path.write_text("mine")
    code, _, err = outcome(capsys, "calibrate", NO_LIBRARY, "--output", str(path))
    assert (code, err) == (2, f"roofline-exporter: {path}: exists already; --force overwrites it\n")
    forced = outcome(capsys, "calibrate", NO_LIBRARY, "--force", "--output", str(path))
    assert forced[0] == 1
    assert path.read_text() == "mine"


def test_without_a_driver(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and the reason."""
    code, out, err = outcome(capsys, "calibrate", NO_LIBRARY)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("roofline-exporter: there is no GPU to calibrate: --nvml.library /nonex")


def test_an_index_of_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line: that the others are left out is as asked for."""
    fake = FakeNvml(tmp_path, {"devices": {"count": 2, "template": {"product": "rtx-4090"}}})
    fake.activate(monkeypatch)
    words = ("--gpu=7", f"--python={sys.executable}", f"--nvml.library={fake.library}")
    assert outcome(capsys, "calibrate", *words) == (
        2,
        "",
        "roofline-exporter: --gpu: there is no GPU 7, or --gpu.exclude leaves it out\n",
    )


def test_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and what to do about it."""
    fake = FakeNvml(tmp_path, {"devices": [{"product": "rtx-4090"}]})
    fake.activate(monkeypatch)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    monkeypatch.setenv("PATH", "/nonexistent")
    code, out, err = outcome(capsys, "calibrate", f"--nvml.library={fake.library}")
    assert (code, out) == (1, "")
    assert err == (
        f"roofline-exporter: torch is not installed for {bare}: --python PATH names the Python of "
        "an environment that has it\n"
    )


def test_the_settings_that_it_reads_with() -> None:
    """The chosen GPU once a second, its processes too, and no counters."""
    settings = settings_for(Settings(), "07")
    assert settings.gpu_include == ("7",)
    assert settings.sources == {"nvml"}
    assert settings.poll_interval_seconds == settings.poll_slow_interval_seconds == 1.0
    assert settings_for(Settings(), None).gpu_include == ()


def test_the_length_of_a_measurement() -> None:
    """Within what an energy counter can resolve, and patience."""
    assert length_seconds("10s") == 10.0
    for text in ("4s", "11m", "", "15"):
        with pytest.raises(ConfigError):
            length_seconds(text)


def calibrating(fake: FakeNvml, tmp_path: Path) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        **fake.environment(),
        "PYTHONPATH": f"{PRETENDED}{os.pathsep}{REPOSITORY}",
        "PRETENDED_CUDA": "13.0",
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "exporter", "calibrate", "--measure=5s"),
            *("--output", str(tmp_path / "power.yaml"), f"--nvml.library={fake.library}"),
        ],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """While the loads run: exit code 130, no process, no file."""
    fake = FakeNvml(tmp_path, {"devices": [{"product": "rtx-4090", "power": 60}]})
    process = calibrating(fake, tmp_path)
    with process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.split()[0] == "idle", first + process.stderr.read()
        (loads,) = wait_until(lambda: children(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    # One that was only just being started ends with its standard input.
    wait_until(lambda: ended(loads))
    assert not (tmp_path / "power.yaml").exists()


@pytest.fixture(name="found")
def _found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command whose measurements are those of a true board."""
    fake = FakeNvml(tmp_path, {"devices": [{"product": "h100-sxm"}]})
    fake.activate(monkeypatch)
    truth = Board().all_measured()
    result = Calibration(
        device=Device(0, "GPU-1", "NVIDIA H100 80GB HBM3", driver_version="580.95.05"),
        key="h100-sxm5-80gb",
        power=fit(truth, CEILINGS, 700.0),
        measured=truth,
        capped=("gemm",),
        limit_watts=700.0,
        torch="2.9.0",
    )
    monkeypatch.setattr(loop, "calibrate", lambda *_: result)
    return ["calibrate", f"--nvml.library={fake.library}", "--python", sys.executable]


def test_the_result_is_a_file_for_specs(
    tmp_path: Path, found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """And standard output says what is in it, and how to use it."""
    path = tmp_path / "power.yaml"
    code, out, err = outcome(capsys, *found, "--output", str(path))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "NVIDIA H100 80GB HBM3: h100-sxm5-80gb"
    assert out.splitlines()[-1] == f"written to {path}: use it with --specs {path}"
    code, out, _ = outcome(capsys, "specs", "--specs", str(path), "h100-sxm5-80gb")
    assert code == 0
    assert "idle 70 to 120 W" in out


def test_without_a_file_it_is_standard_output(
    tmp_path: Path, found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, so that it can be redirected."""
    code, out, err = outcome(capsys, *found)
    assert code == 0
    assert "NVIDIA H100 80GB HBM3: h100-sxm5-80gb\n" in err
    path = tmp_path / "power.yaml"
    path.write_text(out)
    assert load_specs(path).power.keys() == {"h100-sxm5-80gb"}


def test_a_result_that_cannot_be_written_is_not_lost(
    tmp_path: Path, found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It took minutes."""
    path = tmp_path / "gone" / "power.yaml"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    code, out, err = outcome(capsys, *found, "--force", "--output", str(path))
    assert code == 1
    assert out.startswith("# Measured by roofline-exporter calibrate ")
    assert err == (
        f"roofline-exporter: {path}: No space left on device; the result is on standard output\n"
    )
