# SPDX-License-Identifier: Apache-2.0
"""Where this node's readings come from: the driver's GPUs, a simulation or a recording."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml

from exporter.cli.config import Settings
from exporter.clock import Clock, SystemClock, stale_after_seconds
from exporter.errors import ConfigError, LibraryUnavailable
from exporter.model.readers import Readers
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.interface import (
    KMSG,
    NCCL_RAS,
    PROC,
    TRAINING,
    CounterOptions,
    NodeWorkloads,
    WorkloadOptions,
)
from exporter.sources.nvml import NVML
from exporter.sources.nvml.library import SONAME, Library
from exporter.sources.selection import Selection
from exporter.sources.table import prepared, workload_sources
from exporter.sources.training import SocketAccess, TrainingOptions, TrainingSource, candidates
from exporter.sources.workload.container.containers import on_gpus
from exporter.specs import SpecBook

if TYPE_CHECKING:  # loaded only where it is switched on
    from exporter.sources.host.host import HostActivityReader
    from exporter.sources.nccl import NcclRas
    from exporter.sources.recording import Recording
    from exporter.sources.recording.replay import Replay
    from exporter.sources.simulate import Simulation
    from exporter.sources.simulate.simulation import SimulatedJobs

    NodeReaders = Fleet | Simulation | Replay

KERNEL_LOG = "/dev/kmsg"
PROBE_SECONDS = 10.0
"""How long to wait for the driver's answer."""
FIRST_READING_SECONDS = 10.0
"""How long to wait for a GPU that opens slowly."""

_SELECTING = ("gpu.include", "gpu.exclude", "gpu.skip-suspended")
"""Flags that leave out GPUs."""

SHORTEST_TICK_SECONDS = 0.02
"""The shortest time between two ticks of a recording that is played fast."""

log = logging.getLogger(__name__)


def any_pending(readers: Readers) -> bool:
    """Return whether a GPU was neither read nor failed yet: initialising one takes seconds."""
    return any(report.reading is None and report.problem is None for report in readers.reports())


def choose_readers(settings: Settings, specs: SpecBook, clock: Clock) -> NodeReaders:
    """Return the readers that the settings ask for, not started; log if they are simulated.

    Raises ConfigError if the scenario or the recording is bad.
    """
    if settings.replay is not None:
        return _replay(_recording(settings.replay), settings, clock)
    library = Library(settings.nvml_library)
    if settings.demo:
        return _simulation(settings, specs, clock, "")
    if settings.demo_if_no_driver:
        problem = (
            driver_problem(library)
            if NVML in settings.sources
            else f"the source {NVML} is switched off"
        )
        if problem is not None:
            return _simulation(settings, specs, clock, f"no NVIDIA driver answers ({problem}): ")
        log.info("the NVIDIA driver answers: serving its GPUs")
    return Fleet(
        library,
        SessionOptions(
            slow_interval_seconds=settings.poll_slow_interval_seconds,
            counters=settings.counter_sources,
            procfs=str(settings.path_procfs),
            owners=settings.process_owner,
            process_utilization=settings.process_utilization,
            selection=Selection(settings.gpu_include, settings.gpu_exclude),
            skip_suspended=settings.gpu_skip_suspended,
            sysfs=str(settings.path_sysfs),
        ),
        clock,
        stale_after_seconds(settings.poll_interval_seconds),
        enabled=NVML in settings.sources,
        kernel_log=KERNEL_LOG if KMSG in settings.sources else None,
        node_counters=prepared(settings.counter_sources, _counter_options(settings), clock),
    )


