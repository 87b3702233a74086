# SPDX-License-Identifier: Apache-2.0
"""The causes that a job judges itself, as the exporter would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.diagnosis import evaluate
from exporter.derive.diagnosis import evidence as exporters
from exporter.model.causes import JOB_CAUSES
from exporter.model.diagnosis import Diagnosis, HostActivity
from exporter.web.wording import diagnosis as wording
from roofline_job import diagnosis
from tests.derive.diagnosis.job_causes import job_causes
from tests.derive.diagnosis.test_causes import NAMED

NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 4.0]) | st.floats(0.0, 2.0) | st.floats(1e3, 1e7)
HOST = {
    "workers": st.integers(0, 64),
    "worker_running_ratio": st.floats(0.0, 1.0),
    "worker_blocked_ratio": st.floats(0.0, 1.0),
    "cores": st.floats(0.1, 128.0),
    "cores_busy": st.floats(0.0, 128.0),
    "read_size_bytes": st.floats(0.0, 1e9),
}


def test_the_copy_is_current() -> None:
    """`make docs` writes it."""
    assert Path(diagnosis.CAUSES).read_text(encoding="utf-8") == job_causes()


@given(st.dictionaries(st.sampled_from(NAMED), NUMBERS))
def test_a_job_judges_and_says_what_the_exporter_does(found: dict[str, float]) -> None:
    """From the same evidence: causes, words, addresses and numbers."""
    of_job = [cause for cause in evaluate.judged(found)[0] if cause in JOB_CAUSES]
    expected = []
    for cause in of_job:
        numbers = evaluate.numbers_of(cause, found)
        said = Diagnosis(cause=cause.slug, evidence=numbers)
        texts = wording.said(said)
        expected.append((cause.slug, *texts, numbers, wording.address(cause.slug)))
    assert [(*each, each.address) for each in diagnosis.shown(found)] == expected
    assert [row["slug"] for row in diagnosis.table()] == [cause.slug for cause in JOB_CAUSES]


@given(st.fixed_dictionaries({}, optional=HOST), st.none() | st.integers(0, 64))
def test_it_reads_its_host_as_the_exporter_does(found: dict[str, Any], workers: int | None) -> None:
    """The same evidence, and the same number of workers to try."""
    host = HostActivity(method="client", seconds=1.0, **found)
    theirs = exporters.host_evidence(host, workers)
    ours = diagnosis.host_evidence(found, workers)
    assert ours == {name: theirs[name] for name in ours}
    assert diagnosis.workers_to_try(ours) == exporters.workers_to_try(theirs)
