# SPDX-License-Identifier: Apache-2.0
"""A panel that divides sums, or puts means side by side, takes both over the same GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.dashboards.models import NAMES, targets
from tests.rules.cases import GPU, counter, gauge, held_by, observed, rank_labels
from tests.rules.promtool import MINUTE, Expected, Labels, Series, by_version, check, value
from tests.rules.rules import ALERTS, RECORDED
from tests.rules.test_recording import PARTLY_COUNTED, fp32_work

AT = 20 * MINUTE
THROTTLED = "gpu_throttle"
OTHER: Labels = {**GPU, "gpu": "1", "uuid": "GPU-b"}
SILENT: Labels = {**GPU, "gpu": "2", "uuid": "GPU-c"}


def query_of(name: str) -> str:
    """The query of this name as it is sent with everything chosen, over a quarter of an hour."""
    (found,) = [one for page in NAMES for one in targets(page) if one.name == name]
    return substituted(found.expression)


def substituted(text: str) -> str:
    """A query as it is sent."""
    text = text.replace("${__to:date:seconds}", f"{AT:.0f}").replace("$__range_s", "900")
    text = text.replace("$__rate_interval", "2m").replace("$__range", "15m")
    text = text.replace("$__interval_ms", "30000").replace("$__interval", "30s")
    text = text.replace("$price", "2").replace("$basis", "spec")
    return re.sub(r"\$[a-z_]+", ".*", text)


def shows(folder: Path, series: Sequence[Series], **values: float) -> None:
    """Check the one value that each query gives."""
    expected = [
        Expected(f"round({query_of(name)}, 0.000001)", AT, [("{}", value)])
        for name, value in values.items()
    ]
    check(folder, [], series, expected)


def test_throttle_reasons_are_nowhere_added() -> None:
    """They overlap, and some drivers count two of them by one counter."""
    expressions = [*RECORDED.values(), *(each["expr"] for of in ALERTS.values() for each in of)]
    drawn = [one for page in NAMES for one in targets(page) if THROTTLED in one.expression]
    stacking = [one.panel["fieldConfig"]["defaults"]["custom"]["stacking"] for one in drawn]
    read = [each for each in expressions if THROTTLED in each]

    assert {each["mode"] for each in stacking} == {"none"}
    assert len(read) > 2
    assert not [each for each in (*read, *(one.expression for one in drawn)) if "sum" in each]


def test_work_per_energy_is_of_the_gpus_whose_work_is_known(tmp_path: Path) -> None:
    """A GPU without counters, or whose counters answer no more, adds neither work nor energy."""
    shows(tmp_path, PARTLY_COUNTED, **{"fleet/Work per energy/FLOP per joule": 5})


def test_shares_of_all_gpu_time_are_of_gpus_of_which_they_are_known(tmp_path: Path) -> None:
    """One is held idle half of the time; of the other nobody knows who holds it."""
    series = [
        *observed(GPU),
        counter("gpu_idle_seconds_total", 0.75),
        counter("gpu_held_idle_seconds_total", 0.5),
        gauge("gpu_held", 1),
        *observed(OTHER),
        counter("gpu_idle_seconds_total", 1, OTHER),
        *observed(SILENT, "utilization"),
    ]
    page = "idle/What the GPUs do/"
    shares = {f"{page}in use": 0.25, f"{page}held idle": 0.5, f"{page}free": 0.25}
    shows(tmp_path, series, **{"idle/Held idle/of all GPU time": 0.5}, **shares)


def test_saturation_stands_beside_the_utilization_of_the_same_gpus(tmp_path: Path) -> None:
    """A MIG instance has no utilization; where none is known at all, saturation is of all."""
    instance = {**OTHER, "gpu_instance": "3"}
    whole = [
        *observed(GPU),
        counter("gpu_busy_seconds_total", 1),
        counter("gpu_saturation_seconds_total", 0.5),
        counter("gpu_time_seconds_total", 1, part="saturated"),
    ]
    divided = [
        *observed(instance, "activity"),
        counter("gpu_saturation_seconds_total", 0.25, instance),
        counter("gpu_time_seconds_total", 1, instance, part="saturated"),
    ]
    page = "fleet/Utilization beside saturation/"
    means = {f"{page}utilization": 1, f"{page}saturation, at most": 0.5}
    shows(tmp_path, [*whole, *divided], **means)
    shows(tmp_path, divided, **{f"{page}saturation, at least": 0.25})


def test_a_stall_stands_beside_the_wait_of_the_same_ranks(tmp_path: Path) -> None:
    """Where a rank's stall is not measured, its wait is in neither mean; if in none, in all."""

    def one(number: int, wait: float, stall: float | None) -> list[Series]:
        labels = rank_labels(number)
        made = [
            counter("gpu_training_step_seconds_total", 1, labels),
            counter("gpu_training_phase_seconds_total", wait, labels, phase="data"),
        ]
        if stall is not None:
            name = "gpu_training_phase_gpu_idle_seconds_total"
            made.append(counter(name, stall, labels, phase="data"))
        return made

    page = "training/Host wait beside exposed stall/"
    means = {f"{page}host wait": 0.5, f"{page}exposed stall": 0.25}
    shows(tmp_path, [*one(0, 0.5, 0.25), *one(1, 0.0, None)], **means)
    unmeasured = [*one(0, 0.5, None), *one(1, 0.0, None)]
    shows(tmp_path, unmeasured, **{f"{page}host wait": 0.25})


@pytest.mark.parametrize("gone", [0.0, 150.0])
def test_the_hours_of_holders_add_up_to_those_of_the_gpu(gone: float, tmp_path: Path) -> None:
    """A quarter of an hour of idle time: ten minutes of alice, then bob, who may have left."""
    change = AT - 5 * MINUTE
    spells = [("alice", 0, change), ("bob", change, AT - gone)]
    series = held_by(*spells, idle=((0, 1),))
    query = query_of("idle/GPU-hours by owner/B")
    hours = {"alice": 1 / 6, "bob": (5 - gone / MINUTE) / 60}
    rows = [(f'{{owner="{name}"}}', each) for name, each in hours.items()]
    whole = sum(hours.values())
    fine, coarse = by_version((10_000, 100), (100, 50))
    expected = [
        Expected(f"round(sum({query}), {1 / fine})", AT, [("{}", round(whole * fine) / fine)]),
        Expected(
            f"round({query}, {1 / coarse})",
            AT,
            [(row, round(each * coarse) / coarse) for row, each in rows],
        ),
    ]
    check(tmp_path, [], series, expected)


@pytest.mark.parametrize(("tensor", "mfu"), [(80, 0.5), (5, 2)])
def test_fp32_in_tensor_cores_is_measured_against_tf32(
    tensor: float, mfu: float, tmp_path: Path
) -> None:
    """A job that states fp32 has no MFU of several hundred percent for computing in TF32."""
    query = f"sum({query_of('training/MFU/{{training_job}} rank {{rank}}')})"
    check(tmp_path, [], fp32_work(tensor), [value(query, AT, ({}, mfu))])
