# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.derive import derive_share
from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import (
    NVSWITCH,
    Activity,
    Board,
    Device,
    Instance,
    Memory,
    Process,
    Reading,
    ShareReading,
    SlotReport,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import Gpu, Peer, ShareTotals, Snapshot
from exporter.publisher import Publisher, Rules
from exporter.publisher.share import share_picture
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.derive.readings import known

SPECS = load_specs()
H100 = Device(
    index=0,
    uuid="GPU-h100",
    name="NVIDIA H100 80GB HBM3",
    pci_device_id=0x2330,
    compute_capability=(9, 0),
    core_count=16896,
    memory_bus_width_bits=5120,
    memory_bytes=80 * 2**30,
    clock_max_hertz={"sm": 1.98e9, "memory": 2.619e9},
)
T4 = dataclasses.replace(
    H100,
    index=1,
    uuid="GPU-t4",
    name="Tesla T4",
    pci_device_id=0x1EB8,
    compute_capability=(7, 5),
    core_count=2560,
    memory_bus_width_bits=256,
    clock_max_hertz={"sm": 1.59e9, "memory": 5.001e9},
)
BUSY = Activity(
    source="gpm",
    seconds=1.0,
    engine=0.9,
    sm=0.8,
    occupancy=0.5,
    dram=0.3,
    tensor=0.6,
    fp64=0.0,
    fp32=0.1,
    fp16=0.0,
    integer=0.1,
)
QUIET = dataclasses.replace(
    BUSY, engine=0.0, sm=0.0, occupancy=0.0, dram=0.0, tensor=0.0, fp32=0.0, integer=0.0
)


class Script:
    """Readers under control of the test."""

    name = "nvml"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.slots: dict[int, SlotReport] = {}
        self.problem: str | None = None
        self.failed_initialisations = 0
        self.counter_states = NO_COUNTER_STATES
        self.waits: list[float] = []

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return {"GPU-h100": {79: XidRecord(1, 5.0)}}

    def devices(self) -> dict[str, int]:
        return {"nvml": 1}

    def round(self, wait_seconds: float) -> None:
        self.waits.append(wait_seconds)

    def reports(self) -> list[SlotReport]:
        return list(self.slots.values())

    def read(self, device: Device, *, activity: Activity | None = None, **changes: Any) -> None:
        """Let `device` answer now."""
        vitals = Vitals(
            utilization=Utilization(0.5, 0.6, 1.0, 0.1, 0.2),
            power_watts=300.0,
            energy_joules=300.0 * self._clock.monotonic(),
            clock_hertz={"sm": 1.83e9, "memory": 2.619e9},
        )
        share = ShareReading(
            memory=Memory(80 * 2**30, 0, 80 * 2**30),
            processes=changes.pop("processes", ()),
            activity=activity,
            counters=changes.pop("counters", None if activity is None else activity.source),
        )
        shares = changes.pop("shares", (share,))
        reading = Reading(
            device=device,
            timestamp_seconds=self._clock.time(),
            monotonic_seconds=self._clock.monotonic(),
            vitals=dataclasses.replace(vitals, **changes),
            board=Board(),
            shares=shares,
            read_seconds={"nvml": 0.001, "gpm": 0.002},
        )
        self.slots[device.index] = SlotReport(device.index, device, reading, None, {})

    def fail(self, device: Device, problem: str) -> None:
        """Let `device` stop answering."""
        self.slots[device.index] = SlotReport(device.index, device, None, problem, {"nvml": 1})


class Bench:
    """A publisher on a script, ticked by hand."""

    def __init__(self, sources: Mapping[str, Any] = MappingProxyType({}), **rules: Any) -> None:
        self.clock = ManualClock()
        self.script = Script(self.clock)
        self.seen: list[Snapshot] = []
        self.publisher = Publisher(
            self.script, SPECS, Rules(**rules), self.clock, (self.seen.append,), **sources
        )

    def tick(self, *devices: Device, seconds: float = 1.0, **reading: Any) -> Snapshot:
        """Advance the clock, let the devices answer, and tick."""
        self.clock.advance(seconds)
        for device in devices:
            self.script.read(device, **reading)
        return self.publisher.tick()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def gpu(snapshot: Snapshot, uuid: str = "GPU-h100") -> Gpu:
    return next(gpu for gpu in snapshot.gpus if gpu.device.uuid == uuid)


def test_before_any_reading_there_is_no_gpu_and_a_reason(bench: Bench) -> None:
    """The first snapshot says why it is empty."""
    assert bench.publisher.tick().gpus == ()
    assert bench.seen[-1].problem == "the driver has not answered yet"

    bench.script.problem = "the NVIDIA driver is not loaded"

    assert bench.publisher.tick().problem == "the NVIDIA driver is not loaded"
    assert not bench.seen[-1].sources["nvml"].up


def test_the_first_read_publishes_gauges_but_no_interval(bench: Bench) -> None:
    """One reading has no length: nothing is integrated, and no saturation is made up."""
    snapshot = bench.tick(H100, counters="gpm")
    share = gpu(snapshot).shares[0]

    assert gpu(snapshot).up
    assert share.saturation is None
    assert share.totals.busy_seconds is None
    assert known(share.ceilings).spec == "h100-sxm5-80gb"
    assert snapshot.problem is None


def test_a_gpu_that_is_down_keeps_its_links(bench: Bench) -> None:
    """Each GPU has its peers, whether they answer or not."""
    one = dataclasses.replace(H100, nvlink_ends={NVSWITCH: 18})
    other = dataclasses.replace(one, index=1, uuid="GPU-other")
    assert gpu(bench.tick(one)).peers == ()
    bench.tick(one, other)
    bench.script.fail(other, "lost")
    snapshot = bench.tick(one)

    assert not gpu(snapshot, "GPU-other").up
    assert gpu(snapshot).peers == (Peer(1, "GPU-other", "NV18"),)
    assert gpu(snapshot, "GPU-other").peers == (Peer(0, "GPU-h100", "NV18"),)


def test_counters_follow_the_readings(bench: Bench) -> None:
    """Ten seconds of steady work give ten times the ratios."""
    bench.tick(H100, counters="gpm")
    for _ in range(10):
        snapshot = bench.tick(H100, activity=BUSY)
    totals = gpu(snapshot).shares[0].totals

    assert totals.observed_seconds == pytest.approx({"utilization": 10.0, "activity": 10.0})
    assert totals.busy_seconds == pytest.approx(5.0)
    assert totals.pipe_active_seconds["tensor"] == pytest.approx(6.0)
    assert sum(totals.time_seconds.values()) == pytest.approx(10.0)
    assert totals.limited_seconds["compute"] == pytest.approx(10.0)
    assert totals.flops["bf16_tensor"] == pytest.approx(0.6 * 989.4e12 * 10)
    assert gpu(snapshot).totals.energy_joules == pytest.approx(300 * bench.clock.monotonic())


def test_no_integral_crosses_a_gap(bench: Bench) -> None:
    """An interval longer than three polls is added to no total, observed time included."""
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    long = dataclasses.replace(BUSY, seconds=3.5)
    after = gpu(bench.tick(H100, activity=long, seconds=3.5)).shares[0].totals

    assert after == dataclasses.replace(
        before, last_busy_timestamp_seconds=bench.clock.time(), idle_for_seconds=None
    )


def test_a_reading_counts_once(bench: Bench) -> None:
    """A worker in the middle of a round returns its last reading again."""
    bench.tick(H100, activity=BUSY)
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.publisher.tick()).shares[0].totals
    bench.clock.advance(1.0)

    assert gpu(bench.publisher.tick()).shares[0].totals == before


