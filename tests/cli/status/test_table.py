# SPDX-License-Identifier: Apache-2.0
"""The table of ``status``: one line a GPU that fits the terminal, whatever a driver says."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.cli.snapshot_reader import read_answer
from exporter.cli.status.render import rendered, view
from exporter.cli.terminal.screen import Screen
from exporter.errors import SourceError
from exporter.model.reading import Memory, Utilization, Vitals
from exporter.model.snapshot import Bounds, Gpu, Rank, Saturation, Snapshot
from exporter.web.api.read import snapshot_of
from tests import snapshots
from tests.cli.status.answers import HOSTILE, NODE, answer_of, assert_fits, lines_of, node, row
from tests.snapshots import EXAMPLES

GOLDEN = Path(__file__).parent.parent.parent / "golden"


@pytest.mark.usefixtures("installed_by_pip")
@pytest.mark.parametrize("columns", [60, 100, 160])
def test_golden(columns: int) -> None:
    """What a user sees, to the character."""
    golden = (GOLDEN / f"status-{columns}.txt").read_text(encoding="utf-8")

    assert "\n".join(lines_of(node(), columns)) + "\n" == golden


def with_ranks(gpu: Gpu, *ranks: Rank) -> list[str]:
    return lines_of(answer_of(snapshots.with_training(snapshots.snapshot(gpu), *ranks)))


def test_data_stall_is_shown_where_a_rank_reports() -> None:
    """A measured stall is a number; a wait alone, or an inferred stall, is a bound."""
    rank = snapshots.rank_on_gpu()
    waits = replace(rank, data_stall_ratio=None)

    _, header, line = with_ranks(snapshots.h100_starved(), rank)
    assert "SOURCE    DATA STALL" in header
    assert "starved" in line
    assert "gpm             24 %  " in line
    assert "compute     <= 31 %  " in with_ranks(snapshots.h100_starved(), waits)[-1]
    assert "  24 %  " in with_ranks(snapshots.h100_starved(), rank, replace(rank, rank=1))[-1]
    assert "  24 %  " in with_ranks(snapshots.h100_starved(), rank, replace(waits, rank=1))[-1]
    assert " 13\N{EN DASH}31 %" in row(lines_of(answer_of(EXAMPLES["estimate"])), "0")


def test_data_stall_belongs_to_live_ranks_of_that_gpu() -> None:
    """Ended ranks, ranks elsewhere and unverified ranks have no column."""
    rank = snapshots.rank_on_gpu()
    nothing = lines_of(answer_of(EXAMPLES["training"]))

    for other in (
        replace(rank, processes=0),
        replace(rank, gpu_uuid=None),
        replace(rank, gpu_instance=1),
        replace(rank, data_wait_ratio=None, data_stall_ratio=None),
        replace(rank, verified=False),
    ):
        assert with_ranks(snapshots.h100_training(), other) == nothing
    lines = with_ranks(snapshots.h100_mig(2), snapshots.rank_on_instance(2))
    assert "<= 2 %" in row(lines, "2/1"), "its GPU was idle for no longer"
    assert "<=" not in row(lines, "2/2") + row(lines, "2")


def test_a_lost_gpu_is_one_grey_line_with_the_reason() -> None:
    """Its last readings are not shown."""
    screen = Screen(160, colour=True)
    answer = answer_of(EXAMPLES["lost"])
    line = list(rendered(view(snapshot_of(answer)), screen))[-1]

    assert line.count("\x1b[2m") == 3
    assert line.endswith("\x1b[2mlost\x1b[0m")
    assert "%" not in line


@pytest.mark.parametrize("columns", [40, 100, 190])
@pytest.mark.parametrize("name", [*HOSTILE, "p" * 253], ids=range(len(HOSTILE) + 1))
def test_names_of_workloads_are_harmless(name: str, columns: int) -> None:
    """A pod cannot move the cursor; one with 253 characters does not widen the line."""
    answer = node()
    pod = {"scheduler": "kubernetes", "namespace": name, "pod": name, "container": name}
    first, idle = answer["gpus"][0]["shares"][0], answer["gpus"][4]["shares"][0]
    first["holder"]["workload"] = name
    idle |= {"held": False, "allocated": True, "workloads": [pod]}
    del idle["holder"]
    lines = lines_of(answer, columns)
    assert_fits(lines, columns)
    assert row(lines, "4")


def test_a_scheduler_that_cannot_be_read_is_named() -> None:
    """Its last answer stays, with its age."""
    answer = node()
    answer["source_states"] |= {
        "kubernetes": {"up": False, "age_seconds": 720.0},
        "slurm": {"up": True, "age_seconds": 3.0},
        "container": {"up": False},
    }
    notices = [line for line in lines_of(answer) if "cannot be read" in line]
    assert notices == [
        "Kubernetes cannot be read: what was known 12 min ago stays",
        "Container runtime cannot be read",
    ]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "1 s"), (9.5, None), (10.4, None), (30.0, "30 s")]
)
def test_a_window_that_is_not_the_usual_one_is_named(seconds: float, said: str | None) -> None:
    """In the first seconds, and with a longer poll interval."""
    answer = answer_of(EXAMPLES["training"])
    answer["gpus"][0]["shares"][0]["recent"]["seconds"] = seconds
    for columns in (60, 160):
        title = " ".join(lines_of(answer, columns)).partition("GPU  ")[0]
        assert ("means" in title) == (said is not None)
        assert said is None or f"· means of the last {said} · driver 580" in title


def test_since_start_no_time_is_claimed() -> None:
    """A process that has just started knows that a GPU is idle, not since when."""
    line = row(lines_of(answer_of(EXAMPLES["idle"]), since_start=True), "0")

    assert "idle free" in line
    assert "1h01m" not in line
    assert "49s" not in line


def test_after_a_recording_its_schedulers_are_not_missed() -> None:
    """No notice says that they cannot be read."""
    answer = node()
    answer["source_states"] = {"kubernetes": {"up": False}}
    assert "Kubernetes cannot be read" in " ".join(lines_of(answer))
    answer["problem"] = "the recording day.jsonl.gz has ended"
    assert "Kubernetes" not in " ".join(lines_of(answer))


def test_what_is_unknown_is_a_dash() -> None:
    """Never 0; a column without any value is dropped."""
    lines = lines_of(answer_of(EXAMPLES["bare"]))

    assert lines == ["1 GPU: 1 not known", "GPU  NAME", "0    GPU"]


def test_narrow_terminals_lose_the_least_important_first() -> None:
    """Each width shows all that a narrower one does."""
    before: set[str] = set()
    for columns in range(20, 201):
        header = next(line for line in lines_of(node(), columns) if line.startswith("GPU  "))
        shown = {word.strip() for word in header.split("  ") if word.strip()}
        assert before <= shown
        before = shown
    assert len(before) == 17


# No width is exceeded, and nothing unprintable is printed, whatever the values.

texts = st.text(max_size=300) | st.sampled_from(HOSTILE)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return every path in a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


PLACES = list(places({"": NODE}))[1:]


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.tuples(st.sampled_from(PLACES), anything), max_size=4), st.integers(1, 200))
def test_an_answer_of_another_version_does_not_raise(
    changes: list[tuple[tuple[Any, ...], Any]], columns: int
) -> None:
    """It is understood, or refused in one line; any text and any number may stand in it."""
    document = {"": copy.deepcopy(NODE)}
    for path, value in changes:
        at: Any = document
        for key in path[:-1]:
            try:
                at = at[key]
            except (KeyError, IndexError, TypeError):
                break
        else:
            key = path[-1]
            if isinstance(at, dict) or (isinstance(at, list) and key in range(len(at))):
                at[key] = value

    try:
        found = read_answer("page", json.dumps(document[""]).encode())
        lines = list(rendered(view(found), Screen(columns)))
    except SourceError as error:
        lines, columns = [str(error)], 250
    assert_fits(lines, columns)


def test_an_answer_of_a_newer_version_is_read() -> None:
    """Unknown members are ignored."""
    newer = node() | {"schema_version": 2, "cooling": {"fans": 3}}
    newer["gpus"][0]["shares"][0]["mood"] = "good"
    assert lines_of(newer) == lines_of(node())


ratios = st.none() | st.floats(0, 1e6, allow_nan=False)


amounts = st.none() | st.floats(0, 1e99, allow_nan=False)


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    """A GPU of some kind with readings of any size and any text."""
    example = draw(st.sampled_from([gpu for each in EXAMPLES.values() for gpu in each.gpus]))
    lower, upper = draw(st.floats(0, 1e6)), draw(st.floats(0, 1e6))
    shares = tuple(
        replace(
            share,
            utilization=Utilization(draw(st.floats(0, 1e6)), 1.0, 1.0, None, None),
            memory=Memory(draw(st.integers(0, 2**63)), draw(st.integers(0, 2**63)), 0),
            saturation=Saturation(
                draw(st.sampled_from(["gpm", "dcgm", "estimate"])),
                True,
                Bounds(lower, upper),
                draw(ratios),
                draw(st.none() | texts),
            ),
            held=draw(st.none() | st.booleans()),
            limiter=draw(st.none() | texts),
            totals=replace(
                share.totals,
                last_busy_timestamp_seconds=draw(amounts),
                idle_for_seconds=draw(amounts),
                held_idle_seconds=draw(amounts),
            ),
        )
        for share in example.shares
    )
    vitals = Vitals(power_watts=draw(amounts), temperature_celsius=draw(amounts))
    return replace(
        example,
        device=replace(
            example.device, index=draw(st.integers(0, 2**40)), name=draw(texts), source=draw(texts)
        ),
        down_reason=draw(st.none() | texts),
        vitals=vitals if example.up else None,
        shares=shares,
    )


@given(st.lists(gpus(), max_size=4), st.integers(1, 200), st.none() | texts)
def test_no_line_is_wider_than_the_terminal(
    some: list[Gpu], columns: int, problem: str | None
) -> None:
    """Nothing wraps and nothing unprintable is printed, whatever a driver says."""
    answer = answer_of(Snapshot(1.0, tuple(some), {}, problem))

    assert_fits(lines_of(answer, columns), columns)
