# SPDX-License-Identifier: Apache-2.0
"""The JSON of the API becomes its types again, or says in one line what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.gpus import GpuJson, GpusAnswer, HolderJson, MemoryJson
from exporter.web.api.models.json import json_text
from exporter.web.api.read import UnexpectedError, read
from tests.snapshots import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_was_written_is_read_again(name: str) -> None:
    """Nothing is lost, and a key that is no name in Python is found."""
    answer = gpus_answer(EXAMPLES[name])
    assert read(GpusAnswer, json.loads(json_text(answer))) == answer


def test_what_is_not_known_of_it_is_left_out() -> None:
    """A newer daemon may say more."""
    assert read(HolderJson, {"class": "other", "shoe_size": 43}) == HolderJson(work_class="other")


@pytest.mark.parametrize(
    ("kind", "value", "complaint"),
    [
        (GpusAnswer, [], "expected an object, got []"),
        (GpusAnswer, {"gpus": {}}, "gpus: expected a list, got {}"),
        (GpusAnswer, {"gpus": [1]}, "gpus[0]: expected an object, got 1"),
        (HolderJson, {"owner": "ada"}, 'expected the key \'class\', got {"owner": "ada"}'),
        (HolderJson, {"class": None}, "class: expected text, got null"),
        (MemoryJson, {"total_bytes": 1.5}, "total_bytes: expected a whole number, got 1.5"),
        (MemoryJson, {"total_bytes": True}, "total_bytes: expected a whole number, got true"),
        (
            GpusAnswer,
            {"gpus": [], "timestamp_seconds": float("nan")},
            "timestamp_seconds: expected a number, got NaN",
        ),
        (
            GpusAnswer,
            {"gpus": [], "timestamp_seconds": 10**400},
            f"timestamp_seconds: expected a number, got 1{'0' * 56}...",
        ),
        (GpuJson, {"index": 0, "uuid": "", "up": 1}, "up: expected true or false, got 1"),
    ],
)
def test_something_else_is_refused(kind: Any, value: object, complaint: str) -> None:
    """The key is named, and what was expected there."""
    with pytest.raises(UnexpectedError) as refused:
        read(kind, value)
    assert str(refused.value) == complaint
