# SPDX-License-Identifier: Apache-2.0
"""Training ranks: the GPU of each, the sum of its processes, and checks of what they report."""

from __future__ import annotations

from exporter.publisher.ranks.gaps import GapClock
from exporter.publisher.ranks.places import GpuShares
from exporter.publisher.ranks.ranks import INFERRED_BY_CLIENT, Claims, Ranks, WorkClaim

__all__ = ["INFERRED_BY_CLIENT", "Claims", "GapClock", "GpuShares", "Ranks", "WorkClaim"]