def _counter_options(settings: Settings) -> CounterOptions:
    url = settings.dcgm_url
    bindings, library = settings.dcgm_bindings, settings.nvml_library
    return CounterOptions(
        interval_seconds=settings.poll_interval_seconds,
        dcgm_url=None if url is None else str(url),
        dcgm_user=None if url is None else url.user,
        dcgm_password=None if url is None else url.password,
        dcgm_host=settings.dcgm_host,
        dcgm_bindings=None if bindings is None else str(bindings.absolute()),
        cupti_duty=settings.cupti_duty,
        nvml_library=None if library is None else str(library),
        procfs=str(settings.path_procfs),
    )


def choose_training(
    settings: Settings, readers: NodeReaders, clock: Clock
) -> tuple[SimulatedJobs | TrainingSource, ...]:
    """Return the sources of training reports, not started; simulated jobs come first."""
    sources: list[SimulatedJobs | TrainingSource] = []
    if not isinstance(readers, Fleet) and readers.jobs is not None:
        sources.append(readers.jobs)
    if TRAINING in settings.sources:
        socket_path = settings.training_socket
        options = TrainingOptions(
            paths=candidates(None if socket_path is None else str(socket_path), os.environ),
            access=SocketAccess(settings.training_socket_mode, settings.training_socket_group),
            max_jobs=settings.training_max_jobs,
            max_ranks=settings.training_max_ranks,
            owners=settings.process_owner,
            procfs=str(settings.path_procfs),
        )
        sources.append(TrainingSource(options, clock))
    return tuple(sources)


def choose_workloads(
    settings: Settings, readers: NodeReaders, clock: Clock
) -> tuple[NodeWorkloads, ...]:
    """Return the sources of workloads, not started; real ones only for real GPUs."""
    if not isinstance(readers, Fleet):
        return tuple(each for each in readers.workloads if each.name in settings.sources)
    options = WorkloadOptions(
        kubernetes_socket=str(settings.kubernetes_socket),
        kubernetes_pods_socket=str(settings.kubernetes_pods_socket),
        kubernetes_pod_labels=settings.kubernetes_pod_labels,
        kubernetes_resources=settings.kubernetes_resources,
        kubernetes_ignore_pods=settings.kubernetes_ignore_pods,
        slurm_job_map=str(settings.slurm_job_map),
        slurm_gpustat=str(settings.slurm_gpustat),
        slurm_numbering=settings.slurm_numbering,
        container_sockets=settings.container_sockets,
        containers=lambda: on_gpus(readers.reports()),
        procfs=str(settings.path_procfs),
        sysfs=str(settings.path_sysfs),
        owners=settings.process_owner,
    )
    return workload_sources(settings.sources, options, clock)


def choose_collectives(settings: Settings, readers: NodeReaders, clock: Clock) -> NcclRas | None:
    """Return the poller of NCCL's RAS, not started; None if it is switched off."""
    if NCCL_RAS not in settings.sources or not isinstance(readers, Fleet):
        return None
    from exporter.sources.nccl import NcclRas

    address = settings.nccl_ras_address
    return NcclRas(address.host or "localhost", address.port, clock)


def choose_host(
    settings: Settings, readers: NodeReaders, clock: Clock
) -> HostActivityReader | None:
    """Return the watcher of processes in /proc, not started; None if it is switched off."""
    if PROC not in settings.sources or not isinstance(readers, Fleet):
        return None
    from exporter.sources.host.host import HostActivityReader

    return HostActivityReader(str(settings.path_procfs), str(settings.path_sysfs), clock)


def as_played(settings: Settings) -> Settings:
    """Return the settings with the interval of the readings: a recording has its own.

    Raises ConfigError if the recording is bad, or cannot be played so fast.
    """
    if settings.replay is None:
        return settings
    problem = next(play_problems(settings), None)
    if problem is not None:
        raise ConfigError(problem)
    interval = _recording(settings.replay).header.interval_seconds
    return replace(settings, poll_interval_seconds=interval)


def play_problems(settings: Settings) -> Iterator[str]:
    """Yield why the recording cannot be played with these settings, each on one line."""
    if settings.replay is None:
        return
    if settings.demo:
        yield "--replay: expected no --demo beside it"
    try:
        interval = _recording(settings.replay).header.interval_seconds
    except ConfigError as error:
        yield str(error)
        return
    fastest = max(interval / SHORTEST_TICK_SECONDS, 1.0)
    if settings.replay_speed > fastest:
        yield (
            f"--replay.speed: expected at most {fastest:g} for {settings.replay}, "
            f"which was recorded every {interval:g} s"
        )


def looked_for(settings: Settings) -> tuple[str, ...]:
    """Return in a few lines where GPUs are looked for, for a user who sees none."""
    if settings.replay is not None:
        return (f"recording {settings.replay.name}",)
    if settings.demo:
        return ("simulated GPUs (--demo)",)
    library = settings.nvml_library or f"{SONAME}, where the dynamic linker finds it"
    if NVML not in settings.sources:
        library = "not loaded, the source nvml is switched off (--no-source.nvml)"
    given = [
        f"{settings.given[name].place}: {settings.given[name].text}"
        for name in _SELECTING
        if name in settings.given
    ]
    return (f"driver library: {library}", *given)


def node_pace(settings: Settings) -> float:
    """Return how many seconds of the node's clock pass in one second."""
    return 1.0 if settings.replay is None else settings.replay_speed


def node_clock(settings: Settings) -> Clock:
    """Return the clock of the readings and the publisher."""
    pace = node_pace(settings)
    if pace == 1.0:
        return SystemClock()
    from exporter.sources.recording.replay import FastClock

    return FastClock(SystemClock(), pace)


def _recording(path: Path) -> Recording:
    from exporter.sources.recording import Recording

    return Recording(path)


def _replay(recording: Recording, settings: Settings, clock: Clock) -> Replay:
    from exporter.sources.recording.replay import Replay

    header = recording.header
    asked = settings.given.get("poll.interval")
    if asked is not None and asked.value != header.interval_seconds:
        log.warning("%s: %s is ignored, a recording has its own interval", asked.place, asked.text)
    log.info(
        "REPLAYING %s (recorded %s from source %s, %d GPUs, every %g s) at speed %g%s",
        recording.path,
        header.started,
        header.source,
        len(header.devices),
        header.interval_seconds,
        settings.replay_speed,
        ", over and over" if settings.replay_loop else "",
    )
    return Replay(recording, clock, speed=settings.replay_speed, loop=settings.replay_loop)


def _simulation(settings: Settings, specs: SpecBook, clock: Clock, why: str) -> Simulation:
    from exporter.sources.simulate import Simulation, load_scenario

    scenario = load_scenario(settings.demo_scenario, specs)
    identity = f"{socket.gethostname()}:{settings.web_listen_address.port}"
    log.info(
        "%sserving %d SIMULATED GPUs (scenario %s, seed %d)",
        why,
        len(scenario.gpus),
        scenario.name,
        settings.demo_seed,
    )
    selection = Selection(settings.gpu_include, settings.gpu_exclude)
    return Simulation(scenario, specs, identity, settings.demo_seed, clock, selection)


def driver_problem(library: Library, wait_seconds: float = PROBE_SECONDS) -> str | None:
    """Return why no GPU can be read through the driver, in one line; None if one can.

    A thread calls the driver; it is abandoned if the initialisation hangs.
    """
    answers: list[str | None] = []
    thread = threading.Thread(
        target=lambda: answers.append(_ask(library)), name="driver-probe", daemon=True
    )
    thread.start()
    thread.join(wait_seconds)
    return answers[0] if answers else f"its initialisation takes longer than {wait_seconds:g} s"


def _ask(library: Library) -> str | None:
    try:
        library.start()
    except LibraryUnavailable as error:
        return str(error)
    try:
        return None if library.device_count() else "the driver lists no GPU"
    except pynvml.NVMLError as error:
        return f"counting the GPUs failed: {error}"
    finally:
        library.stop()
