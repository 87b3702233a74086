# SPDX-License-Identifier: Apache-2.0
"""The JSON of the API becomes a snapshot again, or says in one line what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.json import json_text
from exporter.web.api.read import UnexpectedError, snapshot_of
from exporter.web.facts import lines_of, notice_of
from tests.snapshots import EXAMPLES


def answer_of(name: str) -> Any:
    return json.loads(json_text(gpus_answer(EXAMPLES[name])))


@pytest.mark.parametrize("name", EXAMPLES)
def test_facts_survive_the_api(name: str) -> None:
    """`status` says of a daemon's GPUs what its page says; what a newer daemon adds is ignored."""
    answer = answer_of(name) | {"shoe_size": 43}
    read = snapshot_of(answer)
    assert [line.facts for line in lines_of(read)] == [
        line.facts for line in lines_of(EXAMPLES[name])
    ]
    assert notice_of(read) == notice_of(EXAMPLES[name])


GPU = answer_of("training")["gpus"][0]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([], "expected an object, got []"),
        ({"gpus": {}}, "gpus: expected a list, got {}"),
        ({"gpus": [1]}, "gpus[0]: expected an object, got 1"),
        ({}, "expected the key 'gpus', got {}"),
        ({"gpus": [{**GPU, "up": 1}]}, "gpus[0].up: expected true or false, got 1"),
        ({"gpus": [{**GPU, "uuid": None}]}, "gpus[0].uuid: expected text, got null"),
        ({"gpus": [{**GPU, "index": 1.5}]}, "gpus[0].index: expected a whole number, got 1.5"),
        ({"gpus": [{**GPU, "index": True}]}, "gpus[0].index: expected a whole number, got true"),
        (
            {"gpus": [], "timestamp_seconds": float("nan")},
            "timestamp_seconds: expected a number, got NaN",
        ),
        (
            {"gpus": [], "timestamp_seconds": 10**400},
            f"timestamp_seconds: expected a number, got 1{'0' * 56}...",
        ),
    ],
)
def test_something_else_is_refused(value: object, complaint: str) -> None:
    """The key is named, and what was expected there."""
    with pytest.raises(UnexpectedError) as refused:
        snapshot_of(value)
    assert str(refused.value) == complaint
