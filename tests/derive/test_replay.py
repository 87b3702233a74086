# SPDX-License-Identifier: Apache-2.0
"""What is derived of a replay of random readings, against a golden file.

The other tests of this folder say what each equation promises; this one finds what changes beside
that. `UPDATE_GOLDEN=1` writes the file anew: read its diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from exporter.derive import Derived, IdleRules, derive_share
from exporter.derive.history import NO_HISTORY
from exporter.derive.stall import Stall
from exporter.derive.work import Work, busier, rates_of_work, recently_worked, worked
from exporter.model.reading import (
    Activity,
    Device,
    Memory,
    Process,
    ShareReading,
    Utilization,
    Vitals,
)
from exporter.model.snapshot import Bounds, Ceilings, Recent
from tests.derive.driven import SPECS, device_of

GOLDEN = Path(__file__).with_name("replay.txt")
MODELS = ("h100-sxm5-80gb", "a100-sxm4-80gb", "t4", "l40s", "v100-sxm2-16gb", "p100-sxm2", "b200")
INTERVALS = 30
"""Of each GPU."""
STYLES: Mapping[str, tuple[str, ...]] = {
    "gpm": ("tensor", "fp64", "fp32", "fp16", "integer", "hmma", "imma", "dmma", "dfma"),
    "dcgm": ("tensor", "fp64", "fp32", "fp16"),
    "stock": ("tensor",),
    "cupti": ("tensor", "fp64", "fma", "integer"),
    "turing": ("tensor_fp16", "fma", "fp64"),
}
"""What sources read beside engine, SM and DRAM activity."""


def activity(random: Random, seconds: float, cycles: float) -> Activity | None:
    """Counters of an interval; `cycles` is by how much more of the cycles a pipe is active."""
    style = random.choice([*STYLES, "none"])
    if style == "none":
        return None
    engine = random.choice((0.0, 0.005, 0.03, random.random(), random.random(), 0.999, 1.02))
    sm = min(engine * random.uniform(0.2, 1.0) * cycles, 1.01)
    values: dict[str, Any] = {"engine": engine, "sm": sm}
    values["dram"] = random.choice((0.0, 0.02, random.random() * engine, random.random()))
    busy = random.choice((0.0, 0.03, 1.0))
    values |= {pipe: busy * sm * random.random() for pipe in STYLES[style]}
    for name in ("pcie_transmit", "pcie_receive", "nvlink_transmit", "nvlink_receive"):
        if random.random() < 0.4:
            values[f"{name}_bytes"] = seconds * 10 ** random.uniform(5, 11.6)
    if style == "gpm" and random.random() < 0.3:
        values["elapsed_cycles"] = seconds * 1e9 * random.choice((1.0, 132.0, 1e5))
    for video in ("encoder", "decoder", "jpeg", "ofa"):
        values[video] = random.choice((None, 0.0, 0.0, 0.0, 0.009, 0.02))
    values = {name: None if random.random() < 0.08 else it for name, it in values.items()}
    return Activity(style, seconds, **values)


def vitals(random: Random, device: Device, seconds: float, before: Vitals | None) -> Vitals:
    """The board's readings; NVLink totals go on from those `before`."""
    ratio = random.choice((0.0, 0.004, random.random(), 1.0))
    memory = random.choice((None, 0.0, random.random()))
    utilization = Utilization(
        ratio,
        min(ratio + random.random() / 10, 1.0),
        random.choice((0.0, seconds)),
        memory,
        None if memory is None else min(memory + 0.02, 1.0),
        lower_ratio=max(ratio - random.random() / 10, 0.0),
    )
    top = device.clock_max_hertz["sm"]
    clock = top * random.choice((0.17, 0.5, 0.95, 1.0, 1.01))
    sampled = random.random() < 0.6
    totals: dict[str, Any] = {}
    for name in ("nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"):
        last = (getattr(before, name) if before is not None else None) or 0.0
        totals[name] = random.choice((None, last + 10 ** random.uniform(4, 11), last / 2))
    mean = ratio * clock + (1 - ratio) * 0.2 * top
    return Vitals(
        utilization=random.choice((None, utilization, utilization, utilization)),
        clock_hertz=random.choice(
            ({}, {"sm": clock}, {"sm": clock, "memory": device.clock_max_hertz["memory"] * 0.9})
        ),
        mean_sm_clock_hertz=mean if sampled else None,
        busy_sm_clock_hertz=random.choice((None, mean, clock)) if sampled else None,
        encoder_ratio=random.choice((None, 0.0, 0.0, 0.5)),
        decoder_ratio=random.choice((None, 0.0, 0.0, 0.5)),
        jpeg_ratio=random.choice((None, 0.0, 0.0, 0.5)),
        ofa_ratio=random.choice((None, 0.0, 0.0, 0.5)),
        throttle_reasons=random.choice((None, frozenset[str](), frozenset({"sw_power_cap"}))),
        pcie_transmit_bytes=random.choice((None, 1e5, 10 ** random.uniform(6, 10.8))),
        pcie_receive_bytes=random.choice((None, 1e5, 10 ** random.uniform(6, 10.8))),
        **totals,
    )


