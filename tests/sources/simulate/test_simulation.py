# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU is possible, repeatable, and looks through the exporter like its story."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.model.reading import Activity, Reading
from exporter.model.snapshot import Gpu
from exporter.sources.simulate import Simulation, load_scenario
from exporter.sources.simulate.physics import hardware
from exporter.sources.simulate.scenario import Scenario, Scene, SimulatedGpu
from exporter.sources.simulate.stories import STORIES
from tests.clocks import ManualClock
from tests.sources.simulate.played import BOOK, Played

GPU_MODELS = sorted(key for key, model in BOOK.models.items() if hardware(model))
UNITS = ("dram", "tensor", "fp64", "fp32", "fp16", "integer")
PIPES = UNITS[1:]
DEMO_SECONDS = 30 * 60


@st.composite
def scenes(draw: st.DrawFn, finite: bool = False) -> Scene:
    """Any story with any parameters that a file may give it."""
    name = draw(st.sampled_from([name for name in STORIES if finite or name != "lost"]))
    parameters = {
        key: float(round(value)) if facts.kind == "count" else value
        for key, facts in STORIES[name].parameters.items()
        for value in [draw(st.floats(facts.least, facts.most))]
    }
    seconds = draw(st.floats(1.0, 900.0)) if finite else math.inf
    return Scene(name, parameters, STORIES[name].holder, seconds)


@st.composite
def gpus(draw: st.DrawFn) -> SimulatedGpu:
    lone = scenes().map(lambda scene: (scene,))
    several = st.lists(scenes(finite=True), min_size=1, max_size=3).map(tuple)
    return SimulatedGpu(draw(st.sampled_from(GPU_MODELS)), draw(lone | several))


def simulation(*of: SimulatedGpu, seed: int = 0) -> tuple[Simulation, ManualClock]:
    clock = ManualClock()
    return Simulation(Scenario("test", of), BOOK, "host:19400", seed, clock), clock


def read(simulated: Simulation, index: int = 0) -> Reading | None:
    simulated.round(0.5)
    return simulated.reports()[index].reading


PEAKING = SimulatedGpu(
    "a10", (Scene("training", {"tensor": 0.7109375, "dram": 0.21875, "memory": 0.0}, None, 80.0),)
)
"""So much work that only the peaks of its power are above the limit."""


@given(gpus(), st.floats(0, 200_000), st.floats(0.1, 100), st.integers(0, 99))
@example(gpu=PEAKING, start=0.0, length=79.0, seed=2)
def test_every_reading_is_physically_possible(
    gpu: SimulatedGpu, start: float, length: float, seed: int
) -> None:
    """Whatever the story, GPU model, parameters and time."""
    simulated, clock = simulation(gpu, seed=seed)
    model = BOOK.models[gpu.spec]
    clock.advance(start)
    before = read(simulated)
    clock.advance(length)
    after = read(simulated)
    if before is None or after is None:
        assert "lost" in str(simulated.reports()[0].problem) or before is None
        return
    vitals, board, share = after.vitals, after.board, after.shares[0]
    assert vitals.utilization is not None
    assert vitals.power_watts is not None
    assert vitals.temperature_celsius is not None
    assert share.memory is not None
    assert model.tdp_watts is not None
    assert board.power_limit_watts is not None
    assert 0 <= vitals.utilization.ratio <= vitals.utilization.upper_ratio <= 1
    assert 0 <= vitals.power_watts <= model.tdp_watts
    assert len(gpu.scenes) > 1 or vitals.power_watts >= 0.09 * model.tdp_watts
    assert len(gpu.scenes) > 1 or vitals.power_watts <= board.power_limit_watts
    assert 27.9 <= vitals.temperature_celsius <= 75
    assert 0 < vitals.clock_hertz["sm"] <= 1.01 * after.device.clock_max_hertz["sm"]
    assert 0 < vitals.clock_hertz["memory"] <= after.device.clock_max_hertz["memory"]
    assert share.memory.used_bytes >= 0
    assert share.memory.free_bytes >= 0
    assert (
        share.memory.used_bytes + share.memory.free_bytes + (share.memory.reserved_bytes or 0)
        == share.memory.total_bytes
    )
    for reason, seconds in vitals.throttle_seconds.items():
        assert 0 <= seconds - before.vitals.throttle_seconds[reason] <= length + 1e-6
    if vitals.nvlink_transmit_bytes_total is not None:
        moved = vitals.nvlink_transmit_bytes_total - (
            before.vitals.nvlink_transmit_bytes_total or 0.0
        )
        assert 0 <= moved <= length * (model.nvlink_bandwidth_bytes_per_second or 0)
    assert share.counters == ("gpm" if model.compute_capability >= (9, 0) else None)
    if share.activity is None:
        assert share.counters is None or "lost" in {scene.story for scene in gpu.scenes}
    else:
        _check_activity(share.activity, vitals.utilization.ratio, length)