def test_a_gpu_that_is_reported_twice_counts_once(bench: Bench) -> None:
    """One reading per GPU and tick is integrated, the newest."""
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    bench.script.read(H100, activity=BUSY)
    older = bench.script.slots[0]
    bench.clock.advance(1.0)
    bench.script.read(H100, activity=BUSY)
    bench.script.slots[1] = dataclasses.replace(older, index=1)
    bench.script.slots[2] = dataclasses.replace(older, index=2, reading=None, problem="lost")
    snapshot = bench.publisher.tick()
    after = gpu(snapshot).shares[0].totals

    assert len(snapshot.gpus) == 1
    assert gpu(snapshot).up
    assert after.observed_seconds["activity"] - before.observed_seconds["activity"] == 1.0


def test_the_label_follows_the_gpu_and_its_counters_go_on(bench: Bench) -> None:
    """A GPU that the driver renumbers keeps all but its index."""
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    moved = dataclasses.replace(H100, index=3)
    bench.script.slots.clear()
    after = bench.tick(moved, activity=BUSY)

    assert gpu(after).device.index == 3
    observed = gpu(after).shares[0].totals.observed_seconds["activity"]
    assert observed == before.observed_seconds["activity"] + 1.0


def test_a_gpu_goes_stale_at_the_third_tick_without_a_reading(bench: Bench) -> None:
    """Its series go within three intervals; identity and the time of the last read stay."""
    bench.tick(H100, T4, activity=BUSY)
    read_at = bench.clock.time()
    assert gpu(bench.tick(T4)).up
    assert gpu(bench.tick(T4)).up
    snapshot = bench.tick(T4)
    stale = gpu(snapshot)

    assert not stale.up
    assert stale.down_reason == "no fresh reading"
    assert stale.last_read_timestamp_seconds == read_at
    assert stale.shares == ()
    assert stale.vitals is None
    assert gpu(snapshot, "GPU-t4").up
    assert snapshot.problem is None


