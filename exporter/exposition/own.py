# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that describe the exporter itself."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, counter, gauge, info

_SOURCE = Label("source", meaning="nvml, gpm, ...")

EXPORTER: tuple[Family, ...] = (
    info(
        "roofline_exporter_build_info",
        "node",
        "core",
        "What this exporter is.",
        "the running program",
        Label("version"),
        Label("revision", meaning="short commit of the source, or unknown"),
        Label("python"),
    ),
    gauge(
        "roofline_exporter_source_up",
        "",
        "node",
        "core",
        "1 while this source gives readings, else 0.",
        "outcome of its last read",
        _SOURCE,
    ),
    gauge(
        "roofline_exporter_source_read_seconds",
        "seconds",
        "node",
        "full",
        "How long the last read of this source took.",
        "monotonic clock around the read",
        _SOURCE,
    ),
    counter(
        "roofline_exporter_source_failures_total",
        "",
        "node",
        "full",
        "Reads of this source that failed.",
        "counted since the exporter started",
        _SOURCE,
    ),
    gauge(
        "roofline_exporter_snapshot_timestamp_seconds",
        "seconds",
        "node",
        "core",
        "Unix time of the snapshot that this page shows; its age says whether the exporter polls.",
        "host clock at the publisher's tick",
    ),
    gauge(
        "roofline_exporter_devices",
        "",
        "node",
        "core",
        "How many NVIDIA GPUs there are by who counts: the PCI bus, the kernel driver and NVML; a "
        "GPU that some miss is lost to them.",
        "/sys/bus/pci/devices, /proc/driver/nvidia/gpus and nvmlDeviceGetCount",
        Label("where", ("pci", "driver", "nvml")),
    ),
    gauge(
        "roofline_exporter_reading_state",
        "",
        "node",
        "full",
        "1 for each group of readings that is absent, or not all there, with the reason as state; "
        "implausible: the driver answers what cannot be true. Group gpu in state suspended is a "
        "GPU that sleeps and is not woken: its gpu_up is 0, but it is not lost.",
        "the driver's answer when the group was asked for",
        Label("uuid"),
        Label("group", meaning="such as gpm, ecc or processes"),
        Label(
            "state",
            meaning="unsupported, no_permission, old_driver, implausible, mig, disabled or "
            "suspended",
        ),
    ),
    counter(
        "roofline_exporter_series_dropped_total",
        "",
        "node",
        "full",
        "Series that a cap cut off, added up over the snapshots.",
        "counted since the exporter started",
        Label("family", ("gpu_process_memory_bytes",)),
    ),
)
