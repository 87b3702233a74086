# SPDX-License-Identifier: Apache-2.0
"""The known causes, as data: those that a job can judge itself, and those that only a node sees."""

from __future__ import annotations

from roofline_job.causes import JOB_CAUSES, WAITS_FOR_DATA, Cause

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
