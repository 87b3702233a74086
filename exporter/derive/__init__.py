# SPDX-License-Identifier: Apache-2.0
"""What the readings of one share mean: saturation, time parts, roofline, idle, held, limiter.

Pure functions, each with its equation. May import model.
"""

from __future__ import annotations

from exporter.derive.idle import IdleRules
from exporter.derive.share import NO_STALL, Derived, derive_share

__all__ = ["NO_STALL", "Derived", "IdleRules", "derive_share"]