def test_a_lost_gpu_is_down_at_once_and_its_counters_go_on_afterwards(bench: Bench) -> None:
    """The reason is shown; on return nothing has fallen and the gap was not counted."""
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    bench.clock.advance(1.0)
    bench.script.fail(H100, "lost")
    snapshot = bench.publisher.tick()
    assert not gpu(snapshot).up
    assert gpu(snapshot).down_reason == "lost"
    assert snapshot.problem == "no GPU is up: GPU 0: lost"
    assert snapshot.sources["nvml"].failures_total == 1

    bench.tick(H100, seconds=20.0, counters="gpm")
    after = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals

    assert after.observed_seconds["activity"] == before.observed_seconds["activity"] + 1.0


def test_a_vanished_gpu_is_forgotten_after_a_while() -> None:
    """It keeps gpu_up 0 for --gpu.forget-after, then its series end."""
    bench = Bench(forget_after_seconds=60.0)
    bench.tick(H100, T4)
    bench.script.fail(H100, "the driver no longer lists it")
    for _ in range(60):
        snapshot = bench.tick(T4)
        assert not gpu(snapshot).up
    del bench.script.slots[0]

    assert [gpu.device.uuid for gpu in bench.tick(T4).gpus] == ["GPU-t4"]


def test_a_gpu_that_skips_a_round_of_counters_does_not_flip_to_an_estimate(bench: Bench) -> None:
    """The last activity is shown for up to three intervals, and counted once."""
    bench.tick(H100, counters="gpm")
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0]
    share = gpu(bench.tick(H100, counters="gpm")).shares[0]

    assert share.saturation == before.saturation
    assert share.activity == BUSY
    assert share.totals.observed_seconds == {"activity": 1.0, "utilization": 2.0}


def test_counters_that_stay_silent_make_room_for_the_estimate(bench: Bench) -> None:
    """After three intervals without counters the estimate is published; no counter falls."""
    bench.tick(H100, counters="gpm")
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    for _ in range(5):
        share = gpu(bench.tick(H100, counters="gpm")).shares[0]

    assert share.saturation is not None
    assert share.saturation.source == "estimate"
    assert share.saturation.bounds.upper == 0.6
    assert share.totals.pipe_active_seconds == before.pipe_active_seconds
    assert (share.totals.flops_upper or 0) > (before.flops_upper or 0)

    share = gpu(bench.tick(H100, activity=BUSY)).shares[0]

    assert share.saturation is not None
    assert share.saturation.source == "gpm"


