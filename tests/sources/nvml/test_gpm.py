# SPDX-License-Identifier: Apache-2.0
"""The GPU Performance Monitor between two samples."""

from __future__ import annotations

import logging
from typing import Any

import pynvml
import pytest

from exporter.errors import DeviceGone, LibraryUnavailable
from exporter.model.reading import Activity
from exporter.sources.nvml.gpm import HIGHEST, GpmSource
from tests.fake_nvml import DRIVER_470, fault, mean, square
from tests.sources.conftest import Open

MIB = 2**20
PIPES = {
    "graphics": 90,
    "sm": 80,
    "occupancy": 40,
    "tensor": 50,
    "hmma": 30,
    "imma": 12,
    "dmma": 6,
    "dfma": 2,
    "int": 20,
    "fp64": 5,
    "fp32": 25,
    "fp16": 15,
    "dram": 70,
}
RATIOS = {
    "sm": 0.8,
    "integer": 0.2,
    "tensor": 0.5,
    "hmma": 0.3,
    "imma": 0.12,
    "dmma": 0.06,
    "dfma": 0.02,
    "fp64": 0.05,
    "fp32": 0.25,
    "fp16": 0.15,
}
"""Of PIPES, by the names of `Activity`: those that the driver also counts in cycles."""
CLOCK_HERTZ = 1980e6
LOST = [(15, DeviceGone), (18, LibraryUnavailable)]
about: Any = pytest.approx


def read(source: GpmSource, rig: Any) -> dict[int | None, Activity]:
    found = source.read(rig.monotonic())
    rig.journal.log_changes()
    return found


def window(rig: Any, source: GpmSource, seconds: float = 1.0) -> Activity:
    """The whole GPU's activity over the next `seconds`."""
    read(source, rig)
    rig.advance(seconds)
    return read(source, rig)[None]


def test_every_activity_is_the_mean_between_two_reads(open_gpu: Open) -> None:
    """Percents become ratios, rates become bytes moved in the time between the samples."""
    links = ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx", "c2c_data_tx", "c2c_data_rx")
    traffic = {name: n * MIB for name, n in zip(links, (3, 5, 7, 11, 13, 17), strict=True)}
    engines = {"nvdec": [70, 0, 0, 0, 0, 0, 0], "nvjpg": 14, "ofa": 9, "nvenc": 8}
    rig = open_gpu(
        gpm={**PIPES, **traffic, **engines}, c2c={"links": 10}, engines={"nvenc": 1, "ofa": 1}
    )
    source = rig.gpm()
    assert source.measures(None)
    assert read(source, rig) == {}  # one sample is no interval
    found = window(rig, source, 2.0)

    assert found == Activity(
        source="gpm",
        seconds=2.0,
        engine=0.9,
        occupancy=0.4,
        dram=0.7,
        **RATIOS,
        encoder=0.08,
        decoder=about(0.1),
        jpeg=about(0.14),
        ofa=0.09,
        pcie_transmit_bytes=6 * MIB,
        pcie_receive_bytes=10 * MIB,
        nvlink_transmit_bytes=14 * MIB,
        nvlink_receive_bytes=22 * MIB,
        c2c_transmit_bytes=26 * MIB,
        c2c_receive_bytes=34 * MIB,
    )


def test_windows_follow_each_other_without_gaps(open_gpu: Open) -> None:
    """Activity times seconds adds up to the truth, whatever the spacing of the reads."""
    tensor = square(period=0.7, duty=0.4, high=95)
    rig = open_gpu(gpm={"tensor": tensor})
    source = rig.gpm()
    read(source, rig)
    busy = 0.0
    for seconds in (0.11, 0.35, 1.0, 2.5, 0.13, 0.9):
        rig.advance(seconds)
        activity = read(source, rig)[None]
        assert activity.tensor is not None
        busy += activity.tensor * activity.seconds

    assert busy == pytest.approx(mean(tensor, 0, 4.99) / 100 * 4.99)


