# SPDX-License-Identifier: Apache-2.0
"""What outlives a tick for one share of a GPU, and the picture of it."""

from __future__ import annotations

from exporter.derive import Derived
from exporter.model.reading import Activity, Reading, ShareReading
from exporter.model.snapshot import Ceilings, Share
from exporter.publisher.ranks import GapClock
from exporter.publisher.totals import ShareIntegral


class TrackedShare:
    """What outlives a tick for one share."""

    def __init__(self, identity: object, ceilings: Ceilings | None, started: float) -> None:
        self.identity = identity
        self.ceilings = ceilings
        self.integral = ShareIntegral(started)
        self.gaps = GapClock()
        self.activity: Activity | None = None
        """The last one that answered."""
        self.derived = Derived()
        self.answered_at: float | None = None
        """Monotonic time of the last activity; of the first read before there is any."""
        self.watched_until: float | None = None
        """Monotonic time up to which it is known whether the share was idle."""


def share_picture(share_reading: ShareReading, share: TrackedShare, reading: Reading) -> Share:
    """Return what is shown of a share as last read, in this round of its GPU."""
    derived = share.derived
    return Share(
        gpu_instance=share_reading.gpu_instance,
        ceilings=share.ceilings,
        totals=share.integral.totals(),
        utilization=reading.vitals.utilization if share_reading.gpu_instance is None else None,
        memory=share_reading.memory,
        processes=share_reading.processes,
        held=derived.held,
        holder=derived.holder,
        activity=share.activity,
        saturation=derived.saturation,
        time_parts=derived.time_parts,
        roofline=derived.roofline,
        limiter=derived.limiter,
        data_stall=derived.data_stall,
    )
