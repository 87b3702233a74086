# SPDX-License-Identifier: Apache-2.0
"""docs/causes.md has a section for each cause, and states the thresholds of the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.model.causes import CAUSES
from roofline_job.causes import THRESHOLDS, WAITS_FOR_DATA, Cause

PAGE = (Path(__file__).parents[3] / "docs/causes.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OTHERS = ["Known, but not shown"]
PARTS = ("**What we see.** ", "**Why.** ", "**What to change.**", "**What it does not mean.** ")
NUMBER = re.compile(r"\d+(?:\.\d+)? %|[\d.]+ KiB|[\d.]+ (?:of a )?core\b|[\d.]+ ms|\d+ seconds")


def said(threshold: str) -> str:
    """Return a threshold as the page says it."""
    value = THRESHOLDS[threshold]
    if threshold.endswith("_ratio"):
        return f"{100 * value:g} %"
    if threshold.endswith("_bytes"):
        return f"{value / 1024:g} KiB"
    if threshold.endswith("_seconds"):
        return f"{value:g} seconds" if value >= 1 else f"{1000 * value:g} ms"
    return f"{value:g} core" if value >= 1 else f"{value:g} of a core"


def compared(cause: Cause) -> set[str]:
    """Return the thresholds of a cause, but that of the wait for data, as the page says them."""
    last = {when.split()[-1] for when in cause.when if when != WAITS_FOR_DATA}
    return {said(name) for name in last & THRESHOLDS.keys()}


def test_each_cause_has_a_section_and_a_row() -> None:
    """In the order of the table: what `documentation` of a diagnosis links to."""
    slugs = [cause.slug for cause in CAUSES]
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert list(SECTIONS) == [*slugs, *OTHERS]
    assert rows == [(slug, slug) for slug in slugs]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.slug)
def test_a_section_says_what_its_conditions_compare(cause: Cause) -> None:
    """The numbers of the table and no others; and each section answers the same questions."""
    section = SECTIONS[cause.slug]
    seen = section.split(PARTS[0])[1].split("\n\n")[0].replace("\n", " ")
    numbers = set(NUMBER.findall(seen))
    if any("steps_of_median_ratio" in when for when in cause.when):
        numbers -= {"5 %"}  # 0.95 to 1.05
    assert numbers == compared(cause)
    assert (WAITS_FOR_DATA in cause.when) == ("waits for data" in seen)
    assert [section.count(part) for part in PARTS] == [1] * len(PARTS)
    assert re.search(r"^Sources: \[\d+\]", section, re.MULTILINE)


def test_what_waits_for_data_means() -> None:
    """Its threshold is said once, at the top."""
    meaning = PAGE.split("**Waits for data**")[1].split("\n\n")[0]
    assert said(WAITS_FOR_DATA.split()[-1]) in meaning


def test_sources_are_numbered() -> None:
    """Each that is named is listed, and the other way round."""
    text, listed = PAGE.split("### Sources\n")
    named = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
    assert sorted(named) == [int(each) for each in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)]
