# SPDX-License-Identifier: Apache-2.0
"""The documentation is complete and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.cli.config import FLAGS
from exporter.exposition.catalogue import CATALOGUE

ROOT = Path(__file__).parent.parent
PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))
PROMETHEUS_OWNS = {"job", "instance", "pod", "namespace", "container", "node", "cluster"}
LABELS = {"gpu_instance", "gpu_max"}
"""Labels and label values that look like metrics."""
MISTYPED = {"poll.intreval"}
"""What docs/configuration.md shows the refusal of."""
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")
METRIC = re.compile(r"(?<![\w:\"])(?:gpu|roofline_exporter)_[a-z0-9_]+")
FLAG = re.compile(r"(?<![\w-])--(?!no-)([a-z]+(?:\.[a-z-]+)+)")


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_metric_is_documented() -> None:
    """docs/metrics.md has one row for each family."""
    rows = re.findall(r"^\| `([a-z0-9_]+)` \|", _text("docs/metrics.md"), re.MULTILINE)

    assert sorted(rows) == sorted(CATALOGUE)


def test_every_flag_is_documented() -> None:
    """docs/configuration.md has one row for each flag."""
    rows = re.findall(r"^\| `--([a-z.-]+)`", _text("docs/configuration.md"), re.MULTILINE)

    assert sorted(rows) == sorted(flag.name for flag in FLAGS)


def test_no_family_uses_a_label_that_prometheus_owns() -> None:
    """Such a label would come out as exported_job, and break joins."""
    for family in CATALOGUE.values():
        assert not PROMETHEUS_OWNS & set(family.all_labels), family.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist."""
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_metrics_and_flags_that_exist(page: Path) -> None:
    """A renamed metric or flag does not live on in the prose."""
    text = page.read_text(encoding="utf-8")
    families = CATALOGUE.values()
    names = {family.name for family in families} | {family.base_name for family in families}
    for metric in METRIC.findall(text):
        # "gpu_xyz_" and "gpu_xyz_*" stand for several families.
        known = metric in names or any(name.startswith(metric) for name in names)
        assert known or metric in LABELS, f"{page.name} names {metric}"
    flags = {flag.name for flag in FLAGS}
    for flag in FLAG.findall(text):
        assert flag in flags or flag in MISTYPED, f"{page.name} names --{flag}"


def test_every_page_is_linked_from_the_readme() -> None:
    """Whoever starts at the README finds all of it."""
    linked = {target for target, _ in LINK.findall(_text("README.md"))}

    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in linked, page.name
