# SPDX-License-Identifier: Apache-2.0
"""Counts the steps, batches, samples and FLOPs of a thread.

A step is what the job states as one, else a step of the optimizer, else a batch; which applies is
known only afterwards. So counts are kept by episode: from the opening of a loop while none is open
to the next. Of several optimizers (a GAN), and of several loops (loaders that are zipped), the
busiest counts; of their samples, the largest batch before each step.

A prefetcher finds the end of the data while the job still has batches to train on. So an optimizer
may go on after its loops are closed while there are batches left, at the pace that it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real

STEPS = 10**9
SAMPLES = 10**9
FLOPS = 10**24
"""The most that a job can do between two calls; the daemon refuses more as a mistake."""


def amount(number: object, most: int) -> float:
    """Return a number that the job states, as it is reported.

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


@dataclass(slots=True)
class Stepping:
    """The steps of one optimizer in an episode."""

    steps: int = 0
    first: int = 0
    """Batches that had come at the first step, those included that a prefetcher holds."""
    pace: int = 0
    """Batches from the first step to the second; before that, up to the first."""

    def step(self, batches: int) -> None:
        """Count a step after this many batches."""
        self.steps += 1
        if self.steps == 1:
            self.pace = self.first = batches
        elif self.steps == 2 and batches > self.first:
            self.pace = batches - self.first


@dataclass(slots=True)
class Episode:
    """The counts from one opening to the next."""

    tallies: dict[int, int] = field(default_factory=dict)
    """Batches, by the key of the iterable that gave them."""
    stepping: dict[int, Stepping] = field(default_factory=dict)
    """By the id of the optimizer."""
    own_steps: int = 0
    flops: float | None = None
    """FLOPs that do not follow from the number of steps."""
    flops_per_step: float | None = None

    def batches(self) -> int:
        """Return the batches of all loops."""
        return sum(self.tallies.copy().values())

    def most_steps(self) -> int:
        """Return the steps of the busiest optimizer."""
        return max([stepping.steps for stepping in list(self.stepping.values())], default=0)

    def steps(self, *, optimizer_seen: bool) -> int:
        """Return the steps: stated ones, else the optimizer's, else batches."""
        if self.own_steps:
            return self.own_steps
        if self.stepping:
            return self.most_steps()
        if optimizer_seen:
            return 0
        return max(self.tallies.copy().values(), default=0)

    def all_flops(self, steps: int) -> float | None:
        """Return the FLOPs; None where the job states none."""
        by_step = None if self.flops_per_step is None else self.flops_per_step * steps
        return _plus(by_step, self.flops)


class Counts:
    """The counts of one thread: of finished episodes, and of the current one."""

    def __init__(self) -> None:
        self.optimizer_seen = False
        self.episode = Episode()
        self._ended: tuple[int, int, float | None] = (0, 0, None)
        """Steps, batches and FLOPs of finished episodes."""
        self._samples: float | None = None
        """Samples of finished cycles."""
        self._cycle: dict[int, float] = {}
        """The samples that loops gave since the last cycle, by the loop's key."""
        self._most: tuple[int, float | None] = (0, None)
        """The highest steps and FLOPs that `totals` has returned."""

    def add_batches(self, key: int, batches: int) -> None:
        """Count batches of the iterable with this key."""
        tallies = self.episode.tallies
        tallies[key] = tallies.get(key, 0) + batches

    def add_samples(self, key: int, samples: float) -> None:
        """Count the samples of a batch of the loop with this key."""
        if key in self._cycle:
            self._end_cycle()
        self._cycle[key] = samples

    def add_flops(self, flops: float | None) -> None:
        """Count FLOPs that do not follow from the number of steps."""
        self.episode.flops = _plus(self.episode.flops, flops)

    def optimizer_step(self, optimizer: object) -> None:
        """Count a step of this optimizer."""
        stepping = self.episode.stepping.setdefault(id(optimizer), Stepping())
        stepping.step(self.episode.batches() if stepping.steps < 2 else 0)
        self.optimizer_seen = True
        self._end_cycle()

    def late_step(self, optimizer: object) -> bool:
        """Count a step after the loops were closed if batches wait for it; return whether.

        An optimizer that steps less often than another does not count: steps are the other's.
        Where no optimizer ever stepped inside a loop, loops are not what it trains in, unless the
        last one gave a single batch.
        """
        episode = self.episode
        batches = episode.batches()
        if not self.optimizer_seen and batches != 1:
            return False
        stepping = episode.stepping.get(id(optimizer)) or Stepping()
        is_done = stepping.steps * stepping.pace >= batches
        if is_done or stepping.steps + 1 < episode.most_steps():
            return False
        stepping.step(batches if not stepping.steps else 0)
        episode.stepping[id(optimizer)] = stepping
        self.optimizer_seen = True
        return True

    def explicit(self, steps: int, samples: float | None, flops: float | None) -> None:
        """Count steps, samples and FLOPs that the job states."""
        self.episode.own_steps += steps
        self._end_cycle()
        self._samples = _plus(self._samples, samples)
        self.add_flops(flops)

    def end_episode(self) -> None:
        """Add the current episode to the finished ones."""
        self._end_cycle()
        self._ended, self.episode = self._sum(), Episode()

    def totals(self) -> tuple[int, int, float | None, float | None]:
        """Return steps, batches, samples and FLOPs so far; none ever falls.

        Steps could: batches count as steps until an optimizer is first seen to step, and it may
        step less often.
        """
        steps, batches, flops = self._sum()
        most_steps, most_flops = self._most
        if flops is not None:
            most_flops = max(flops, most_flops or 0)
        self._most = most_steps, most_flops = max(steps, most_steps), most_flops
        samples = _plus(self._samples, max(self._cycle.copy().values(), default=None))
        return most_steps, batches, samples, most_flops

    def _end_cycle(self) -> None:
        self._samples = _plus(self._samples, max(self._cycle.values(), default=None))
        self._cycle.clear()

    def _sum(self) -> tuple[int, int, float | None]:
        episode = self.episode
        ended_steps, ended_batches, ended_flops = self._ended
        steps = episode.steps(optimizer_seen=self.optimizer_seen)
        batches = ended_batches + episode.batches()
        return ended_steps + steps, batches, _plus(ended_flops, episode.all_flops(steps))


def _plus(total: float | None, part: float | None) -> float | None:
    if part is None:
        return total
    return part if total is None else total + part