def _check_activity(activity: Activity, utilization: float, length: float) -> None:
    assert activity.seconds == pytest.approx(length)
    assert activity.engine is not None
    assert activity.sm is not None
    assert activity.tensor is not None
    assert utilization == pytest.approx(activity.engine)
    # SMs and pipes are shares of cycles, of which few pass while the clock is low.
    assert activity.sm <= 1.0
    assert activity.sm >= (activity.occupancy or 0.0) - 1e-9
    for unit in UNITS:
        ratio = getattr(activity, unit)
        assert 0 <= ratio <= 1
    assert (activity.dram or 0.0) <= activity.engine + 1e-9
    for pipe in PIPES:
        assert getattr(activity, pipe) <= activity.sm + 1e-9
    assert activity.hmma == activity.tensor


@given(gpus(), st.floats(0, 200_000), st.lists(st.floats(0.1, 30), min_size=1, max_size=6))
def test_two_readers_agree(gpu: SimulatedGpu, start: float, steps: list[float]) -> None:
    """Totals do not depend on how often they are read; short averages add up to the long one."""
    often, often_clock = simulation(gpu)
    seldom, seldom_clock = simulation(gpu)
    busy = active = 0.0
    for clock in (often_clock, seldom_clock):
        clock.advance(start)
    read(often)
    read(seldom)
    seen_all = True
    for step in steps:
        often_clock.advance(step)
        reading = read(often)
        if reading is None or not reading.vitals.utilization:
            seen_all = False
            continue
        busy += reading.vitals.utilization.ratio * reading.vitals.utilization.seconds
        activity = reading.shares[0].activity
        if activity is not None:
            # Of the ratios that are of time: those of cycles add up only at one clock.
            active += (activity.engine or 0.0) * activity.seconds
        seen_all &= reading.vitals.utilization.seconds > 0
    seldom_clock.advance(sum(steps))
    last = read(seldom)
    reading = read(often)
    assert (last is None) == (reading is None)
    if last is None or reading is None:
        return
    assert last.vitals.energy_joules == pytest.approx(reading.vitals.energy_joules)
    assert last.vitals.power_watts == pytest.approx(reading.vitals.power_watts)
    assert last.vitals.temperature_celsius == pytest.approx(reading.vitals.temperature_celsius)
    utilization = last.vitals.utilization
    if seen_all and utilization is not None and utilization.seconds:
        assert utilization.ratio * utilization.seconds == pytest.approx(busy, abs=1e-4)
        activity = last.shares[0].activity
        if activity is not None:
            engine_seconds = (activity.engine or 0.0) * utilization.seconds
            assert engine_seconds == pytest.approx(active, abs=1e-4)


def test_power_follows_activity_and_the_clock_gives_way_to_the_limit() -> None:
    """A lower limit lowers the clock and never the other way round."""

    def run(name: str, **parameters: float) -> Reading:
        defaults = {key: facts.default for key, facts in STORIES[name].parameters.items()}
        scene = Scene(name, {**defaults, **parameters}, STORIES[name].holder)
        simulated, clock = simulation(SimulatedGpu("h100-sxm5-80gb", (scene,)))
        clock.advance(300)
        reading = read(simulated)
        assert reading is not None
        return reading

    names = ("free", "notebook", "spinner", "collective", "inference", "training")
    watts = [run(name).vitals.power_watts or 0.0 for name in names]
    assert watts == sorted(watts)
    assert 60 < watts[0] < 80
    assert 630 < watts[-1] < 700
    clocks = [
        run("power-capped", limit=limit).vitals.clock_hertz["sm"] for limit in (0.3, 0.5, 0.7, 1.0)
    ]
    assert clocks == sorted(set(clocks))
    assert run("power-capped", limit=0.5).vitals.throttle_reasons == frozenset({"sw_power_cap"})
    assert run("training").vitals.throttle_reasons == frozenset()


