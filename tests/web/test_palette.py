# SPDX-License-Identifier: Apache-2.0
"""The colours of the page: told apart by everybody, seen on their ground."""

from __future__ import annotations

import itertools
import math
import re
from typing import NamedTuple

import pytest

from exporter.web.static import FOLDER

SCHEMES = ("light", "dark")
LEAST_DISTANCE = 0.12
"""In OKLab; a just noticeable difference is about 0.02."""
LEAST_DISTANCE_DICHROMATIC = 0.045
LEAST_GRAPHICAL_CONTRAST = 3.0
"""WCAG 2.1, 1.4.11."""
LEAST_TEXT_CONTRAST = 4.5

# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB.
_DICHROMATS = {
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
}


class Colour(NamedTuple):
    """Linear RGB, each 0 to 1."""

    red: float
    green: float
    blue: float


def _css() -> str:
    return (FOLDER / "page.css").read_text("utf-8")


def _colours(scheme: str) -> dict[str, Colour]:
    """Return the variables of page.css that are colours; the dark ones replace the light ones."""
    light, dark = re.findall(r":root \{(.*?)\}", _css(), re.DOTALL)
    text = light + (dark if scheme == "dark" else "")
    return {name: _linear(code) for name, code in re.findall(r"--([\w-]+): #([0-9a-f]+);", text)}


def _linear(code: str) -> Colour:
    digits = "".join(2 * each for each in code) if len(code) == 3 else code
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return Colour(*(x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts))


def _oklab(colour: Colour) -> tuple[float, float, float]:
    """Ottosson 2020: distances are alike where differences look alike."""
    red, green, blue = colour
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _distance(one: Colour, other: Colour) -> float:
    return math.dist(_oklab(one), _oklab(other))


def _seen(colour: Colour, kind: str) -> Colour:
    rows = _DICHROMATS[kind]
    seen = (sum(a * b for a, b in zip(row, colour, strict=True)) for row in rows)
    return Colour(*(min(1.0, max(0.0, part)) for part in seen))


def _contrast(one: Colour, other: Colour) -> float:
    light = [0.2126 * each.red + 0.7152 * each.green + 0.0722 * each.blue for each in (one, other)]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_series_and_phases_are_told_apart(scheme: str) -> None:
    """Each pair of the GPUs' and phases' colours, also by who does not see red or green."""
    colours = _colours(scheme)
    series = {name: colours[name] for name in (*(f"s{index}" for index in range(8)), "load")}
    for (one, first), (other, second) in itertools.combinations(series.items(), 2):
        assert _distance(first, second) >= LEAST_DISTANCE, (one, other)
        for kind in _DICHROMATS:
            distance = _distance(_seen(first, kind), _seen(second, kind))
            assert distance >= LEAST_DISTANCE_DICHROMATIC, (one, other, kind)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_marks_and_words_are_seen_on_their_ground(scheme: str) -> None:
    """Marks reach 3 : 1 on the cards, words 4.5 : 1; the saturation also upon the utilization."""
    colours = _colours(scheme)
    marks = ("good", "load", "spec", "clock", *(f"s{each}" for each in range(8)))
    for name in marks:
        assert _contrast(colours[name], colours["surface"]) >= LEAST_GRAPHICAL_CONTRAST, name
    for ground in ("used", "track"):
        assert _contrast(colours["good"], colours[ground]) >= LEAST_GRAPHICAL_CONTRAST
    for name in ("text", "muted", "accent", "good", "warn", "bad"):
        for ground in ("surface", "ground", "selected"):
            assert _contrast(colours[name], colours[ground]) >= LEAST_TEXT_CONTRAST, (name, ground)
