# SPDX-License-Identifier: Apache-2.0
"""The one clock: each tick merges readings, integrates, derives and publishes one snapshot.

May import model, derive and specs.
"""

from __future__ import annotations

from exporter.publisher.rules import Rules
from exporter.publisher.tick import Publisher

__all__ = ["Publisher", "Rules"]