def test_an_idle_held_gpu_adds_idle_time_and_energy(bench: Bench) -> None:
    """Held idle time counts only while someone holds the GPU."""
    process = Process(pid=7, kind="compute", command="python3")
    memory = Memory(80 * 2**30, 2**30, 79 * 2**30)
    held = ShareReading(memory=memory, processes=(process,), activity=QUIET, counters="gpm")
    free = dataclasses.replace(held, processes=())
    bench.tick(H100, shares=(dataclasses.replace(held, activity=None),))
    started = bench.clock.time()
    for _ in range(3):
        bench.tick(H100, shares=(held,))
    snapshot = bench.tick(H100, shares=(free,))
    totals = gpu(snapshot).shares[0].totals

    assert gpu(snapshot).shares[0].held is False
    assert totals.idle_seconds == 4.0
    assert totals.held_idle_seconds == 3.0
    assert totals.idle_energy_joules == pytest.approx(1200.0)
    assert totals.last_busy_timestamp_seconds == started
    assert totals.limited_seconds["idle"] == 4.0


UNUSED = Utilization(0.0, 0.01, 1.0, 0.0, 0.1)


@pytest.mark.parametrize("gap", ["paused", "lost"])
@pytest.mark.parametrize("counters", [True, False])
def test_idle_time_does_not_cross_a_gap(bench: Bench, gap: str, *, counters: bool) -> None:
    """Time that was not observed is not idle: idle time restarts after a gap."""

    def tick(seconds: float = 1.0) -> ShareTotals:
        activity = dataclasses.replace(QUIET, seconds=seconds) if counters else None
        now = bench.tick(H100, seconds=seconds, activity=activity, utilization=UNUSED)
        return gpu(now).shares[0].totals

    for _ in range(4):
        before = tick()
    assert before.idle_for_seconds == (4.0 if counters else 3.0)

    if gap == "lost":
        bench.script.fail(H100, "lost")
        assert gpu(bench.tick(seconds=44.0)).up is False
    after = tick(16.0)
    assert after.idle_for_seconds is None
    assert after.last_busy_timestamp_seconds == bench.clock.time()
    assert after.idle_seconds == before.idle_seconds
    assert tick().idle_for_seconds == 1.0


def test_what_is_not_known_is_not_idle(bench: Bench) -> None:
    """Without a reading of its use a GPU is not idle."""
    for _ in range(4):
        bench.tick(H100, utilization=UNUSED)
    for _ in range(5):
        totals = gpu(bench.tick(H100, utilization=None)).shares[0].totals
        assert totals.idle_for_seconds is None
        assert totals.last_busy_timestamp_seconds == bench.clock.time()


def test_a_round_that_the_counters_skip_neither_ends_nor_adds_idle_time(bench: Bench) -> None:
    """For up to three intervals; after that idleness is not known."""
    for _ in range(4):
        bench.tick(H100, activity=QUIET)
    for _ in range(3):
        share = gpu(bench.tick(H100, counters="gpm")).shares[0]
        assert share.totals.idle_for_seconds == 4.0
    share = gpu(bench.tick(H100, counters="gpm", utilization=None)).shares[0]
    assert share.totals.idle_for_seconds is None
    bench.tick(H100, activity=BUSY)
    share = gpu(bench.tick(H100, counters="gpm")).shares[0]
    assert share.totals.idle_for_seconds == 0.0


def test_idle_energy_of_skipped_rounds_is_that_of_the_rounds_that_are_covered(
    bench: Bench,
) -> None:
    """Two skipped rounds of half a second and one that is read: 1.5 s at 300 W; an activity that
    covers the last round alone has the energy of that one."""
    bench.tick(H100, activity=QUIET)
    for covered in (1.5, 0.5):
        before = gpu(bench.publisher.tick()).shares[0].totals.idle_energy_joules or 0.0
        for _ in range(2):
            share = gpu(bench.tick(H100, seconds=0.5, counters="gpm")).shares[0]
            assert (share.totals.idle_energy_joules or 0.0) == before
        activity = dataclasses.replace(QUIET, seconds=covered)
        share = gpu(bench.tick(H100, seconds=0.5, activity=activity)).shares[0]
        assert share.totals.idle_energy_joules == pytest.approx(before + 300 * covered)


