# SPDX-License-Identifier: Apache-2.0
"""Any story on any simulated GPU without counters: what is published bounds the truth."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation
from exporter.sources.simulate.physics import hardware
from exporter.sources.simulate.scenario import Scenario, Scene, SimulatedGpu
from exporter.sources.simulate.stories import STORIES
from exporter.specs import load_specs
from tests.clocks import ManualClock

BOOK = load_specs()
PIPES = ("tensor", "fp64", "fp32", "fp16", "integer")
ROUNDING = 1e-6
SECONDS = 10


def _without_counters() -> list[str]:
    boards = {key: hardware(model) for key, model in BOOK.models.items()}
    return sorted(
        key
        for key, board in boards.items()
        if board is not None
        and not board.has_counters
        and any("_tensor" in name for name in BOOK.models[key].peak_flops_per_second)
    )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Any story that is not lost, with any parameters that a file may give it."""
    name = draw(st.sampled_from([name for name in STORIES if name != "lost"]))
    parameters = {
        key: float(round(value)) if facts.kind == "count" else value
        for key, facts in STORIES[name].parameters.items()
        for value in [draw(st.floats(facts.least, facts.most))]
    }
    return Scene(name, parameters, STORIES[name].holder, math.inf)


@given(
    model=st.sampled_from(_without_counters()),
    scene=scenes(),
    start=st.floats(0.0, 5000.0),
    seed=st.integers(0, 99),
)
def test_what_is_published_holds_the_truth(
    model: str, scene: Scene, start: float, seed: int
) -> None:
    clock = ManualClock()
    scenario = Scenario("test", (SimulatedGpu(model, (scene,)),))
    simulated = Simulation(scenario, BOOK, "host:19400", seed, clock)
    timeline, began = simulated.gpus[0].timeline, clock.monotonic()
    publisher = Publisher(simulated, BOOK, Rules(), clock)
    clock.advance(start)
    for _ in range(14):
        clock.advance(1.0)
        simulated.round(0.5)
        snapshot = publisher.tick()
    (share,) = snapshot.gpus[0].shares
    assert share.saturation is not None
    assert share.recent is not None
    assert share.recent.saturation_bounds is not None

    now = clock.monotonic() - began

    def means(seconds: float) -> dict[str, float]:
        after, before = timeline.integral(now), timeline.integral(now - seconds)
        units = (*PIPES, "dram")
        return {unit: (getattr(after, unit) - getattr(before, unit)) / seconds for unit in units}

    recent = share.recent.saturation_bounds
    truth = max(means(SECONDS).values())
    assert recent.lower - ROUNDING <= truth <= recent.upper + ROUNDING
    own, bounds = means(1.0), share.saturation.bounds
    assert bounds.lower - ROUNDING <= max(own.values()) <= bounds.upper + ROUNDING
    own["fma"] = max(own["fp32"], own["fp16"])
    units = (("tensor", "tensor"), ("fp64", "fp64"), ("int", "integer"), ("dram", "dram"))
    for resource, unit in (*units, ("fma", "fma")):
        bounds = share.saturation.unmeasured[resource]
        assert bounds.lower - ROUNDING <= own[unit] <= bounds.upper + ROUNDING, resource
