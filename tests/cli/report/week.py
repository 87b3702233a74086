# SPDX-License-Identifier: Apache-2.0
"""A week of five GPUs with known GPU-hours, in a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.processes import Process
from tests.e2e.prometheus import LISTENING
from tests.rules.cases import counter, gauge, workload
from tests.rules.promtool import HOUR, Labels, Series, Value, between, run, total

END = 1_773_014_400
"""2026-03-09 00:00 UTC: a multiple of all steps."""
WEEK = 168 * HOUR
START = END - WEEK
SCRAPE_SECONDS = 60
PART_SECONDS = 12 * 3600
H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
EVER = (0.0, WEEK + 1)
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "rules" / "recording.yml"
RECORDED = (
    ["gpu:gpu_workload_name:info", "gpu:gpu_lost:max"],
    ["gpu:gpu_workload:info"],
    ["gpu:gpu_workload_owner:info"],
    ["gpu:gpu_holder:info"],
)
"""What a report by owner reads of the rules, and what these read."""


def _gpu(node: int, index: int, **more: str) -> Labels:
    place = {"job": "roofline-exporter", "instance": f"node-{node}:19400", "gpu": str(index)}
    return {**place, "uuid": f"GPU-{node}{index}", **more}


TRAINS, ALTERNATES, UNOPENED, JOINS = _gpu(1, 0), _gpu(1, 1), _gpu(2, 0), _gpu(2, 1)
BOARD = _gpu(3, 0)
INSTANCE = {**BOARD, "gpu_instance": "1"}


def _named(labels: Labels, name: str) -> Series:
    return gauge("gpu_info", 1, labels, name=name)


def _share(labels: Labels) -> Labels:
    return {key: labels[key] for key in ("instance", "uuid", "gpu_instance") if key in labels}


def _owned(labels: Labels, owner: str, spell: tuple[float, float], held: float) -> list[Series]:
    """What the recording rules say of a workload, and of its process until `held`."""
    there, holds = between(*spell, lambda _: 1.0), between(spell[0], held, lambda _: 1.0)
    share = _share(labels)
    return [
        gauge("gpu:gpu_workload_owner:info", there, share, owner=owner),
        gauge("gpu:gpu_holder:info", holds, share, owner=owner, **{"class": "training"}),
    ]


def _idles(labels: Labels, *idle: tuple[float, float], held: bool = True) -> list[Series]:
    """How much of the time it is idle, and who limits the rest."""
    return [
        counter("gpu_idle_seconds_total", total(*idle), labels),
        counter("gpu_held_idle_seconds_total", total(*idle) if held else 0, labels),
        counter("gpu_limited_seconds_total", total(*idle), labels, limiter="idle"),
    ]


def _trains() -> list[Series]:
    """A pod trains for 96 h, 40 % of it in a wait for data; then the GPU is free."""
    ends = 96 * HOUR
    rank = {"training_job": "resnet", "rank": "0", **_share(TRAINS)}

    def works(rate: float) -> Value:
        return total((0, rate), (ends, 0))

    def there(at: float) -> float | None:
        return 1.0 if at < ends else None

    return [
        _named(TRAINS, H100),
        *_owned(TRAINS, "team-a/train-0", (0, ends), ends),
        workload("kubernetes", TRAINS, (0, ends), namespace="team-a", pod="train-0"),
        counter("gpu_idle_seconds_total", total((0, 0), (ends, 1)), TRAINS),
        counter("gpu_held_idle_seconds_total", 0, TRAINS),
        counter("gpu_limited_seconds_total", total((0, 0), (ends, 1)), TRAINS, limiter="idle"),
        counter("gpu_limited_seconds_total", works(0.6), TRAINS, limiter="compute"),
        counter("gpu_limited_seconds_total", works(0.4), TRAINS, limiter="input"),
        counter("gpu_allocated_unopened_seconds_total", 0, TRAINS),
        counter("gpu_saturation_seconds_total", works(0.5), TRAINS),
        counter("gpu_time_seconds_total", works(0.5), TRAINS, part="saturated"),
        counter("gpu_time_seconds_total", total((0, 0.5), (ends, 1)), TRAINS, part="idle"),
        counter("gpu_energy_joules_total", total((0, 500), (ends, 100)), TRAINS),
        gauge("gpu_diagnosis", between(0, 24 * HOUR, there), TRAINS, cause="too_few_workers"),
        gauge("gpu_training_info", there, rank),
        gauge("gpu_training_verified", there, rank),
        counter("gpu_training_phase_gpu_idle_seconds_total", works(0.4), rank, phase="data"),
        counter("gpu_training_phase_gpu_idle_seconds_total", works(0.05), rank, phase="eval"),
        # A rank of another user, who is not on this GPU.
        gauge("gpu_training_verified", 0, {**rank, "rank": "1"}),
        gauge("gpu_training_info", 1, {**rank, "rank": "1", "training_job": "intruder"}),
        gauge("gpu_training_verified", 0, {**rank, "rank": "1", "training_job": "intruder"}),
        counter(
            "gpu_training_phase_gpu_idle_seconds_total", 1, {**rank, "rank": "1"}, phase="logging"
        ),
    ]


def _alternates() -> list[Series]:
    """A Slurm job holds it all week, and works in every other hour; found to wait for data."""

    def idles(at: float) -> float:
        return at // (2 * HOUR) * HOUR + max(0.0, at % (2 * HOUR) - HOUR)

    def works(at: float) -> float:
        return at - idles(at)

    waits = "gpu_inferred_data_stall_{}_seconds_total"
    return [
        _named(ALTERNATES, H100),
        *_owned(ALTERNATES, "ada, job 4711", EVER, EVER[1]),
        workload("slurm", ALTERNATES, job="4711", user="ada"),
        counter("gpu_idle_seconds_total", idles, ALTERNATES),
        counter("gpu_held_idle_seconds_total", idles, ALTERNATES),
        counter("gpu_limited_seconds_total", idles, ALTERNATES, limiter="idle"),
        counter("gpu_limited_seconds_total", works, ALTERNATES, limiter="memory"),
        counter("gpu_saturation_seconds_total", works, ALTERNATES),
        counter("gpu_time_seconds_total", 1, ALTERNATES, part="saturated"),
        counter("gpu_energy_joules_total", 200, ALTERNATES),
        counter(waits.format("lower"), 0.125, ALTERNATES, method="procfs"),
        counter(waits.format("upper"), 0.25, ALTERNATES, method="procfs"),
    ]


def _unopened() -> list[Series]:
    """A notebook is given a T4, works for 72 h, and ends; nobody gives it back."""
    ends = 72 * HOUR

    def upper(at: float) -> float:
        return 0.25 if at < ends else 0.0

    return [
        _named(UNOPENED, T4),
        *_owned(UNOPENED, "team-b/notebook", EVER, ends),
        workload("kubernetes", UNOPENED, namespace="team-b", pod="notebook"),
        gauge("gpu_holder_info", between(0, ends, lambda _: 1.0), UNOPENED, owner="bob"),
        counter("gpu_idle_seconds_total", total((0, 0), (ends, 1)), UNOPENED),
        counter("gpu_held_idle_seconds_total", 0, UNOPENED),
        counter("gpu_limited_seconds_total", total((0, 0), (ends, 1)), UNOPENED, limiter="idle"),
        counter("gpu_limited_seconds_total", total((0, 1), (ends, 0)), UNOPENED, limiter="unknown"),
        counter("gpu_allocated_unopened_seconds_total", total((0, 0), (ends, 1)), UNOPENED),
        gauge("gpu_saturation_lower_ratio", 0, UNOPENED),
        gauge("gpu_saturation_upper_ratio", upper, UNOPENED),
        counter("gpu_energy_joules_total", 25, UNOPENED),
        gauge("gpu_energy_source_info", 1, UNOPENED, source="power"),
    ]


def _joins() -> list[Series]:
    """Comes after 84 h, and nobody ever takes it."""
    made = [_named(JOINS, T4), *_idles(JOINS, (84 * HOUR, 1), held=False)]
    return [
        Series(each.name, each.labels, between(84 * HOUR, EVER[1], each.value)) for each in made
    ]


def _instance() -> list[Series]:
    """A container holds one instance of a board idle."""
    return [
        _named(BOARD, H100),
        *_owned(INSTANCE, "web-1", EVER, EVER[1]),
        workload("container", INSTANCE, container="web-1"),
        *_idles(INSTANCE, (0, 1)),
        counter("gpu_energy_joules_total", 100, BOARD),
    ]


def _prices(prices: Mapping[str, float]) -> list[Series]:
    name = "model:gpu_price_per_hour:max"
    return [gauge(name, price, {"name": of, "currency": "EUR"}) for of, price in prices.items()]


def _ups() -> list[Series]:
    boards = (TRAINS, ALTERNATES, UNOPENED, JOINS, BOARD)
    lost = {key: value for key, value in TRAINS.items() if key != "gpu"}
    return [gauge("gpu:gpu_lost:max", 0, lost), *(gauge("gpu_up", 1, board) for board in boards)]


def _shipped() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def series() -> list[Series]:
    """All of the week."""
    parts = (_trains(), _alternates(), _unopened(), _joins(), _instance(), _ups())
    return [*(each for part in parts for each in part), *_prices({H100: 3, T4: 0.5})]


def _open_metrics(week: Iterable[Series], start: int, end: int) -> Iterable[str]:
    """Yield the lines of the samples from one time of the week to another."""
    by_name = groupby(sorted(week, key=lambda each: each.name), key=lambda each: each.name)
    for name, members in by_name:
        yield f"# TYPE {name} unknown\n"
        for each in members:
            for at in range(start, end, SCRAPE_SECONDS):
                if (value := each.value(float(at))) is not None:
                    yield f"{each.selector()} {value:.10g} {START + at:.0f}\n"
    yield "# EOF\n"


class Backfilled(Process):
    """A Prometheus that has the week in its blocks, and scrapes nothing."""

    def __init__(
        self,
        program: str,
        directory: Path,
        week: Iterable[Series],
        span: tuple[int, int] = (0, int(WEEK) + 1),
    ) -> None:
        text, data = directory / "part.om", directory / "data"
        directory.mkdir(parents=True)
        self._data = data
        for start in range(*span, PART_SECONDS):  # it reads the file for each block
            with text.open("w", encoding="utf-8") as file:
                end = min(start + PART_SECONDS, span[1])
                file.writelines(_open_metrics(week, start, end))
            run("tsdb", "create-blocks-from", "openmetrics", str(text), str(data), "--quiet")
        self._serve(program, directory)

    def record(self, program: str, directory: Path, start: float, end: float) -> Backfilled:
        """Return it with all that the shipped rules say of owners from one time to another.

        A rule that reads what another has recorded comes after it.
        """
        for number, names in enumerate(RECORDED):
            rules = [rule for rule in _shipped() if rule["record"] in names]
            assert len(rules) == len(names), names
            file = directory / f"rules-{number}.yml"
            file.write_text(yaml.safe_dump({"groups": [{"name": "of", "rules": rules}]}))
            run(
                *("tsdb", "create-blocks-from", "rules", "--eval-interval=60s"),
                *(f"--start={start:.0f}", f"--end={end:.0f}", f"--url={self.url}"),
                *(f"--output-dir={self._data}", str(file)),
            )
            self.kill()  # it looks for new blocks at its start
            self._serve(program, directory)
        return self

    def _serve(self, program: str, directory: Path) -> None:
        config = directory / "prometheus.yml"
        config.write_text("scrape_configs: []\n")
        words = [
            f"--config.file={config}",
            f"--storage.tsdb.path={self._data}",
            "--storage.tsdb.retention.time=100y",
            # Samples that are imported have no marks where a series ends.
            "--query.lookback-delta=90s",
            "--web.listen-address=127.0.0.1:0",
        ]
        super().__init__([program, *words], directory)
        found = self.find_in_line(LISTENING)
        self.url = f"http://{found[1]}"
        self.find_in_line("Server is ready to receive web requests")
