# SPDX-License-Identifier: Apache-2.0
"""The jobs on a GPU: what each did in the last seconds, as shares of its steps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from exporter.model.snapshot import Rank
from exporter.web.page.jobs import SHOWN_RANKS, gpu_jobs, job_phases, job_rate, job_stall
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


def test_what_a_rank_did_in_the_last_seconds() -> None:
    """Phases are shares of the step time since an earlier snapshot, whose age is shown."""
    assert job_phases(NOW, BEFORE) == pytest.approx({"data": 0.3, "h2d": 0.1})
    assert job_rate(NOW, BEFORE) == "4.1 steps/s in the 10 s up to its last report"
    for before in (None, NOW):
        assert (job_phases(NOW, before), job_rate(NOW, before)) == ({}, "")


def test_a_stall_is_one_number() -> None:
    """Measured, else bounded as in the GPU's row, else at most what the host waited."""
    assert job_stall(NOW) == "GPU idle for its data 24 % of the last 10 s, high"
    waits = replace(NOW, data_stall_ratio=None)
    assert job_stall(waits) == "GPU idle for its data at most 31 % of the last 10 s"
    [share] = snapshots.t4_estimate().shares
    assert job_stall(waits, share, snapshots.NOW) == (
        "GPU idle for its data 13 to 31 % of the last 10 s"
    )
    # The row of the GPU has it, and goes on while the jobs are as they were written.
    assert "idle" not in html(NOW, earlier=(NOW, BEFORE))
    both = html(NOW, replace(NOW, rank=1, data_stall_ratio=0.02), earlier=(NOW, BEFORE))
    assert "24 % of the last 10 s, high, 4.1 steps/s in the 10 s up to its last report" in both
    assert "2.0 % of the last 10 s, fine" in both


def test_the_oldest_picture_counts() -> None:
    """Phases are computed since the oldest snapshot."""
    text = html(NOW, earlier=(NOW, BEFORE))
    assert '<b title="resnet">resnet rank 0</b> of ada' in text
    bars = re.findall(r'<rect class="phase ([a-z0-9-]+)" x="([0-9.]+)" width="([0-9.]+)"', text)
    assert bars == [("series-0", "0.00", "30.00"), ("series-1", "30.00", "10.00")]
    assert "data 30 %" in text


def test_many_ranks_on_one_gpu_are_counted() -> None:
    """Four are shown, ended ones are not counted."""
    ranks = [replace(NOW, rank=number) for number in range(7)]
    text = html(*ranks, replace(NOW, job="ended", processes=0))
    assert re.findall(r"rank (\d)", text) == [str(number) for number in range(SHOWN_RANKS)]
    assert "and 3 more ranks" in text
    assert "ended" not in text


def test_jobs_that_are_not_on_the_gpu_come_last() -> None:
    """Unverified jobs push no verified job out, whatever their names."""
    junk = [replace(NOW, job=f"a{number}", verified=False) for number in range(SHOWN_RANKS)]
    text = html(*junk, NOW)
    assert re.findall(r">(\w+) rank 0<", text) == ["resnet", "a0", "a1", "a2"]
    assert "and 1 more ranks" in text


def test_names_of_jobs_are_text() -> None:
    """Names are escaped and cut."""
    text = html(replace(NOW, job="<script>" + "y" * 4096))
    assert "<script>" not in text
    assert "&lt;script&gt;y" in text
    assert text.count("y" * 100) == 1
    assert "y" * 130 not in text


def test_what_is_not_measured_is_said_in_words() -> None:
    """And that a rank is unverified; a healthy rank has no such lines."""
    text = html(replace(NOW, verified=False, degraded=("helper_thread", "unverified")))
    assert "<li>helper thread: the loader is read in a helper thread: the wait of the " in text
    assert "<li>unverified: the driver does not list it on this GPU, whose own numbers" in text
    assert "degraded" not in html(NOW)


def test_a_rank_that_does_not_measure_its_wait_says_nothing_of_it() -> None:
    """No 0 % is made up."""
    totals = replace(NOW.totals, phase_seconds={"eval": 5.0}, phase_gpu_idle_seconds={})
    before = replace(BEFORE, totals=replace(BEFORE.totals, phase_seconds={"eval": 3.0}))
    now = replace(NOW, totals=totals, data_wait_ratio=None, data_stall_ratio=None)
    assert job_phases(now, before) == pytest.approx({"eval": 0.2})
    assert job_stall(now) == ""
