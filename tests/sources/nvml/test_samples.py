# SPDX-License-Identifier: Apache-2.0
"""The driver's sample buffers, read incrementally."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from exporter.sources.nvml import samples as module
from exporter.sources.nvml.samples import UTILIZATION, SampleBuffer
from tests.fake_nvml import steps

Open = Callable[..., Any]
START = 1_000_000.0


def test_reads_are_incremental(open_gpu: Open) -> None:
    """Each sample is handed over once, oldest first, stamped in Unix seconds."""
    rig = open_gpu(utilization=steps((0, 10), (1, 30)), sample_period=0.5)
    rig.advance(1)
    buffer = SampleBuffer(rig.handle, UTILIZATION)
    first = buffer.read()
    rig.advance(1)

    assert first == [(START + 0.5, 10), (START + 1.0, 10)]
    assert buffer.read() == [(START + 1.5, 30), (START + 2.0, 30)]


def test_entries_without_a_stamp_are_ignored(open_gpu: Open) -> None:
    """Unused entries, with stamp 0, are no samples; others come in order."""
    rig = open_gpu(raw_samples={"1": [[-START, 77], [0.9, 3], [-START, 78], [0.5, 2]]})
    rig.advance(1)

    assert SampleBuffer(rig.handle, UTILIZATION).read() == [(START + 0.5, 2), (START + 0.9, 3)]


def test_array_is_reused(open_gpu: Open) -> None:
    """The driver is asked for the size once."""
    rig = open_gpu()
    rig.advance(1)
    buffer = SampleBuffer(rig.handle, UTILIZATION)
    buffer.read()
    rig.calls()
    for _ in range(5):
        rig.advance(1)
        assert len(buffer.read()) == 6

    assert rig.calls() == {"nvmlDeviceGetSamples": 5}


def test_array_grows_with_the_buffer(open_gpu: Open) -> None:
    """A buffer that became larger than the array is read in full, over two reads at most."""
    rig = open_gpu(samples={"depth": 10}, sample_period=0.1)
    rig.advance(2)
    buffer = SampleBuffer(rig.handle, UTILIZATION)
    assert len(buffer.read()) == 10
    rig.fake.device(0, samples={"depth": 500})
    rig.advance(30)
    stamps = [stamp for stamp, _ in (*buffer.read(), *buffer.read())]

    assert len(stamps) == 300
    assert stamps == sorted(stamps)
    rig.advance(30)
    assert len(buffer.read()) == 300


def test_array_that_is_too_small_is_replaced(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that refuses a short array gets a longer one in the same read."""
    rig = open_gpu()
    rig.advance(1)
    buffer = SampleBuffer(rig.handle, UTILIZATION)
    real = buffer._fill
    codes = [pynvml.NVML_ERROR_INSUFFICIENT_SIZE]

    monkeypatch.setattr(buffer, "_fill", lambda call: codes.pop() if codes else real(call))
    assert len(buffer.read()) == 6


def test_layout_is_that_of_the_binding() -> None:
    """The entries are decoded at the offsets that pynvml's structure has."""
    layout = pynvml.c_nvmlSample_t

    assert ctypes.sizeof(layout) == module._ENTRY.size
    assert [layout.timeStamp.offset, layout.sampleValue.offset] == [0, 8]