def test_reads_closer_than_100_ms_keep_the_older_sample(open_gpu: Open) -> None:
    """A read that comes too early gives nothing, asks nothing, and loses nothing."""
    rig = open_gpu(gpm={"sm": square(period=0.12, duty=0.5, high=100)})
    source = rig.gpm()
    read(source, rig)
    rig.calls()
    rig.advance(0.06)
    early = read(source, rig)
    assert rig.calls() == {}
    rig.advance(0.06)
    found = read(source, rig)[None]

    assert early == {}
    assert (found.sm, found.seconds) == (about(0.5), about(0.12))


def test_nan_and_errors_are_absent(open_gpu: Open) -> None:
    """A metric that is NaN, or that the driver lacks, is unknown, and asked for again."""
    rig = open_gpu(gpm={**PIPES, "nan_ids": [2, 60], "unsupported_ids": [11, 12]})
    source = rig.gpm()
    found = window(rig, source)
    rig.fake.device(0, gpm={"nan_ids": []})
    rig.advance(1)

    assert (found.sm, found.nvlink_receive_bytes) == (None, None)
    assert (found.fp64, found.fp32, found.fp16) == (None, None, 0.15)
    assert found.dram == 0.7
    assert rig.journal.states == {}
    assert read(source, rig)[None].sm == 0.8


