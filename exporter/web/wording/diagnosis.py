# SPDX-License-Identifier: Apache-2.0
"""A diagnosis in words: what is seen, what to change, what it costs, and what is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter.model.causes import CAUSES, Cause
from exporter.model.diagnosis import Diagnosis
from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import capitalised, fixed, percent
from exporter.web.wording.summary import DOCUMENTATION

_CAUSES: Mapping[str, Cause] = {cause.slug: cause for cause in CAUSES}
_NAME = re.compile(r"\{(\w+)\}")
_SECONDS_PER_HOUR = 3600.0
LEAST_SECONDS = 36.0
"""A hundredth of an hour."""


def finding(diagnosis: Diagnosis) -> str:
    """Return what is seen, without a full stop: "the loader has no workers (num_workers=0): …"."""
    return _filled(_row(diagnosis).finding, diagnosis.evidence)


def advice(diagnosis: Diagnosis) -> str:
    """Return what to change, as it would be typed: "set num_workers=4 …"."""
    return _filled(_row(diagnosis).advice, diagnosis.evidence)


def sentence(diagnosis: Diagnosis) -> str:
    """Return what is seen and what to change, as two sentences."""
    return f"{capitalised(finding(diagnosis))}. {capitalised(advice(diagnosis))}."


def address(cause: str) -> str:
    """Return the address of a cause's section of the documentation."""
    return f"{DOCUMENTATION}/blob/main/docs/causes.md#{cause}"


def cost(diagnosis: Diagnosis) -> str:
    """Return what could be recovered of the time so far: "0.8 to 1.1 GPU-hours".

    It is "" if that is not known, or less than a hundredth of an hour.
    """
    lower, upper = diagnosis.recoverable_lower_seconds, diagnosis.recoverable_upper_seconds
    if upper is None or upper < LEAST_SECONDS:
        return ""
    low, high = _hours(lower or 0.0), _hours(upper)
    if low == high:
        return f"{high} GPU-hours"
    return f"{low} to {high} GPU-hours" if lower else f"at most {high} GPU-hours"


def explained(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis in lines: what is seen, what to change, the evidence, the cost."""
    evidence = ", ".join(
        f"{name} {shown(name, value)}" for name, value in diagnosis.evidence.items()
    )
    costs = cost(diagnosis)
    return [
        sentence(diagnosis),
        *([f"evidence: {evidence}"] if evidence else []),
        *([f"recoverable so far: {costs}"] if costs else []),
        address(diagnosis.cause),
    ]


def causes(found: Iterable[Facts], label: Callable[[Facts], str]) -> list[str]:
    """Return one line for each GPU that shows a cause: its first one, and what to change."""
    lines = []
    for each in found:
        if each.diagnoses:
            others = len(each.diagnoses) - 1
            more = f" ({others} more: roofline-exporter why)" if others else ""
            lines.append(f"{label(each)}: {sentence(each.diagnoses[0])}{more}")
    return lines


def not_known(missing_evidence: Sequence[str]) -> str:
    """Return why no cause can be told: "not known why: the states …"; "" if nothing is missing."""
    if "worker_running_ratio" in missing_evidence:
        return (
            "not known why: the states of its workers cannot be read;"
            " a job that is started with roofline-exporter run -- sees them itself"
        )
    return f"not known why: {', '.join(missing_evidence)} unknown" if missing_evidence else ""


def shown(name: str, value: float) -> str:
    """Return a piece of evidence with its unit, which its name ends with."""
    if name.endswith("_ratio") and not name.endswith("per_core_ratio"):
        return percent(value)
    if name.endswith("_seconds"):
        return f"{fixed(value * 1e3, 1)} ms"
    if name.endswith("_bytes"):
        return f"{fixed(value / 1e6, 1)} MB" if value >= 1e6 else f"{fixed(value / 1e3, 0)} kB"
    return fixed(value, 0) if value == int(value) else fixed(value, 1)


def _row(diagnosis: Diagnosis) -> Cause:
    slug = diagnosis.cause  # that of a newer daemon is not in the table
    return _CAUSES.get(slug) or Cause(slug, (), slug.replace("_", " "), "see its documentation")


def _filled(text: str, evidence: Mapping[str, float]) -> str:
    """Put evidence in its places; where a number is not known, the word more stands for it."""
    return _NAME.sub(
        lambda found: shown(found[1], evidence[found[1]]) if found[1] in evidence else "more", text
    )


def _hours(seconds: float) -> str:
    hours = seconds / _SECONDS_PER_HOUR
    return fixed(hours, 0 if hours >= 9.95 else 1 if hours >= 0.95 else 2)
