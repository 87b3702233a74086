# SPDX-License-Identifier: Apache-2.0
"""Simulated GPUs: what the exporter shows on a machine that has none."""

from __future__ import annotations

from exporter.sources.simulate.scenario import load_scenario
from exporter.sources.simulate.simulation import Simulation

__all__ = ["Simulation", "load_scenario"]
