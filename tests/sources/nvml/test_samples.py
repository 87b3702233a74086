# SPDX-License-Identifier: Apache-2.0
"""The driver's sample buffers, read incrementally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exporter.sources.nvml.utilization import UTILIZATION, SampleBuffer

Open = Callable[..., Any]
START = 1_000_000.0


def test_entries_without_a_stamp_are_ignored(open_gpu: Open) -> None:
    """Unused entries, with stamp 0, are no samples; others come in order."""
    rig = open_gpu(raw_samples={"1": [[-START, 77], [0.9, 3], [-START, 78], [0.5, 2]]})
    rig.advance(1)

    assert SampleBuffer(rig.handle, UTILIZATION).read() == [(START + 0.5, 2), (START + 0.9, 3)]
