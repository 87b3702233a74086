# SPDX-License-Identifier: Apache-2.0
"""`make test`: what it leaves out, and what it says at its end; and tests that miss something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import INTERRUPTED, NOTHING_COLLECTED, Total, is_test

ROOT = Path(__file__).parents[1]
MODULE = """\
import pytest
from hypothesis import given, strategies

seen = []

@pytest.mark.slow
def test_slow(): ...

@given(strategies.integers())
def test_property(number):
    seen.append(number)

def test_few_examples():
    assert len(seen) <= {most}
"""


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_quick_leaves_out_the_slow_ones_and_most_examples(workers: str, tmp_path: Path) -> None:
    """Counted also where workers of xdist run the tests."""
    module, tally = tmp_path / "test_one.py", tmp_path / "tally.json"
    module.write_text(MODULE.format(most=30))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    command += ["-n", workers, "--rootdir", str(tmp_path), "-c", str(ROOT / "pyproject.toml")]

    def counts(*words: str) -> dict[str, int]:
        subprocess.run(
            [*command, f"--tally={tally}", *words, str(module)],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        counted: dict[str, int] = json.loads(tally.read_text("utf-8"))["counts"]
        return {name: count for name, count in counted.items() if count}

    assert counts("--quick") == {"passed": 2, "slow": 1}
    assert counts() == {"passed": 2, "failed": 1}


def test_the_last_lines_are_of_both_runs() -> None:
    """What failed in the first has scrolled away; then what was left out, and how to run it."""
    total = Total()
    total.add(1, {"counts": {"passed": 3, "failed": 1, "slow": 2}, "failures": ["tests/a.py::b"]})
    total.add(0, {"counts": {"passed": 4, "skipped": 1, "slow": 5}})
    assert total.code == 1
    assert total.lines(61.0) == [
        "FAILED tests/a.py::b",
        "7 passed, 1 failed, 1 skipped in 1 min 1 s",
        "left out: 7 slow tests, and most random examples; `make test-all` runs them",
    ]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([0, 1], 1),
        ([INTERRUPTED], INTERRUPTED),
        ([NOTHING_COLLECTED, 0], 0),
        ([NOTHING_COLLECTED, 1], 1),
        ([NOTHING_COLLECTED, NOTHING_COLLECTED], NOTHING_COLLECTED),
    ],
)
def test_the_exit_code_is_of_both_runs(codes: list[int], expected: int) -> None:
    """Words such as `-k` may leave nothing in one of them."""
    assert Total(codes=codes).code == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tests/test_run.py::test_it", True),
        ("tests/e2e", True),
        ("docs", False),
        ("not e2e", False),
        ("--lf", False),
    ],
)
def test_only_paths_of_tests_replace_the_two_runs(word: str, expected: bool) -> None:
    """A word for `-k` may be the name of a folder."""
    assert is_test(word) == expected


AT_IMPORT = "from tests.conftest import unmet\nunmet('it is not installed')\ndef test(): ...\n"
IN_TEST = "from tests.conftest import unmet\ndef test(): unmet('it is not installed')\n"


@pytest.mark.parametrize(("everything", "closing"), [("", "2 skipped"), ("1", "1 failed, 1 error")])
def test_a_missing_part_skips_or_fails(tmp_path: Path, everything: str, closing: str) -> None:
    """In a test and while a module is imported: skipped, and a failure where all must be there."""
    modules = [tmp_path / f"test_{name}.py" for name in ("import", "test")]
    for module, source in zip(modules, (AT_IMPORT, IN_TEST), strict=True):
        module.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += ["--continue-on-collection-errors", "--rootdir", str(tmp_path), "-c", os.devnull]
    done = subprocess.run(
        [*command, *map(str, modules)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REQUIRE_ALL": everything},
        capture_output=True,
        text=True,
        check=False,
    )
    assert closing in done.stdout
    assert done.stdout.count("it has to be") >= 2 * bool(everything)
