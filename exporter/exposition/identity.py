# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that say which GPUs there are and where their numbers come from."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, gauge, info

IDENTITY: tuple[Family, ...] = (
    info(
        "gpu_info",
        "gpu",
        "core",
        "What this GPU is; labels that are not known are empty.",
        "NVML identity queries at enumeration; spec names the row of the spec file, or derived",
        Label("name", meaning="product name as the driver reports it"),
        Label("architecture", meaning="such as Hopper"),
        Label("compute_capability", meaning="such as 9.0"),
        Label("pci_bus_id", meaning="domain:bus:device.function"),
        Label("serial"),
        Label("board_part_number"),
        Label("minor_number", meaning="the N of /dev/nvidiaN"),
        Label("numa_node"),
        Label("driver_version"),
        Label("cuda_version", meaning="newest CUDA version that the driver supports"),
        Label("vbios_version"),
        Label("spec", meaning="product key of the spec file, or derived"),
        Label("source", ("nvml", "replay", "simulate")),
    ),
    gauge(
        "gpu_up",
        "",
        "gpu",
        "core",
        "1 while this GPU answers and its readings are fresh, else 0 and its other series are "
        "gone.",
        "outcome of the fast reads at the poll interval",
    ),
    gauge(
        "gpu_last_read_timestamp_seconds",
        "seconds",
        "gpu",
        "core",
        "Unix time of this GPU's last successful fast read; its counters are exact at this time.",
        "host clock",
    ),
    info(
        "gpu_saturation_source_info",
        "share",
        "core",
        "Where saturation comes from, and whether every unit that it needs was read.",
        "the best source that answers for this GPU: hardware counters, else an estimate",
        Label("source", ("gpm", "dcgm", "estimate")),
        Label("complete", ("yes", "no")),
    ),
    info(
        "gpu_mode_info",
        "board",
        "full",
        "Modes that an administrator sets; labels that are not known are empty.",
        "nvmlDeviceGetPersistenceMode, ComputeMode, EccMode, MigMode, VirtualizationMode and "
        "nvmlSystemGetConfComputeState",
        Label("persistence"),
        Label("compute"),
        Label("ecc"),
        Label("mig"),
        Label("virtualization"),
        Label("confidential"),
    ),
    info(
        "gpu_mig_info",
        "board",
        "full",
        "One series for each MIG compute instance.",
        "nvmlDeviceGetMigDeviceHandleByIndex and the ids of each handle",
        Label("gpu_instance", meaning="GPU instance id"),
        Label("compute_instance", meaning="compute instance id"),
        Label("profile", meaning="such as 3g.40gb"),
        Label("mig_uuid"),
    ),
)
