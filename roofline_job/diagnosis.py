# SPDX-License-Identifier: Apache-2.0
"""Why a job waited, by what it knows itself: the known causes that its numbers show.

``causes.json`` is made from the exporter's table (tests/derive/diagnosis/job_causes.py), and
`job_evidence`, `shown` and `filled` say the same as the exporter does. Imported at the job's end.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .account import Account

CAUSES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "causes.json")
PAGE = "https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/causes.md"
LEAST_LOOP_SECONDS = 2.0
"""What a shorter loop shows is its start."""
FIRST_WORKERS = 4
_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_SECOND = 1_000_000_000


class Shown(NamedTuple):
    """A cause that the evidence shows, in words."""

    slug: str
    finding: str
    advice: str
    evidence: dict[str, float]
    """The numbers that decided, and those that its texts name."""

    @property
    def address(self) -> str:
        """Return the address of its section of the documentation."""
        return f"{PAGE}#{self.slug}"

    @property
    def is_of_waits(self) -> bool:
        """Whether it explains why the loop waited for data."""
        return "data_wait_loss_ratio" in self.evidence


def causes(account: Account) -> list[Shown]:
    """Return the causes that a thread's totals show, with their evidence; first things first."""
    return shown(job_evidence(account)) if account.wall_ns >= LEAST_LOOP_SECONDS * _SECOND else []


def shown(evidence: Mapping[str, float]) -> list[Shown]:
    """Return the causes of which all conditions hold."""
    found = []
    for cause in table():
        conditions = [condition.split(" ") for condition in cause["when"]]
        if all(
            name in evidence and _RELATIONS[relation](evidence[name], float(limit))
            for name, relation, limit in conditions
        ):
            finding, advice = cause["finding"], cause["advice"]
            named = [name for name, _, _ in conditions]
            named += [name for name in evidence if f"{{{name}}}" in finding + advice]
            numbers = {name: evidence[name] for name in named}
            words = filled(finding, evidence), filled(advice, evidence)
            found.append(Shown(cause["slug"], *words, numbers))
    return found


@lru_cache(maxsize=1)
def table() -> list[dict[str, Any]]:
    """Return the rows of ``causes.json``."""
    with open(CAUSES, encoding="utf-8") as file:
        rows: list[dict[str, Any]] = json.load(file)
    return rows


def job_evidence(account: Account) -> dict[str, float]:
    """Return what is known of a loop and its loader, by the names of the table."""
    idles_ns, phases_ns, wall_ns = account.times_ns()
    activity, host, loader = account.activity, account.activity.whole(), account.loader
    batches = account.counts.totals()[1]
    waited_ns = phases_ns.get("data")
    found: dict[str, float | None] = {
        "data_wait_loss_ratio": _part(idles_ns.get("data", waited_ns), wall_ns),
        "data_wait_per_batch_seconds": _part(waited_ns, batches * _SECOND),
        "loader_start_of_loop_ratio": _part(activity.restart_ns, wall_ns) if loader else None,
        **{
            f"{phase}_of_loop_ratio": _part(activity.phase_ns.get(phase), activity.wall_ns)
            for phase in ("h2d", "checkpoint", "logging")
        },
        "checkpoints_count": activity.checkpoints,
        "pinned_memory": loader.get("pin_memory"),
        "persistent_workers": loader.get("persistent_workers"),
        **host_evidence(host, loader.get("workers")),
    }
    found["workers_to_try_count"] = workers_to_try(found)
    return {name: float(value) for name, value in found.items() if value is not None}


def host_evidence(host: Mapping[str, float], workers: float | None) -> dict[str, float | None]:
    """Return what the workers do as evidence; `workers` is the number that the loader states."""
    count = host.get("workers") if workers is None else workers
    cores, busy = host.get("cores"), host.get("cores_busy")
    return {
        "workers_count": count,
        "worker_running_ratio": host.get("worker_running_ratio"),
        "worker_blocked_ratio": host.get("worker_blocked_ratio"),
        "cores_count": cores,
        "free_cores": None if cores is None or busy is None else max(0.0, cores - busy),
        "workers_per_core_ratio": None if count is None or not cores else count / cores,
        "read_size_bytes": host.get("read_size_bytes"),
    }


def workers_to_try(found: Mapping[str, float | None]) -> float | None:
    """Return how many workers to try next: twice as many, as far as cores are free for them."""
    workers, cores, free = (
        found.get(name) for name in ("workers_count", "cores_count", "free_cores")
    )
    if workers is None:
        return None
    most = FIRST_WORKERS if cores is None else max(1.0, cores - 1)
    if not workers:
        return float(int(min(FIRST_WORKERS, most)))
    if cores is not None and workers > cores:
        return float(int(most))
    return float(int(min(2 * workers, workers + (free or 0.0))))


def filled(text: str, evidence: Mapping[str, float]) -> str:
    """Put evidence in its places, with its unit; the word more stands for what is not known."""
    return re.sub(
        r"\{(\w+)\}",
        lambda at: _number(at[1], evidence[at[1]]) if at[1] in evidence else "more",
        text,
    )


def _number(name: str, value: float) -> str:
    if name.endswith("_ratio") and not name.endswith("per_core_ratio"):
        percents = value * 100
        return f"{_fixed(percents, 0 if percents >= 9.95 or percents < 0.05 else 1)} %"
    if name.endswith("_bytes"):
        return f"{_fixed(value / 1e6, 1)} MB" if value >= 1e6 else f"{_fixed(value / 1e3, 0)} kB"
    return _fixed(value, 0 if value == int(value) else 1)


def _fixed(value: float, digits: int) -> str:
    scale: float = 10**digits
    return f"{math.floor(value * scale + 0.5) / scale:.{digits}f}"


def _part(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole
