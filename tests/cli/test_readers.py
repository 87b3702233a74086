# SPDX-License-Identifier: Apache-2.0
"""Real GPUs are served where there are some; simulated ones only where that was asked for."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from exporter.cli import check_config, config
from exporter.cli.readers import (
    choose_readers,
    choose_training,
    choose_workloads,
    driver_problem,
    looked_for,
)
from exporter.errors import ConfigError, LibraryUnavailable
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.interface import CounterOptions, NodeCounters
from exporter.sources.nvml.library import Library
from exporter.sources.simulate import Simulation
from exporter.sources.simulate.simulation import SimulatedJobs
from exporter.sources.training import TrainingSource
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.fake_nvml import FakeNvml

BOOK = load_specs()
SAMPLE = Path(__file__).parent.parent / (
    "data/recordings/fake-h100x2__580.95.05__duty-cycle.jsonl.gz"
)


def chosen(*argv: str) -> Fleet | Simulation:
    readers = choose_readers(config.load(argv, {}), BOOK, ManualClock())
    assert isinstance(readers, Fleet | Simulation)
    return readers


NO_DRIVER = "--nvml.library=/nowhere/libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ([NO_DRIVER], Fleet),
        (["--demo"], Simulation),
        (["--demo.if-no-driver", NO_DRIVER], Simulation),
        (["--demo.if-no-driver", "--no-source.nvml"], Simulation),
    ],
)
def test_only_by_a_flag_gpus_are_simulated(argv: list[str], kind: type) -> None:
    """The daemon never invents a GPU; in the place of a driver only where nothing can be read."""
    assert isinstance(chosen(*argv), kind)


def test_the_demo_is_simulated_even_where_there_is_a_driver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the log says so at once."""
    caplog.set_level(logging.INFO)
    readers = chosen("--demo", "--demo.scenario=mixed", "--demo.seed=4")

    assert isinstance(readers, Simulation)
    assert len(readers.gpus) == 6
    assert caplog.messages == ["serving 6 SIMULATED GPUs (scenario mixed, seed 4)"]
    assert readers.devices() == {"pci": 6, "driver": 6, "nvml": 6}


def test_gpus_are_left_out_of_the_demo_as_of_a_node() -> None:
    """--gpu.include and --gpu.exclude mean the same; indexes stay what they are."""
    readers = chosen("--demo", "--gpu.include=1,2,5", "--gpu.exclude=2")

    assert isinstance(readers, Simulation)
    assert [gpu.device.index for gpu in readers.gpus] == [1, 5]


@pytest.mark.parametrize(
    ("argv", "kinds"),
    [
        ([], [TrainingSource]),
        (["--demo"], [SimulatedJobs, TrainingSource]),
        (["--demo", "--no-source.training"], [SimulatedJobs]),
        (["--no-source.training"], []),
    ],
)
def test_training_reports_come_from_jobs_and_from_the_demo(
    argv: list[str], kinds: list[type]
) -> None:
    """Simulated jobs are a source beside the socket, which may be switched off."""
    settings = config.load(argv, {})
    readers = choose_readers(settings, BOOK, ManualClock())

    found = choose_training(settings, readers, ManualClock())

    assert [type(source) for source in found] == kinds


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (("--demo",), ["kubernetes"]),
        (("--demo", "--demo.scenario=mixed"), ["slurm"]),
        (("--demo", "--no-source.kubernetes"), []),
        ((NO_DRIVER,), ["kubernetes", "slurm", "container"]),
        ((NO_DRIVER, "--no-source.slurm"), None),
    ],
)
def test_whose_work_it_is_comes_from_who_has_the_gpus(
    argv: tuple[str, ...], names: list[str] | None
) -> None:
    """The schedulers of this node say nothing of simulated GPUs; a flag switches each off."""
    settings = config.load(argv, {})
    readers = choose_readers(settings, BOOK, ManualClock())
    found = [each.name for each in choose_workloads(settings, readers, ManualClock())]
    assert found == (["kubernetes", "container"] if names is None else names)