def test_seed_host_and_port_tell_nodes_apart_and_nothing_else_does() -> None:
    """Many demo daemons do not collide; the same one is the same again."""
    scenario = load_scenario("demo", BOOK)

    def uuids(identity: str, seed: int) -> list[str]:
        simulated = Simulation(scenario, BOOK, identity, seed, ManualClock())
        return [gpu.device.uuid for gpu in simulated.gpus]

    nodes = [uuids("a:1", 0), uuids("a:2", 0), uuids("b:1", 0), uuids("a:1", 1)]
    assert uuids("a:1", 0) == nodes[0]
    assert len({uuid for node in nodes for uuid in node}) == 32
    assert all(len(uuid) == 40 and uuid.startswith("GPU-") for uuid in nodes[0])


def test_the_same_seed_gives_the_same_page_and_another_a_slightly_different_one() -> None:
    """Deterministic, with small variations."""

    def power(seed: int) -> list[float]:
        scenario = load_scenario("demo", BOOK)
        clock = ManualClock()
        simulated = Simulation(scenario, BOOK, "a:1", seed, clock)
        clock.advance(100)
        simulated.round(0.5)
        readings = [report.reading for report in simulated.reports()]
        return [reading.vitals.power_watts or 0 for reading in readings if reading is not None]

    assert power(3) == power(3)
    assert power(3) != power(4)
    assert power(3) == pytest.approx(power(4), rel=0.05)


def test_a_gpu_is_found_as_the_model_that_it_is() -> None:
    """The lookup by name and PCI id leads back to the scenario's GPU model."""
    simulated, _ = simulation(
        *(SimulatedGpu(key, (Scene("free", {}, None),)) for key in GPU_MODELS)
    )

    found = [BOOK.find(gpu.device) for gpu in simulated.gpus]

    assert [model.key if model else None for model in found] == GPU_MODELS


# Half an hour of the demo, through the publisher.


class Run:
    """What some minutes of a scenario came to."""

    def __init__(self, name: str, minutes: int) -> None:
        self.ups: list[list[bool]] = []
        self.xids: list[int] = []
        self.last_up: dict[int, Gpu] = {}
        played = Played(name, jobs=False)
        for _ in range(minutes * 60):
            self.last = played.tick()
            self.last_up |= {gpu.device.index: gpu for gpu in self.last.gpus if gpu.up}
            self.ups.append([gpu.up for gpu in self.last.gpus])
            found = self.last.gpus[-1].xids.get(79)
            self.xids.append(found.count if found is not None else 0)

    def gpu(self, index: int) -> Gpu:
        """Return it as it was when it was seen last."""
        return self.last_up[index]

    def limited(self, index: int) -> dict[str, float]:
        """Return the share of time by limiter."""
        seconds = self.gpu(index).shares[0].totals.limited_seconds
        return {limiter: value / sum(seconds.values()) for limiter, value in seconds.items()}


