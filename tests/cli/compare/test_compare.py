# SPDX-License-Identifier: Apache-2.0
"""``compare``: what it says of two jobs, when it fails, and what it makes of any file."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.compare.comparison import FIGURES, NAMES, condition
from exporter.cli.compare.job_summary import MOST_BYTES, JobSummary, read_summary, with_daemon
from exporter.errors import ConfigError
from tests.cli.outcomes import Outcome

BEFORE: dict[str, Any] = {
    "format": "roofline-exporter-summary",
    "version": 1,
    "job": "train@1",
    "started_unix_seconds": 1.0,
    "ranks": 1,
    "steps": 100,
    "loop_seconds": 50.0,
    "steps_per_second": 2.0,
    "data_wait_ratio": 0.6,
    "data_stall_ratio": 0.5,
    "phase_seconds": {"data": 30.0, "checkpoint": 1.0},
    "gpu": "NVIDIA H100 80GB HBM3",
    "precision": "bf16",
    "loader": {"workers": 0, "pin_memory": False, "batch_size": 32},
    "versions": {"framework": "torch 2.13.0"},
}
AFTER = BEFORE | {
    "job": "train@2",
    "loop_seconds": 25.0,
    "steps_per_second": 4.0,
    "data_wait_ratio": 0.06,
    "data_stall_ratio": 0.005,
    "phase_seconds": {"data": 1.5, "checkpoint": 0.5},
    "mfu_ratio": 0.25,
    "loader": {"workers": 4, "pin_memory": False, "batch_size": 32},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(a=BEFORE, b=AFTER)


def written(**jobs: object) -> None:
    """Write a.json, b.json."""
    for name, job in jobs.items():
        Path(f"{name}.json").write_text(json.dumps(job), encoding="utf-8")


@pytest.fixture
def compared(outcome: Outcome) -> Outcome:
    """Compares a.json with b.json."""
    return partial(outcome, "compare", "a.json", "b.json")


# What it says


def test_two_jobs_side_by_side(compared: Outcome) -> None:
    """Numbers with their change in words, and what differs in settings; not what is the same."""
    assert compared() == (
        0,
        """\
A: a.json, train@1
B: b.json, train@2
                         A      B  CHANGE