def test_whose_work_it_is_comes_from_a_recording() -> None:
    """Under the names of the recorded node's schedulers, whatever this one has."""
    settings = config.load(["--replay", str(SAMPLE)], {})
    readers = choose_readers(settings, BOOK, ManualClock())
    found = choose_workloads(settings, readers, ManualClock())
    assert sorted(each.name for each in found) == ["container", "kubernetes", "slurm"]
    assert all(each.state is None and each.report() is None for each in found)


def test_without_a_driver_the_demo_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """One line gives the reason."""
    caplog.set_level(logging.INFO)
    chosen("--demo.if-no-driver", NO_DRIVER)
    (line,) = caplog.messages
    assert line.startswith("no NVIDIA driver answers (--nvml.library /nowhere/libnvidia-ml.so.1 ")
    assert line.endswith(": serving 8 SIMULATED GPUs (scenario demo, seed 0)")


def test_a_bad_scenario_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """With the file and the line."""
    path = tmp_path / "bad.yaml"
    path.write_text("gpus:\n  - spec: h100-sxm5-80gb\n    story: dancing\n")

    with pytest.raises(ConfigError, match=r"bad\.yaml:3: key 'gpus\.0\.story': expected one of"):
        chosen("--demo", f"--demo.scenario={path}")
    (problem,) = check_config.problems([f"--demo.scenario={path}"], {})
    assert problem.startswith(f"{path}:3: key 'gpus.0.story'")


def test_a_driver_with_a_gpu_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe leaves the library as it found it."""
    fake = FakeNvml(tmp_path, {"devices": [{}]})
    fake.activate(monkeypatch)

    assert driver_problem(Library(str(fake.library))) is None
    assert isinstance(chosen("--demo.if-no-driver", f"--nvml.library={fake.library}"), Fleet)


def test_a_driver_without_a_gpu_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose driver lists nothing shows the demo."""
    fake = FakeNvml(tmp_path, {"devices": []})
    fake.activate(monkeypatch)

    assert driver_problem(Library(str(fake.library))) == "the driver lists no GPU"


def test_the_folder_of_bindings_is_that_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child process that imports them has another working directory."""
    given: list[CounterOptions] = []

    def noted(names: object, options: CounterOptions, clock: object) -> dict[str, NodeCounters]:
        given.append(options)
        return {}

    monkeypatch.setattr("exporter.cli.readers.prepared", noted)
    monkeypatch.chdir(tmp_path)

    chosen("--nvml.library=none.so", "--dcgm.host=localhost", "--dcgm.bindings=bindings/python3")

    assert given[0].dcgm_bindings == str(tmp_path / "bindings" / "python3")


class Hanging(Library):
    """A library whose initialisation returns when the test ends."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.released = threading.Event()

    def start(self) -> int:
        self.released.wait()
        raise LibraryUnavailable("released")


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    """Its thread is left behind."""
    library = Hanging()
    try:
        assert driver_problem(library, 0.01) == "its initialisation takes longer than 0.01 s"
    finally:
        library.released.set()


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        ([], ["driver library: libnvidia-ml.so.1, where the dynamic linker finds it"]),
        (["--nvml.library=/x/libnvidia-ml.so.1"], ["driver library: /x/libnvidia-ml.so.1"]),
        (
            ["--no-source.nvml", "--gpu.include=0,GPU-a"],
            [
                "driver library: not loaded, the source nvml is switched off (--no-source.nvml)",
                "--gpu.include: 0,GPU-a",
            ],
        ),
        (["--demo"], ["simulated GPUs (--demo)"]),
        (["--replay=/x/case.jsonl.gz"], ["recording case.jsonl.gz"]),
    ],
)
def test_where_gpus_are_looked_for(argv: list[str], lines: list[str]) -> None:
    """A user who sees no GPU reads what was tried, with the flags that decided."""
    assert list(looked_for(config.load(argv, {}))) == lines
