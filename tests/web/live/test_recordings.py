# SPDX-License-Identifier: Apache-2.0
"""A recording that is played to its end, on the page, in ``status`` and in the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.status.render import view
from exporter.model.readers import Readers
from exporter.publisher import Publisher, Rules
from exporter.publisher.gpu import NOT_FRESH
from exporter.sources.recording import Recording
from exporter.sources.recording.replay import Replay
from exporter.sources.simulate import Simulation, load_scenario
from exporter.web.api.convert import gpus_answer
from exporter.web.api.models.json import json_text
from exporter.web.api.read import snapshot_of
from exporter.web.live.view import NodeView, node_view
from exporter.web.page.node import problem_section
from exporter.web.wording.recorded import STALE
from tests.clocks import ManualClock
from tests.recordings import SPECS, recorder_of

SECONDS = 8
RECORDED = "Not real GPUs. This data is simulated; it was recorded, and is played back."


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the demo."""
    path, clock = tmp_path_factory.mktemp("recording") / "demo.jsonl", ManualClock()
    readers = Simulation(load_scenario("demo", SPECS), SPECS, "host:19400", 0, clock)
    readers.start()
    readers.round(0.0)
    recorder = recorder_of(readers, clock, path, 1.0)
    for _ in range(SECONDS):
        clock.advance(1.0)
        readers.round(0.0)
        recorder.take(readers)
    recorder.end()
    return path


def played(
    readers: Readers, clock: ManualClock, seconds: int
) -> Iterator[tuple[NodeView, dict[str, Any]]]:
    """What page and API say, second by second."""
    publisher = Publisher(readers, SPECS, Rules(), clock)
    for sequence in range(seconds):
        clock.advance(1.0)
        snapshot = publisher.tick()
        answer = json.loads(json_text(gpus_answer(snapshot)))
        page = node_view(snapshot, sequence=sequence, interval_seconds=1.0)
        if "ended" in page["headline"]:
            assert "restart the exporter" in problem_section(snapshot)
        yield page, answer


def test_it_says_that_it_has_ended(file: Path) -> None:
    """Its GPUs are not called lost, and the notice says what was recorded."""
    clock = ManualClock(2_000_000.0, 5000.0)
    seen = list(played(Replay(Recording(file), clock), clock, SECONDS + 10))
    page, answer = seen[SECONDS // 2]
    assert page["notice"] == answer["notice"] == RECORDED
    assert "ended" not in page["headline"]
    assert RECORDED in view(snapshot_of(answer)).notices
    page, answer = seen[-1]
    ended = f"The recording {file.name} has ended"
    assert page["headline"] == page["announced"] == ended
    assert page["notice"] == answer["notice"] == f"{RECORDED} {ended}."
    assert {row["words"]["word"] for row in page["rows"].values()} == {"ended"}
    assert (
        page["totals"]
        == view(snapshot_of(answer)).title
        == "8 GPUs: 8 of a recording that has ended"
    )
    assert view(snapshot_of(answer)).notices == (RECORDED, f"{ended[:1].lower()}{ended[1:]}")


def test_a_recording_in_a_loop_does_not_end(file: Path) -> None:
    """The notice says that it is recorded."""
    clock = ManualClock(2_000_000.0, 5000.0)
    for page, _ in played(Replay(Recording(file), clock, loop=True), clock, 3 * SECONDS):
        assert page["notice"] == RECORDED
        assert "ended" not in page["headline"]


def test_the_publisher_still_says_it_in_these_words() -> None:
    """A GPU without new readings is told from one that was lost in the recording."""
    assert STALE == NOT_FRESH