def processes(random: Random) -> tuple[Process, ...] | None:
    """What the driver lists."""
    kinds = random.choices(("compute", "mps", "graphics"), k=random.randrange(4))
    listed = tuple(
        Process(
            10 + number,
            kind,
            random.choice((None, 5, 10)),
            random.choice((None, "python3", "Xorg", "nvidia-cuda-mps")),
        )
        for number, kind in enumerate(kinds)
    )
    return None if random.random() < 0.2 else listed


def ceilings_of(random: Random, model: str) -> Ceilings | None:
    """What is known of a GPU model, or less."""
    row = SPECS.models[model]
    precision = random.choice((None, "fp64_tensor", "bf16_tensor", "fp16_tensor", "int8_tensor"))
    whole = Ceilings(
        spec=model,
        peak_flops_per_second=row.peak_flops_per_second,
        peak_clock_hertz=row.peak_clock_hertz,
        memory_bandwidth_bytes_per_second=row.memory_bandwidth_bytes_per_second,
        achievable_ratio=random.choice(({}, {"bf16_tensor": 0.8, "memory": 0.9})),
        memory_bus_width_bits=random.choice((None, row.memory_bus_width_bits)),
        sm_count=row.sm_count,
        link_bandwidth_bytes_per_second={"pcie": 63e9, "nvlink": 450e9},
        assumed_precision=precision,
    )
    few = {name: whole.peak_flops_per_second.get(name, 1e12) for name in ("fp32", "fp16_tensor")}
    return random.choice((whole, whole, replace(whole, peak_flops_per_second=few), None))


def intervals(model: str) -> Iterator[Derived]:
    """Derive one GPU's replay, interval by interval."""
    random = Random(model)
    device = device_of(model)
    history, before, ceilings = NO_HISTORY, None, ceilings_of(random, model)
    for _ in range(INTERVALS):
        if random.random() < 0.15:
            history, ceilings = NO_HISTORY, ceilings_of(random, model)
        seconds = random.choice((0.1, 1.0, 1.0, 5.0))
        now = vitals(random, device, seconds, before)
        share = ShareReading(
            gpu_instance=random.choice((None, None, None, None, 1)),
            activity=activity(random, seconds, random.choice((1.0, 1.0, 1.3, 4.0))),
            counters=random.choice((None, None, None, "gpm")),
            processes=processes(random),
            memory=random.choice((None, Memory(2**36, random.choice((2**20, 2**31)), 0))),
        )
        stall = Stall(
            random.choice((None, 0.3, 0.5, 0.9)), {}, random.choice((0.0, 0.0, 0.3, 0.8, 1.0))
        )
        derived = derive_share(
            replace(device, virtualized=random.random() < 0.1),
            now,
            share,
            ceilings,
            IdleRules(),
            previous=before,
            seconds=random.choice((None, seconds, seconds, seconds)),
            stall=stall,
            history=history,
        )
        history, before = derived.history, now
        yield derived
        yield from stated(random, derived, now, device, ceilings)


def stated(
    random: Random, derived: Derived, now: Vitals, device: Device, ceilings: Ceilings | None
) -> Iterator[Any]:
    """What FLOPs that a job states say of it."""
    if ceilings is None or derived.saturation is None or derived.roofline is None:
        return
    precisions = random.choice(
        (None, {"bf16_tensor"}, {"fp64_tensor"}, {"fp8_tensor", "fp16_tensor"})
    )
    rates = rates_of_work(ceilings, now, device, precisions)
    flops = 10 ** random.uniform(11, 15)
    work = Work(flops, random.choice((0.0, flops / 2, flops)))
    if rates is None:
        yield rates
        return
    yield rates, busier(derived.saturation, work, rates)
    measured = random.random() < 0.3
    yield worked(derived.roofline, work, flops, measured=measured).flops_bounds_per_second
    recent = Recent(
        seconds=10.0,
        saturation_bounds=derived.saturation.bounds,
        flops_bounds_per_second=derived.roofline.flops_bounds_per_second,
        intensity_bounds_flops_per_byte=random.choice((None, Bounds(0.0, 1e4))),
        dram_bounds_bytes_per_second=random.choice((None, Bounds(0.0, 1e12))),
    )
    yield recently_worked(recent, work, rates, flops, measured=measured)


def shown(value: Any) -> str:
    """A value in few words: six digits, and no field that says nothing."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Bounds):
            return f"{shown(value.lower)}..{shown(value.upper)}"
        return shown(parts)
    if isinstance(value, Mapping):
        said = (
            (name, each)
            for name, each in value.items()
            if name != "history" and each not in (None, {}, ())
        )
        return "{" + " ".join(f"{name}={shown(each)}" for name, each in said) + "}"
    if isinstance(value, tuple):
        return "(" + " ".join(map(shown, value)) + ")"
    return str(value)


def test_a_replay_is_derived_as_before() -> None:
    """One line for each interval, and for what stated FLOPs add to it."""
    lines = [f"{model} {shown(each)}" for model in MODELS for each in intervals(model)]
    text = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert lines == GOLDEN.read_text().splitlines()
