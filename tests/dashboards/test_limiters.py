# SPDX-License-Identifier: Apache-2.0
"""A limiter that is added to the exporter has its place on the dashboards."""

from __future__ import annotations

import sys

import pytest

from dashboards import palette, promql
from exporter.model.snapshot import LIMITERS
from exporter.web.wording import state

NEITHER = ("unknown",)
"""Limiters that count neither as useful nor as a loss, and that the roofline does not explain."""


def test_every_limiter_is_useful_or_a_loss() -> None:
    """Else its hours are in no sum: each limiter is in dashboards/promql.py or above, once."""
    placed = (*promql.USEFUL.split("|"), *promql.LOSS.split("|"), *NEITHER)
    assert sorted(placed) == sorted(LIMITERS)


def test_every_limiter_has_a_color() -> None:
    """It is in dashboards/palette.py, in the exporter's order."""
    assert tuple(palette.LIMITERS) == LIMITERS


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2")  # its JSON is not yet shared
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the models of Grafana need Python 3.11")
def test_the_color_key_of_the_roofline_names_every_limiter() -> None:
    """With the word for the colour that the palette has for it."""
    from dashboards.roofline_chart import COLOR_KEY

    words = dict(entry.split(" ") for entry in COLOR_KEY.split(", "))
    named = {name: getattr(palette, word.upper()) for name, word in words.items()}
    assert named == {name: palette.LIMITERS[name] for name in LIMITERS if name not in NEITHER}


def test_near_its_roof_is_what_it_is_on_the_page() -> None:
    """From the same saturation on."""
    assert promql.NEAR_ROOF_SATURATION == state.NEAR_ROOF_SATURATION
