# SPDX-License-Identifier: Apache-2.0
"""Readers that play a scenario, in place of the driver's.

Every reading is a function of scenario, seed, GPU and the time since the simulation's start; what
is averaged is averaged since the GPU's last reading, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from exporter.clock import Clock
from exporter.model.host import HostActivity
from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import (
    THROTTLE_REASONS,
    Activity,
    Device,
    Reading,
    ShareReading,
    SlotReport,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import DRAM_PER_MEMORY_UTILIZATION
from exporter.model.training import Loader, TrainingReport
from exporter.model.workload import Scheduler
from exporter.sources.interface import TRAINING, AlwaysOn
from exporter.sources.nvml import GPM
from exporter.sources.selection import Selection
from exporter.sources.simulate.board import (
    SIMULATE,
    healthy,
    memory_of,
    processes_of,
    simulated_device,
    slow_readings,
)
from exporter.sources.simulate.physics import CYCLE_UNITS, hardware
from exporter.sources.simulate.scenario import Scenario, SimulatedGpu
from exporter.sources.simulate.timeline import Act, Timeline, is_training
from exporter.sources.simulate.waves import Rates, mixed
from exporter.sources.simulate.workloads import (
    NO_WORK,
    OnGpu,
    SimulatedWorkloads,
    identified,
    job_name,
    training_totals,
)
from exporter.specs import SpecBook

LOST = "lost: it fell off the bus (simulated)"
ROUNDING_MARGIN = 0.01
SAMPLE_SECONDS = 1 / 6
"""Between two of the driver's samples of the utilization; what is newer is not known."""
AMBIENT_CELSIUS = 28.0
RISE_CELSIUS = 46.0
"""Above ambient, of a GPU that stays at its power limit."""
LAGS = ((15.0, 0.5), (90.0, 0.5))
"""Seconds and weight: temperature follows the mean power over each of these times."""
MEMORY_RISE_CELSIUS = 6.0
FIRST_WITH_ENERGY = (7, 0)
LOADER_WORKERS = 4
STARVED_RATIO = 0.05
"""From this share of stalled time on, no batch is ever ready, and the workers never rest."""
KEEPS_UP_RATIO = 0.5
"""How busy the workers of a loader are that keeps up."""
HOST_SECONDS = 10.0
CORES_PER_JOB = 16.0
"""Of a node of two 64-core CPUs, for each of eight GPUs."""


class Simulation(AlwaysOn):
    """A node whose GPUs play a scenario; each round takes new readings."""

    name = SIMULATE
    problem: str | None = None
    failed_initialisations = 0
    counter_states = NO_COUNTER_STATES

    def __init__(
        self,
        scenario: Scenario,
        book: SpecBook,
        identity: str,
        seed: int,
        clock: Clock,
        selection: Selection | None = None,
    ) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._started_unix = clock.time()
        self.scenario = scenario
        gpus = [
            _Gpu(gpu, book, index, f"{identity}/{seed}", mixed(seed, index))
            for index, gpu in enumerate(scenario.gpus)
        ]
        admits = (selection or Selection()).admits
        self.gpus = tuple(gpu for gpu in gpus if admits(gpu.device.index, gpu.device.uuid))
        self.jobs = SimulatedJobs(self.gpus, gpus)
        scenes = [scene for gpu in scenario.gpus for scene in gpu.scenes]
        schedulers = {each.scheduler for scene in scenes for each in scene.work.workloads}
        self.workloads = tuple(
            SimulatedWorkloads(scheduler, self._work, clock)
            for scheduler in get_args(Scheduler)
            if scheduler in schedulers
        )
        """One for each scheduler and runtime that the scenario names."""

    def _work(self) -> tuple[OnGpu, ...]:
        return tuple((gpu.device.uuid, gpu.work) for gpu in self.gpus)

    def round(self, wait_seconds: float) -> None:
        """Read every GPU now."""
        for gpu in self.gpus:
            gpu.read(self._started, self._clock)

    def reports(self) -> Sequence[SlotReport]:
        """Return what the last round read."""
        return [gpu.report for gpu in self.gpus]

    def xids(self) -> Mapping[str, Mapping[int, XidRecord]]:
        """Return the Xids raised so far, by UUID."""
        seconds = self._clock.monotonic() - self._started
        return {
            gpu.device.uuid: gpu.timeline.xids(seconds, self._started_unix) for gpu in self.gpus
        }

    def devices(self) -> Mapping[str, int]:
        """Return how many GPUs there are, by who counts: all agree."""
        return dict.fromkeys(("pci", "driver", "nvml"), len(self.scenario.gpus))


