# SPDX-License-Identifier: Apache-2.0
"""What ranks publish of a replay of random jobs, against a golden file.

The other tests of this folder say what is promised; this one finds what changes beside that.
`UPDATE_GOLDEN=1` writes the file anew: read its diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from exporter.model.reading import Device, Place, Process, ShareReading
from exporter.model.snapshot import Bounds, Rank
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.publisher.ranks import GapClock, GpuShares, Ranks

DEVICES = tuple(Device(number, f"GPU-{number:032x}", "NVIDIA H100") for number in range(2))
PLACES = tuple(Place(device.uuid, None) for device in DEVICES)
TICKS = 150


class Trainer:
    """A process of a job: it waits, computes, and reports about once a second."""

    def __init__(self, random: Random, number: int, now: float) -> None:
        self.random = random
        self.measures, self.announces = random.random() < 0.5, random.random() < 0.5
        self.lies = random.random() < 0.4
        ran = random.uniform(0.0, 8.0)
        names = (*3 * [DEVICES[0].uuid], DEVICES[1].uuid, "", "GPU-of-another-node")
        self.report = TrainingReport(
            report_id=f"{number:032x}",
            job=random.choice(("resnet", "llama")),
            rank=random.randrange(2),
            received_monotonic_seconds=now,
            received_timestamp_seconds=1e6 + now,
            totals=TrainingTotals(step_seconds=ran, phase_seconds={"data": ran * random.random()}),
            device=random.choices(names, (3, 3, 3, 3, 1, 1))[0],
            uid=random.choice((1000, 1001)),
            owner=random.choice((None, "ada")),
            host_pids=(100 + number,),
            precision=random.choice((None, "bf16", "fp8")),
            announces=self.announces,
            flops_launched=random.random() < 0.5,
        )
        self.began = now - ran

    def go_on(self, now: float, idle: float) -> None:
        """Report what was done up to `now`; its GPU was `idle` for so many seconds of it."""
        random, before = self.random, self.report
        seconds = now - before.received_monotonic_seconds
        if random.random() < 0.2:
            return
        waited = random.choice((0.0, 0.1, 0.6, 1.0)) * seconds
        phases, stalls = dict(before.totals.phase_seconds), {}
        for phase, part in (("data", waited), ("forward", seconds - waited)):
            phases[phase] = phases.get(phase, 0.0) + part
        if self.measures:
            stalls = dict(before.totals.phase_gpu_idle_seconds)
            for phase, part in (("data", 0.9), ("checkpoint", 0.1)):
                claimed = part * (waited if self.lies else min(idle, waited))
                stalls[phase] = stalls.get(phase, 0.0) + claimed
        flops = before.totals.model_flops or 0.0
        in_data = self.announces and random.random() < 0.3
        self.report = replace(
            before,
            received_monotonic_seconds=now - random.choice((0.0, 0.0, 0.3)),
            received_timestamp_seconds=1e6 + now,
            totals=replace(
                before.totals,
                steps=before.totals.steps + 1,
                step_seconds=now - self.began,
                phase_seconds=phases,
                phase_gpu_idle_seconds=stalls,
                model_flops=random.choice((before.totals.model_flops, flops + 1e12)),
            ),
            phase="data" if in_data else None,
            announced_wait_seconds=before.announced_wait_seconds + (waited if in_data else 0.0),
            alive=random.random() > 0.01,
            silent=random.random() < 0.03,
        )


def lines(seed: int) -> Iterator[str]:
    """Run one replay; yield what is published of every tick."""
    random = Random(seed)
    ranks = Ranks()
    trainers: list[Trainer] = []
    clocks = {place: GapClock() for place in PLACES}
    now = read_at = 100.0
    for number in range(TICKS):
        seconds = random.choice((0.5, 1.0, 1.0, 2.0, 4.0))
        now += seconds
        idle = random.choice((0.0, 0.0, 0.3, 0.9))
        if random.random() < 0.85:  # else the counters skip a round
            for clock in clocks.values():
                ratio = None if random.random() < 0.1 else idle
                length = min(seconds, now - read_at)
                clock.advance(now, length, ratio, margin_ratio=0.01, lag_seconds=seed % 2 * 0.5)
            read_at = now
        for trainer in trainers:
            trainer.go_on(now, idle * seconds)
        if number % 12 == 0:
            trainers.append(Trainer(random, number, now))
        trainers = [each for each in trainers if each.report.alive or random.random() < 0.5]
        on_gpu = tuple(
            Process(each.report.host_pids[0], "compute")
            for each in trainers
            if random.random() < 0.9
        )
        gpus: list[GpuShares] = [(each, (ShareReading(processes=on_gpu),)) for each in DEVICES]
        ranks.take([each.report for each in trainers], gpus, now)
        seen = clocks if random.random() < 0.95 else {}
        added = ranks.settle(seen)
        yield f"{number} exceeded={ranks.disbelieved['stall_exceeds_idle']} " + " ".join(
            f"{PLACES.index(place)}:+{_bounds(each)}" for place, each in added.items()
        )
        claims = ranks.claims
        if number % 4 == 0:
            yield from map(_rank, ranks.pictures(now))
        for place, stall in claims.stalls.items():
            of_idle = "None" if stall.of_idle is None else f"{stall.of_idle:.6g}"
            inferred = {name: _bounds(each) for name, each in stall.inferred.items()}
            yield f"  claim {PLACES.index(place)} {of_idle} {inferred} {stall.announced:.6g}"
        yield f"  {sorted(claims.precisions.values())} {sum(map(len, claims.work.values()))}"


def _bounds(bounds: Bounds) -> str:
    return f"{bounds.lower:.6g}..{bounds.upper:.6g}"


def _rank(rank: Rank) -> str:
    wait = rank.totals.phase_seconds.get("data", 0.0)
    stalls = {name: f"{each:.6g}" for name, each in rank.totals.phase_gpu_idle_seconds.items()}
    ratios = (
        "None" if each is None else f"{each:.6g}"
        for each in (rank.data_wait_ratio, rank.data_stall_ratio)
    )
    return (
        f"  {rank.job}/{rank.rank} {rank.gpu_uuid and rank.gpu_uuid[-1]} {rank.processes} "
        f"{rank.run_seconds:.6g} {rank.totals.steps:g} {wait:.6g} "
        f"{stalls} {' '.join(ratios)} {rank.verified} {rank.phase} {','.join(rank.degraded)}"
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_is_published_as_before(seed: int) -> None:
    """Totals, ratios, bounds and claims of every tick."""
    golden = Path(__file__).with_name(f"replay-{seed}.txt")
    found = list(lines(seed))
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text("\n".join(found) + "\n")
    assert found == golden.read_text().splitlines()
