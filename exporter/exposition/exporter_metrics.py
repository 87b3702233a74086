# SPDX-License-Identifier: Apache-2.0
"""Metrics of the exporter itself: sources, snapshots, connections, training reports."""

from __future__ import annotations

import platform
from collections.abc import Callable

import exporter
from exporter.exposition.family import Family, core_gauge, core_info, counter, gauge
from exporter.exposition.labels import Label
from exporter.exposition.parts import (
    DAEMON,
    NODE,
    SNAPSHOT,
    STATES,
    TRAINING_STATE,
    Node,
    Number,
    Rows,
    ValueReader,
)
from exporter.exposition.processes import CAPPED
from exporter.model.daemon import CONNECTION_REFUSALS, REQUEST_ABORTS, REQUEST_REFUSALS
from exporter.model.snapshot import Snapshot, SourceState
from exporter.model.training import (
    FLOPS_EXCEED_PEAK,
    STALL_EXCEEDS_IDLE,
    TRAINING_DEGRADATIONS,
    TRAINING_REJECTIONS,
    TRAINING_SENDERS,
)

SOURCE = Label("source", meaning="nvml, gpm, dcgm, cupti, training, kubernetes, ...")
REJECTION = Label("reason", (*TRAINING_REJECTIONS, STALL_EXCEEDS_IDLE, FLOPS_EXCEED_PEAK))
SENDER = Label("sender", tuple(TRAINING_SENDERS))
DEGRADATION = Label("reason", tuple(TRAINING_DEGRADATIONS))


def _build(node: Node) -> Rows:
    yield (exporter.__version__, node.revision, platform.python_version()), 1


def _of_sources(read: Callable[[SourceState], Number | None]) -> ValueReader:
    """Read one value of each source that has it."""

    def by_name(snapshot: Snapshot) -> dict[str, Number]:
        values = {name: read(source) for name, source in snapshot.sources.items()}
        return {name: value for name, value in values.items() if value is not None}

    return SNAPSHOT.by_label(SOURCE, by_name)


def _degraded_ranks(snapshot: Snapshot) -> dict[str, int]:
    """Count the live ranks that are degraded, by reason; every reason is listed."""
    if snapshot.training is None:
        return {}
    found = dict.fromkeys(TRAINING_DEGRADATIONS, 0)
    for rank in snapshot.ranks:
        for reason in rank.degraded if rank.processes else ():
            found[reason] += 1
    return found


