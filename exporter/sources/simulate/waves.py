# SPDX-License-Identifier: Apache-2.0
"""Integrals of all simulated rates up to a given time, in closed form.

A wave repeats a beat of one or more phases for ever. Over each beat of length B all rates wobble:

    rate(t) = rates + swings x a x sin(2 pi t / B)        (t from the start of the beat)

The amplitude a, in [-1, 1], is a hash of the number of the pair of beats, and the second beat of a
pair has the opposite sign: over a pair the wobble adds nothing. So the integral from 0 to any t is
a product and the rest of one pair, whatever t is, and two readers of the same wave always agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, sin, tau
from typing import NamedTuple

_MASK = 2**64 - 1


class Rates(NamedTuple):
    """Rates per second, or their integrals since some time."""

    engine: float = 0.0
    dram: float = 0.0
    pcie_transmit: float = 0.0
    """Bytes per second; so are the next two."""
    pcie_receive: float = 0.0
    nvlink: float = 0.0
    """Each direction."""
    power: float = 0.0
    """Watts."""
    cycles: float = 0.0
    """SM clock in hertz."""
    busy_cycles: float = 0.0
    """SM clock x engine activity."""
    sm_cycles: float = 0.0
    """SM clock x SM activity; the next ones the same for other units."""
    occupancy_cycles: float = 0.0
    tensor_cycles: float = 0.0
    fp64_cycles: float = 0.0
    fp32_cycles: float = 0.0
    fp16_cycles: float = 0.0
    integer_cycles: float = 0.0
    capped: float = 0.0
    """1 while the power limit holds the clock down."""
    trained: float = 0.0
    """1 while a training job is in its loop."""
    stalled: float = 0.0
    """The part of it in which the GPU has nothing to do: the job waits for its data."""
    waited: float = 0.0
    """The part of it in which the GPU only waits for other ranks."""


NOTHING = Rates()


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a beat, in which the rates are the same but for the wobble."""

    seconds: float
    rates: Rates
    swings: Rates


class Wave:
    """Rates over time; `key` makes its wobble differ from that of other waves."""

    def __init__(self, phases: Sequence[Phase], key: int) -> None:
        self._phases = tuple(phases)
        self._beat = sum(phase.seconds for phase in self._phases)
        self._key = key

    def integral(self, seconds: float) -> Rates:
        """Return the integral from 0 to `seconds`, which is at least 0."""
        pairs, rest = divmod(seconds, 2 * self._beat)
        # By phase: how long it lasted until then, and the integral of its wobble.
        lengths = [2 * pairs * phase.seconds for phase in self._phases]
        wobbles = [0.0] * len(lengths)
        amplitude = _amplitude(self._key, int(pairs))
        for sign in (amplitude, -amplitude):
            scale = sign * self._beat / tau
            start = 0.0
            for number, phase in enumerate(self._phases):
                length = min(rest, phase.seconds)
                if length <= 0.0:
                    break
                angle = tau * start / self._beat
                lengths[number] += length
                wobbles[number] += scale * (cos(angle) - cos(angle + tau * length / self._beat))
                rest -= length
                start += phase.seconds
        totals = [0.0] * len(NOTHING)
        for phase, length, wobble in zip(self._phases, lengths, wobbles, strict=True):
            totals = [
                total + rate * length + swing * wobble
                for total, rate, swing in zip(totals, phase.rates, phase.swings, strict=True)
            ]
        return Rates._make(totals)

    def at(self, seconds: float) -> Rates:
        """Return the rates at one moment."""
        pair, rest = divmod(seconds, 2 * self._beat)
        amplitude = _amplitude(self._key, int(pair))
        if rest >= self._beat:
            rest, amplitude = rest - self._beat, -amplitude
        wobble = amplitude * sin(tau * rest / self._beat)
        phase = self._phases[-1]
        for candidate in self._phases:
            if rest < candidate.seconds:
                phase = candidate
                break
            rest -= candidate.seconds
        return Rates._make(
            rate + swing * wobble for rate, swing in zip(phase.rates, phase.swings, strict=True)
        )


def mixed(*numbers: int) -> int:
    """Return a 64-bit hash of whole numbers (the finalizer of SplitMix64, once for each)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def _amplitude(key: int, pair: int) -> float:
    return mixed(key, pair) / 2**63 - 1.0
