# SPDX-License-Identifier: Apache-2.0
"""How much of their time training jobs wait for data, checkpoints and each other."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.model import (
    Dashboard,
    Lines,
    Panel,
    Query,
    Row,
    Step,
    Values,
    colored,
)
from dashboards.numbers import Number, numbers
from dashboards.promql import (
    DEVICE,
    NODES,
    RANKS,
    model_flops_utilization,
    phase,
    rate,
    select,
    stalled,
)
from dashboards.tables import WHICH_GPU, Column, table

MODERATE, HIGH = 0.05, 0.2
"""Shares of the step above which a data stall is worth a look, and an alert."""
STALL_STEPS: tuple[Step, ...] = (
    (None, palette.GREEN),
    (MODERATE, palette.AMBER),
    (HIGH, palette.RED),
)
STALL_LINES: tuple[Step, ...] = (
    (None, "transparent"),
    (MODERATE, palette.AMBER),
    (HIGH, palette.RED),
)
MFU_STEPS: tuple[Step, ...] = ((None, palette.GREY), (0.3, palette.AMBER), (0.4, palette.GREEN))
RANK = f"training_job, rank, {DEVICE}"
ONE_RANK = "{{training_job}} rank {{rank}}"

STEP_RATE = rate("gpu_training_steps_total", RANKS)
STEP_TIME = f"{rate('gpu_training_step_seconds_total', RANKS)} / ({STEP_RATE} > 0)"
ALIVE = select("gpu_training_steps_total", RANKS)


HEAD = numbers(
    "Now",
    "What the chosen jobs do.",
    (
        Number(
            "jobs",
            "training jobs that report. None: see how a job is instrumented.",
            f"count(count by (training_job) ({ALIVE}))",
            color=palette.BLUE,
        ),
        Number(
            "ranks",
            "of these jobs, one for each GPU as a rule.",
            f"count({ALIVE})",
            color=palette.BLUE,
        ),
        Number(
            "jobs starved",
            "their slowest rank waits for data with an idle GPU more than 20 % of the time. A job "
            "is as slow as that rank.",
            f"sum((max by (training_job) ({stalled()})) > bool {HIGH})",
            steps=((None, palette.GREEN), (1, palette.STALLED)),
        ),
        Number(
            "worst data stall",
            "the largest share of a step in which a GPU sat idle because its job waited for data. "
            "Below 5 % is fine, above 20 % is the first thing to fix.",
            f"max({stalled()})",
            unit="percentunit",
            steps=STALL_STEPS,
        ),
        Number(
            "GPUs lost to data",
            "the stalls of all ranks added up: as many GPUs as better data loading would give.",
            f"sum({stalled()})",
            decimals=1,
            color=palette.STALLED,
        ),
        Number(
            "samples per second",
            "of all chosen jobs that report the size of their batches.",
            f"sum({rate('gpu_training_samples_total', RANKS)})",
            color=palette.BLUE,
        ),
    ),
)


def _ranks() -> Panel:
    def by_rank(expression: str) -> str:
        return f"max by ({RANK}) ({expression})"

    gpu = f"max by (job, instance, uuid, gpu) ({select('gpu_info', NODES)})"
    chart, queries, steps, overrides = table(
        (
            Column("Job", label="training_job", link=navigation.job_of_row("Job")),
            Column("Rank", label="rank", width=60),
            *WHICH_GPU,
            Column(
                "Data stall",
                expression=f"{by_rank(stalled())} "
                f"* on (job, instance, uuid) group_left (gpu) {gpu}",
                unit="percentunit",
                decimals=0,
                width=115,
                steps=STALL_STEPS,
            ),
            Column(
                "Host wait",
                expression=by_rank(phase("data")),
                unit="percentunit",
                decimals=0,
                width=115,
            ),
            Column(
                "Checkpoint",
                expression=by_rank(phase("checkpoint")),
                unit="percentunit",
                decimals=1,
                width=115,
            ),
            Column("Step time", expression=by_rank(STEP_TIME), unit="s", decimals=0, width=115),
            Column(
                "MFU",
                expression=by_rank(model_flops_utilization()),
                unit="percentunit",
                decimals=0,
                width=115,
                steps=MFU_STEPS,
            ),
            Column(
                "Ready batches",
                expression=by_rank(select("gpu_training_prefetch_batches", RANKS)),
                unit="none",
                width=115,
            ),
            Column(
                "Workers",
                expression=by_rank(select("gpu_training_dataloader_workers", RANKS)),
                unit="none",
                width=90,
            ),
            Column(
                "On its GPU",
                expression=by_rank(select("gpu_training_verified", RANKS)),
                texts={"1": ("yes", "transparent"), "0": ("not listed", palette.AMBER)},
                width=100,
            ),
        ),
        sort_by="Data stall",
    )
    return Panel(
        "All ranks",
        "Each rank, the most starved first. Data stall: its GPU was idle while it waited for "
        "data. Host wait: the loop waited, whether or not the GPU still had work. A high wait "
        "with a low stall is hidden by prefetching and costs nothing. No ready batches and a high "
        "stall: more workers, cheaper transforms, faster storage. Not listed: the driver does not "
        "show the rank's process on that GPU, so only its own report says that it is there.",
        chart,
        Values("none"),
        queries,
        width=24,
        height=8,
        overrides=overrides,
        transformations=steps,
    )


def _causes() -> Panel:
    shown, up = select("gpu_diagnosis", NODES), select("gpu_up", NODES)
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Cause", label="cause", link=navigation.CAUSE_OF_ROW),
            Column(
                "Of the range",
                expression=f"max by ({DEVICE}, gpu, cause) (count_over_time({shown}[$__range]))"
                " / on (job, instance, uuid) group_left ()"
                f" max by (job, instance, uuid) (count_over_time({up}[$__range]))",
                unit="percentunit",
                decimals=0,
                width=115,
            ),
        ),
        sort_by="Of the range",
    )
    return Panel(
        "Known causes",
        "Why GPUs of the chosen nodes are slow, as far as the evidence shows it, and in which part "
        "of the time range. docs/causes.md says what to change. No row: no known cause showed.",
        chart,
        Values("none"),
        queries,
        width=24,
        height=6,
        overrides=overrides,
        transformations=steps,
    )


STALL = Panel(
    "Data stall, by rank",
    "Share of the loop's time in which the GPU sat idle because its job waited for data. Below "
    "the amber line (5 %) is fine, above the red one (20 %) input limits the job and an alert "
    "follows.",
    Lines(thresholds_drawn=True),
    Values("percentunit", 0, 1, steps=STALL_LINES),
    (Query(stalled(), ONE_RANK),),
)
WAIT = Panel(
    "Host wait beside exposed stall",
    "Means of the chosen ranks; choose one job for its own. Pale: the loop waited for data (W). "
    "Strong: the GPU was idle meanwhile (S). Both are of the ranks whose S is measured; if it "
    "is of none, W is of all. Faster loading gains S; the rest of W is hidden by prefetching.",
    Lines(fill=30),
    Values("percentunit", 0, 1),
    (
        Query(
            f"avg({phase('data')} and on ({RANK}) {stalled()}) or avg({phase('data')})",
            "host wait",
        ),
        Query(f"avg({stalled()})", "exposed stall"),
    ),
    overrides=colored({"host wait": palette.WAITED, "exposed stall": palette.STALLED}),
)
PHASES = Panel(
    "Step time by phase: $training_job",
    "Mean seconds of a step, by what the host did. Data that grows while the rest stays: the "
    "loader falls behind. Phases that nothing measures are not shown.",
    Lines(fill=80, width=0, stacked="normal"),
    Values("s", 0),
    (
        Query(
            f"sum by (phase) ({rate('gpu_training_phase_seconds_total', RANKS)})"
            f" / on () group_left () (sum({STEP_RATE}) > 0) > 0",
            "{{phase}}",
        ),
    ),
    width=6,
    overrides=colored(palette.PHASES),
    repeat="training_job",
)


def _lines(
    title: str,
    description: str,
    expression: str,
    values: Values,
    legend: str = ONE_RANK,
    soft_maximum: float | None = None,
) -> Panel:
    chart = Lines(width=1, soft_maximum=soft_maximum)
    return Panel(title, description, chart, values, (Query(expression, legend),), width=8)


MEDIAN_STALL = f"quantile by (job, training_job) (0.5, {stalled()})"
STRAGGLERS = _lines(
    "Stragglers: stall above the job's median",
    "How much more of its time each rank waits for data than the median rank of its job. One rank "
    "above 5 %: its node's storage, network or CPUs, not the job. All at 0: no straggler.",
    f"({stalled()}) - on (job, training_job) group_left () {MEDIAN_STALL}",
    Values("percentunit", steps=((None, "transparent"), (MODERATE, palette.AMBER))),
    soft_maximum=0.1,
)
STEP = _lines(
    "Step time",
    "Mean seconds of a step. A rise without a change of the job: look which phase grew.",
    STEP_TIME,
    Values("s", 0),
)
SPEED = _lines(
    "Samples per second, by job",
    "What the job delivers, all ranks together.",
    f"sum by (training_job) ({rate('gpu_training_samples_total', RANKS)})",
    Values("suffix:/s", 0),
    "{{training_job}}",
)
MFU = _lines(
    "MFU",
    "Operations that the model needs against the datasheet peak at the job's precision; "
    "recomputation does not count. 40 % and more is good for large models. Only where the job "
    "states its FLOPs and its precision is known.",
    model_flops_utilization(),
    Values("percentunit", 0),
)
DEPTH = _lines(
    "Ready batches",
    "Batches that lay ready when the loop asked. At 0 the loader is the bottleneck; full while "
    "the GPU idles: it is not.",
    select("gpu_training_prefetch_batches", RANKS),
    Values("none", 0),
)
WORKERS = _lines(
    "Loader workers",
    "Worker processes of the data loader. 0 loads in the loop itself: start with 2 to 4 for each "
    "GPU.",
    select("gpu_training_dataloader_workers", RANKS),
    Values("none", 0),
)
OTHER_STALLS = _lines(
    "Checkpoint and logging",
    "Share of the loop spent in checkpoints and logging, of the slowest rank. Above 5 % for "
    "checkpoints: save less often or asynchronously.",
    f"max by (training_job, phase) ("
    f"{rate('gpu_training_phase_seconds_total', RANKS, phase='checkpoint|logging')}"
    f" / on ({RANK}) group_left () ({rate('gpu_training_step_seconds_total', RANKS)} > 0))",
    Values("percentunit", 0, steps=((None, "transparent"), (MODERATE, palette.AMBER))),
    "{{training_job}} {{phase}}",
)
ALLOCATOR = _lines(
    "Allocator memory",
    "Device memory as the framework counts it. Reserved far above allocated: fragmentation. Peak "
    "far below the GPU's memory: a larger batch fits.",
    select("gpu_training_memory_bytes", RANKS),
    Values("bytes", 0),
    "{{training_job}} rank {{rank}} {{kind}}",
)
REPORTS = _lines(
    "Age of the last report",
    "How long ago each rank reported. Growing: the job hangs, or is in one very long step or wait.",
    f"time() - {select('gpu_training_last_report_timestamp_seconds', RANKS)}",
    Values("s", 0),
)

PAGE = Dashboard(
    navigation.TRAINING,
    "GPU training stalls",
    "How much of their time training jobs wait for data, checkpoints and each other.",
    navigation.RANK_SCOPE,
    (HEAD, _ranks(), _causes(), STALL, WAIT, PHASES),
    (
        Row("Speed", (STEP, SPEED, MFU)),
        Row("Data loading", (DEPTH, WORKERS, STRAGGLERS)),
        Row("Checkpoints, memory, reports", (OTHER_STALLS, ALLOCATOR, REPORTS)),
    ),
)
