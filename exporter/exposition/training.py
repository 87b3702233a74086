# SPDX-License-Identifier: Apache-2.0
"""Reports of training jobs, the inferred data stall of their GPUs, and NCCL."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, counter, gauge, info
from exporter.exposition.labels import Label, flag, lower, text, upper
from exporter.exposition.parts import COLLECTIVES, LOADER, RANK, RANK_TOTALS, SHARE, TOTALS, Rows
from exporter.model.snapshot import Rank
from exporter.model.training import RAS_STATES, TRAINING_PHASES

_REPORT = "reports of the training client in the job"
_EVENTS = "two CUDA events around the wait, on the stream of the loop, as the job reports them"
_LOADER = "the data loader of the loop, as the job reports it"
_SINCE = ", added up since the first report"
PHASE = Label("phase", TRAINING_PHASES)
METHOD = Label("method", ("client", "procfs"))

_CAN_HAVE_WAITED = (
    "share of the last window of 10 s or longer in which this GPU can have sat idle while its job "
    "waited for data, found without CUDA events in the job."
)
_COUNTED = "from report to report since the exporter started; a late report counts its whole time"
_INFERRED = (
    "max(0, W + idle - T) and min(W, idle), T the time of the window; W is the host wait for data, "
    "client: as the job reports it, procfs: as the states of its threads bound it"
)


def _info(rank: Rank) -> Rows:
    known = (text(rank.world_size), text(rank.framework), text(rank.precision))
    yield (*known, rank.instrumentation), 1


FAMILIES: tuple[Family, ...] = (
    info(
        "gpu_training_info",
        "What this rank of a training job runs; labels that are not known are empty.",
        _REPORT,
        RANK.rows(
            (
                Label("world_size", meaning="how many ranks the job has"),
                Label("framework", meaning="such as torch 2.13.0"),
                Label("precision", meaning="what the model computes in, such as bf16"),
                Label("instrumentation", ("client", "auto")),
            ),
            _info,
        ),
    ),
    core_counter(
        "gpu_training_steps_total",
        "Training steps: optimizer steps where they are seen, else batches.",
        _REPORT + _SINCE,
        RANK_TOTALS.one(lambda t: t.steps),
    ),
    counter(
        "gpu_training_batches_total",
        "Batches that the training loop took from its data loader.",
        _REPORT + _SINCE,
        RANK_TOTALS.one(lambda t: t.batches),
    ),
    core_counter(
        "gpu_training_samples_total",
        "Samples in these batches, where the job says how many a batch has.",
        _REPORT + _SINCE,
        RANK_TOTALS.one(lambda t: t.samples),
    ),
    core_counter(
        "gpu_training_step_seconds_total",
        "Wall time of the training loop with its phases; divide rates by its rate for a share.",
        _REPORT + _SINCE,
        RANK_TOTALS.one(lambda t: t.step_seconds),
    ),
    core_gauge(
        "gpu_training_run_seconds",
        "Wall time of the training loop in the current run, of its longest-running process; it "
        "starts at 0 with each run, while counters under the same labels may continue from an "
        "earlier one.",
        _REPORT,
        RANK.one(lambda r: r.run_seconds),
    ),
    core_gauge(
        "gpu_training_verified",
        "1 where the driver lists a process of this rank on its GPU, else 0: then nothing that the "
        "rank says moves the GPU's own numbers; absent for a rank without a GPU.",
        "the driver's list of processes, by the process id that the kernel gives each report",
        RANK.one(lambda r: flag(r.verified)),
    ),
    core_counter(
        "gpu_training_phase_seconds_total",
        "Host time in each phase (W): how long the loop waited there, whether or not the GPU had "
        "work; phases exclude each other, and one that the job does not measure is absent.",
        "clock of the job around next() and phase()" + _SINCE,
        RANK_TOTALS.by_label(PHASE, lambda t: t.phase_seconds),
    ),
    core_counter(
        "gpu_training_phase_gpu_idle_seconds_total",
        "The part of gpu_training_phase_seconds_total in which the stream of the loop had nothing "
        "to do (S), by measured phase; a job of one rank would gain between S and W by faster "
        "data, checkpoints or logging, one of several ranks at most the W of its slowest.",
        _EVENTS + "; checked against the GPU's own idle time",
        RANK_TOTALS.by_label(PHASE, lambda t: t.phase_gpu_idle_seconds),
    ),
    counter(
        "gpu_training_model_flops_total",
        "Operations of the model itself, where the job says how many a step or sample needs.",
        "steps or samples x what the job states",
        RANK_TOTALS.one(lambda t: t.model_flops),
    ),
    gauge(
        "gpu_training_prefetch_batches",
        "Batches that were ready when the loop asked last; near 0 the loader is too slow.",
        _LOADER,
        LOADER.one(lambda each: each.ready_batches),
    ),
    gauge(
        "gpu_training_dataloader_workers",
        "Worker processes of the data loader; 0 loads in the loop itself.",
        _LOADER,
        LOADER.one(lambda each: each.workers),
    ),
    gauge(
        "gpu_training_memory_bytes",
        "Device memory as the framework's allocator counts it.",
        "torch.cuda.memory_stats in the job, every 10 s",
        RANK.by_label(Label("kind", ("allocated", "reserved", "peak")), lambda r: r.memory_bytes),
    ),
    gauge(
        "gpu_training_processes",
        "Processes alive that report under these labels; their counters are added up.",
        "report ids that neither ended nor fell silent",
        RANK.one(lambda r: r.processes),
    ),
    gauge(
        "gpu_training_last_report_timestamp_seconds",
        "Unix time of the last report; its counters are exact at this time.",
        "host clock when the report came in",
        RANK.one(lambda r: r.last_report_timestamp_seconds),
    ),
    core_gauge(
        "gpu_inferred_data_stall_lower_ratio",
        f"Least {_CAN_HAVE_WAITED}",
        _INFERRED,
        SHARE.by_label(METHOD, lambda s: lower(s.data_stall)),
    ),
    core_gauge(
        "gpu_inferred_data_stall_upper_ratio",
        f"Greatest {_CAN_HAVE_WAITED}",
        _INFERRED,
        SHARE.by_label(METHOD, lambda s: upper(s.data_stall)),
    ),
    core_counter(
        "gpu_inferred_data_stall_lower_seconds_total",
        "Least time for which this GPU sat idle while its job waited for data, found without CUDA "
        "events in the job.",
        _COUNTED,
        TOTALS.by_label(METHOD, lambda t: t.data_stall_lower_seconds),
    ),
    core_counter(
        "gpu_inferred_data_stall_upper_seconds_total",
        "Greatest time for which this GPU sat idle while its job waited for data, found without "
        "CUDA events in the job.",
        _COUNTED,
        TOTALS.by_label(METHOD, lambda t: t.data_stall_upper_seconds),
    ),
)

COLLECTIVE_FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_nccl_ras_ranks",
        "Ranks of the NCCL job that answers on this node, on all its nodes, each by its worst "
        "state in any communicator: responding, missing from it, unresponsive (about 5 s), dead "
        "(about 60 s).",
        "NCCL's RAS every 15 s, with --source.nccl-ras",
        COLLECTIVES.by_label(Label("state", RAS_STATES), lambda c: c.ranks),
    ),
    gauge(
        "gpu_nccl_ras_communicators",
        "Communicators of the NCCL job that answers on this node.",
        "NCCL's RAS every 15 s, with --source.nccl-ras",
        COLLECTIVES.one(lambda c: c.communicators),
    ),
)
