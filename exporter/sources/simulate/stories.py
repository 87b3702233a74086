# SPDX-License-Identifier: Apache-2.0
"""What a GPU of a scenario may be doing, and which parameters each story takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exporter.sources.simulate.physics import QUIET, Behaviour, Load

STEADY_BEAT_SECONDS = 30.0
"""The period of the wobble of a story that has no rhythm of its own."""

Parameters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a story; durations are in seconds here and text such as 10m in the file."""

    default: float
    least: float
    most: float
    kind: str = "ratio"
    """ratio, duration or count."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that a story shows on its GPU."""

    command: str
    owner: str
    work_class: str


@dataclass(frozen=True, slots=True)
class Story:
    """The behaviour that a scenario names in ``story``; docs/demo.md describes each."""

    behave: Callable[[Parameters, int], Behaviour] | None
    """From parameters and the number of SMs; None while the GPU is lost."""
    holder: Holder | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def _steady(load: Load) -> tuple[tuple[float, Load], ...]:
    return ((STEADY_BEAT_SECONDS, load),)


def _training_load(tensor: float, dram: float) -> Load:
    sm = min(0.98, 0.27 + max(tensor, dram))
    return Load(
        engine=1.0,
        sm=sm,
        occupancy=sm / 3,
        dram=dram,
        tensor=tensor,
        fp32=0.10,
        fp16=0.02,
        integer=0.15,
        pcie_transmit=0.002,
        pcie_receive=0.01,
        nvlink=0.06,
    )


def _training(of: Parameters, sm_count: int) -> Behaviour:
    return Behaviour(_steady(_training_load(of["tensor"], of["dram"])), of["memory"])


def _inference(of: Parameters, sm_count: int) -> Behaviour:
    load = Load(
        engine=1.0,
        sm=0.93,
        occupancy=0.45,
        dram=of["dram"],
        tensor=of["tensor"],
        fp32=0.12,
        integer=0.15,
        pcie_transmit=0.001,
        pcie_receive=0.001,
        nvlink=0.02,
    )
    return Behaviour(_steady(load), of["memory"])


def _starved(of: Parameters, sm_count: int) -> Behaviour:
    busy = of["duty"] * of["period"]
    load = _training_load(of["tensor"], of["dram"])
    return Behaviour(((busy, load), (of["period"] - busy, QUIET)), of["memory"])


def _spinner(of: Parameters, sm_count: int) -> Behaviour:
    sm = min(of["sms"], sm_count) / sm_count
    load = Load(engine=1.0, sm=sm, occupancy=sm / 64, fp32=sm / 4, integer=sm / 4)
    return Behaviour(_steady(load), of["memory"], wobble_ratio=0.0)


def _power_capped(of: Parameters, sm_count: int) -> Behaviour:
    load = Load(
        engine=1.0, sm=0.97, occupancy=0.25, dram=0.30, tensor=0.90, fp32=0.06, integer=0.10
    )
    return Behaviour(_steady(load), of["memory"], limit_ratio=of["limit"])


def _collective(of: Parameters, sm_count: int) -> Behaviour:
    load = Load(
        engine=1.0,
        sm=0.15,
        occupancy=0.05,
        dram=0.04,
        fp32=0.01,
        integer=0.03,
        nvlink=of["link"],
        waits=True,
    )
    return Behaviour(_steady(load), of["memory"])


def _ratio(default: float, least: float = 0.0, most: float = 0.95) -> Parameter:
    return Parameter(default, least, most)


def _duration(default: float, least: float, most: float) -> Parameter:
    return Parameter(default, least, most, "duration")


TRAINING = Holder("python3", "alice", "training")
DAY = 86400.0
XID = Parameter(79, 1, 999, "count")
_TENSOR_AND_DRAM = {"tensor": _ratio(0.6, most=0.9), "dram": _ratio(0.4, most=0.9)}

STORIES: Mapping[str, Story] = {
    "training": Story(_training, TRAINING, {**_TENSOR_AND_DRAM, "memory": _ratio(0.85)}),
    "inference": Story(
        _inference,
        Holder("vllm", "serving", "serving"),
        {"dram": _ratio(0.85), "tensor": _ratio(0.12, most=0.9), "memory": _ratio(0.9)},
    ),
    "starved": Story(
        _starved,
        TRAINING,
        {
            "period": _duration(3.7, 0.2, 3600.0),
            "duty": _ratio(0.4, 0.02, 0.98),
            **_TENSOR_AND_DRAM,
            "memory": _ratio(0.6),
        },
    ),
    "spinner": Story(
        _spinner,
        Holder("python3", "bob", "other"),
        {"sms": Parameter(1, 1, 1024, "count"), "memory": _ratio(0.02)},
    ),
    "notebook": Story(
        lambda of, sm_count: Behaviour(_steady(QUIET), of["memory"]),
        Holder("ipykernel_launc", "carol", "notebook"),
        {"memory": _ratio(0.25)},
    ),
    "free": Story(lambda of, sm_count: Behaviour(_steady(QUIET), awake=False)),
    "power-capped": Story(
        _power_capped, TRAINING, {"limit": _ratio(0.34, 0.25, 1.0), "memory": _ratio(0.7)}
    ),
    "collective": Story(
        _collective, TRAINING, {"link": _ratio(0.35, 0.0, 0.9), "memory": _ratio(0.85)}
    ),
    "failing": Story(
        _training,
        TRAINING,
        {
            "works": _duration(360.0, 1.0, DAY),
            "lost": _duration(300.0, 1.0, DAY),
            "xid": XID,
            **_TENSOR_AND_DRAM,
            "memory": _ratio(0.85),
        },
    ),
    "lost": Story(None, None, {"xid": XID}),
}
"""By name. The parameter ``xid`` means that the GPU raises it as it is lost."""