def test_three_late_rounds_are_no_gap(bench: Bench) -> None:
    """An activity over two skipped rounds and this one counts, with 1 ms of jitter each."""
    bench.tick(H100, activity=QUIET)
    before = gpu(bench.tick(H100, activity=QUIET)).shares[0].totals
    for _ in range(2):
        bench.tick(H100, seconds=1.001, counters="gpm")
    activity = dataclasses.replace(QUIET, seconds=3.003)
    after = gpu(bench.tick(H100, seconds=1.001, activity=activity)).shares[0].totals
    observed = after.observed_seconds["activity"] - before.observed_seconds["activity"]
    assert observed == pytest.approx(3.003)
    assert (after.idle_seconds or 0.0) - (before.idle_seconds or 0.0) == pytest.approx(3.003)
    energy = (after.idle_energy_joules or 0.0) - (before.idle_energy_joules or 0.0)
    assert energy == pytest.approx(300 * 3.003)


def test_mig_instances_are_shares_and_a_remade_instance_starts_anew(bench: Bench) -> None:
    """Each instance has scaled ceilings and own counters; a reused id starts at 0."""
    one = Instance(1, 0, "1g.10gb", "MIG-a", sm_count=16, memory_bytes=10 * 2**30)
    two = Instance(2, 0, "1g.10gb", "MIG-b", sm_count=16, memory_bytes=10 * 2**30)
    parent = dataclasses.replace(H100, mig=True, instances=(one, two))
    shares = tuple(
        ShareReading(gpu_instance=number, activity=BUSY, counters="gpm") for number in (1, 2)
    )
    bench.tick(parent, shares=shares, utilization=None)
    snapshot = bench.tick(parent, shares=shares, utilization=None)
    first, second = gpu(snapshot).shares

    assert (first.gpu_instance, second.gpu_instance) == (1, 2)
    assert known(first.ceilings).peak_flops_per_second["bf16_tensor"] == pytest.approx(
        989.4e12 * 16 / 132
    )
    assert first.totals.observed_seconds == {"activity": 2.0}
    assert first.totals.idle_energy_joules is None

    remade = dataclasses.replace(one, mig_uuid="MIG-c")
    other = dataclasses.replace(parent, instances=(remade, two))
    first, second = gpu(bench.tick(other, shares=shares, utilization=None)).shares

    assert first.totals.observed_seconds == {"activity": 1.0}
    assert second.totals.observed_seconds == {"activity": 3.0}


def test_xids_stay_with_a_gpu_that_is_down(bench: Bench) -> None:
    """They explain why it is down."""
    bench.tick(H100)
    bench.clock.advance(1.0)
    bench.script.fail(H100, "lost")
    snapshot = bench.publisher.tick()

    assert gpu(snapshot).xids == {79: XidRecord(1, 5.0)}
    assert snapshot.devices == {"nvml": 1}


def test_reconfiguration_takes_effect_at_the_next_tick(bench: Bench) -> None:
    """New rules and specs change ceilings and precision, and keep the counters."""
    bench.tick(H100, activity=BUSY)
    before = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals
    bench.publisher.reconfigure(SPECS, Rules(precision="fp8"))
    share = gpu(bench.tick(H100, activity=BUSY)).shares[0]

    assert known(share.ceilings).assumed_precision == "fp8_tensor"
    assert share.totals.flops["bf16_tensor"] == before.flops["bf16_tensor"]
    assert share.totals.flops["fp8_tensor"] > 0


def test_a_step_of_the_wall_clock_changes_no_integral(bench: Bench) -> None:
    """Lengths come from the monotonic clock."""
    bench.tick(H100, activity=BUSY)
    bench.clock.step_wall(-3600.0)
    totals = gpu(bench.tick(H100, activity=BUSY)).shares[0].totals

    assert totals.observed_seconds["activity"] == 2.0


