# SPDX-License-Identifier: Apache-2.0
"""Why a job waited, by its own evidence. Imported at the job's end."""

from __future__ import annotations

from .account import Account
from .causes import PAGE, filled, host_evidence, judged, workers_to_try

LEAST_LOOP_SECONDS = 2.0
"""What a shorter loop shows is its start."""
MOST_CAUSES = 2
_SECOND = 1_000_000_000


def why(account: Account) -> str:
    """Return the first known causes that a thread's totals show: ": the loader has ... . Set ...
    (URL)"; one of waits first, and none of a short loop."""
    if account.wall_ns < LEAST_LOOP_SECONDS * _SECOND:
        return ""
    evidence = job_evidence(account)
    found = [
        (cause, "data_wait_loss_ratio" in cause.numbers(evidence)) for cause in judged(evidence)[0]
    ]
    text = ""
    for cause, is_of_waits in sorted(found, key=lambda each: not each[1])[:MOST_CAUSES]:
        finding, advice = (filled(each, evidence) for each in (cause.finding, cause.advice))
        begins = f": {finding}" if is_of_waits and not text else f". {_up(finding)}"
        text += f"{begins}. {_up(advice)} ({PAGE}#{cause.slug})"
    return text


def _up(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def job_evidence(account: Account) -> dict[str, float]:
    """Return the evidence about a loop and its loader, by the names of the table."""
    idles_ns, phases_ns, wall_ns = account.times_ns()
    activity, host, loader = account.activity, account.activity.whole(), account.loader
    batches = account.counts.totals()[1]
    waited_ns, workers = phases_ns.get("data"), loader.get("workers")
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
        **host_evidence(host, host.get("workers") if workers is None else workers),
    }
    found["workers_to_try_count"] = workers_to_try(found)
    return {name: float(value) for name, value in found.items() if value is not None}


def _part(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole
