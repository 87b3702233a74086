# SPDX-License-Identifier: Apache-2.0
"""The table of sources: their names, what each gives, and how a counter source is opened.

The command line makes the `--source.NAME` flags from it; therefore a source is imported only when
it is opened. A new counter source is a folder beside this file and a row of COUNTER_SOURCES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporter.sources.interface import (
    CONTAINER,
    CUPTI,
    DCGM,
    KMSG,
    KUBERNETES,
    NCCL_RAS,
    PROC,
    SLURM,
    TRAINING,
    CounterOptions,
    CounterRow,
    NodeCounters,
    NodeWorkloads,
    SourceRow,
    WorkloadOptions,
    WorkloadRow,
)
from exporter.sources.nvml import GPM, NVML

if TYPE_CHECKING:  # the command line starts faster without it
    from exporter.clock import Clock


def prepared(
    names: Iterable[str], options: CounterOptions, clock: Clock
) -> dict[str, NodeCounters]:
    """Return the sources among `names` that read all GPUs at once, not started."""
    wanted = frozenset(names)
    rows = [row for row in COUNTER_SOURCES if row.name in wanted]
    return {row.name: row.prepare(options, clock) for row in rows if row.prepare is not None}


def workload_sources(
    names: Iterable[str], options: WorkloadOptions, clock: Clock
) -> tuple[NodeWorkloads, ...]:
    """Return the sources of workloads among `names`, not started."""
    wanted = frozenset(names)
    return tuple(row.prepare(options, clock) for row in WORKLOAD_SOURCES if row.name in wanted)


def _imported(module: str, name: str = "prepare") -> Callable[..., Any]:
    """Return a function that imports this one when it is called, and calls it."""
    return lambda *arguments: getattr(import_module(module), name)(*arguments)


def _prepare_cupti(options: CounterOptions, clock: Clock) -> NodeCounters:
    from exporter.sources.counters.child_counters import ChildCounters

    return ChildCounters(CUPTI, {"duty": options.cupti_duty}, clock)


COUNTER_SOURCES: tuple[CounterRow, ...] = (
    CounterRow(
        GPM,
        "Read the hardware counters of Hopper and newer GPUs (GPM).",
        _imported("exporter.sources.nvml.gpm", "GpmSource"),
    ),
    CounterRow(
        DCGM,
        "Take the hardware counters of a dcgm-exporter or DCGM hostengine, where there is one.",
        prepare=_imported("exporter.sources.dcgm.dcgm_counters"),
    ),
    CounterRow(
        CUPTI,
        "Sample the hardware counters of Turing and newer GPUs with NVIDIA's CUPTI, of the extra "
        "[cupti]; experimental.",
        enabled=False,
        prepare=_prepare_cupti,
    ),
)
"""In order of preference; `exporter/sources/fleet/counters.py` chooses one for each share."""

WORKLOAD_SOURCES: tuple[WorkloadRow, ...] = (
    WorkloadRow(
        KUBERNETES,
        "Ask the kubelet, where its socket is, which pods have which GPUs; needs the extra "
        "[kubernetes].",
        _imported("exporter.sources.workload.kubernetes.kubernetes_pods"),
    ),
    WorkloadRow(
        SLURM,
        "Read which Slurm jobs have which GPUs, from prolog files and control groups.",
        _imported("exporter.sources.workload.slurm.slurm_jobs"),
    ),
    WorkloadRow(
        CONTAINER,
        "Ask Docker and Podman, where their sockets can be read, for the names of containers.",
        _imported("exporter.sources.workload.container.containers"),
    ),
)
"""What is known of one process by several is taken in this order."""

SOURCES: tuple[SourceRow, ...] = (
    SourceRow(NVML, "Read the GPUs through the driver's library (NVML)."),
    *COUNTER_SOURCES,
    SourceRow(
        KMSG,
        "Read Xids from the kernel log (/dev/kmsg) as well, if it can be read: it also has those "
        "of a GPU that has left the bus.",
    ),
    SourceRow(
        TRAINING, "Take the reports of training jobs that carry the client, on a Unix socket."
    ),
    SourceRow(
        PROC,
        "Watch in /proc, on held GPUs with idle gaps, whether the job's loop waits for its data "
        "loader.",
    ),
    *WORKLOAD_SOURCES,
    SourceRow(
        NCCL_RAS,
        "Ask NCCL's RAS, where a job on this node has it, which ranks are missing or dead.",
        enabled=False,
    ),
)
"""In the order of the help."""