@pytest.fixture(scope="module", name="demo")
def _demo() -> Run:
    return Run("demo", DEMO_SECONDS // 60)


@pytest.fixture(scope="module", name="mixed")
def _mixed() -> Run:
    return Run("mixed", 16)


def test_training_is_limited_by_compute(demo: Run) -> None:
    """Tensor cores at about 60 %, near the power limit, all the time."""
    share = demo.gpu(0).shares[0]

    assert demo.limited(0)["compute"] > 0.99
    assert share.totals.pipe_active_seconds["tensor"] / DEMO_SECONDS == pytest.approx(0.6, abs=0.01)
    assert share.totals.dram_active_seconds == pytest.approx(0.4 * DEMO_SECONDS, rel=0.02)
    assert share.totals.idle_seconds == 0


def test_inference_is_limited_by_memory(demo: Run) -> None:
    """DRAM at about 85 %."""
    share = demo.gpu(1).shares[0]

    assert demo.limited(1)["memory"] > 0.99
    assert (share.totals.saturation_seconds or 0) / DEMO_SECONDS == pytest.approx(0.85, abs=0.01)


def test_starved_training_idles_for_what_it_waits(demo: Run) -> None:
    """The time part is exact, though polls and periods are out of step."""
    totals = demo.gpu(2).shares[0].totals

    assert totals.time_seconds["idle"] / DEMO_SECONDS == pytest.approx(0.6, abs=0.005)
    assert (totals.busy_seconds or 0) / DEMO_SECONDS == pytest.approx(0.4, abs=0.005)
    assert demo.limited(2)["idle"] > 0.55
    assert demo.limited(2)["compute"] > 0.25


def test_the_spinner_is_busy_and_saturates_nothing(demo: Run) -> None:
    """100 % utilization, one SM of 132."""
    share = demo.gpu(3).shares[0]

    assert share.utilization is not None
    assert share.utilization.ratio == 1.0
    assert (share.totals.sm_active_seconds or 0) / DEMO_SECONDS == pytest.approx(1 / 132, rel=0.01)
    assert (share.totals.saturation_seconds or 0) / DEMO_SECONDS < 0.01
    assert demo.limited(3)["latency"] > 0.99
    vitals = demo.gpu(3).vitals
    assert vitals is not None
    assert 100 < (vitals.power_watts or 0) < 130


def test_the_notebook_holds_its_gpu_idle(demo: Run) -> None:
    """All of the time, and the free GPU beside it is not held."""
    notebook, free = demo.gpu(4).shares[0], demo.gpu(5).shares[0]

    assert notebook.held is True
    assert notebook.totals.held_idle_seconds == pytest.approx(DEMO_SECONDS - 1, abs=2)
    assert notebook.processes is not None
    assert notebook.processes[0].work_class == "notebook"
    assert free.held is False
    assert free.totals.held_idle_seconds == 0
    assert free.totals.idle_seconds == pytest.approx(DEMO_SECONDS - 1, abs=2)


def test_the_capped_gpu_is_limited_by_its_clock_then_by_communication(demo: Run) -> None:
    """Ten minutes of the one, five of the other."""
    totals = demo.gpu(6).totals

    assert demo.limited(6)["clock"] == pytest.approx(2 / 3, abs=0.02)
    assert demo.limited(6)["communication"] == pytest.approx(1 / 3, abs=0.02)
    assert totals.throttle_seconds["sw_power_cap"] == pytest.approx(1200, abs=2)
    assert (totals.nvlink_transmit_bytes or 0) == pytest.approx(0.35 * 450e9 * 600, rel=0.02)


def test_the_failing_gpu_is_lost_and_comes_back(demo: Run) -> None:
    """Six minutes of work, five of loss, and one Xid each time."""
    ups = [up[7] for up in demo.ups]
    losses = [number for number in range(1, len(ups)) if ups[number - 1] and not ups[number]]
    returns = [number for number in range(1, len(ups)) if not ups[number - 1] and ups[number]]

    assert losses == [359 + 660 * turn for turn in range(3)]
    assert returns == [660 * turn - 1 for turn in (1, 2)]
    assert demo.xids[358:360] == [0, 1]
    assert demo.xids[-1] == 3
    assert demo.last.gpus[7].xids[79].last_timestamp_seconds == pytest.approx(1_000_000 + 1680)
    assert all(all(up[:7]) for up in demo.ups)
    assert demo.limited(7)["compute"] > 0.99


@pytest.mark.slow
def test_gpu_models_without_counters_have_bounds_only(mixed: Run) -> None:
    """No saturation, no time parts, no flops: but bounds of all three, busy time and idle time."""
    for gpu in mixed.last.gpus:
        share = gpu.shares[0]
        assert share.activity is None
        assert share.saturation is not None
        assert share.saturation.source == "estimate"
        assert share.saturation.ratio is None
        assert share.totals.observed_seconds.keys() == {"utilization"}
        assert share.totals.time_lower_seconds
        assert share.totals.flops_upper
    assert mixed.limited(2)["idle"] == pytest.approx(0.5, abs=0.05)
    assert mixed.limited(3)["clock"] > 0.99
    assert mixed.gpu(4).shares[0].held is True
    assert mixed.limited(5)["idle"] == pytest.approx(11 / 16, abs=0.03)