class SimulatedJobs(AlwaysOn):
    """The training jobs on simulated GPUs, as they reported at the last round."""

    name = TRAINING
    received_total = 0
    """Nothing is sent to the training socket."""
    up = True

    def __init__(self, gpus: Sequence[_Gpu], every: Sequence[_Gpu]) -> None:
        """Report for these `gpus` out of `every` one of the node."""
        self._gpus = gpus
        self._ranks: dict[str, list[_Gpu]] = {}
        """By job, one for each user: its GPUs, in the order of their ranks."""
        for gpu in every:
            for owner in gpu.trainers:
                self._ranks.setdefault(job_name(owner), []).append(gpu)
        self.rejected_total: Mapping[str, int] = {}
        self.quota_hits_total: Mapping[str, int] = {}

    def reports(self) -> Sequence[TrainingReport]:
        """Return the report of every rank at the last round."""
        return [
            report
            for job, gpus in self._ranks.items()
            for rank, gpu in enumerate(gpus)
            if gpu in self._gpus and (report := gpu.training(job, rank, len(gpus))) is not None
        ]


class _Gpu:
    """One GPU of the scenario, and when it was last read."""

    def __init__(
        self, gpu: SimulatedGpu, book: SpecBook, index: int, identity: str, key: int
    ) -> None:
        self._model = book.models[gpu.spec]
        board = hardware(self._model)
        if board is None:
            raise ValueError(f"{gpu.spec} cannot be simulated")
        self._board = board
        self.device: Device = simulated_device(self._model, board, index, identity)
        self.timeline = Timeline(board, gpu.scenes, key)
        self._health = healthy(self._model)
        self._identity = identity
        self.work = NO_WORK
        """The workloads on it when it was read."""
        self.trainers = dict.fromkeys(
            scene.holder.owner
            for scene in gpu.scenes
            if scene.holder is not None and is_training(scene.holder)
        )
        """Users who train on it at some time."""
        self._last: tuple[float, Rates] | None = None
        """Time and totals of the last reading; None while lost and before the first."""
        self.report = SlotReport(index, self.device, None, None, {})

    def read(self, started: float, clock: Clock) -> None:
        """Take a reading now, unless that is the time of the last one."""
        monotonic = clock.monotonic()
        seconds = monotonic - started
        act = self.timeline.act(seconds)
        self.work = identified(act.scene.work, self._identity)
        if act.behaviour is None:
            self._last = None
            self.report = SlotReport(self.device.index, self.device, None, LOST, {})
            return
        if self._last is not None and seconds <= self._last[0]:
            return
        totals = self.timeline.integral(seconds)
        length, moved = 0.0, totals
        if self._last is not None:
            length = seconds - self._last[0]
            moved = Rates._make(
                now - before for now, before in zip(totals, self._last[1], strict=True)
            )
        self._last = seconds, totals
        celsius = self._celsius(seconds)
        memory = memory_of(self._board, act.behaviour)
        measured = self._board.has_counters
        reading = Reading(
            device=self.device,
            timestamp_seconds=clock.time(),
            monotonic_seconds=monotonic,
            vitals=self._vitals(act, seconds, celsius, length, moved, totals),
            board=slow_readings(self._model, self._board, act.behaviour, celsius),
            shares=(
                ShareReading(
                    memory=memory,
                    processes=processes_of(act.scene.holder, memory, self.device.index, self.work),
                    activity=_activity(moved, length) if measured and length else None,
                    counters=GPM if measured else None,
                ),
            ),
            health=self._health,
            states={} if measured else {GPM: "unsupported"},
            cadence_age_seconds={"slow": 0.0, "static": 0.0},
            read_seconds={Simulation.name: clock.monotonic() - monotonic},
        )
        self.report = SlotReport(self.device.index, self.device, reading, None, {})

    def training(self, job: str, rank: int, world_size: int) -> TrainingReport | None:
        """Return what a training job reported when this GPU was read; None while none is on it."""
        reading = self.report.reading
        if self._last is None or reading is None:
            return None
        seconds, totals = self._last
        act = self.timeline.act(seconds)
        holder, behaviour = act.scene.holder, act.behaviour
        if holder is None or behaviour is None or not is_training(holder):
            return None
        if job_name(holder.owner) != job:
            return None
        peak = self._model.peak_flops_per_second.get("bf16_tensor")
        clock = self._model.peak_clock_hertz.get("tensor", self._board.clock_hertz)
        trained = training_totals(totals, None if peak is None else peak / clock)
        stalled = trained.phase_gpu_idle_seconds["data"] > STARVED_RATIO * trained.step_seconds
        running = 1.0 if stalled else KEEPS_UP_RATIO
        used = round(behaviour.memory * self._board.memory_bytes)
        peak_memory = max(
            past.behaviour.memory
            for past in self.timeline.started_acts(seconds)
            if past.behaviour is not None and past.scene.holder == holder
        )
        return TrainingReport(
            report_id=f"{self.device.uuid}/{job}",
            job=job,
            rank=rank,
            received_monotonic_seconds=reading.monotonic_seconds,
            received_timestamp_seconds=reading.timestamp_seconds,
            totals=trained,
            device=self.device.uuid,
            owner=holder.owner,
            verified=True,
            world_size=world_size,
            framework="simulated",
            precision="bf16",
            loader=Loader(
                workers=LOADER_WORKERS,
                prefetch_factor=2,
                pin_memory=True,
                persistent_workers=True,
                ready_batches=0 if stalled else 2 * LOADER_WORKERS,
            ),
            host=HostActivity(
                method="client",
                seconds=HOST_SECONDS,
                workers=LOADER_WORKERS,
                worker_running_ratio=running,
                worker_blocked_ratio=0.0,
                cores=CORES_PER_JOB,
                cores_busy=1.0 + LOADER_WORKERS * running,  # one for the thread of the loop
            ),
            memory_bytes={
                "allocated": round(0.8 * used),
                "reserved": used,
                "peak": round(peak_memory * self._board.memory_bytes),
            },
        )

    def _celsius(self, seconds: float) -> float:
        watts = sum(
            weight * self.timeline.mean_watts(seconds - lag, seconds) for lag, weight in LAGS
        )
        return AMBIENT_CELSIUS + RISE_CELSIUS * watts / self._board.power_watts

    def _vitals(
        self, act: Act, seconds: float, celsius: float, length: float, moved: Rates, totals: Rates
    ) -> Vitals:
        rates = self.timeline.at(seconds)
        linked = self._board.nvlink_bytes_per_second > 0
        counts_energy = (self.device.compute_capability or (0, 0)) >= FIRST_WITH_ENERGY
        throttle = dict.fromkeys(THROTTLE_REASONS, 0.0)
        throttle["sw_power_cap"] = totals.capped
        return Vitals(
            utilization=_utilization(moved, rates, seconds, length),
            encoder_ratio=0.0,
            decoder_ratio=0.0,
            jpeg_ratio=0.0 if self._board.has_counters else None,
            ofa_ratio=0.0 if self._board.has_counters else None,
            power_watts=self.timeline.mean_watts(seconds - 1.0, seconds),
            energy_joules=totals.power if counts_energy else None,
            temperature_celsius=celsius,
            memory_temperature_celsius=(
                celsius + MEMORY_RISE_CELSIUS if self._board.stacked_memory else None
            ),
            clock_hertz={
                "sm": rates.cycles,
                "memory": act.memory_clock_hertz,
                "graphics": rates.cycles,
                "video": rates.cycles * 0.8,
            },
            busy_sm_clock_hertz=(
                moved.busy_cycles / moved.engine if length and moved.engine > 0 else None
            ),
            mean_sm_clock_hertz=moved.cycles / length if length else None,
            throttle_reasons=frozenset({"sw_power_cap"} if rates.capped else ()),
            throttle_seconds=throttle,
            nvlink_transmit_bytes_total=totals.nvlink if linked else None,
            nvlink_receive_bytes_total=totals.nvlink if linked else None,
        )


