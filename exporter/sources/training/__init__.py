# SPDX-License-Identifier: Apache-2.0
"""Training jobs: what they report of their steps, phases and stalls on a Unix socket."""

from __future__ import annotations

from exporter.sources.training.endpoint import SocketAccess, candidates
from exporter.sources.training.training_reports import TrainingOptions, TrainingSource

__all__ = ["SocketAccess", "TrainingOptions", "TrainingSource", "candidates"]