def test_metric_that_cannot_be_is_absent_and_logged_once(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are read on, and the state says so until it can be again."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(gpm=PIPES)
    source = rig.gpm()
    window(rig, source)
    found = []
    for sm in (80, 250, 250, 80, 80):
        rig.fake.device(0, gpm={"sm": sm})
        rig.advance(1)
        activity = read(source, rig)[None]
        assert activity.dram == 0.7
        found.append((activity.sm is None, dict(rig.journal.states)))

    assert (True, {"gpm": "implausible"}) in found
    assert found[-1] == (False, {})
    assert caplog.messages == [
        "GPU 0 cannot be read in part: gpm (implausible)",
        "GPU 0: can be read again: gpm",
    ]


def test_gpu_that_answers_no_metric_is_unsupported(open_gpu: Open) -> None:
    """A GPU that claims support and answers nothing counts as not measured."""
    rig = open_gpu(gpm={"unsupported_ids": list(HIGHEST)})
    source = rig.gpm()
    for _ in range(3):
        assert read(source, rig) == {}
        rig.advance(1)

    assert not source.measures(None)
    assert rig.journal.states == {"gpm": "unsupported"}


@pytest.mark.parametrize("cycles", ["summed", "averaged"])
def test_cumulative_cycles_give_exact_ratios(open_gpu: Open, cycles: str) -> None:
    """Where the driver counts cycles, their quotient is the activity, however they are
    normalised, also of the metrics whose percentage does not answer."""
    rig = open_gpu(
        gpm={**PIPES, "cumulative": 1, "cycles": cycles, "nan_ids": [2, 4, 5, 6, 7, 8, 9, 11, 12]},
        clocks={"sm": 1980},
    )
    source = rig.gpm()
    window(rig, source)
    rig.advance(2)
    found = read(source, rig)[None]

    assert found.elapsed_cycles == pytest.approx(
        2 * CLOCK_HERTZ * (132 if cycles == "summed" else 1), rel=1e-6
    )
    assert {name: getattr(found, name) for name in RATIOS} == pytest.approx(RATIOS, rel=1e-6)
    assert found.dram == 0.7


def test_cumulative_bytes_count(open_gpu: Open) -> None:
    """PCIe bytes come from the counters where they answer."""
    rig = open_gpu(gpm={"cumulative": 1, "pcie_tx": 1000, "pcie_rx": 2000, "nan_ids": [20, 21]})
    source = rig.gpm()
    first = window(rig, source)
    rig.advance(3)
    found = read(source, rig)[None]

    assert (first.pcie_transmit_bytes, first.elapsed_cycles) == (None, None)
    assert (found.pcie_transmit_bytes, found.pcie_receive_bytes) == (3000, 6000)


def test_restarted_counters_publish_nothing_wrong(open_gpu: Open) -> None:
    """A window in which the driver's totals fell has no values, never negative ones."""
    rig = open_gpu(gpm={**PIPES, "cumulative": 1})
    source = rig.gpm()
    window(rig, source)
    rig.fake.device(0, generation=2)
    rig.advance(0.2)
    assert read(source, rig) == {}
    for _ in range(5):
        rig.advance(1)
        found = read(source, rig)[None]
        assert found.tensor == pytest.approx(0.5)

    assert found.elapsed_cycles == pytest.approx(132 * CLOCK_HERTZ)


def test_more_active_than_elapsed_cycles_are_not_believed(open_gpu: Open) -> None:
    """Counters that are normalised differently from each other give no ratio."""
    rig = open_gpu(gpm={**PIPES, "cumulative": 1})
    source = rig.gpm()
    source._windows[None]._activity({5: 50.0, 248: 100.0, 250: 10.0}, 1.0)
    found = source._windows[None]._activity({5: 50.0, 248: 200.0, 250: 900.0}, 1.0)

    assert found is not None
    assert found.tensor == 0.5


@pytest.mark.parametrize(
    ("product", "missing", "state"),
    [
        ("a100-sxm4-80gb", (), "unsupported"),
        ("t4", (), "unsupported"),
        ("h100-sxm", DRIVER_470, "old_driver"),
    ],
)
def test_gpus_without_the_counters(
    open_gpu: Open, product: str, missing: tuple[str, ...], state: str
) -> None:
    """The driver's own answer decides, not the architecture; nothing is allocated."""
    rig = open_gpu(product=product, missing=missing)
    source = rig.gpm()

    assert not source.measures(None)
    assert read(source, rig) == {}
    assert rig.journal.states == {"gpm": state}
    assert "nvmlGpmSampleAlloc" not in rig.calls()


@pytest.mark.parametrize(
    "call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"]
)
def test_no_permission(open_gpu: Open, caplog: pytest.LogCaptureFixture, call: str) -> None:
    """A refusal anywhere is one failure, one line, one state, and the end of asking."""
    rig = open_gpu(gpm=PIPES)
    rig.fake.update(faults=[fault(call, error=4)])
    source = rig.gpm()
    for _ in range(3):
        assert read(source, rig) == {}
        rig.advance(1)

    assert not source.measures(None)
    assert rig.journal.states == {"gpm": "no_permission"}
    assert rig.failures == {"gpm": 1}
    assert caplog.messages == ["GPU 0 cannot be read in part: gpm (no permission)"]
    assert rig.calls().get(call) == 1


@pytest.mark.parametrize("code", [10, 19, 21, 999])
def test_faults_pass(open_gpu: Open, caplog: pytest.LogCaptureFixture, code: int) -> None:
    """A fault of the moment costs its rounds; afterwards the window spans them."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(gpm=PIPES)
    source = rig.gpm()
    read(source, rig)
    rig.fake.update(faults=[fault("nvmlGpmSampleGet", error=code)])
    for _ in range(3):
        rig.advance(1)
        assert read(source, rig) == {}
    rig.fake.update(faults=[])
    rig.advance(1)

    assert read(source, rig)[None].seconds == 4
    assert source.measures(None)
    counted = code == 999
    assert rig.failures == ({"gpm": 3} if counted else {})
    assert len(caplog.messages) == (2 if counted else 0)


def test_opening_is_tried_again(open_gpu: Open) -> None:
    """A GPU that is busy when its session opens is measured as soon as it answers."""
    rig = open_gpu(gpm=PIPES)
    rig.fake.update(faults=[fault("nvmlGpmQueryDeviceSupport", error=10)])
    source = rig.gpm()
    assert not source.measures(None)
    rig.fake.update(faults=[])

    assert window(rig, source).tensor == 0.5
    assert rig.journal.states == {}


@pytest.mark.parametrize("call", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
@pytest.mark.parametrize(("code", "kind"), LOST)
def test_lost_gpu_or_library_is_raised(
    open_gpu: Open, call: str, code: int, kind: type[Exception]
) -> None:
    """Codes that concern more than this source end the round."""
    rig = open_gpu(gpm=PIPES)
    source = rig.gpm()
    read(source, rig)
    rig.fake.update(faults=[fault(call, error=code)])
    rig.advance(1)

    with pytest.raises(kind):
        read(source, rig)


@pytest.mark.parametrize("code", [code for code, _ in LOST])
def test_metric_that_says_that_all_is_lost_is_absent_alone(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Whether the GPU or the library is lost, calls say; the other metrics are read."""
    rig = open_gpu(gpm=PIPES)
    source = rig.gpm()
    answered = pynvml.nvmlGpmMetricsGet

    def with_code(metrics: Any) -> None:
        answered(metrics)
        metrics.metrics[2].nvmlReturn = code  # the third: occupancy

    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", with_code)
    found = window(rig, source)
    assert found.occupancy is None
    assert found.tensor is not None