def _mean(total: float, whole: float) -> float:
    """Return a ratio of time or of cycles, without what the rounding of totals adds."""
    return min(1.0, max(0.0, total / whole))


def _utilization(moved: Rates, rates: Rates, seconds: float, length: float) -> Utilization:
    """Return the utilization as the driver's samples would show it."""
    if not length:
        return Utilization(rates.engine, 1.0, 0.0, rates.dram, 1.0)
    ratio = _mean(moved.engine, length)
    memory_ratio = min(1.0, _mean(moved.dram, length) / DRAM_PER_MEMORY_UTILIZATION)
    unknown = seconds % SAMPLE_SECONDS / length if ratio else 0.0
    return Utilization(
        ratio=ratio,
        upper_ratio=min(1.0, ratio + unknown + ROUNDING_MARGIN),
        seconds=length,
        memory_ratio=memory_ratio,
        memory_upper_ratio=min(1.0, memory_ratio + unknown + ROUNDING_MARGIN),
        lower_ratio=max(0.0, ratio - unknown - ROUNDING_MARGIN),
    )


def _activity(moved: Rates, seconds: float) -> Activity:
    """Return the counters: SMs and pipes as shares of cycles, as the hardware counts them."""
    units: dict[str, Any] = {
        unit: _mean(getattr(moved, f"{unit}_cycles"), moved.cycles) for unit in CYCLE_UNITS
    }
    return Activity(
        source=GPM,
        seconds=seconds,
        engine=_mean(moved.engine, seconds),
        dram=_mean(moved.dram, seconds),
        **units,
        hmma=units["tensor"],
        imma=0.0,
        dmma=0.0,
        dfma=0.0,
        encoder=0.0,
        decoder=0.0,
        jpeg=0.0,
        ofa=0.0,
        elapsed_cycles=moved.cycles,
        pcie_transmit_bytes=max(0.0, moved.pcie_transmit),
        pcie_receive_bytes=max(0.0, moved.pcie_receive),
        nvlink_transmit_bytes=max(0.0, moved.nvlink),
        nvlink_receive_bytes=max(0.0, moved.nvlink),
    )
