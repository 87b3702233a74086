# SPDX-License-Identifier: Apache-2.0
"""Formats numbers and names for people; static/format.js formats numbers alike."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone

CUT, LONG = 60, 120
"""Limits of texts from outside, in characters: of names, and of sentences."""
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_MAKERS = re.compile(r"^(NVIDIA |GeForce |Tesla |Quadro )+")
_TYPES = {
    name: name.upper()
    for name in ("fp64", "fp32", "fp16", "bf16", "tf32", "fp8", "fp4", "int8", "int4")
}


def cut(text: str, length: int = CUT) -> str:
    """Return text from outside, cut to `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def capitalised(text: str) -> str:
    """Return a phrase as a sentence begins."""
    return text[:1].upper() + text[1:]


def fixed(value: float, digits: int) -> str:
    """Return a number with so many digits after the point, rounded half up."""
    scale: float = 10**digits
    return f"{math.floor(value * scale + 0.5) / scale:.{digits}f}"


def percent_number(ratio: float) -> str:
    """Return a ratio as percents with a digit more where that is small: 61, 2.4, 0."""
    percents = ratio * 100
    return fixed(percents, 0 if percents >= 9.95 or percents < 0.05 else 1)


def percent(ratio: float) -> str:
    """Return a ratio as percents: 61 %, 2.4 %, 0 %."""
    return f"{percent_number(ratio)} %"


def span(lower: float, upper: float) -> str:
    """Return bounds as percents: "20 to 40 %", or one number where they are equal."""
    low, high = percent_number(lower), percent_number(upper)
    return f"{low} %" if low == high else f"{low} to {high} %"


def duration(seconds: float) -> str:
    """Return a length of time: 12 s, 5 min, 2 h 10 min, 3 d 4 h."""
    whole = math.floor(max(0.0, seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{whole} s"


def si(value: float, unit: str) -> str:
    """Return three digits and a prefix: 656 TFLOP/s, 1.35 TB/s."""
    if value == 0:
        return f"0 {unit}"
    scale, prefix = next(
        ((scale, prefix) for scale, prefix in _PREFIXES if value >= scale * 0.9995), (1.0, "")
    )
    scaled = value / scale
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{fixed(scaled, digits)} {prefix}{unit}"


def intensity(value: float) -> str:
    """Return FLOP per byte."""
    return f"{fixed(value, 0 if value >= 99.95 else 1 if value >= 9.995 else 2)} FLOP/B"


def gibibytes(value: float) -> str:
    """Return bytes in GiB, without the unit."""
    amount = value / 2**30
    return fixed(amount, 0 if amount >= 9.95 or amount == 0 else 1)


def clock_time(seconds: float) -> str:
    """Return the time of day in UTC."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%H:%M:%S} UTC"


def iso_time(seconds: float) -> str:
    """Return a Unix time for a machine to read."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def precision_name(key: str) -> str:
    """Return bf16_tensor as "BF16 tensor", fp16_tensor_fp16acc as "FP16 tensor (FP16 sums)"."""
    parts = key.split("_")
    name = _TYPES.get(parts[0], parts[0])
    return name + (" tensor" if len(parts) > 1 else "") + (" (FP16 sums)" if len(parts) > 2 else "")


def model_name(name: str) -> str:
    """Return the name of a GPU model without those of its maker: H100 80GB HBM3, RTX 4090."""
    return cut(_MAKERS.sub("", name) or name)


def profile_name(profile: str) -> str:
    """Return the profile of a GPU instance from that of a compute instance: 1c.3g.40gb."""
    return profile.split("c.", 1)[-1]


def plain(slug: str) -> str:
    """Return remapped_rows as "remapped rows"."""
    return slug.replace("_", " ")
