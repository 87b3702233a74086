# SPDX-License-Identifier: Apache-2.0
"""GPUs whose drivers answer otherwise than a data-centre board's, as seen on real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.derive.clocks import read_clocks
from exporter.model.reading import Memory
from exporter.sources.nvml.reader import NvmlReading, NvmlSource
from exporter.specs import load_specs
from tests.fake_nvml import fault
from tests.sources.conftest import Open

BOOK = load_specs()
GIB = 2**30
HOST = Memory(120 * GIB, 60 * GIB, 60 * GIB, unified=True)


@pytest.fixture
def procfs(tmp_path: Path) -> str:
    """A /proc of a host with 120 GiB, of which half is in use."""
    folder = tmp_path / "proc"
    folder.mkdir()
    kib = GIB // 1024
    (folder / "meminfo").write_text(f"MemTotal: {120 * kib} kB\nMemAvailable: {60 * kib} kB\n")
    return str(folder)


def read(source: NvmlSource, rig: Any) -> NvmlReading:
    source.read_slow()
    return source.read_fast(rig.monotonic(), rig.time(), frozenset())


def absent(rig: Any) -> set[str]:
    """The groups that the driver does not have; each is asked for and none fails."""
    assert rig.failures == {}
    assert set(rig.journal.states.values()) <= {"unsupported"}
    return set(rig.journal.states)


@pytest.mark.parametrize(
    ("product", "total", "unified"),
    [
        ("jetson-thor", 128, True),
        ("gh200", 128, True),
        ("gh200", 96, None),
        ("h100-sxm", 120, None),
    ],
)
def test_memory_of_the_host_that_the_driver_reports_is_marked(
    open_gpu: Open, procfs: str, product: str, total: int, unified: bool | None
) -> None:
    """As much as the host has, or the little more that it is built with, and not of a board that
    shares none; else it is the GPU's own, which is what a job runs out of."""
    rig = open_gpu(product=product, memory={"total": total * GIB, "used": 5 * GIB, "reserved": 0})
    found = read(rig.source(procfs), rig).memory[None]

    assert found == (HOST if unified else Memory(total * GIB, 5 * GIB, (total - 5) * GIB, 0))


def test_without_either_nothing_is_known(open_gpu: Open, tmp_path: Path) -> None:
    """A host that does not say how much memory it has keeps no GPU from its own."""
    rig = open_gpu(product="gh200")
    own = read(rig.source(str(tmp_path)), rig).memory[None]
    assert own is not None
    assert own.total_bytes == 102625181696
    refused = open_gpu(product="gb10")
    assert read(refused.source(str(tmp_path)), refused).memory == {None: None}


def test_a_gb10(open_gpu: Open, procfs: str) -> None:
    """Power without a limit, no fan, no memory clock, an address in a PCI domain of its own."""
    rig = open_gpu(product="gb10", power=40)
    source = rig.source(procfs)
    found = read(source, rig)
    device = source.device

    assert device.coherent_memory
    assert found.memory == {None: HOST}
    assert device.pci_bus_id == "0000000F:01:00.0"
    assert device.power_default_limit_watts is device.power_max_limit_watts is None
    assert (found.vitals.power_watts, found.board.power_limit_watts) == (40.0, None)
    assert found.board.fan_speed_ratios == ()
    assert found.vitals.clock_hertz.keys() == {"sm", "graphics", "video"}
    assert {"power_limit", "fans", "memory_clock", "bar1", "energy"} <= absent(rig)
    ceilings = BOOK.ceilings(device)
    assert ceilings is not None
    assert (ceilings.spec, ceilings.memory_utilization_use) == ("gb10", None)


def test_a_laptop(open_gpu: Open) -> None:
    """55 W by default, 95 W in force, at most 140 W. The reason gpu_idle holds at 30 % utilization
    and says nothing; time at the power limit counts as time of heat, too, each by itself."""
    rig = open_gpu(
        product="rtx-4090-laptop",
        power=93,
        utilization=30,
        clock_event_reasons=0x25,
        throttle={"power": 0.5, "sw_thermal": 0.5},
    )
    source = rig.source()
    rig.advance(10)
    found = read(source, rig)
    vitals, device = found.vitals, source.device

    assert (device.power_default_limit_watts, device.power_max_limit_watts) == (55.0, 140.0)
    assert (vitals.power_watts, found.board.power_limit_watts) == (93.0, 95.0)
    assert found.board.fan_speed_ratios == ()
    assert "power_limit" not in absent(rig)
    assert vitals.utilization is not None
    assert vitals.utilization.ratio == pytest.approx(0.3)
    assert vitals.throttle_reasons == frozenset({"sw_power_cap", "sw_thermal"})
    assert vitals.throttle_seconds["sw_power_cap"] == vitals.throttle_seconds["sw_thermal"] == 5.0
    assert vitals.throttle_seconds["thermal"] == 0.0


def test_the_hosts_memory_is_no_answer_of_the_driver(open_gpu: Open, procfs: str) -> None:
    """A GPU of which every call fails is silent, though its host says how much memory it has."""
    rig = open_gpu(product="gb10")
    source = rig.source(procfs)
    assert read(source, rig).answered
    rig.fake.update(faults=[fault(error=999)])

    found = read(source, rig)
    assert found.memory == {None: HOST}
    assert not found.answered


def test_a_default_clock_below_the_clock_that_it_runs_at(open_gpu: Open) -> None:
    """An A100's default application clock is 1155 MHz: its ceilings are those at 1410."""
    rig = open_gpu(product="a100-pcie-40gb", utilization=100)
    source = rig.source()
    vitals = read(source, rig).vitals
    ceilings = BOOK.ceilings(source.device)

    assert pynvml.nvmlDeviceGetDefaultApplicationsClock(rig.handle, pynvml.NVML_CLOCK_SM) == 1155
    assert ceilings is not None
    clocks = read_clocks(vitals, ceilings, source.device)
    assert (clocks.ratio("tensor"), clocks.ratio("fma")) == (1.0, 1.0)
    assert vitals.throttle_reasons == frozenset()


@pytest.mark.parametrize("product", ["t4", "a10"])
@pytest.mark.parametrize("answer", [None, 0])
def test_memory_without_a_sensor_has_no_temperature(
    open_gpu: Open, product: str, answer: int | None
) -> None:
    """Some drivers have no such field, some say 0."""
    rig = open_gpu(product=product, temperature={"memory": answer})

    assert read(rig.source(), rig).vitals.temperatures_celsius.keys() == {"gpu"}
