# SPDX-License-Identifier: Apache-2.0
"""The known causes, as data: each with the evidence that shows it, and what to change.

A row is shown where all its conditions hold; the evidence that they name must be known. Conditions
exclude the neighbours of a cause; several causes may hold at once. The first rows are shown first.
Jobs have a copy of `JOB_CAUSES` (``roofline_job/causes.json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

THRESHOLDS: Mapping[str, float] = {
    "notable_stall_ratio": 0.05,  # TensorFlow's profiler: up to here an input-bound share is fine
    "notable_loss_ratio": 0.2,
    "small_loss_ratio": 0.1,
    "nearly_none_ratio": 0.01,
    "worth_a_worker_seconds": 0.005,  # a worker takes up to 3 ms to hand a batch over
    "mostly_ratio": 0.5,
    "nearly_always_ratio": 0.8,
    "one_core": 0.9,
    "one_core_free": 1.0,
    "small_read_bytes": 262144.0,  # below that a round trip costs more than the transfer
    "slow_clock_ratio": 0.9,
    "ending_seconds": 30.0,  # a worker looks every 5 s whether its trainer lives (PyTorch)
}
"""What conditions compare with, by name."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One row. ``{name}`` in its texts stands for that evidence, with its unit."""

    slug: str
    when: tuple[str, ...]
    """Conditions: evidence, relation, and a number or the name of a threshold."""
    finding: str
    """What is seen: a clause without a full stop."""
    advice: str
    """What to change, as it would be typed; begins in lower case."""
    costs: str | None = None
    """What it costs: the kind that `recoverable` adds up; None where that is not known."""


WAITS_FOR_DATA = "data_wait_loss_ratio >= notable_stall_ratio"
HAS_WORKERS = (WAITS_FOR_DATA, "workers_count >= 1")
NO_CORE_FREE = ("worker_running_ratio >= mostly_ratio", "free_cores < one_core_free")
BLOCKED = (*HAS_WORKERS, "worker_blocked_ratio >= mostly_ratio")
BLOCKED_FINDING = (
    "the workers wait for storage {worker_blocked_ratio} of the time, in reads of {read_size_bytes}"
)

JOB_CAUSES: tuple[Cause, ...] = (
    Cause(
        "no_workers",
        (
            WAITS_FOR_DATA,
            "workers_count == 0",
            "data_wait_per_batch_seconds >= worth_a_worker_seconds",
        ),
        "the loader has no workers (num_workers=0): the training loop prepares each batch itself",
        "set num_workers={workers_to_try_count} and persistent_workers=True",
        costs="data",
    ),
    Cause(
        "cpu_oversubscribed",
        (WAITS_FOR_DATA, *NO_CORE_FREE, "workers_per_core_ratio > 1"),
        "{workers_count} workers share {cores_count} cores",
        "set num_workers={workers_to_try_count}, with one thread each, or ask for more cores",
        costs="data",
    ),
    Cause(
        "workers_cpu_bound",
        (*HAS_WORKERS, *NO_CORE_FREE, "workers_per_core_ratio <= 1"),
        "the workers compute all the time, and no core is free",
        "make the work less (decode and resize once, or on the GPU), or ask for more cores",
        costs="data",
    ),
    Cause(
        "too_few_workers",
        (
            *HAS_WORKERS,
            "worker_running_ratio >= nearly_always_ratio",
            "free_cores >= one_core_free",
        ),
        "the workers compute all the time, and {free_cores} cores are free",
        "set num_workers={workers_to_try_count} (it is {workers_count})",
        costs="data",
    ),
    Cause(
        "small_files",
        (*BLOCKED, "read_size_bytes < small_read_bytes"),
        BLOCKED_FINDING,
        "pack the samples into shards of some 100 MB (WebDataset, MDS, Parquet)",
        costs="data",
    ),
    Cause(
        "storage_bound",
        (*BLOCKED, "read_size_bytes >= small_read_bytes"),
        BLOCKED_FINDING,
        "copy the data to a local disk or into memory before the job, or store less of it",
        costs="data",
    ),
    Cause(
        "epoch_respawn",
        ("loader_start_of_loop_ratio >= notable_stall_ratio", "persistent_workers == 0"),
        "starting the workers anew in each epoch takes {loader_start_of_loop_ratio} of the loop",
        "set persistent_workers=True",
        costs="data",
    ),
    Cause(
        "transfer_bound",
        ("h2d_of_loop_ratio >= small_loss_ratio", "pinned_memory == 0"),
        "copies to the GPU take {h2d_of_loop_ratio} of the loop, from memory that is not pinned",
        "set pin_memory=True, and copy with non_blocking=True",
        costs="h2d",
    ),
    Cause(
        "checkpoint_too_frequent",
        ("checkpoint_of_loop_ratio >= notable_stall_ratio", "checkpoints_count >= 2"),
        "checkpoints take {checkpoint_of_loop_ratio} of the loop",
        "save less often, or in the background (torch.distributed.checkpoint.async_save)",
        costs="checkpoint",
    ),
    Cause(
        "logging_too_frequent",
        ("logging_of_loop_ratio >= notable_stall_ratio",),
        "logging takes {logging_of_loop_ratio} of the loop",
        "keep losses on the GPU, and log every hundred steps",
        costs="logging",
    ),
)
"""Those that a job can judge by what it knows itself."""

