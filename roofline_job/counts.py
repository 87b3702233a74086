# SPDX-License-Identifier: Apache-2.0
"""How many steps, batches, samples and FLOPs a thread did.

What a step is, is known only in hindsight: what the job itself calls one, else a step of the
optimizer, else a batch. So they are counted by episode, the time from the opening of a loop where
none was open to the next such opening, and an episode's steps are those of the first kind that was
seen in it. Several optimizers or several loops make one step together (a GAN; two loaders that are
zipped): the busiest one counts.

An episode's data may end before its steps do: a prefetcher finds the end while the job still has a
batch to train on, and gradients that are accumulated may leave a rest. So an optimizer may go on
after its loops are closed for as long as there are batches for which it has not stepped, at the
pace that it had. A loop that gives no batch, as of a prefetcher that asks again after the end, is
no opening: the episode before it goes on.
"""

from __future__ import annotations

from typing import Any, Protocol


class _Run(Protocol):
    optimizer_seen: bool


class Tally:
    """The batches in this episode of the loops that go by one key."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches = 0


class Stepping:
    """What one optimizer did in this episode."""

    __slots__ = ("first", "pace", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.first = 0
        """Batches that had come at the first step, those included that a prefetcher holds."""
        self.pace = 0
        """Batches from the first step to the second; before that, those up to the first."""

    def step(self, batches: int) -> None:
        """Count a step, before which so many batches had come."""
        self.steps += 1
        if self.steps == 1:
            self.pace = self.first = batches
        elif batches > self.first:
            self.pace = batches - self.first


class Counts:
    """The counts of one thread for one run. Only that thread writes."""

    __slots__ = (
        "_before",
        "_ended_batches",
        "_ended_flops",
        "_ended_steps",
        "_flops",
        "_own_steps",
        "_run",
        "_stepping",
        "_tallies",
        "flops_per_step",
        "samples",
    )

    def __init__(self, run: _Run) -> None:
        self._run = run
        self.samples: float | None = None
        self.flops_per_step: float | None = None
        """Stated by a loop of this episode."""
        self._before: tuple[Any, ...] | None = None
        """The last episode, while it may still go on."""
        self._ended_batches = 0
        self._ended_steps = 0
        self._ended_flops: float | None = None
        self._own_steps = 0
        self._flops: float | None = None
        self._tallies: dict[int, Tally] = {}
        self._stepping: dict[int, Stepping] = {}

    def tally(self, key: int) -> Tally:
        """Return where the batches of one watched iterable are counted in this episode.

        Loops over several may each give a step one batch.
        """
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        return tally

    def add_samples(self, samples: float) -> None:
        """Count samples."""
        self.samples = (self.samples or 0) + samples

    def optimizer_step(self, optimizer: object) -> None:
        """Count a step of this optimizer."""
        stepping = self._stepping.get(id(optimizer))
        if stepping is None:
            stepping = self._stepping[id(optimizer)] = Stepping()
        if stepping.steps < 2:
            stepping.step(self._episode_batches())
        else:
            stepping.steps += 1
        self._run.optimizer_seen = True

    def late_step(self, optimizer: object) -> bool:
        """Count a step after the loops were closed if batches wait for it; return whether.

        An optimizer that steps less often than another has no say: steps are the other's. Where no
        optimizer ever stepped inside a loop, loops are not what it trains in.
        """
        if not self._run.optimizer_seen:
            return False
        stepping = self._stepping.get(id(optimizer)) or Stepping()
        batches = self._episode_batches()
        if stepping.steps * stepping.pace >= batches or stepping.steps + 1 < self._most_steps():
            return False
        if stepping.steps:
            stepping.steps += 1
        else:
            stepping.step(batches)
            self._stepping[id(optimizer)] = stepping
        return True

    def explicit(self, steps: int, samples: float | None, flops: float | None) -> None:
        """Count what the job itself tells of."""
        self._own_steps += steps
        if samples is not None:
            self.add_samples(samples)
        if flops is not None:
            self.add_flops(flops)

    def add_flops(self, flops: float) -> None:
        """Count FLOPs that do not follow from the number of steps."""
        self._flops = (self._flops or 0) + flops

    def end_episode(self) -> None:
        """Settle what the steps of the last episode were."""
        batches, steps, flops = self.batches(), self.steps(), self.flops()
        self._before = (
            *(self._ended_batches, self._ended_steps, self._ended_flops),
            *(self._own_steps, self._tallies, self._stepping, self.flops_per_step, self._flops),
        )
        # Another thread may read in between: it must not see the same steps twice.
        self._own_steps = 0
        self._tallies = {}
        self._stepping = {}
        self.flops_per_step = self._flops = None
        self._ended_batches = batches
        self._ended_steps = steps
        self._ended_flops = flops

    def hold_back(self) -> None:
        """A batch came that may be counted later: the last episode is over in any case."""
        self._before = None

    def go_on(self) -> bool:
        """Go on in the last episode if nothing came in this one; return whether."""
        before, self._before = self._before, None
        came = self._own_steps or self._stepping or self._episode_batches()
        if before is None or came or self._flops is not None:
            return False
        self._ended_batches, self._ended_steps, self._ended_flops = before[:3]
        self._own_steps, self._tallies, self._stepping = before[3:6]
        self.flops_per_step, self._flops = before[6:]
        return True

    def batches(self) -> int:
        """Return the batches so far."""
        return self._ended_batches + self._episode_batches()

    def steps(self) -> int:
        """Return the steps so far."""
        return self._ended_steps + self._episode_steps()

    def flops(self) -> float | None:
        """Return the FLOPs so far; None where the job states none."""
        stated = [self._ended_flops, self._flops]
        if self.flops_per_step is not None:
            stated.append(self.flops_per_step * self._episode_steps())
        known = [flops for flops in stated if flops is not None]
        return sum(known) if known else None

    def _episode_batches(self) -> int:
        return sum([tally.batches for tally in self._tallies.copy().values()])

    def _most_steps(self) -> int:
        return max([stepping.steps for stepping in self._stepping.copy().values()], default=0)

    def _episode_steps(self) -> int:
        if self._own_steps:
            return self._own_steps
        if self._stepping:
            return self._most_steps()
        if self._run.optimizer_seen or not self._tallies:
            return 0
        return max([tally.batches for tally in self._tallies.copy().values()])
