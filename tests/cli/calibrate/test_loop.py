# SPDX-License-Identifier: Apache-2.0
"""A calibration on the fake driver finds the truth of its board, or says why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.cli.calibrate.loads import IDLE, LOADS
from exporter.cli.calibrate.report import ranges, section, table
from exporter.errors import ConfigError, ExporterError
from exporter.model.reading import Device
from exporter.specs import load_specs
from tests.cli.calibrate.driven import Rig
from tests.cli.calibrate.truth import Board
from tests.recordings import SPECS

H100 = Device(0, "GPU-1", "NVIDIA H100 80GB HBM3", compute_capability=(9, 0))


def h100(**truth: Any) -> Board:
    ceilings = SPECS.ceilings(H100)
    assert ceilings is not None
    return Board(ceilings=ceilings, **truth)


def test_the_truth_lies_in_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the driver's energy, utilization and clocks through the file to the ceilings."""
    board = h100(clocks={"gemm": 1410e6, "gemm-zeros": 1500e6})
    rig = Rig(tmp_path, monkeypatch, board)
    rig.on_load = {
        "gemm": {"clock_event_reasons": 0x4},
        "gemm-zeros": {"clock_event_reasons": 0},
    }
    found = rig.calibrate()

    assert rig.began == [load.name for load in LOADS]
    assert rig.closed == 1
    assert found.key == "h100-sxm5-80gb"
    assert found.capped == ("gemm",)
    assert found.power.reference_clock_hertz == 1410e6
    assert found.measured["idle"].watts == pytest.approx(70.0)
    assert found.measured["spin"].watts == pytest.approx(145.0)
    assert found.measured["gemm"].flops_per_second == pytest.approx(0.9 * 989.4e12 * 1410 / 1830)
    assert found.measured["copy-half"].utilization == pytest.approx(0.5)

    text = section(found, "2026-03-01")
    assert "NVIDIA H100 80GB HBM3, driver " in text
    path = tmp_path / "power.yaml"
    path.write_text(text, encoding="utf-8")
    ceilings = load_specs(path).ceilings(H100)
    assert ceilings is not None
    power = ceilings.power
    assert power is not None
    assert power.calibrated
    for name, bounds in ranges(found.power).items():
        written = ranges(power)[name]
        assert written.lower <= bounds.lower <= bounds.upper <= written.upper
        assert written.upper - written.lower <= bounds.upper - bounds.lower + 0.2
    at = (1410 / 1500) ** board.exponent
    assert power.tensor_watts.lower <= board.zeros * board.tensor * at
    assert board.tensor * at <= power.tensor_watts.upper
    assert power.dram_watts.lower <= board.zeros * board.dram < board.dram <= power.dram_watts.upper
    assert power.memory_margin_ratio is not None
    assert power.error_watts >= 21.0

    shown = "\n".join(table(found, "power.yaml"))
    assert "warning: the power limit of 700 W held the clock down in gemm;" in shown
    assert "--specs power.yaml" in shown
    assert len(rig.said) == 1 + len(LOADS)
    assert rig.said[0].split()[:3] == [IDLE.name, "70.0", "W"]


def test_a_gpu_without_a_row_is_written_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And found by it."""
    rig = Rig(tmp_path, monkeypatch, h100(), name="NVIDIA H199", pci_device_id=0x2FFF)
    found = rig.calibrate()
    assert found.key == "NVIDIA H199"
    path = tmp_path / "power.yaml"
    path.write_text(section(found, "2026-03-01"), encoding="utf-8")
    assert load_specs(path).power.keys() == {"H199"}


def test_a_gpu_without_tensor_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor load is put on it."""
    rig = Rig(
        tmp_path,
        monkeypatch,
        h100(),
        name="NVIDIA GeForce GTX 1660 Ti",
        compute_capability=[7, 5],
        pci_device_id=0x2182,
        cores=1536,
        bus_width=192,
    )
    found = rig.calibrate()
    assert found.key == "gtx-1660-ti"
    assert not [name for name in rig.began if name.startswith("gemm")]


THEIRS = {"pid": 7, "bytes": 1 << 30}


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ({"processes": {"compute": [THEIRS]}}, r"GPU 0 is in use: process 7"),
        ({"utilization": 30}, r"the GPU is in use: its utilization is 30 % while"),
        ({"clock_event_reasons": 0x20}, r"its temperature \(\d+ °C\) throttles the GPU in .* idle"),
        ({"power": None, "energy": None}, r"the driver does not report the power of this GPU"),
        ({"modes": {"virtualization": 1}, "name": "GRID A100-8C"}, r"part of a GPU, or not known"),
        (
            {"mig": {"instances": [{"gi": 1, "ci": 0, "profile": "1g.10gb", "sm_count": 16}]}},
            r"MIG is on",
        ),
    ],
)
def test_a_gpu_that_cannot_be_calibrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: dict[str, Any], problem: str
) -> None:
    """One line, before any load is put on it."""
    rig = Rig(tmp_path, monkeypatch, h100(), **device)
    with pytest.raises(ExporterError, match=problem):
        rig.calibrate()
    assert rig.began == []
    assert rig.closed == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"processes": {"compute": [{"pid": 4242, "bytes": 1}, THEIRS]}},
            r"GPU 0 is not free any more: process 4242, process 7",
        ),
        ({"clock_event_reasons": 0x40}, r"throttles the GPU in the load cache"),
        ({"lost": 1}, r"nothing can be measured: "),
    ],
)
def test_what_comes_in_between_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], problem: str
) -> None:
    """Another process, heat, a lost GPU: the loads are ended."""
    rig = Rig(tmp_path, monkeypatch, h100())
    rig.on_load = {"cache": change}
    with pytest.raises(ExporterError, match=problem):
        rig.calibrate()
    assert rig.began[-1] == "cache"
    assert rig.closed == 1


def test_a_load_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words."""
    rig = Rig(tmp_path, monkeypatch, h100())
    rig.fails_at = "copy"
    with pytest.raises(ExporterError, match="CUDA out of memory"):
        rig.calibrate()
    assert rig.closed == 1


def test_an_interrupt_ends_the_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at any time leaves nothing behind."""
    rig = Rig(tmp_path, monkeypatch, h100())
    wait = rig.wait

    def interrupted(seconds: float) -> None:
        if rig.began[-1:] == ["spin"]:
            raise KeyboardInterrupt
        wait(seconds)

    rig.wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        rig.calibrate()
    assert rig.closed == 1


def test_several_gpus_need_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is never guessed."""
    rig = Rig(tmp_path, monkeypatch, h100())
    rig.fake.write({"devices": {"count": 3}})
    with pytest.raises(ConfigError, match=r"--gpu: expected the index of one GPU, there are 0, 1"):
        rig.calibrate()
