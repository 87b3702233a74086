# SPDX-License-Identifier: Apache-2.0
"""A GPU at a place of the roofline that a test chooses."""

from __future__ import annotations

from dataclasses import replace

from exporter.model.snapshot import Gpu
from tests import snapshots


def at_work(flops: float, bytes_per_second: float) -> Gpu:
    """An H100 that does so many FLOP/s with so much DRAM traffic, for seconds."""
    gpu = snapshots.h100_training()
    [share] = gpu.shares
    assert share.roofline is not None
    assert share.recent is not None
    roofline = replace(
        share.roofline,
        flops_per_second={"bf16_tensor": flops},
        dram_bytes_per_second=bytes_per_second,
        intensity_flops_per_byte=flops / bytes_per_second,
    )
    recent = replace(
        share.recent,
        flops_per_second={"bf16_tensor": flops},
        dram_bytes_per_second=bytes_per_second,
        intensity_flops_per_byte=flops / bytes_per_second,
    )
    return replace(gpu, shares=(replace(share, roofline=roofline, recent=recent),))
