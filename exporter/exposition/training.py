# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families on training jobs, each with the value of a snapshot that it shows."""

from __future__ import annotations

from exporter.exposition.family import Family, Label, counter, gauge, info
from exporter.exposition.parts import Part, Reader, Rows
from exporter.model.reading import TRAINING_DEGRADATIONS, TRAINING_PHASES, Loader, TrainingTotals
from exporter.model.snapshot import Rank, Share, ShareTotals, Snapshot, TrainingState

_REPORT = "reports of the training client in the job"
_EVENTS = "two CUDA events around the wait, on the stream of the loop, as the job reports them"
_LOADER = "the data loader of the loop, as the job reports it"
_SINCE = ", added up since the first report"
_PHASE = Label("phase", TRAINING_PHASES)
_METHOD = Label("method", ("procfs", "stack", "client"))

_INFERRED = (
    "procfs: what the processes of the job do, sampled; stack: their Python stacks, sampled; "
    "client: max(0, W + idle - T) and min(W, idle) with W the host wait for data and T the wall "
    "time that the job reports"
)


def _inferred_ratio(bound: str, least: str) -> Family:
    return gauge(
        f"gpu_inferred_data_stall_{bound}_ratio",
        "ratio",
        "share",
        "core",
        f"{least} share of the last interval in which this GPU can have sat idle while its job "
        "waited for data, found without CUDA events in the job.",
        _INFERRED,
        _METHOD,
    )


def _inferred_seconds(bound: str) -> Family:
    return counter(
        f"gpu_inferred_data_stall_{bound}_seconds_total",
        "seconds",
        "share",
        "core",
        f"The integral of gpu_inferred_data_stall_{bound}_ratio.",
        "integrated since the exporter started",
        _METHOD,
    )


TRAINING: tuple[Family, ...] = (
    info(
        "gpu_training_info",
        "rank",
        "full",
        "What this rank of a training job runs; labels that are not known are empty.",
        _REPORT,
        Label("world_size", meaning="how many ranks the job has"),
        Label("framework", meaning="such as torch 2.13.0"),
        Label("precision", meaning="what the model computes in, such as bf16"),
        Label("instrumentation", ("client", "auto")),
    ),
    counter(
        "gpu_training_steps_total",
        "",
        "rank",
        "core",
        "Training steps: optimizer steps where they are seen, else batches.",
        _REPORT + _SINCE,
    ),
    counter(
        "gpu_training_batches_total",
        "",
        "rank",
        "core",
        "Batches that the training loop took from its data loader.",
        _REPORT + _SINCE,
    ),
    counter(
        "gpu_training_samples_total",
        "",
        "rank",
        "core",
        "Samples in these batches, where the job says how many a batch has.",
        _REPORT + _SINCE,
    ),
    counter(
        "gpu_training_step_seconds_total",
        "seconds",
        "rank",
        "core",
        "Wall time of the training loop with its phases; divide rates by its rate for a share.",
        _REPORT + _SINCE,
    ),
    gauge(
        "gpu_training_run_seconds",
        "seconds",
        "rank",
        "core",
        "Wall time of the training loop in the present run, whose counters may go on from a run "
        "before it under the same labels: of the process that is in it for longest.",
        _REPORT,
    ),
    gauge(
        "gpu_training_verified",
        "",
        "rank",
        "core",
        "1 where the driver lists a process of this rank on its GPU, else 0: then nothing that the "
        "rank says moves the GPU's own numbers; absent for a rank without a GPU.",
        "the driver's list of processes, by the process id that the kernel gives each report",
    ),
    counter(
        "gpu_training_phase_seconds_total",
        "seconds",
        "rank",
        "core",
        "Host time in each phase (W): how long the loop waited there, whether or not the GPU had "
        "work; phases exclude each other, and one that the job does not measure is absent.",
        "clock of the job around next() and phase()" + _SINCE,
        _PHASE,
    ),
    counter(
        "gpu_training_phase_gpu_idle_seconds_total",
        "seconds",
        "rank",
        "core",
        "The part of gpu_training_phase_seconds_total in which the stream of the loop had nothing "
        "to do (S), by measured phase; a job of one rank would gain between S and W by faster "
        "data, checkpoints or logging, one of several ranks at most the W of its slowest.",
        _EVENTS + "; checked against the GPU's own idle time",
        _PHASE,
    ),
    counter(
        "gpu_training_model_flops_total",
        "flops",
        "rank",
        "full",
        "Operations of the model itself, where the job says how many a step or sample needs.",
        "steps or samples x what the job states",
    ),
    gauge(
        "gpu_training_prefetch_batches",
        "",
        "rank",
        "full",
        "Batches that were ready when the loop asked last; near 0 the loader is too slow.",
        _LOADER,
    ),
    gauge(
        "gpu_training_dataloader_workers",
        "",
        "rank",
        "full",
        "Worker processes of the data loader; 0 loads in the loop itself.",
        _LOADER,
    ),
    gauge(
        "gpu_training_memory_bytes",
        "bytes",
        "rank",
        "full",
        "Device memory as the framework's allocator counts it.",
        "torch.cuda.memory_stats in the job, every 10 s",
        Label("kind", ("allocated", "reserved", "peak")),
    ),
    gauge(
        "gpu_training_processes",
        "",
        "rank",
        "full",
        "Processes alive that report under these labels; their counters are added up.",
        "report ids that neither ended nor fell silent",
    ),
    gauge(
        "gpu_training_last_report_timestamp_seconds",
        "seconds",
        "rank",
        "full",
        "Unix time of the last report; its counters are exact at this time.",
        "host clock when the report came in",
    ),
    _inferred_ratio("lower", "Least"),
    _inferred_ratio("upper", "Greatest"),
    _inferred_seconds("lower"),
    _inferred_seconds("upper"),
)

