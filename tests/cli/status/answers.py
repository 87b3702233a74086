# SPDX-License-Identifier: Apache-2.0
"""What a daemon answers ``status``, and the lines that are made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from exporter.cli.status.render import rendered, view
from exporter.cli.terminal.screen import Screen, cells
from exporter.model.snapshot import Snapshot
from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.json import json_text
from exporter.web.api.read import snapshot_of
from tests import snapshots

HOSTILE = (
    "NVIDIA \x1b[2J\x1b]0;owned\x07H100",
    "a\nb\r\tc\x00\x7f\x9b31m",
    "\u202eabc\u2066def\u2069\u200f",
    "x" * 4096,
    "e" + "\u0301" * 500,
    "\u6f22\u5b57" * 40 + "\U0001f680",
    "\U0001f1e9\U0001f1ea" * 20,
    "",
)


def answer_of(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON that the daemon would serve."""
    text = json_text(gpus_answer(snapshot))
    return json.loads(text)  # type: ignore[no-any-return]


def node() -> dict[str, Any]:
    """A node with a GPU of every kind, two of which are held by somebody."""
    answer = answer_of(
        snapshots.snapshot(
            snapshots.h100_training(0),
            snapshots.t4_estimate(1),
            snapshots.h100_mig(2),
            snapshots.lost(3),
            snapshots.h100_idle(4),
            snapshots.bare(5),
        )
    )
    shares = [gpu["shares"] for gpu in answer["gpus"]]
    for some in shares:
        for share in some:
            share.pop("holder", None)
    shares[0][0]["recent"]["model_flops_utilization_ratio"] = 0.412
    shares[0][0]["holder"] = {"owner": "ada", "command": "python3", "class": "training"}
    shares[4][0]["holder"] = {
        "owner": "bob",
        "command": "ipykernel",
        "class": "notebook",
        "workload": "team-a/notebook-7",
    }
    shares[4][0]["held"] = True
    return answer


def lines_of(
    answer: object, columns: int = 160, *, sort: str = "trouble", **options: Any
) -> list[str]:
    shown = view(snapshot_of(answer), sort=sort, **options)
    return list(rendered(shown, Screen(columns)))


def row(lines: Sequence[str], gpu: str) -> str:
    """The line of one GPU."""
    (found,) = [line for line in lines if line.split()[:1] == [gpu]]
    return found


def assert_fits(lines: Sequence[str], columns: int) -> None:
    for line in lines:
        assert cells(line) <= columns, line
        assert line.isprintable(), line


NODE = node()
