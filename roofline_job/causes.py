# SPDX-License-Identifier: Apache-2.0
"""The known causes that a job can judge itself, as data; how causes are judged, and said.

A row is shown where all its conditions hold; the evidence that they name must be known. Conditions
exclude the neighbours of a cause; several causes may hold at once. The first rows are shown first.
A job reads this at its end; the daemon has more rows (``exporter/model/causes.py``).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

PAGE = "https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/causes.md"
FIRST_WORKERS = 4
"""The number of workers to begin with (stas00/ml-engineering, dataloader)."""
Condition = tuple[str, Callable[[float, float], bool], float]
"""Evidence, relation and limit."""
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}

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


@dataclass(frozen=True)
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

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """All that must hold."""
        return tuple(map(condition, self.when))

    def numbers(self, evidence: Mapping[str, float]) -> dict[str, float]:
        """Return the numbers that decided, and those that its texts name."""
        texts = self.finding + self.advice
        named = [name for name, _, _ in self.conditions]
        named += [name for name in evidence if f"{{{name}}}" in texts]
        return {name: evidence[name] for name in named if name in evidence}


def condition(text: str) -> Condition:
    """Read ``workers_count == 0``: evidence, relation, and a number or a threshold's name.

    Raises:
        KeyError: there is no such relation or threshold.
        ValueError: these are not three words.
    """
    name, relation, limit = text.split(" ")
    return name, _RELATIONS[relation], THRESHOLDS[limit] if limit in THRESHOLDS else float(limit)


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


def judged(
    evidence: Mapping[str, float], causes: Iterable[Cause] = JOB_CAUSES
) -> tuple[list[Cause], list[str]]:
    """Return the causes that the evidence shows, and what is missing.

    Evidence is by name; what is not known is absent. Missing is, where something waits for data and
    no cause is shown, what would have to be known to tell why. A cause that is excluded by what is
    known needs no more evidence.
    """
    shown, missing = [], dict[str, None]()
    for cause in causes:
        unknown = []
        for name, holds, limit in cause.conditions:
            value = evidence.get(name)
            if value is not None:
                if not holds(value, limit):
                    break
            elif cause.when[0] != WAITS_FOR_DATA or name == cause.conditions[0][0]:
                break
            else:
                unknown.append(name)
        else:
            if not unknown:
                shown.append(cause)
            missing.update(dict.fromkeys(unknown))
    return shown, [] if shown else list(missing)


def host_evidence(
    host: Mapping[str, float | None], workers: float | None
) -> dict[str, float | None]:
    """Return the evidence about workers from the host part of a report; `workers` is their
    number."""
    cores, busy = host.get("cores"), host.get("cores_busy")
    same = ("worker_running_ratio", "worker_blocked_ratio", "read_size_bytes")
    return {
        "workers_count": workers,
        "cores_count": cores,
        "free_cores": None if cores is None or busy is None else max(0.0, cores - busy),
        "workers_per_core_ratio": None if workers is None or not cores else workers / cores,
        **{name: host.get(name) for name in same},
    }


def workers_to_try(found: Mapping[str, float | None]) -> float | None:
    """Return how many workers to try next: twice as many, as far as cores are free for them."""
    workers, cores, free = (
        found.get(name) for name in ("workers_count", "cores_count", "free_cores")
    )
    if workers is None:
        return None
    most = FIRST_WORKERS if cores is None else max(1.0, cores - 1)  # one is for the loop
    wanted = min(2 * workers, workers + (free or 0.0)) if workers else min(FIRST_WORKERS, most)
    return float(int(most if cores is not None and workers > cores else wanted))


def filled(text: str, evidence: Mapping[str, float]) -> str:
    """Put evidence in its places, with its unit; the word more stands for what is not known."""
    said = {name: shown(name, value) for name, value in evidence.items()}
    return re.sub(r"\{(\w+)\}", lambda at: said.get(at[1], "more"), text)


def shown(name: str, value: float) -> str:
    """Return a piece of evidence with its unit, which its name ends with."""
    if name.endswith("_ratio") and not name.endswith("per_core_ratio"):
        return percent(value)
    if name.endswith("_seconds"):
        return f"{fixed(value, 0)} s" if value >= 10 else f"{fixed(value * 1e3, 1)} ms"
    if name.endswith("_bytes"):
        return f"{fixed(value / 1e6, 1)} MB" if value >= 1e6 else f"{fixed(value / 1e3, 0)} kB"
    return fixed(value, 0 if value == int(value) else 1)


def percent(ratio: float) -> str:
    """Return a ratio as percents, with a digit more where that is small: 61 %, 2.4 %, 0 %."""
    percents = ratio * 100
    return f"{fixed(percents, 0 if percents >= 9.95 or percents < 0.05 else 1)} %"


def fixed(value: float, digits: int) -> str:
    """Return a number with so many digits after the point, rounded half up."""
    scale: float = 10**digits
    return f"{math.floor(value * scale + 0.5) / scale:.{digits}f}"
