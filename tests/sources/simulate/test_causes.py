# SPDX-License-Identifier: Apache-2.0
"""Each story of the bundled scenarios shows, all the time, the cause that its text names."""

from __future__ import annotations

import pytest

from tests.sources.simulate.played import Played

POLL_SECONDS = 5.0
TWO_TURNS_SECONDS = 2000.0
"""Of the longest sequence, which takes 15 minutes."""
SETTLES_SECONDS = 15.0
"""A diagnosis is of the last 10 s: so long after a part has begun, it shows that part alone."""
CAUSES = {
    "starved": {"too_few_workers"},
    "power-capped": {"power_capped"},
    "collective": {"collective_wait"},
}
"""By story; the others show no cause."""


@pytest.mark.parametrize("name", ["demo", "mixed"])
def test_each_story_shows_its_cause(name: str) -> None:
    """Over the whole timeline; no evidence is missing."""
    played = Played(name, POLL_SECONDS)
    simulation = played.simulation
    seen = {"lost"}
    for step in range(1, int(TWO_TURNS_SECONDS / POLL_SECONDS)):
        snapshot, seconds = played.tick(), step * POLL_SECONDS
        for gpu, simulated in zip(snapshot.gpus, simulation.gpus, strict=True):
            act = simulated.timeline.act(seconds)
            settled = simulated.timeline.act(max(0.0, seconds - SETTLES_SECONDS)) == act
            for share in gpu.shares if settled and seconds > SETTLES_SECONDS else ():
                found = {each.cause for each in share.diagnoses}
                assert found == CAUSES.get(act.scene.story, set()), (gpu.device.index, seconds)
                assert share.missing_evidence == ()
                seen.add(act.scene.story)
    stories = {scene.story for gpu in simulation.scenario.gpus for scene in gpu.scenes}
    assert seen == stories | {"lost"}
