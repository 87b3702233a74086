# SPDX-License-Identifier: Apache-2.0
"""What docs/training-protocol.md says is so."""

from __future__ import annotations

import re

from exporter.model.training import TRAINING_PHASES, TRAINING_REJECTIONS
from exporter.sources.training.decode import decode
from tests.training.listener import ROOT, Listener

PAGE = (ROOT / "docs" / "training-protocol.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


def test_the_example_report_is_one() -> None:
    """And it has every field of the table but those of a failure and of an end."""
    example = _block("json")
    claim = decode(example.encode())
    names = re.findall(r"^\| (`.*?`) \|", PAGE.partition("**Rules**")[0], re.MULTILINE)
    fields = {field for name in names for field in re.findall(r"\w+", name)}

    assert claim.totals.batches == 400
    assert {field for field in fields if f'"{field}"' not in example} == {"error", "exit"}


def test_every_phase_and_every_reason_is_named() -> None:
    """The tables are complete."""
    reasons = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## What is refused")[2], re.MULTILINE)

    assert reasons == list(TRAINING_REJECTIONS)
    assert ", ".join(f"`{phase}`" for phase in TRAINING_PHASES) in PAGE


def test_the_example_client_is_taken(listener: Listener) -> None:
    """As it stands there, with a loader of three batches."""
    exec(_block("python"), {"loader": range(3), "train": lambda batch: None})
    last = listener.reports()[-1]

    assert (last["batches"], last["sequence"]) == (3, 3)
    assert last["phase_seconds"]["data"] <= last["step_seconds"]
