# SPDX-License-Identifier: Apache-2.0
"""Which colour means what, the same on every dashboard, readable on dark and light."""

from __future__ import annotations

from collections.abc import Mapping

GREEN, AMBER, ORANGE, RED = "#56A64B", "#F2B134", "#E8663D", "#D64550"
BLUE, PINK, PURPLE, TEAL, SAND = "#4C8DDB", "#E0527A", "#A66FD0", "#3FA7A3", "#C0A16B"
GREY, PALE = "#7F8794", "#B7BCC4"

LIMITERS: Mapping[str, str] = {
    "idle": GREY,
    "input": PINK,
    "communication": PURPLE,
    "latency": AMBER,
    "memory": BLUE,
    "compute": GREEN,
    "clock": ORANGE,
    "unknown": PALE,
}
"""By what limits a GPU."""
LOST = RED
NUMBERED: Mapping[str, str] = {"mixed": "#D9CFB8", **LIMITERS, "lost": LOST}
"""In the order of the numbers that stand for them on a chart."""

AT_ITS_LIMIT = "at its limit"
"""How the time part `saturated` reads: saturation is a number only."""
TIME_PARTS: Mapping[str, str] = {
    AT_ITS_LIMIT: GREEN,
    "clock": ORANGE,
    "unsaturated": AMBER,
    "narrow": "#F7DC8B",
    "idle": GREY,
}

UNITS: Mapping[str, str] = {
    "tensor": GREEN,
    "tensor_fp16": GREEN,
    "fp64": "#8A7FD6",
    "fma": "#9AA7B8",
    "fp32": "#9AA7B8",
    "fp16": "#C99A4B",
    "int": "#C9707F",
    "DRAM": BLUE,
    "SM": TEAL,
    "engine": "#8AB8FF",
}

PHASES: Mapping[str, str] = {
    "data": PINK,
    "h2d": PURPLE,
    "forward": GREEN,
    "backward": "#37872D",
    "optimizer": "#96D98D",
    "checkpoint": TEAL,
    "eval": "#8AB8FF",
    "logging": SAND,
    "other": GREY,
}

PRECISIONS: Mapping[str, str] = {
    "fp64(_tensor)?": UNITS["fp64"],
    "fp32": UNITS["fp32"],
    "tf32_tensor": "#6FAF7F",
    "(fp|bf)16(_tensor(_fp16acc)?)?": UNITS["fp16"],
    "(fp8_tensor(_fp16acc)?|int8(_tensor)?)": UNITS["int"],
    "(fp|int)4_tensor": "#B06FC4",
}
"""By precision, as a regular expression: muted, because ceilings stand behind the GPUs."""

STATES: Mapping[str, str] = {
    "near its roof": GREEN,
    "busy": BLUE,
    "starved": PINK,
    "held idle": ORANGE,
    "unopened": SAND,
    "free": GREY,
    "lost": LOST,
}

UTILIZATION, SATURATION, ROOF = BLUE, ORANGE, GREEN
"""Lines of utilization, of saturation, and of the fraction of the achievable roof."""
WAITED, STALLED = "#F4A9BF", PINK
"""Host wait (W) and exposed stall (S)."""

GPUS = (
    *("#5794F2", "#FF9830", "#73BF69", "#B877D9", "#F2495C"),
    *("#37B5A5", "#D6A21E", "#E285C4", "#A3744B", "#8F9BD6"),
    *("#8AB8FF", "#FFB870", "#A5DD9C", "#D3ABEA", "#FF8593"),
    *("#7FD6CA", "#E8C86A", "#F0B6DE", "#C9A27E", "#BCC4EC"),
)
"""By index, over and over: the ten hues, and ten paler ones for the second ten GPUs."""


def gpu_pattern(number: int) -> str:
    """Return the end of the name of each GPU, or MIG instance of it, that has this colour.

    Behind a comma may follow what is shown of it.
    """
    tens, ones = divmod(number, 10)
    before = "([0-9]*[02468])?" if tens == 0 else "[0-9]*[13579]"
    return rf"GPU {before}{ones}(/[0-9]+)?(,.*)?\s*$"
