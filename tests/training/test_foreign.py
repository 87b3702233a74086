# SPDX-License-Identifier: Apache-2.0
"""Test suites that nobody here wrote give the same results under `run`, test by test.

They are in the source distributions that `.ci/run` downloads; their code is not part of this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import unmet
from tests.training.listener import ROOT, Listener

SOURCES = ROOT / ".venv" / "foreign"
COMMAND = (sys.executable, str(ROOT / "roofline_job" / "command.py"), "run", "--quiet", "--")


OURS = ("COV_", "PYTE")
"""What variables of our own tests begin with."""


class Suite(NamedTuple):
    """A part of a source distribution's tests."""

    paths: tuple[str, ...]
    least: int
    """So many of its tests must pass, or it was not this suite that ran."""
    needs: tuple[str, ...]
    leaves_out: str = ""
    """What holds a clock against the wall, or computes for half a minute, for pytest's -k."""


SUITES = {
    "pytorch_ignite": Suite(
        ("tests/ignite/engine",),
        300,
        ("torch",),
        "not time and not gradients and not random_dataloader_from_epoch",
    ),
    "accelerate": Suite(
        ("tests/test_data_loader.py", "tests/test_optimizer.py", "tests/test_scheduler.py"),
        20,
        ("torch", "accelerate", "parameterized"),
    ),
}


def unpacked(name: str, into: Path) -> Path:
    """Unpack a source distribution, and return its folder."""
    found = sorted(SOURCES.glob(f"{name}-*.tar.gz"))
    if not found:
        unmet(f"the sources of {name} are not in {SOURCES}")
    with tarfile.open(found[-1]) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


def outcomes(report: Path) -> dict[str, str]:
    """Return how each test ended, by its name."""
    return {
        f"{case.get('classname')}::{case.get('name')}": ",".join(
            each.tag for each in case if each.tag in ("failure", "error", "skipped")
        )
        for case in ET.parse(report).iter("testcase")
    }


@pytest.mark.parametrize("name", SUITES)
def test_a_foreign_suite_ends_the_same_under_run(tmp_path: Path, name: str) -> None:
    """Which tests pass, fail and are skipped; both runs go on at the same time."""
    suite = SUITES[name]
    for needed in suite.needs:
        if subprocess.run([sys.executable, "-c", f"import {needed}"], check=False).returncode:
            unmet(f"{needed} is not installed")
    (tmp_path / "sources").mkdir()
    folder = unpacked(name, tmp_path / "sources")
    listener = Listener(tmp_path / "training.sock")
    environ = {
        **{name: value for name, value in os.environ.items() if name[:4] not in OURS},
        "PYTHONPATH": str(folder),
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "ROOFLINE_TRAINING_SOCKET": str(listener.path),
    }
    reports = {mode: tmp_path / f"{mode}.xml" for mode in ("plain", "run")}
    pytest_words = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")
    with (tmp_path / "log").open("w") as log:
        processes = [
            subprocess.Popen(
                [
                    *(COMMAND if mode == "run" else ()),
                    *(sys.executable, "-m", "pytest", *pytest_words, f"--junitxml={report}"),
                    *("-k", suite.leaves_out, *suite.paths),
                ],
                cwd=folder,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for mode, report in reports.items()
        ]
        while any(process.poll() is None for process in processes):
            listener.receive()
            with suppress(subprocess.TimeoutExpired):
                next(each for each in processes if each.returncode is None).wait(0.5)
    said = [json.loads(each) for each in listener.datagrams()]
    listener.close()

    plain, measured = (outcomes(report) for report in reports.values())
    assert sum(not outcome for outcome in plain.values()) >= suite.least
    differing = {test: (plain.get(test), outcome) for test, outcome in measured.items()}
    assert {test: ends for test, ends in differing.items() if ends[0] != ends[1]} == {}
    assert plain.keys() == measured.keys()
    assert said
    assert [report["error"] for report in said if "error" in report] == []