steps/s               2.00   4.00  +100 %  faster
waited for data       60 %  6.0 %   -90 %  less waiting
GPU idle meanwhile    50 %  0.5 %   -99 %  less stalled
in checkpoints       2.0 %  2.0 %    +0 %  about the same
MFU                      -   25 %          not known in A
seconds of the loop  50.00  25.00   -50 %  shorter
workers                  0      4
""",
        "",
    )


def test_the_other_way_round(compared: Outcome) -> None:
    """Slower is slower, and less than a point of a share is neither."""
    written(a=AFTER | {"data_stall_ratio": 0.0}, b=BEFORE | {"data_stall_ratio": 0.009})
    said = compared()[1]
    for line in (
        r"steps/s +4.00 +2.00 +-50 %  slower",
        r"waited for data +6.0 % +60 % +\+900 %  more waiting",
        r"GPU idle meanwhile +0 % +0.9 % +from 0  within a point",
        r"MFU +25 % +- +not known in B",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), said


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"steps": 90}, "steps 100 in A, 90 in B"),
        ({"gpu": "NVIDIA L4"}, "gpu NVIDIA H100 80GB HBM3 in A, NVIDIA L4 in B"),
        ({"loader": {"batch_size": 64}}, "batch_size 32 in A, 64 in B"),
        ({"degraded": {"flops": "why"}}, "flops not measured in B (why)"),
        ({"precision": None}, None),
        ({"loader": {"workers": 9}}, None),
    ],
)
def test_what_is_not_comparable(
    changed: dict[str, object], why: str | None, compared: Outcome
) -> None:
    """A difference that explains a change, as far as it is known on both sides; no failure."""
    written(b=AFTER | changed)
    code, said, error = compared()
    assert (code, error) == (0, "")
    lines = [line for line in said.splitlines() if line.startswith("not comparable")]
    assert lines == ([] if why is None else [f"not comparable: {why}"])
    assert json.loads(compared("--format=json")[1])["not_comparable"] == (
        [] if why is None else [why]
    )


def test_as_json(compared: Outcome) -> None:
    """The numbers that are known, and the outcome of each condition."""
    code, said, _ = compared("--format", "json", "--fail-if=wait>5%", "--fail-if=mfu_ratio<9%")
    answer = json.loads(said)
    assert code == 1
    assert answer["fail_if"] == {"wait>5%": True, "mfu_ratio<9%": False}
    assert "mfu_ratio" not in answer["a"]
    assert answer["b"] == {
        "steps_per_second": 4.0,
        "data_wait_ratio": 0.06,
        "data_stall_ratio": 0.005,
        "checkpoint_wait_ratio": 0.02,
        "mfu_ratio": 0.25,
        "loop_seconds": 25.0,
    }


# When it fails


@pytest.mark.parametrize(
    ("expressions", "code", "said"),
    [
        (["stall>5%"], 0, []),
        (["wait>5%"], 1, ["wait>5%: data_wait_ratio is 6.0 %"]),
        (["wait > 0.06"], 0, []),
        (["wait>=6%"], 1, ["wait>=6%: data_wait_ratio is 6.0 %"]),
        (["steps_per_second<-10%"], 0, []),
        (
            ["steps_per_second<+200%"],
            1,
            ["steps_per_second<+200%: steps_per_second changed by +100.0%"],
        ),
        (["mfu_ratio<-10%"], 3, ["mfu_ratio<-10%: mfu_ratio is not known in A"]),
        (["energy_joules>1"], 3, ["energy_joules>1: energy_joules is not known in B"]),
        (
            ["energy_joules>1", "wait>5%", "stall>5%"],
            1,
            [
                "energy_joules>1: energy_joules is not known in B",
                "wait>5%: data_wait_ratio is 6.0 %",
            ],
        ),
    ],
)
def test_fail_if(expressions: list[str], code: int, said: list[str], compared: Outcome) -> None:
    """1 if one holds, 3 if none does and a number is not known: never a silent pass."""
    found, _, error = compared(*(f"--fail-if={each}" for each in expressions))
    assert found == code
    assert error == "".join(f"roofline-exporter: --fail-if {each}\n" for each in said)


def test_a_change_from_0_is_any_change(compared: Outcome) -> None:
    """It is more than any limit; from 0 to 0 there is none."""
    written(a=BEFORE | {"data_stall_ratio": 0.0})
    assert compared("--fail-if", "stall>+900%")[0] == 1
    written(b=AFTER | {"data_stall_ratio": 0.0})
    assert compared("--fail-if", "stall>+0%")[0] == 0


FORM = "a name, <, <=, > or >=, and a number, such as wait>20%"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", FORM),
        ("wait=5%", FORM),
        ("wait>nan", FORM),
        ("wait>\u0665", FORM),
        ("wait>5% or stall>5%", FORM),
        ("wait>+5", "percents behind a sign, such as +10%"),
        ("loop_seconds>5%", "a number, or a change such as +10%: loop_seconds is no share"),
        ("wayt>5%", f"one of {', '.join(NAMES)}, did you mean wait?"),
    ],
)
def test_a_mistake_in_an_expression(expression: str, expected: str, compared: Outcome) -> None:
    """One line that names it, before any file is read."""
    Path("a.json").unlink()
    line = f"roofline-exporter: --fail-if: '{expression}': expected {expected}\n"
    assert compared("--fail-if", expression) == (2, "", line)


@given(st.text() | st.from_regex(r"[a-z_]{1,30} ?[<>]=? ?[-+]?[0-9.]{1,30} ?%?", fullmatch=True))
def test_any_expression_is_read_or_refused_in_one_line(text: str) -> None:
    """With a finite limit, or a message that fits a log."""
    try:
        found = condition(text)
    except ConfigError as error:
        message = str(error)
        assert message.startswith("--fail-if: ")
        assert ": expected " in message
        assert message.isprintable()
        assert len(message) < 500
    else:
        assert found.name in FIGURES
        assert abs(found.limit) < 1e25


@given(
    st.sampled_from(sorted(NAMES)),
    st.sampled_from([">", ">=", "<", "<="]),
    st.decimals(0, 10**6, places=3),
)
def test_an_expression_means_what_it_says(name: str, sign: str, percents: Any) -> None:
    """With a sign it is a change; and blanks mean nothing."""
    change = condition(f" {name} {sign} -{percents} % ")
    assert change[1:] == (NAMES[name], change.is_beyond, -float(percents) / 100, True)
    assert change.is_beyond(2.0, 1.0) == (">" in sign)
    assert change.is_beyond(1.0, 1.0) == ("=" in sign)


# Any file


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected JSON, as run --summary writes it"),
        (b"[" * 100_000, "expected JSON, as run --summary writes it"),
        (b"{}", "format: expected a value, found none"),
        (b" " * (MOST_BYTES + 1), f"more than {MOST_BYTES} bytes"),
        ({"format": "gpu-burn"}, "format: expected 'roofline-exporter-summary'"),
        ({"version": 2}, "version: expected 1"),
        ({"steps": "100"}, "steps: expected a valid integer"),
        ({"loop_seconds": -1}, "loop_seconds: expected greater than or equal to 0"),
        ({"data_wait_ratio": 1.5}, "data_wait_ratio: expected less than or equal to 1"),
        ({"mfu_ratio": float("nan")}, "mfu_ratio: expected a finite number"),
        ({"energy_joules": 10**400}, "expected numbers of fewer than 300 digits"),
        ({"phase_seconds": {"data": []}}, "phase_seconds.data: expected a valid number"),
    ],
)
def test_a_file_that_is_no_summary(content: Any, said: str, compared: Outcome) -> None:
    """One line with its name and the key; the exit code of wrong usage."""
    content = json.dumps(BEFORE | content).encode() if isinstance(content, dict) else content
    Path("b.json").write_bytes(content)
    assert compared() == (2, "", f"roofline-exporter: b.json: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.json"], "compare: expected two files of run --summary, such as a.json b.json"),
        (["a.json", "c.json"], "c.json: No such file or directory"),
        (["a.json", "/dev/zero"], "/dev/zero: a device, not a regular file"),
        (["a\n.json", "b.json"], "a\\n.json: No such file or directory"),
        (["a.json", "b.json", "--format=xml"], "--format: expected text or json, got 'xml'"),
    ],
)
def test_wrong_usage(words: list[str], said: str, outcome: Outcome) -> None:
    """One line, and 2."""
    assert outcome("compare", *words) == (2, "", f"roofline-exporter: {said}\n")


def test_options_may_stand_anywhere(outcome: Outcome) -> None:
    """Between the files, too."""
    assert outcome("compare", "a.json", "--fail-if", "wait>5%", "b.json")[0] == 1


def test_a_hostile_name_moves_no_cursor(compared: Outcome) -> None:
    """Nor does it take a second line."""
    written(b=AFTER | {"job": "\x1b[2J\n", "gpu": "\x1b]0;x\a", "loader": {"\r": 1}})
    code, said, _ = compared()
    assert code == 0
    assert said.replace("\n", "").isprintable()
    assert "B: b.json, \\x1b[2J\\n" in said


KEYS = st.sampled_from(sorted({*JobSummary.__dataclass_fields__, "novel"}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)


@given(
    st.binary(max_size=200)
    | st.dictionaries(KEYS, JSON).map(lambda o: json.dumps(BEFORE | o).encode())
)
def test_any_content_is_read_or_refused_in_one_line(content: bytes) -> None:
    """And what is read is finite and in its bounds."""
    Path("b.json").write_bytes(content)
    try:
        job = read_summary(Path("b.json"))
    except ConfigError as error:
        message = str(error)
        assert message.startswith("b.json: ")
        assert "expected " in message
        assert message.isprintable()
    else:
        assert 0 <= job.loop_seconds <= 1e30
        assert job.data_wait_ratio is None or 0 <= job.data_wait_ratio <= 1


# What a daemon adds


def test_what_a_daemon_knows_is_added(compared: Outcome) -> None:
    """All else stays as it was, what this version does not know too."""
    known = {"saturation_bounds": [0.1, 0.4], "energy_joules": 9000.0, "gpu_seconds": 26.0}
    content = with_daemon(json.dumps(AFTER | {"novel": [1]}).encode(), known)
    assert json.loads(content) == AFTER | {"novel": [1]} | known
    Path("b.json").write_bytes(content)
    said = compared()[1]
    assert re.search(r"^energy +- +9.00 kJ +not known in A$", said, re.MULTILINE), said
    assert re.search(r"^saturation_bounds +- +10 to 40 % +only in B$", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("content", "known", "said"),
    [
        (b"{}", {}, "format: expected"),
        (json.dumps(AFTER).encode(), {"energy_joules": -1.0}, "energy_joules: expected greater"),
        (json.dumps(AFTER).encode(), {"saturation_ratio": float("nan")}, "not JSON compliant"),
        (json.dumps(AFTER).encode(), {"saturation_bounds": [0.5]}, "saturation_bounds"),
    ],
)
def test_what_is_no_summary_is_not_added_to(
    content: bytes, known: dict[str, object], said: str
) -> None:
    """Nor does anything become one that is not."""
    with pytest.raises(ValueError, match=said):
        with_daemon(content, known)
