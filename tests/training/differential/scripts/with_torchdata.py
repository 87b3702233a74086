# SPDX-License-Identifier: Apache-2.0
"""Torchdata's loader, whose iterators are its own: the cases of `workers`, and one that resumes."""

from __future__ import annotations

from torchdata.stateful_dataloader import StatefulDataLoader

from tests.training.differential.own import Own, Pairs, cases, watched
from tests.training.differential.scripts import workers


def resumed() -> None:
    """An epoch that is left in its middle, and the rest of it by another loader."""
    own = Own(workers.BODY)
    left, rest = (watched(StatefulDataLoader(Pairs(48, 0.006), 4, num_workers=1)) for _ in range(2))
    workers.leave(own, left)
    rest.load_state_dict(left.state_dict())
    own.train(rest)
    own.expect(share=False)


def in_this_process() -> None:
    workers.trained(2, num_workers=0)


workers.LOADER = StatefulDataLoader
cases(
    resumed=resumed,
    in_this_process=in_this_process,
    two=workers.two,
    persistent=workers.persistent,
    of_a_stream=workers.of_a_stream,
    slow_start=workers.slow_start,
    reset_midway=workers.reset_midway,
)