def test_no_failure_is_forgotten_with_what_it_was_of() -> None:
    """A value that had to be cut stays counted when its instance is made anew, when that is removed
    and when its GPU is forgotten."""
    bench = Bench(forget_after_seconds=60.0)
    one = Instance(1, 0, "1g.10gb", "MIG-1", sm_count=16, memory_bytes=10 * 2**30)
    two = dataclasses.replace(one, gpu_instance=2, mig_uuid="MIG-2")
    over = ShareReading(activity=dataclasses.replace(BUSY, engine=1.5), counters="gpm")
    counts = []
    for instances in ((one, two), (dataclasses.replace(one, mig_uuid="MIG-3"), two), (two,)):
        parent = dataclasses.replace(H100, mig=True, instances=instances)
        shares = tuple(
            dataclasses.replace(over, gpu_instance=each.gpu_instance) for each in instances
        )
        for _ in range(3):
            snapshot = bench.tick(parent, shares=shares, utilization=None)
            counts.append(snapshot.sources["gpm"].failures_total)
    assert counts == [2, 4, 6, 8, 10, 12, 13, 14, 15]

    bench.script.slots.clear()
    for _ in range(3):
        snapshot = bench.tick(T4, seconds=30.0, activity=BUSY)
    assert [each.device.uuid for each in snapshot.gpus] == ["GPU-t4"]
    assert snapshot.sources["gpm"].failures_total == counts[-1]


def test_a_counter_source_needs_no_mention_in_the_publisher(bench: Bench) -> None:
    """Any name is listed where a share expects it, with its own failures and cuts."""
    other = dataclasses.replace(BUSY, source="other", engine=1.5)
    assert "other" not in bench.tick(T4).sources
    bench.tick(H100, counters="other")
    bench.clock.advance(1.0)
    bench.script.read(H100, activity=other)
    bench.script.slots[0] = dataclasses.replace(bench.script.slots[0], failures={"other": 4})
    bench.tick(T4, activity=BUSY)
    sources = bench.publisher.tick().sources

    assert list(sources) == ["nvml", "gpm", "other"]
    assert (sources["nvml"].up, sources["gpm"].read_seconds) == (True, 0.002)
    assert (sources["other"].up, sources["other"].failures_total) == (True, 5)
    assert (sources["gpm"].up, sources["gpm"].failures_total) == (True, 0)
    assert sources["other"].read_seconds is None

    bench.tick(T4, activity=dataclasses.replace(BUSY, source="other"), counters="gpm")
    assert not bench.publisher.tick().sources["gpm"].up


