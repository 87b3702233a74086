# SPDX-License-Identifier: Apache-2.0
"""A diagnosis in words: finding, advice, cost, and missing evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from exporter.model.causes import CAUSES
from exporter.model.snapshot import Diagnosis
from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import capitalised, fixed
from roofline_job.causes import PAGE, filled

_CAUSES = {cause.slug: cause for cause in CAUSES}


def said(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return finding and advice, the latter as it would be typed, both without a full stop.

    Where a number is not known, the word more stands for it.
    """
    slug, evidence = diagnosis.cause, diagnosis.evidence
    if slug not in _CAUSES:  # of a newer daemon
        return slug.replace("_", " "), "see its documentation"
    return filled(_CAUSES[slug].finding, evidence), filled(_CAUSES[slug].advice, evidence)


def sentence(diagnosis: Diagnosis) -> str:
    """Return finding and advice as two sentences."""
    return " ".join(f"{capitalised(each)}." for each in said(diagnosis))


def sentences(diagnosis: Diagnosis) -> str:
    """Return these, and what could be recovered: "Recoverable so far: 0.81 to 1.10 GPU-hours."

    That is left out if it is not known, or rounds to 0.00.
    """
    bounds = diagnosis.recoverable_lower_seconds, diagnosis.recoverable_upper_seconds
    lower, upper = (fixed((seconds or 0.0) / 3600.0, 2) for seconds in bounds)
    if upper == "0.00":
        return sentence(diagnosis)
    least = "at most " if lower == "0.00" else "" if lower == upper else f"{lower} to "
    return f"{sentence(diagnosis)} Recoverable so far: {least}{upper} GPU-hours."


def address(cause: str) -> str:
    """Return the address of a cause's section of the documentation."""
    return f"{PAGE}#{cause}"


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
