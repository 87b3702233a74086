# SPDX-License-Identifier: Apache-2.0
"""Whether a number that the job states can be counted."""

from __future__ import annotations

from numbers import Integral, Real

STEPS = 10**9
SAMPLES = 10**9
FLOPS = 10**24
"""The most that a job can do between two calls; the daemon refuses more as a mistake."""


def amount(number: object, most: int) -> float:
    """Return a number as it is reported.

    Raises:
        TypeError: it is not a number. Tensors are refused too: reading one may wait for the GPU.
        ValueError: it is negative, too large, or not a number at all.
    """
    if type(number) is not int:
        if not isinstance(number, Real):
            raise TypeError(f"{type(number).__name__} is not a number")
        number = int(number) if isinstance(number, Integral) else float(number)
    if not 0 <= number <= most:
        raise ValueError(f"{number!r} is not from 0 to {most:g}")
    return number
