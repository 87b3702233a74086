# SPDX-License-Identifier: Apache-2.0
"""The jobs on a GPU: what each did lately, as shares of its steps, in words and a bar."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from exporter.snapshot import Rank
from exporter.web.gpu_jobs import SHOWN_RANKS, gpu_jobs, job_phases, job_words
from tests import snapshots

NOW = snapshots.rank_on_gpu()
BEFORE = replace(
    NOW,
    totals=replace(
        NOW.totals,
        steps=NOW.totals.steps - 41,
        step_seconds=NOW.totals.step_seconds - 10,
        phase_seconds={"data": 152.0, "checkpoint": 12.5, "logging": 2.5, "h2d": 4.0},
        phase_gpu_idle_seconds={
            **NOW.totals.phase_gpu_idle_seconds,
            "data": NOW.totals.phase_gpu_idle_seconds["data"] - 2.1,
        },
    ),
    last_report_timestamp_seconds=NOW.last_report_timestamp_seconds - 10,
)


def html(*ranks: Rank, earlier: tuple[Rank, ...] = ()) -> str:
    return gpu_jobs(ranks, earlier, snapshots.h100_training().device.uuid, None)


def test_what_a_rank_did_lately() -> None:
    """Phases are shares of the step time since an earlier picture, steps are per second."""
    assert job_phases(NOW, BEFORE) == pytest.approx({"data": 0.3, "h2d": 0.1})
    assert job_words(NOW, BEFORE) == (
        "in the last 10 s: GPU idle for its data 21 % of the time (high), waits for data 30 %, "
        "4.1 steps/s"
    )


def test_words_and_bar_are_of_the_same_seconds() -> None:
    """What a report said of its own moment is only told while there is nothing else."""
    assert job_words(NOW, None) == (
        "GPU idle for its data 24 % of the time (high), waits for data 31 %"
    )
    unmeasured = replace(NOW, totals=replace(NOW.totals, phase_gpu_idle_seconds={}))
    assert "idle" not in job_words(unmeasured, BEFORE)


@pytest.mark.parametrize("before", [None, NOW])
def test_without_an_earlier_picture(before: Rank | None) -> None:
    """Nothing is made up of the phases and of the rate."""
    assert job_phases(NOW, before) == {}
    assert "steps/s" not in job_words(NOW, before)


def test_the_oldest_picture_counts() -> None:
    """The bar and its legend show the phases since then, one beside the other."""
    text = html(NOW, earlier=(NOW, BEFORE))
    assert "<b>resnet rank 0</b>" in text
    bars = re.findall(r'<rect class="phase ([a-z0-9-]+)" x="([0-9.]+)" width="([0-9.]+)"', text)
    assert bars == [("series-0", "0.00", "30.00"), ("series-1", "30.00", "10.00")]
    assert "data 30 %" in text


def test_many_ranks_on_one_gpu_are_counted() -> None:
    """Four are shown; those without a live process are not there."""
    ranks = [replace(NOW, rank=number) for number in range(7)]
    text = html(*ranks, replace(NOW, job="ended", processes=0))
    assert re.findall(r"rank (\d)", text) == [str(number) for number in range(SHOWN_RANKS)]
    assert "and 3 more ranks" in text
    assert "ended" not in text


def test_a_gpu_without_jobs_says_nothing() -> None:
    """No empty section, also not for a job on another GPU."""
    assert html() == ""
    assert gpu_jobs((NOW,), (), "GPU-other", None) == ""


def test_names_of_jobs_are_text() -> None:
    """And cut."""
    text = html(replace(NOW, job="<script>" + "y" * 4096))
    assert "<script>" not in text
    assert "&lt;script&gt;y" in text
    assert "y" * 100 not in text
