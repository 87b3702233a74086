# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's CUPTI stays out of what we publish: its licence does not let us pass it on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.sources.cupti.release import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]
NVIDIAS = re.compile(r"nvidia[-_]cuda[-_]cupti|\[cupti\]|libcupti|libnvperf", re.IGNORECASE)
OURS = ["Dockerfile", *(str(path.relative_to(ROOT)) for path in ROOT.glob("requirements/*"))]


@pytest.mark.parametrize("name", OURS)
def test_the_image_is_built_without_it(name: str) -> None:
    """Whoever wants it installs it, or builds an image of their own."""
    assert NVIDIAS.search((ROOT / name).read_text("utf-8")) is None


def test_only_the_extra_and_a_group_of_tests_name_it() -> None:
    """No dependency of everybody's; both packages where both are meant."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text.partition("\ndependencies = [")[2].partition("\n]")[0]
    extra = text.partition("[project.optional-dependencies]")[2].partition("[project.urls]")[0]

    assert NVIDIAS.search(project) is None
    for package in DISTRIBUTIONS:
        assert len(re.findall(rf'^    "{package}[>=]', text, re.MULTILINE)) == 2
        assert len(re.findall(rf'^    "{package}>', extra, re.MULTILINE)) == 1


@pytest.mark.parametrize("folder", ["exporter", "roofline_job", "deploy", "dashboards"])
def test_no_file_is_of_it(folder: str) -> None:
    """Neither libraries nor headers."""
    names = [path.name for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert [name for name in names if re.search(r"\.so(\.|$)|\.h$|\.whl$", name)] == []
