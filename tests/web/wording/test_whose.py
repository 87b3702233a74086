# SPDX-License-Identifier: Apache-2.0
"""What people call a workload, and whose a GPU is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.workload import SCHEDULERS, Workload
from exporter.web.wording.facts import Facts
from exporter.web.wording.whose import display_names, owner, words_of, workload_words
from tests.rules.promtool import Labels, Series
from tests.rules.test_workloads import NAMED, SEVERAL


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [("kubernetes", "a pod"), ("slurm", "a job"), ("container", "a container")],
)
def test_nothing_known(scheduler: Any, words: str) -> None:
    """A workload of which not even the id is known."""
    assert workload_words(Workload(scheduler)) == words


@given(st.sampled_from(SCHEDULERS), st.lists(st.text(max_size=20), min_size=8, max_size=8))
def test_every_workload_has_words(scheduler: Any, names: list[str]) -> None:
    """No workload has an empty name."""
    assert workload_words(Workload(scheduler, *names))


def _of_labels(labels: Labels) -> Workload:
    """Return the workload of a series of gpu_workload_info."""
    parts = {
        name.removeprefix("workload_"): value
        for name, value in labels.items()
        if name.startswith("workload_")
    }
    scheduler: Any = labels["scheduler"]
    return Workload(scheduler, **parts)


@pytest.mark.parametrize(("scheduler", "said", "name"), NAMED)
def test_a_workload_is_called_as_in_the_rules(scheduler: Any, said: Labels, name: str) -> None:
    """Page, `status`, alerts and dashboards use one name."""
    assert workload_words(Workload(scheduler, **said)) == name


@pytest.mark.parametrize(("series", "name"), SEVERAL.values(), ids=SEVERAL)
def test_several_workloads_are_called_as_in_the_rules(series: Sequence[Series], name: str) -> None:
    """An unopened GPU has the same owner everywhere."""
    words = words_of([_of_labels(each.labels) for each in series])
    unopened = Facts(0, allocated=True, held=False, idle=True, workloads=words)
    assert owner(unopened) == name


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        ("main@20261122T131520-4242", "main"),
        ("train.py@slurm-77", "train.py"),
        ("a@b@rdzv-0123abcd", "a@b"),
        ("main@20261122T131520-4242 (bob)", "main@20261122T131520-4242 (bob)"),
        ("x@rdzv-0123abcde", "x@rdzv-0123abcde"),
        ("x@slurm-7\n", "x@slurm-7\n"),
        ("@slurm-7", "@slurm-7"),
        ("resnet", "resnet"),
    ],
)
def test_only_the_clients_own_suffix_is_cut(job: str, shown: str) -> None:
    """Any other text behind an @ stays."""
    assert display_names([job]) == {job: shown}


def test_what_is_not_clear_is_shown_in_full() -> None:
    """For two runs of one script, or a job with that very name."""
    runs = ["main@slurm-1", "main@slurm-2", "eval@slurm-1", "eval", "test@slurm-1"]
    assert display_names(runs) == {
        "main@slurm-1": "main@slurm-1",
        "main@slurm-2": "main@slurm-2",
        "eval@slurm-1": "eval@slurm-1",
        "eval": "eval",
        "test@slurm-1": "test",
    }