FAMILIES: tuple[Family, ...] = (
    core_info(
        "roofline_exporter_build_info",
        "What this exporter is.",
        "the running program",
        NODE.rows(
            (
                Label("version"),
                Label("revision", meaning="short commit of the source, or unknown"),
                Label("python"),
            ),
            _build,
        ),
    ),
    core_gauge(
        "roofline_exporter_source_up",
        "1 while this source gives readings, else 0.",
        "outcome of its last read",
        _of_sources(lambda each: int(each.up)),
    ),
    gauge(
        "roofline_exporter_source_read_seconds",
        "How long the last read of this source took; with that of the page, where it reads one.",
        "monotonic clock around the read",
        _of_sources(lambda each: each.read_seconds),
    ),
    gauge(
        "roofline_exporter_source_age_seconds",
        "Age of what this source said last, which stays in use while it cannot be read.",
        "monotonic clock",
        _of_sources(lambda each: each.age_seconds),
    ),
    counter(
        "roofline_exporter_source_failures_total",
        "Reads of this source that failed.",
        "counted since the exporter started",
        _of_sources(lambda each: each.failures_total),
    ),
    core_gauge(
        "roofline_exporter_snapshot_timestamp_seconds",
        "Unix time of the snapshot that this page shows; its age says whether the exporter polls.",
        "host clock at the publisher's tick",
        SNAPSHOT.one(lambda s: s.timestamp_seconds),
    ),
    core_gauge(
        "roofline_exporter_devices",
        "How many NVIDIA GPUs there are by who counts: the PCI bus, the kernel driver and NVML; a "
        "GPU that some miss is lost to them.",
        "/sys/bus/pci/devices, /proc/driver/nvidia/gpus and nvmlDeviceGetCount",
        SNAPSHOT.by_label(Label("where", ("pci", "driver", "nvml")), lambda s: s.devices),
    ),
    core_gauge(
        "roofline_exporter_reading_state",
        "1 for each group of readings that is absent, or not all there, with the reason as state; "
        "implausible: it answers what cannot be true; busy: somebody else has the counters; "
        "unreachable: it does not answer, or not as it should; paused: handed to a profiler; "
        "missing: a library or package is not there or unfit. What is absent of one GPU instance "
        "only, such as its counters or its memory, has that label. Group gpu in state suspended is "
        "a GPU that sleeps and is not woken: its gpu_up is 0, but it is not lost.",
        "the answer of the driver, or of the source, when the group was asked for",
        STATES.rows(
            (
                Label(
                    "group",
                    meaning="such as gpm, dcgm, cupti, ecc or processes",
                    core_values=("gpu",),
                ),
                Label(
                    "state",
                    meaning="unsupported, no_permission, old_driver, implausible, suspended, mig, "
                    "disabled, busy, unreachable, paused or missing",
                ),
            ),
            lambda states: (((group, state), 1) for group, state in states.items()),
        ),
    ),
    counter(
        "roofline_exporter_series_dropped_total",
        "Series that a cap cut off, added up over the snapshots.",
        "counted since the exporter started",
        NODE.by_label(Label("family", tuple(CAPPED)), lambda n: n.dropped),
    ),
    counter(
        "roofline_exporter_connections_refused_total",
        "Connections that were not let in, by why.",
        "counted since the exporter started",
        DAEMON.by_label(
            Label("reason", tuple(CONNECTION_REFUSALS)), lambda d: d.connections_refused_total
        ),
    ),
    counter(
        "roofline_exporter_requests_refused_total",
        "Requests that were answered with an error before they were looked at, by why.",
        "counted since the exporter started",
        DAEMON.by_label(
            Label("reason", tuple(REQUEST_REFUSALS)), lambda d: d.requests_refused_total
        ),
    ),
    counter(
        "roofline_exporter_requests_aborted_total",
        "Connections that were ended because the client did not go on, by what it did not do.",
        "counted since the exporter started",
        DAEMON.by_label(Label("reason", tuple(REQUEST_ABORTS)), lambda d: d.requests_aborted_total),
    ),
    counter(
        "roofline_exporter_log_lines_dropped_total",
        "Log lines that were dropped because nobody read standard error.",
        "counted since the exporter started",
        DAEMON.one(lambda d: d.log_lines_dropped_total),
    ),
    core_gauge(
        "roofline_exporter_config_last_reload_successful",
        "1 from the start on and after a SIGHUP that was followed, 0 after one at which a file was "
        "broken, so that the old settings stay.",
        "the outcome of the last SIGHUP",
        DAEMON.one(lambda d: int(d.config_ok)),
    ),
    core_gauge(
        "roofline_exporter_web_config_success",
        "1 while the web configuration file can be used, 0 while it is broken and nobody new is "
        "let in; absent without one.",
        "the last look at the file and at those that it names",
        DAEMON.one(lambda d: None if d.web_config_ok is None else int(d.web_config_ok)),
    ),
    counter(
        "roofline_exporter_training_reports_total",
        "Reports of training jobs that were taken; absent while none are listened for.",
        "counted since the exporter started",
        TRAINING_STATE.one(lambda s: s.reports_total),
    ),
    counter(
        "roofline_exporter_training_rejected_total",
        "Reports of training jobs that were refused; under stall_exceeds_idle and "
        "flops_exceed_peak the minutes in which S was cut to the GPU's own idle time, and stated "
        "work to what the GPU can do.",
        "counted since the exporter started",
        TRAINING_STATE.by_label(REJECTION, lambda s: s.rejected_total),
    ),
    counter(
        "roofline_exporter_training_quota_hits_total",
        "Refused reports of training jobs that reached a limit of their user (rate, jobs, ranks), "
        "by who sent them; never the uid itself.",
        "counted since the exporter started; the sender as the kernel names it",
        TRAINING_STATE.by_label(SENDER, lambda s: s.quota_hits_total),
    ),
    gauge(
        "roofline_exporter_training_degraded",
        "Ranks with a live process of which something is not measured, or not believed, by what it "
        "is; absent while no reports are listened for.",
        "reports of the training client in the job; unverified: the driver's list of processes",
        SNAPSHOT.by_label(DEGRADATION, _degraded_ranks),
    ),
)