CAUSES: tuple[Cause, ...] = (
    *JOB_CAUSES,
    Cause(
        "straggler_rank",
        (
            WAITS_FOR_DATA,
            "ranks_count >= 2",
            "data_wait_above_median_ratio >= small_loss_ratio",
            "steps_of_median_ratio >= 0.95",
            "steps_of_median_ratio <= 1.05",
        ),
        "this rank waits for data {data_wait_above_median_ratio} of the time more than the median"
        " of the job's {ranks_count} ranks here, which step together and so wait for it",
        "give each rank equal shards, cores and storage",
        costs="data",
    ),
    Cause(
        "orphan_processes",
        ("orphaned_seconds >= ending_seconds", "busy_ratio < nearly_none_ratio"),
        "{orphan_workers_count} workers of a job that has ended hold its memory",
        "end them: kill the PIDs that nvidia-smi lists for this GPU",
    ),
    Cause(
        "idle_sibling",
        ("idle_siblings_count >= 1", "busy_ratio >= mostly_ratio", "trains == 1"),
        "{idle_siblings_count} more GPUs of the same work are held idle meanwhile",
        "start one process for each GPU (torchrun --nproc-per-node), or ask for fewer GPUs",
    ),
    Cause(
        "data_parallel_one_process",
        (
            "gpus_of_process_count >= 2",
            "trains == 1",
            "idle_ratio >= notable_loss_ratio",
            "process_cores >= one_core",
        ),
        "one process drives {gpus_of_process_count} GPUs, and its CPU thread is busy"
        " while they wait",
        "start one process for each GPU: DistributedDataParallel instead of DataParallel",
    ),
    Cause(
        "launch_bound",
        (
            "idle_ratio >= notable_loss_ratio",
            "idle_intervals_ratio < notable_stall_ratio",
            "data_stall_upper_ratio < notable_stall_ratio",
            "process_cores >= one_core",
            "gpus_of_process_count <= 1",
        ),
        "the GPU idles {idle_ratio} of the time in short gaps, waits for no data, and the process"
        " fills a core: it launches kernels more slowly than the GPU runs them",
        'use torch.compile(mode="reduce-overhead"), larger batches, fewer .item()',
    ),
    Cause(
        "gpu_side_loader",
        (
            "media_engine_ratio >= nearly_always_ratio",
            "busy_ratio < nearly_always_ratio",
            "trains == 1",
        ),
        "a decoder of the GPU (NVDEC or NVJPG) is busy {media_engine_ratio} of the time",
        "decode a part on the CPU, or store smaller images",
    ),
    Cause(
        "thermal",
        ("clock_time_ratio >= small_loss_ratio", "thermal_throttled == 1"),
        "{clock_time_ratio} of its time is lost to clocks that heat lowers",
        "check the airflow, the fans and the inlet temperature of the node",
        costs="clock",
    ),
    Cause(
        "power_capped",
        ("clock_time_ratio >= notable_loss_ratio", "power_capped == 1", "thermal_throttled == 0"),
        "{clock_time_ratio} of its time is lost to clocks that the power limit lowers",
        "raise the limit (nvidia-smi -pl), if rack and cooling allow it",
        costs="clock",
    ),
    Cause(
        "fail_slow_gpu",
        (
            "peers_count >= 3",
            "clock_of_peers_ratio < slow_clock_ratio",
            "busy_ratio >= mostly_ratio",
            "power_capped == 0",
            "thermal_throttled == 0",
        ),
        "its SM clock is {clock_of_peers_ratio} of the median of {peers_count} GPUs of its model"
        " in the same job",
        "take it out of the job, and check its power cable, temperature and Xids",
    ),
    Cause(
        "numa_misaligned",
        (
            "numa_misaligned_ratio >= 1",
            "idle_ratio >= small_loss_ratio",
            "busy_ratio >= small_loss_ratio",
        ),
        "its process may only run on CPUs of another NUMA node than the GPU's, and the GPU idles"
        " {idle_ratio} of the time",
        "bind it to the GPU's node (numactl --cpunodebind, srun --gpu-bind=closest)",
    ),
    Cause(
        "pcie_limited",
        ("pcie_traffic_ratio >= nearly_always_ratio", "idle_ratio >= small_loss_ratio"),
        "its PCIe link carries {pcie_traffic_ratio} of what it can",
        "send smaller types (uint8), keep data on the GPU, and check the width of the link",
    ),
    Cause(
        "collective_wait",
        ("communication_time_ratio >= notable_loss_ratio",),
        "it does nothing but communicate {communication_time_ratio} of the time",
        "overlap gradients with the backward pass, use larger buckets, and look for a slow rank",
        costs="communication",
    ),
    Cause(
        "tensor_cores_unused",
        (
            "busy_ratio >= mostly_ratio",
            "tensor_active_ratio < nearly_none_ratio",
            "fma_active_ratio >= notable_loss_ratio",
            "has_tensor_cores == 1",
            "trains == 1",
        ),
        "the tensor cores are idle while FP32 units work {fma_active_ratio} of the time",
        'use torch.autocast("cuda", dtype=torch.bfloat16), or'
        ' torch.set_float32_matmul_precision("high")',
    ),
    Cause(
        "batch_too_small",
        (
            "busy_ratio >= nearly_always_ratio",
            "narrow_time_ratio >= mostly_ratio",
            "sm_active_ratio >= small_loss_ratio",
            "memory_used_ratio < mostly_ratio",
            "trains == 1",
        ),
        "its kernels leave SMs without work {narrow_time_ratio} of the time, and"
        " {memory_used_ratio} of its memory is used",
        "use a larger batch",
    ),
)
