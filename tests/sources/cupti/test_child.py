# SPDX-License-Identifier: Apache-2.0
"""The real child on the fake libraries, supervised by the exporter: a crash or a hang
costs readings, and nothing else."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.model.reading import Activity
from exporter.sources.cupti.library import BESIDE
from exporter.sources.interface import CUPTI
from tests.fake_cupti import FakeCupti, uuid_of
from tests.sources.counters.bench import Bench, Gpu
from tests.sources.cupti.real import RELEASES, release

P = ".avg.pct_of_peak_sustained_elapsed"
COMMAND = (
    sys.executable,
    "-c",
    "import os; from exporter.sources.cupti import library; "
    "library.CUDA = os.environ.get('FAKE_CUDA', library.CUDA); "
    "from exporter.sources.counters.programs import run; raise SystemExit(run('cupti'))",
)
"""The real child; a test may name the CUDA driver's library."""


class Node(Bench):
    """The exporter's side and a real sampling child, which runs on the real clock."""

    def __init__(self, fake: FakeCupti, **options: Any) -> None:
        self.options = {"library": str(fake.cupti()), "period_seconds": 0.1, **options}
        super().__init__("", self.options, program=COMMAND, source=CUPTI)
        self.fake = fake

    def open(self, uuid: str = uuid_of(0), shares: Any = (None,)) -> Gpu:
        return super().open(uuid, shares)

    def activity(self, gpu: Gpu) -> Activity:
        """Return the next activity of a GPU."""
        found: list[Activity] = []

        def reads() -> bool:
            self.clock.advance(0.02)
            found.extend(gpu.read().values())
            return bool(found)

        self.step_until(reads, "an activity")
        return found[0]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Node]]:
    """Makes a node with the fake's GPUs: ``node(chips, *lines)``."""
    nodes: list[Node] = []

    def make(chips: tuple[str, ...] = ("AD102",), *lines: str, **options: Any) -> Node:
        fake = FakeCupti(tmp_path, chips, *lines)
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        nodes.append(Node(fake, **options))
        return nodes[-1]

    yield make
    for made in nodes:
        made.close()


Make = Callable[..., Node]


def test_what_is_sampled_arrives(node: Make) -> None:
    here = node(("AD102", "AD102"), f"value sm__cycles_active{P} 80")
    gpus = [here.open(uuid_of(0)), here.open(uuid_of(1))]
    here.run()

    for gpu in gpus:
        activity = here.activity(gpu)
        assert activity.source == CUPTI
        assert activity.sm == pytest.approx(0.8)
    assert here.is_up
    assert here.failures == 0
    assert here.counters.facts == {"cuda": "13.0", "cupti": "130101"}


def test_variables_that_hide_gpus_are_not_the_exporters(
    node: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would renumber the GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    here = node()
    gpu = here.open()
    here.run()

    assert here.activity(gpu).sm is not None


@pytest.mark.parametrize(
    ("lines", "taken"), [((), "130101"), (("driver 12090",), "28"), (("newest 12",), "28")]
)
def test_the_installed_release_is_taken_that_the_driver_takes(
    node: Make, tmp_path: Path, lines: tuple[str, ...], taken: str
) -> None:
    here = node(("AD102",), *lines, library=None, packages=[str(tmp_path / "site")])
    here.fake.install(tmp_path / "site", 12, 13)
    gpu = here.open()
    here.run()

    assert here.activity(gpu).sm is not None
    assert here.counters.facts["cupti"] == taken


@pytest.mark.parametrize(
    ("installed", "lines", "state"),
    [
        ((), (), "missing"),
        ((13,), ("newest 12",), "old_driver"),
        ((13,), ("cupti 130200",), "missing"),
    ],
)
def test_without_a_release_that_fits_there_is_one_line_of_advice(
    node: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    installed: tuple[int, ...],
    lines: tuple[str, ...],
    state: str,
) -> None:
    here = node(("AD102",), *lines, library=None, packages=[str(tmp_path / "site")])
    here.fake.install(tmp_path / "site", *installed)
    gpu = here.open()
    here.run()

    here.step_until(lambda: gpu.read() or gpu.journal.states == {CUPTI: state}, "its state")
    here.step(10)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("package", RELEASES)
def test_what_the_real_library_chooses_is_sampled(
    node: Make, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's host functions choose and configure, the fake samples."""
    real = release(package).library
    chips = ("TU102", "GA100", "AD102")
    here = node(chips, f"real {real}")
    # The real library looks for the others beside the first one of its name that is loaded.
    here.options["library"] = shutil.copy(here.fake.libraries / real.name, tmp_path)
    for name in BESIDE:
        (tmp_path / name).symlink_to(real.parent / name)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.setenv("FAKE_CUDA", str(here.fake.libraries / "libcuda_of_no_name.so"))
    gpus = [here.open(uuid_of(index)) for index in range(len(chips))]
    here.run()

    turing, ampere, ada = (here.activity(gpu) for gpu in gpus)
    assert (turing.tensor, ampere.tensor_fp16, ada.tensor_fp16) == (None, None, None)
    measured = [turing.tensor_fp16, ampere.tensor, ada.tensor]
    for activity in (turing, ampere, ada):
        measured += [activity.sm, activity.engine, activity.dram, activity.occupancy]
        measured.append(activity.fp32 if activity is turing else activity.fma)
        assert activity.pcie_receive_bytes is not None
    assert measured == [pytest.approx(0.1)] * len(measured)