TRAINING_OWN: tuple[Family, ...] = (
    counter(
        "roofline_exporter_training_reports_total",
        "",
        "node",
        "full",
        "Reports of training jobs that were taken; absent while none are listened for.",
        "counted since the exporter started",
    ),
    counter(
        "roofline_exporter_training_rejected_total",
        "",
        "node",
        "full",
        "Reports of training jobs that were refused; under stall_exceeds_idle the minutes in which "
        "S was cut to the GPU's own idle time.",
        "counted since the exporter started",
        Label(
            "reason",
            (
                "too_large",
                "not_json",
                "version",
                "schema",
                "label",
                "credentials",
                "rate",
                "jobs",
                "ranks",
                "old",
                "implausible",
                "stall_exceeds_idle",
            ),
        ),
    ),
    gauge(
        "roofline_exporter_training_degraded",
        "",
        "node",
        "full",
        "Ranks with a live process of which something is not measured, or not believed, by what it "
        "is; absent while no reports are listened for.",
        "reports of the training client in the job; unverified: the driver's list of processes",
        Label("reason", tuple(TRAINING_DEGRADATIONS)),
    ),
)

_RANK: Part[Rank] = Part("rank", lambda rank: rank)
_TOTALS: Part[TrainingTotals] = Part("rank", lambda rank: rank.totals)
_LOADERS: Part[Loader] = Part("rank", lambda rank: rank.loader)
_SHARE: Part[Share] = Part("share", lambda share: share)
_SHARE_TOTALS: Part[ShareTotals] = Part("share", lambda share: share.totals)
_STATE: Part[TrainingState] = Part(
    "node", lambda node: None if node.snapshot is None else node.snapshot.training
)


_REPORTED_TO: Part[Snapshot] = Part(
    "node",
    lambda node: None if node.snapshot is None or node.snapshot.training is None else node.snapshot,
)


def _info(rank: Rank) -> Rows:
    world_size = "" if rank.world_size is None else str(rank.world_size)
    yield (world_size, rank.framework or "", rank.precision or "", rank.instrumentation), 1


def degraded_ranks(snapshot: Snapshot) -> dict[str, int]:
    """Return how many live ranks are degraded, by reason; each reason is there."""
    found = dict.fromkeys(TRAINING_DEGRADATIONS, 0)
    for rank in snapshot.ranks:
        for reason in rank.degraded if rank.processes else ():
            found[reason] += 1
    return found


TRAINING_READERS: dict[str, Reader] = {
    "gpu_training_info": _RANK.rows(_info),
    "gpu_training_steps_total": _TOTALS.one(lambda t: t.steps),
    "gpu_training_batches_total": _TOTALS.one(lambda t: t.batches),
    "gpu_training_samples_total": _TOTALS.one(lambda t: t.samples),
    "gpu_training_step_seconds_total": _TOTALS.one(lambda t: t.step_seconds),
    "gpu_training_run_seconds": _RANK.one(lambda r: r.run_seconds),
    "gpu_training_verified": _RANK.one(lambda r: None if r.verified is None else int(r.verified)),
    "gpu_training_phase_seconds_total": _TOTALS.by_label(lambda t: t.phase_seconds),
    "gpu_training_phase_gpu_idle_seconds_total": _TOTALS.by_label(
        lambda t: t.phase_gpu_idle_seconds
    ),
    "gpu_training_model_flops_total": _TOTALS.one(lambda t: t.model_flops),
    "gpu_training_prefetch_batches": _LOADERS.one(lambda each: each.ready_batches),
    "gpu_training_dataloader_workers": _LOADERS.one(lambda each: each.workers),
    "gpu_training_memory_bytes": _RANK.by_label(lambda r: r.memory_bytes),
    "gpu_training_processes": _RANK.one(lambda r: r.processes),
    "gpu_training_last_report_timestamp_seconds": _RANK.one(
        lambda r: r.last_report_timestamp_seconds
    ),
    "gpu_inferred_data_stall_lower_ratio": _SHARE.by_label(
        lambda s: {method: bounds.lower for method, bounds in s.data_stall.items()}
    ),
    "gpu_inferred_data_stall_upper_ratio": _SHARE.by_label(
        lambda s: {method: bounds.upper for method, bounds in s.data_stall.items()}
    ),
    "gpu_inferred_data_stall_lower_seconds_total": _SHARE_TOTALS.by_label(
        lambda t: t.data_stall_lower_seconds
    ),
    "gpu_inferred_data_stall_upper_seconds_total": _SHARE_TOTALS.by_label(
        lambda t: t.data_stall_upper_seconds
    ),
    "roofline_exporter_training_reports_total": _STATE.one(lambda s: s.reports_total),
    "roofline_exporter_training_rejected_total": _STATE.by_label(lambda s: s.rejected_total),
    "roofline_exporter_training_degraded": _REPORTED_TO.by_label(degraded_ranks),
}
