# SPDX-License-Identifier: Apache-2.0
"""``counters check``: what CUPTI can count of each chip."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.counters import check
from exporter.cli.counters.check import Checked, listing, sheet
from exporter.cli.terminal.screen import Screen, cells
from exporter.errors import ConfigError
from exporter.sources.cupti import release as releases
from exporter.sources.cupti.choice import Metric
from exporter.sources.cupti.release import Release
from exporter.sources.cupti.signals import MetricForm
from tests.cli.outcomes import Outcome
from tests.fake_nvml import FakeNvml
from tests.programs import exporter
from tests.sources.cupti.real import RELEASES, release
from tests.terminals import REPOSITORY

CU12, CU13 = RELEASES
CUDA = {CU12: "12.9", CU13: "13.0"}
PAGE = REPOSITORY / "docs" / "cupti.md"
UNIT = Metric("tensor", "x" * 90, "tensor_fp16", MetricForm.PERCENT)
LINK = Metric("pcie_receive", "pcie__read_bytes.sum", "pcie_receive_bytes", MetricForm.BYTES)
NOBODY = "--web.listen-address=127.0.0.1:9"
CHECKED = Checked("13.1.115", "TU102", 1, (UNIT, LINK), ("fp64",))


@cache
def printed(package: str, *words: str) -> str:
    """What the command prints, in a process of its own, as on a driver that the package is for."""
    release(package)
    done = exporter("counters", "check", NOBODY, "--cuda", CUDA[package], *words, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("package", RELEASES)
def test_one_chip_as_json(package: str) -> None:
    """These keys and no others; the metrics are CUPTI's, all counted at the same time."""
    answer = json.loads(printed(package, "--chip", "ga102", "--format", "json"))

    assert list(answer) == ["cupti", "chip", "passes", "signals", "missing"]
    assert answer["cupti"] == release(package).version
    assert (answer["chip"], answer["passes"]) == ("GA102", 1)
    assert {"tensor", "fma", "int", "dram", "sm", "engine"} <= set(answer["signals"])
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", name) for name in answer["signals"].values())
    assert answer["missing"] == (["fp64"] if package == CU12 else [])


def chips() -> list[dict[str, Any]]:
    return json.loads(printed(CU13, "--format", "json"))["chips"]  # type: ignore[no-any-return]


def test_all_chips_as_json() -> None:
    """A list of the same, from Turing on, behind the machine and the GPUs of its daemon."""
    assert list(json.loads(printed(CU13, "--format", "json"))) == ["machine", "gpus", "chips"]
    found = {each["chip"]: each for each in chips()}

    assert json.loads(printed(CU13, "--chip", "GA102", "--format", "json")) == found["GA102"]
    assert {"TU102", "GA100", "AD102", "GH100", "GB100", "GB202"} <= set(found)
    assert not [chip for chip in found if chip.startswith("GV")]
    assert {each["passes"] for each in found.values()} == {1}


def test_the_page_has_what_the_command_prints() -> None:
    """Every chip is in one row, with what is sampled and what is missing."""
    rows = re.findall(
        r"^\| ((?:[A-Z]{2}\w+(?:, )?)+) \|[^|]*\|([^|]*)\|([^|]*)\|$", PAGE.read_text(), re.M
    )
    told = {
        chip: [sampled, missing] for names, sampled, missing in rows for chip in names.split(", ")
    }
    header, *lines, _ = printed(CU13).split("\n\n")[-1].splitlines()
    missing, sampled = header.index("MISSING"), header.index("SAMPLED")

    assert {chip: [each.strip() for each in columns] for chip, columns in told.items()} == {
        line.split()[0]: [line[sampled:], line[missing:sampled].strip()] for line in lines
    }


def test_a_chip_by_its_metrics() -> None:
    """One line a signal; what is measured on Turing is called what it is."""
    title, header, *lines = printed(CU13, "--chip", "TU102").splitlines()

    assert title == f"TU102 by nvidia-cuda-cupti {release(CU13).version}, in 1 pass"
    assert header.split() == ["SIGNAL", "OF", "METRIC"]
    (tensor,) = [line.split() for line in lines if line.startswith("tensor")]
    assert tensor[1] == "tensor+FP16"
    assert tensor[2].startswith("sm__pipe_shared_cycles_active_realtime.")


@pytest.mark.parametrize("columns", [1, 20, 80, 160])
def test_nothing_is_wider_than_the_terminal(columns: int) -> None:
    """A long metric is cut, and the least important column goes."""
    release = Release(CU13, "13.1.115", Path("/"))
    for line in (
        *listing([CHECKED], release, Screen(columns)),
        *sheet(CHECKED, release, Screen(columns)),
    ):
        assert cells(line) <= columns


# What goes wrong.


@pytest.mark.usefixtures("installed_by_pip")
def test_without_the_library_it_says_how_to_get_it(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No, and the command is next; of one chip there is nothing to say. Exit code 1. A daemon that
    is named and does not answer is said, one of this node that does not run is not."""
    monkeypatch.setattr(releases, "DISTRIBUTIONS", {"no-such-package": "x"})
    install = "pip install 'roofline-exporter[cupti]'"

    code, out, err = outcome("counters", "check", NOBODY, "--cuda", "13.0")
    assert (code, err) == (1, "")
    first, _, last = out.splitlines()
    assert (first, last) == ("Library: no, CUPTI is not installed", f"Next: {install}")

    code, out, err = outcome("counters", "check", NOBODY, "--cuda=13.0", "--format=json")
    answer = json.loads(out)
    assert (code, answer["chips"], answer["gpus"], err) == (1, [], [], "")
    assert (answer["machine"]["cupti"], answer["machine"]["next"]) == (None, install)

    assert outcome("counters", "check", "--chip=GA102", "--cuda=13.0") == (
        1,
        "",
        f"roofline-exporter: CUPTI is not installed: {install}\n",
    )
    code, _, err = outcome("counters", "check", "--url=http://127.0.0.1:9", "--cuda=12.2")
    asked = "http://127.0.0.1:9/api/v1/gpus: Connection refused"
    assert (code, err) == (1, f"roofline-exporter: {asked}\n")


@pytest.mark.parametrize(
    ("text", "nearest"), [("GA1O2", ", did you mean GA102?"), ("Voodoo", ""), ("x" * 5000, "")]
)
def test_an_unknown_chip_is_told_with_the_nearest(text: str, nearest: str) -> None:
    """And any case of letters is known."""
    known = ("TU102", "GA102", "GA104", "GB202")
    with pytest.raises(ConfigError) as caught:
        check.chip_of(text, known)

    assert str(caught.value).startswith("--chip: this release of CUPTI does not know '")
    assert str(caught.value).endswith(f"'{nearest} (see roofline-exporter counters check)") or (
        len(text) > 60
    )
    assert len(str(caught.value)) < 200
    assert check.chip_of("ga104", known) == "GA104"


def test_the_driver_decides_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version of CUDA; none without a driver."""
    assert check.driver_cuda("/nonexistent.so") is None

    fake = FakeNvml(tmp_path, {"cuda_version": "12.9", "devices": []})
    fake.activate(monkeypatch)
    assert check.driver_cuda(str(fake.library)) == (12, 9)
