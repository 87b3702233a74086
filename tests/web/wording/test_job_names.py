# SPDX-License-Identifier: Apache-2.0
"""Default names carry the run; people see the script, as long as that is clear."""

from __future__ import annotations

import pytest

from exporter.web.wording.whose import display_names


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        ("main@20261122T131520-4242", "main"),
        ("train.py@slurm-77", "train.py"),
        ("a@b@rdzv-0123abcd", "a@b"),
        ("main@20261122T131520-4242 (bob)", "main@20261122T131520-4242 (bob)"),
        ("main@20261122-4242", "main@20261122-4242"),
        ("me@example", "me@example"),
        ("x@slurm-", "x@slurm-"),
        ("x@rdzv-0123abcde", "x@rdzv-0123abcde"),
        ("x@slurm-7\n", "x@slurm-7\n"),
        ("@slurm-7", "@slurm-7"),
        ("resnet", "resnet"),
    ],
)
def test_only_the_clients_own_suffix_is_cut(job: str, shown: str) -> None:
    """Whatever a person has put behind an @ stays."""
    assert display_names([job]) == {job: shown}


def test_what_is_not_clear_is_shown_in_full() -> None:
    """Two runs of one script, or a job that is really called so."""
    runs = ["main@slurm-1", "main@slurm-2", "eval@slurm-1", "eval", "test@slurm-1"]
    assert display_names(runs) == {
        "main@slurm-1": "main@slurm-1",
        "main@slurm-2": "main@slurm-2",
        "eval@slurm-1": "eval@slurm-1",
        "eval": "eval",
        "test@slurm-1": "test",
    }
