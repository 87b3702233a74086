# SPDX-License-Identifier: Apache-2.0
"""The page of ``report`` in a real Chromium: it loads nothing, runs nothing and can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.cli.report.figures import report
from exporter.cli.report.html import page
from exporter.cli.report.queries import Range, Sample
from tests.cli.report.answers import HOSTILE
from tests.e2e.conftest import OpenPage

DAY, END = 86400, 1_773_014_400
FEW, MANY = 3, 60


def _answers(owners: int) -> dict[str, list[Sample]]:
    """A week in which each owner had a GPU, idle for a part of each day."""
    answers: dict[str, list[Sample]] = {"prices": [], "steps": []}
    for day in range(7):
        end = {"end": str(END - day * DAY)}
        answers["steps"].append(Sample(end, 144))
        for number in range(owners):
            of = f"{HOSTILE} {number}" if number % 2 else f"team-{number}/train"
            gpu = {"instance": "node-1:19400", "uuid": f"GPU-{number}", "gpu": str(number)}
            labels = {**end, **gpu, "of": of, "name": "NVIDIA H100 80GB HBM3"}
            idle = DAY * (number % 4) / 4
            for limiter, seconds in (("idle", idle), ("compute", DAY - idle)):
                sample = Sample({**labels, "limiter": limiter}, seconds)
                answers.setdefault("limited", []).append(sample)
            for figure, amount in (
                ("idle", idle),
                ("held_idle", idle / 2),
                ("unopened", idle / 2),
                ("joules", 400.0 * DAY),
                ("judged", DAY),
                ("saturated_lower", DAY / 4),
                ("saturated_upper", DAY / 3),
            ):
                answers.setdefault(figure, []).append(Sample(labels, amount))
    model = {"name": "NVIDIA H100 80GB HBM3", "currency": "EUR", "end": str(END)}
    answers["prices"].append(Sample(model, 2.5))
    return answers


@pytest.mark.parametrize("owners", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_page_of_a_week(owners: int, scheme: str, view: OpenPage, tmp_path: Path) -> None:
    """On a laptop and on a phone, in both schemes; hostile names are shown and do nothing."""
    file = tmp_path / "report.html"
    week = report(_answers(owners), "owner", Range(END - 7 * DAY, END, DAY, 600))
    file.write_text(page(week), encoding="utf-8")
    shown = view(color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    shown.page.on("console", lambda message: said.append(message.text))
    shown.load(file.as_uri())

    for size in ("laptop", "phone"):
        shown.resize(size)
        wide: Any = shown.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide[0] <= wide[1], f"{size}: it is {wide[0]} px wide"
        shown.screenshot(f"report-{owners}-{size}-{scheme}", whole=True)
    assert shown.page.locator("rect.used").first.bounding_box()
    assert shown.page.get_by_text(HOSTILE.partition("\x1b")[0]).count()
    assert shown.page.locator("script").count() == 0
    assert shown.findings() == []
    assert asked == [file.as_uri()]
    assert said == []
