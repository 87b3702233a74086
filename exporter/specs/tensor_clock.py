# SPDX-License-Identifier: Apache-2.0
"""The clock at which published tensor peaks hold, where nobody published that clock."""

from __future__ import annotations

from collections.abc import Mapping

LOWEST_RATIO = 0.8
"""Of the highest clock: the lowest that a datasheet states its tensor peaks for (H100 NVL: 0.87).
Peaks that imply a lower one are those of a GPU model that was cut, and hold at its vector clock."""
HIGHEST_RATIO = 1.02
"""The same: above it the published peaks are not those of this architecture."""
FLOAT_TENSOR = ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "fp4_tensor")


def implied_tensor_clock(
    peak_flops_per_second: Mapping[str, float],
    flops_per_clock: Mapping[str, int],
    sm_count: int | None,
    highest_hertz: float | None,
) -> float | None:
    """Return peak / (SMs x FLOP per clock and SM) in hertz, the lowest over the tensor precisions.

    At the lowest one no precision comes out below the rate of the architecture. B200: 2250 TFLOP/s
    / (148 x 8192) = 1856 MHz, while its highest clock is 1965 MHz. None where SMs, rates or the
    highest clock are not known, and for GPU models that were cut (H20: 23 % of Hopper's rate).
    """
    implied = _lowest_implied(peak_flops_per_second, flops_per_clock, sm_count)
    if implied is None or not highest_hertz:
        return None
    return implied if LOWEST_RATIO <= implied / highest_hertz <= HIGHEST_RATIO else None


def tensor_rate_ratio(
    peak_flops_per_second: Mapping[str, float],
    flops_per_clock: Mapping[str, int],
    sm_count: int | None,
    highest_hertz: float | None,
) -> float | None:
    """Return the published tensor rate over the architecture's at the highest clock (H20: 0.14)."""
    implied = _lowest_implied(peak_flops_per_second, flops_per_clock, sm_count)
    return None if implied is None or not highest_hertz else implied / highest_hertz


def _lowest_implied(
    peak_flops_per_second: Mapping[str, float],
    flops_per_clock: Mapping[str, int],
    sm_count: int | None,
) -> float | None:
    if not sm_count:
        return None
    return min(
        (
            peak_flops_per_second[precision] / (sm_count * flops_per_clock[precision])
            for precision in FLOAT_TENSOR
            if precision in peak_flops_per_second and flops_per_clock.get(precision)
        ),
        default=None,
    )
