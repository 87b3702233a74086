# SPDX-License-Identifier: Apache-2.0
"""The roofline ceilings of a GPU or MIG instance, from the spec file, else derived.

May import model.
"""

from __future__ import annotations

from exporter.specs.book import SpecBook
from exporter.specs.gpu_model import GpuModel, assumed_precision
from exporter.specs.load import load_specs
from exporter.specs.mig import share_ceilings

__all__ = ["GpuModel", "SpecBook", "assumed_precision", "load_specs", "share_ceilings"]
