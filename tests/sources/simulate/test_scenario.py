# SPDX-License-Identifier: Apache-2.0
"""A scenario is what its file says, or it is refused with the line and the key."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.config.coerce import BUNDLED_SCENARIOS
from exporter.errors import ConfigError
from exporter.model.workload import SCHEDULERS, Workload
from exporter.sources.simulate.scenario import BUNDLED, MOST_GPUS, load_scenario
from exporter.sources.simulate.stories import STORIES, Holder
from exporter.sources.simulate.workloads import NO_WORK, Work
from tests.sources.simulate.played import BOOK, H100, scenario

DOCUMENT = Path(__file__).parents[3] / "docs" / "demo.md"
REFUSED = Path(__file__).parents[2] / "golden" / "refused_scenarios.txt"


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        scenario(text)
    return str(raised.value)


def test_the_bundled_scenarios_are_those_that_the_flag_names() -> None:
    """Each is one file."""
    assert sorted(BUNDLED_SCENARIOS) == sorted(path.stem for path in BUNDLED.glob("*.yaml"))


def test_the_demo_is_eight_h100_that_do_everything() -> None:
    """Every story is in the bundled demo."""
    demo = load_scenario("demo", BOOK)
    stories = {scene.story for gpu in demo.gpus for scene in gpu.scenes}
    free = [scene.work.allocated for scene in demo.gpus[5].scenes]

    assert free == [False, True], "free, and then given to somebody who does not open it"

    assert [gpu.spec for gpu in demo.gpus] == ["h100-sxm5-80gb"] * 8
    assert stories | {"failing"} == set(STORIES)


def test_count_story_and_defaults() -> None:
    """What is not said is the story's own."""
    two = scenario(f"gpus: [{{{H100}, story: training, count: 2, tensor: 0.5}}]").gpus

    assert two[0] == two[1]
    (scene,) = two[0].scenes
    assert scene.parameters == {"tensor": 0.5, "dram": 0.4, "memory": 0.85}
    assert scene.holder == Holder("python3", "alice", "training")
    assert scene.seconds == math.inf


def test_the_holder_can_be_changed_in_part_or_taken_away() -> None:
    """Also for a whole sequence."""
    gpus = scenario(
        f"""
gpus:
  - {{{H100}, story: training, held_by: {{owner: zoe}}}}
  - {{{H100}, story: training, held_by: null}}
  - {H100}
    held_by: {{command: run, owner: yan, class: serving}}
    sequence:
      - {{story: training, for: 10m}}
      - {{story: free, for: 1500ms, held_by: null}}
"""
    ).gpus

    assert gpus[0].scenes[0].holder == Holder("python3", "zoe", "training")
    assert gpus[1].scenes[0].holder is None
    assert gpus[2].scenes[0].holder == Holder("run", "yan", "serving")
    assert gpus[2].scenes[1].holder is None
    assert [scene.seconds for scene in gpus[2].scenes] == [600.0, 1.5]


POD = "workload: {scheduler: kubernetes, namespace: a, pod: b}"


def works(text: str) -> list[Work]:
    """What of its scenes is said of whose work they are."""
    return [scene.work for gpu in scenario(text).gpus for scene in gpu.scenes]


def test_whose_work_it_is() -> None:
    """A pod or a job has been given its GPU unless it is said otherwise, a container never."""
    pod = Workload("kubernetes", namespace="a", pod="b", container="main")
    job = Workload("slurm", job="4711", step="0")
    box = Workload("container", container="c", runtime="podman")
    lone = f"gpus: [{{{H100}, story: free"
    assert works(f"{lone}, {POD}}}]") == [Work((pod,), allocated=True)]
    assert works(f"{lone}, {POD}, allocated: false}}]") == [Work((pod,))]
    assert works(f"{lone}, workload: {{scheduler: slurm, job: 4711}}}}]") == [Work((job,), True)]
    text = f"{lone}, workload: [{{scheduler: container, container: c, runtime: podman}}]}}]"
    assert works(text) == [Work((box,))]
    assert works(f"{lone}}}]") == [NO_WORK]
    assert works(f"{lone}, allocated: false}}]") == [NO_WORK]


