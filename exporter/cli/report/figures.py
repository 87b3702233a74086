# SPDX-License-Identifier: Apache-2.0
"""From the answers of Prometheus to the numbers of the report; docs/report.md explains each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from exporter.cli.report.queries import HOUR, LABEL, Range, Sample

WORST = 10

K = TypeVar("K", str, tuple[str, ...])
Labels = Mapping[str, str]
Answers = Mapping[str, Sequence[Sample]]
"""By the name of the figure."""
Figures = dict[str, Any]
"""Numbers by name, as the JSON has them; what is not known is not there."""


def report(answers: Answers, by: str, at: Range) -> Figures:
    """Return the report; besides the figures, `answers` has "steps" and "prices"."""
    price_of = {of["name"]: price for of, price in answers["prices"]}
    steps = {of["end"]: seen for of, seen in answers["steps"]}
    of_bucket = dict(_split(answers, lambda of: of["end"]))

    def whose(labels: Labels) -> str:
        return _model(labels) if by == "model" else labels.get(LABEL[by], "")

    known = partial(_figures, price_of)
    lost = {figure: answers[figure] for figure in ("held_idle", "unopened")}
    rows = [known(part, name=name) for name, part in _split(answers, whose)]
    gpus = [
        known(part, name=name, instance=instance, gpu=gpu)
        for (name, instance, gpu), part in _split(lost, lambda of: (whose(of), *_gpu(of)))
    ]
    rows.sort(key=lambda row: (not row["name"], -row.get("allocated_gpu_hours", 0.0)))
    gpus.sort(key=lambda gpu: -gpu["lost_gpu_hours"])
    return {
        "by": by,
        "start": at.start,
        "end": at.end,
        "observed_ratio": sum(steps.values()) * at.step_seconds / (at.end - at.start),
        "currency": next((of.get("currency", "") for of, _ in answers["prices"]), ""),
        "gpus": len({_gpu(of) for of, _ in answers["held_idle"]}),
        "total": known(answers, name="all"),
        "rows": [row for row in rows if "observed_gpu_hours" in row],
        "worst": [gpu for gpu in gpus[:WORST] if gpu["lost_gpu_hours"]],
        "buckets": [
            known(of_bucket.get(str(end), {}), end=end)
            for end in range(at.start + at.bucket_seconds, at.end + 1, at.bucket_seconds)
        ],
    }


def _model(labels: Labels) -> str:
    """Return the GPU model; an instance of it has a price of its own."""
    return f"{labels.get('name', '')}{' MIG' if labels.get('gpu_instance') else ''}"


def _gpu(labels: Labels) -> tuple[str, str]:
    """Return the node, and the GPU or MIG instance there."""
    names = (labels.get("gpu", ""), labels.get("gpu_instance", ""))
    return labels.get("instance", ""), "/".join(filter(None, names))


def _split(answers: Answers, key: Callable[[Labels], K]) -> Iterable[tuple[K, Answers]]:
    """Return the part of the answers for each key."""
    parts: dict[K, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for figure, found in answers.items():
        for sample in found:
            parts[key(sample.labels)][figure].append(sample)
    return parts.items()


def _figures(price_of: Mapping[str, float], answers: Answers, **more: object) -> Figures:
    """Return the figures of a part of the answers, and the notes on them."""

    def hours(figure: str, key: Callable[[Labels], str] = _model) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for labels, amount in answers.get(figure, ()):
            sums[key(labels)] += amount / HOUR
        return dict(sorted(sums.items(), key=lambda each: -each[1]))

    def by(label: str, figure: str) -> dict[str, float]:
        found = hours(figure, lambda labels: labels.get(label, ""))
        return {name: each for name, each in found.items() if each}

    def cost(of: Mapping[str, float]) -> dict[str, float]:
        return {model: of[model] * price_of[model] for model in of.keys() & price_of}

    observed, idle = hours("limited"), hours("idle")
    held, unopened = hours("held_idle"), hours("unopened")
    lost = {name: held.get(name, 0.0) + unopened.get(name, 0.0) for name in held | unopened}
    used = {name: max(0.0, observed[name] - idle[name]) for name in observed.keys() & idle}
    allocated = {name: used[name] + lost.get(name, 0.0) for name in used}
    free = max(0.0, sum(idle.values()) - sum(lost.values()))
    limited = by("limiter", "limited")
    if "idle" in limited:  # free time is lost to nobody
        limited["idle"] = max(0.0, limited["idle"] - free)
    sums: dict[str, Mapping[str, float]] = {
        "observed_gpu_hours": observed,
        "allocated_gpu_hours": allocated,
        "used_gpu_hours": used,
        "held_idle_gpu_hours": held,
        "unopened_gpu_hours": unopened,
        "lost_gpu_hours": lost,
        "free_gpu_hours": {"": free} if used else {},
        "cost": cost(allocated),
        "lost_cost": cost(lost),
        "priced_gpu_hours": {model: allocated[model] for model in allocated.keys() & price_of},
        "energy_joules": hours("joules"),
        "energy_joules_from_power": hours("joules_from_power"),
    }
    units = {name: HOUR if "joules" in name else 1 for name in sums}
    known: Figures = {
        name: sum(found.values()) * units[name] for name, found in sums.items() if found
    }
    apart = {"limited": limited, "cause": by("cause", "caused")}
    for bound in ("lower", "upper"):
        apart[f"stalled_{bound}"] = by("phase", f"stalled_{bound}")
        if judged := sum(hours("judged").values()):
            saturated = sum(hours(f"saturated_{bound}").values())
            known[f"saturation_{bound}_ratio"] = saturated / judged
    return more | known | {f"{name}_gpu_hours": found for name, found in apart.items() if found}
