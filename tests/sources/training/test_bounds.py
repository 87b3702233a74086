# SPDX-License-Identifier: Apache-2.0
"""No process does more than time allows, however fast it is."""

from __future__ import annotations

import pytest

from exporter.model.training import TrainingTotals
from exporter.sources.training.ledger import check_age, check_growth
from exporter.sources.training.refusals import Rejected

HOUR = 3600.0


@pytest.mark.parametrize(
    ("totals", "message"),
    [
        (TrainingTotals(step_seconds=1e18), "step_seconds: 1e+18 is too much, its process has 378"),
        (TrainingTotals(step_seconds=3786.0), "step_seconds: 3786 is too much"),
        (TrainingTotals(steps=1e18), "steps: 1e+18 is too much, at most 1e+06 a second"),
        (TrainingTotals(batches=4e9), "batches: 4e+09 is too much, at most 1e+06 a second"),
        (TrainingTotals(samples=4e13), "samples: 4e+13 is too much, at most 1e+10 a second"),
        (TrainingTotals(model_flops=4e21), "model_flops: 4e+21 is too much, at most 1e+18 a"),
    ],
)
def test_totals_are_bounded_by_the_age_of_the_process(totals: TrainingTotals, message: str) -> None:
    """The message says which total, and why."""
    with pytest.raises(Rejected) as refused:
        check_age(totals, HOUR)

    assert refused.value.reason == "implausible"
    assert str(refused.value).startswith(message)


def test_what_a_job_can_do_is_taken() -> None:
    """Its clock may be a little faster, and it may have begun within the tick of its start."""
    check_age(TrainingTotals(step_seconds=1.05 * HOUR + 4.9, steps=3e9, model_flops=3e21), HOUR)
    check_age(TrainingTotals(step_seconds=4.9), 0.0)
    check_age(TrainingTotals(step_seconds=4.9), -0.01)


def test_loop_time_grows_no_faster_than_time() -> None:
    """Since the first report: one that waited in the queue may come late by a minute."""
    check_growth(60.0, 0.0)
    check_growth(1.05 * HOUR + 60.0, HOUR)
    with pytest.raises(Rejected, match=r"61 is too much, 0 s after the first report"):
        check_growth(61.0, 0.0)
    with pytest.raises(Rejected, match="step_seconds: 4000 is too much"):
        check_growth(4000.0, HOUR)