INSTANCES = [
    {"gi": 1, "gpm": {**PIPES, "nvdec": 70}, "sm_count": 60},
    {"gi": 5, "gpm": {"sm": 10}, "sm_count": 16},
]
MIG = {"mig": {"instances": INSTANCES}, "gpm": {"cumulative": 1}}


def test_instances_have_windows_of_their_own(open_gpu: Open) -> None:
    """Under MIG each GPU instance is measured by itself, without the traffic of links."""
    rig = open_gpu(**MIG)
    source = rig.gpm(1, 5)
    for _ in range(3):
        found = read(source, rig)
        rig.advance(1)

    assert (found[1].tensor, found[5].sm) == (about(0.5), about(0.1))
    assert (found[1].pcie_transmit_bytes, found[1].nvlink_transmit_bytes) == (None, None)
    assert found[1].elapsed_cycles == pytest.approx(CLOCK_HERTZ * 60, rel=1e-6)
    assert (source.measures(1), source.measures(None)) == (True, False)


def test_fault_of_one_instance_leaves_the_others(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """An instance that vanished is given up alone, and its samples are freed."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(**MIG)
    source = rig.gpm(1, 5, 6)
    for _ in range(3):
        found = read(source, rig)
        rig.advance(1)

    assert set(found) == {1, 5}
    assert rig.journal.states == {"gpm_instance_6": "unsupported"}
    assert rig.calls()["nvmlGpmSampleFree"] == 2
    assert caplog.messages == []


def test_samples_are_freed_on_close(open_gpu: Open) -> None:
    """Whatever was allocated is given back, once."""
    rig = open_gpu(**MIG)
    source = rig.gpm(1, 5)
    read(source, rig)
    source.close()
    source.close()
    calls = rig.calls()

    assert calls["nvmlGpmSampleAlloc"] == calls["nvmlGpmSampleFree"] == 4
    assert read(source, rig) == {}


def test_samples_are_freed_when_opening_fails(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that could be opened only in part keeps nothing, costs no other, and opens later."""
    rig = open_gpu(**MIG)
    allocate = pynvml.nvmlGpmSampleAlloc
    allocated: list[Any] = []

    def until_the_driver_runs_out() -> Any:
        if len(allocated) == 3:
            rig.fake.update(faults=[fault("nvmlGpmSampleAlloc", error=20)])
        allocated.append(allocate())
        return allocated[-1]

    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", until_the_driver_runs_out)
    source = rig.gpm(1, 5)
    assert rig.calls()["nvmlGpmSampleFree"] == 1
    assert (source.measures(1), source.measures(5)) == (True, False)

    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", allocate)
    rig.fake.update(faults=[])
    read(source, rig)
    assert (source.measures(1), source.measures(5)) == (True, True)