def test_whose_work_a_sequence_is() -> None:
    """What stands beside the sequence holds for each part that says nothing else."""
    parts = "{story: free, for: 1m}, {story: lost, for: 1m}, {story: free, for: 1m, workload: null}"
    given, lost, taken = works(f"gpus: [{{{H100}, {POD}, sequence: [{parts}]}}]")
    assert given == lost
    assert given.allocated
    assert taken == NO_WORK
    one, two = works(f"gpus: [{{{H100}, {POD}, story: failing}}]")
    assert one == two == given


def test_failing_is_work_and_loss_in_turn() -> None:
    """The short form of a sequence."""
    (gpu,) = scenario(f"gpus: [{{{H100}, story: failing, works: 90s, lost: 30s, xid: 48}}]").gpus

    assert [(scene.story, scene.seconds) for scene in gpu.scenes] == [
        ("training", 90.0),
        ("lost", 30.0),
    ]
    assert gpu.scenes[1].parameters["xid"] == 48


def test_a_bad_scenario_is_one_line() -> None:
    """It names file, line, key and what was expected; the golden file has a case for each rule."""
    _, *cases = re.split("^=== ", REFUSED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for case in cases:
        expected, _, text = case.partition("\n")
        assert problem(text.removesuffix("\n")) == expected, text
    assert len(cases) > 40


def test_there_is_a_most() -> None:
    """A scenario of a hundred thousand GPUs is a mistake."""
    entry = f"  - {{{H100}, story: free, count: {MOST_GPUS}}}\n"

    assert len(scenario(f"gpus:\n{entry}").gpus) == MOST_GPUS
    assert problem(f"gpus:\n{entry}{entry}") == (
        "s.yaml:3: key 'gpus.1': expected at most 256 GPUs in all"
    )


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    """Its messages begin with the path as it was given."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"gpus:\n  - {{{H100}, story: free}}\n")
    assert load_scenario(path, BOOK).name == str(path)

    path.write_text("gpus:\n  - 3\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: key 'gpus\.0': expected a mapping"):
        load_scenario(path, BOOK)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("story", "spec", "for", "count", "held_by", "sequence", "duty", "x"),
                    *("workload", "scheduler", "job", "pod", "namespace", "allocated"),
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
GPUS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "spec": st.just("h100-sxm5-80gb") | ANYTHING,
            "story": st.sampled_from(sorted(STORIES)) | ANYTHING,
            "sequence": st.lists(
                st.fixed_dictionaries(
                    {"for": st.just("5m") | ANYTHING, "story": st.sampled_from(sorted(STORIES))}
                ),
                max_size=2,
            ),
            "held_by": ANYTHING,
            "workload": ANYTHING
            | st.fixed_dictionaries(
                {"scheduler": st.sampled_from(SCHEDULERS)},
                optional={"job": ANYTHING, "pod": ANYTHING, "namespace": ANYTHING},
            ),
            "allocated": ANYTHING,
            "count": st.integers(0, 5),
        },
    ),
    max_size=3,
)


@given(GPUS | ANYTHING)
def test_whatever_a_file_says_the_answer_is_a_scenario_or_one_line(gpus: object) -> None:
    """No file makes the reader crash."""
    try:
        result = scenario(yaml.safe_dump({"gpus": gpus}))
    except ConfigError as error:
        line = str(error)
    else:
        assert result.gpus
        return
    assert line.startswith("s.yaml:")
    assert line.isprintable()


def test_every_story_and_parameter_is_documented() -> None:
    """docs/demo.md has one row for each story, with its parameters and their defaults."""
    rows = {
        cells[1].strip(" `"): cells
        for cells in (
            line.split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")
        )
    }
    for name, story in STORIES.items():
        for parameter, facts in story.parameters.items():
            default = f"{facts.default:g}"
            if facts.kind == "duration":
                minutes = facts.default >= 60
                default = f"{facts.default / (60 if minutes else 1):g}{'m' if minutes else 's'}"
            assert f"`{parameter}` {default}" in rows[name][3], f"{name}: {parameter}"
        assert story.parameters or rows[name][3].strip() == "none"