class Faulty:
    """A function that raises for one GPU while its UUID is set."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.uuid: str | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        for each in args:
            device = getattr(each, "device", each)
            if self.uuid is not None and getattr(device, "uuid", None) == self.uuid:
                raise ValueError("a new kind of GPU")
        return self._inner(*args, **named)


@pytest.mark.parametrize(
    ("where", "inner"),
    [
        ("exporter.publisher.share.derive_share", derive_share),
        ("exporter.publisher.gpu.share_picture", share_picture),
        ("ceilings", SPECS.ceilings),
    ],
)
def test_what_goes_wrong_with_one_gpu_leaves_the_others_alone(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
    inner: Any,
) -> None:
    """It is down with the reason, logged once with its trace; the others go on. Afterwards its
    counters go on too, and no interval has counted twice."""
    caplog.set_level(logging.INFO)
    faulty = Faulty(inner)
    if where == "ceilings":
        monkeypatch.setattr(type(SPECS), "ceilings", lambda _, *args: faulty(*args))
    else:
        monkeypatch.setattr(where, faulty)
    for _ in range(3):
        before = bench.tick(H100, T4, activity=BUSY)
    faulty.uuid = "GPU-t4"
    if where == "ceilings":
        bench.publisher.reconfigure(SPECS, Rules(precision="bf16"))
    for _ in range(4):
        during = bench.tick(H100, T4, activity=BUSY)
    faulty.uuid = None

    assert gpu(during).up
    engine = gpu(during).shares[0].totals.engine_active_seconds
    assert engine == pytest.approx(0.9 * 7)
    down = gpu(during, "GPU-t4")
    assert not down.up
    assert known(down.down_reason).endswith(": ValueError"), "what it says is for the log"
    assert [each.exc_info is not None for each in caplog.records] == [True]

    for _ in range(2):
        after = bench.tick(H100, T4, activity=BUSY)
    assert len(caplog.records) == 2
    old, new = (gpu(each, "GPU-t4") for each in (before, after))
    assert new.up
    assert known(new.totals.energy_joules) > known(old.totals.energy_joules)
    then = old.shares[0].totals.engine_active_seconds
    now = known(new.shares[0].totals.engine_active_seconds)
    assert then is not None
    assert then + 0.9 * 2 <= now + 1e-9
    assert now <= then + 0.9 * 6 + 1e-9


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["busy", "silent", "lost", "nothing"]),
            st.floats(0.1, 8.0),
        ),
        max_size=30,
    )
)
def test_counters_never_fall_whatever_happens(events: list[tuple[str, float]]) -> None:
    """For any order of work, silence, loss and gaps, every published counter is monotone."""
    bench = Bench()
    last: dict[str, float] = {}
    for event, length in events:
        bench.clock.advance(length)
        if event == "busy":
            bench.script.read(H100, activity=dataclasses.replace(BUSY, seconds=length))
        elif event == "silent":
            bench.script.read(H100, counters="gpm")
        elif event == "lost":
            bench.script.fail(H100, "lost")
        for picture in bench.publisher.tick().gpus:
            for share in picture.shares:
                totals = share.totals
                now = {
                    "busy": totals.busy_seconds or 0.0,
                    "tensor": totals.pipe_active_seconds.get("tensor", 0.0),
                    "upper": totals.flops_upper or 0.0,
                    **totals.limited_seconds,
                    **{f"observed {k}": v for k, v in totals.observed_seconds.items()},
                }
                for name, value in now.items():
                    assert value >= last.get(name, 0.0)
                last |= now
                parts = sum(totals.time_seconds.values())
                assert parts == pytest.approx(totals.observed_seconds.get("activity", 0.0))


@pytest.mark.parametrize(
    ("device", "loaded", "configured", "assumed"),
    [
        (H100, True, None, "fp8_tensor"),
        (H100, True, "bf16", "bf16_tensor"),
        (H100, False, None, "bf16_tensor"),
        (H100, None, None, "bf16_tensor"),
        (T4, True, None, "fp16_tensor"),
    ],
)
def test_a_process_that_has_loaded_transformer_engine_may_compute_in_fp8(
    bench: Bench, device: Device, loaded: bool | None, configured: str | None, assumed: str
) -> None:
    """Unless a precision is configured, and while the process runs."""
    bench.publisher.reconfigure(SPECS, Rules(precision=configured))
    process = Process(7, "compute", transformer_engine=loaded)
    # A list that cannot be read says nothing else.
    for processes, expected in (((process,), assumed), (None, assumed), ((), None)):
        snapshot = bench.tick(device, activity=BUSY, processes=processes)
        share = gpu(snapshot, device.uuid).shares[0]
        if expected is not None:
            assert known(share.ceilings).assumed_precision == expected
    usual = "bf16_tensor" if device is H100 else "fp16_tensor"
    assert known(share.ceilings).assumed_precision == (
        f"{configured}_tensor" if configured else usual
    )


def test_when_it_was_seen_busy_outlives_a_gap(bench: Bench) -> None:
    """It is not known before, and a gap is no sight of work."""
    for _ in range(3):
        shown = gpu(bench.tick(H100, activity=QUIET)).shares[0].totals
        assert shown.seen_busy_timestamp_seconds is None
    bench.tick(H100, activity=BUSY)
    seen = bench.clock.time()
    after = gpu(bench.tick(H100, seconds=16.0, activity=QUIET)).shares[0].totals
    assert after.seen_busy_timestamp_seconds == seen


def test_since_when_the_same_users_are_on_a_gpu(bench: Bench) -> None:
    """Another process of one is no change; another user, or none, is."""
    ada, bob = (Process(pid, "compute", owner=owner) for pid, owner in ((1, "ada"), (2, "bob")))

    def since(*processes: Process) -> float | None:
        now = bench.tick(H100, activity=QUIET, processes=processes)
        return gpu(now).shares[0].same_work_since_seconds

    first = since(ada)
    assert first == bench.clock.time()
    assert since(dataclasses.replace(ada, pid=3)) == since(ada) == first
    assert since(ada, bob) == bench.clock.time()
    assert since() == bench.clock.time()
