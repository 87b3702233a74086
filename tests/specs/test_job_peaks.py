# SPDX-License-Identifier: Apache-2.0
"""The peaks that the client in a job has with it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roofline_job import identity, peak
from tests.specs.job_peaks import job_peaks


def test_they_are_those_of_the_spec_file() -> None:
    """`make docs` writes them."""
    assert Path(peak.PEAKS).read_text(encoding="utf-8") == job_peaks()


def test_what_a_job_cannot_tell_apart_is_left_out() -> None:
    """A laptop's GPU of the same name and SMs; with other SMs it is known."""
    peaks = json.loads(job_peaks())
    assert "GeForce RTX 2080, 46 SMs" not in peaks
    assert {"GeForce RTX 3080, 68 SMs", "GeForce RTX 3080, 70 SMs"} <= peaks.keys()
    assert peaks["H100 80GB HBM3, 132 SMs"]["tf32"] == 494.7e12
    assert peaks["Tesla T4, 40 SMs"]["fp16"] == 65e12


@pytest.mark.parametrize(
    ("sms", "precision", "found"),
    [
        (108, "bf16", 312e12),
        (108, "fp32", 19.5e12),
        (108, None, None),
        (108, "fp8", None),
        (42, "bf16", None),
    ],
)
def test_a_job_finds_that_of_its_gpu(
    sms: int, precision: str | None, found: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of a part of it, nor of a precision that it has not."""
    properties = SimpleNamespace(name="NVIDIA A100-SXM4-80GB", multi_processor_count=sms)
    monkeypatch.setattr(identity, "cuda", lambda: cuda(lambda index: properties))
    assert peak.peak_flops_per_second(precision) == found


def cuda(get: Any) -> SimpleNamespace:
    return SimpleNamespace(current_device=int, get_device_properties=get)


def test_a_job_without_a_gpu_or_with_a_broken_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line at its end is written all the same."""
    assert peak.peak_flops_per_second("bf16") is None

    def fails(index: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(identity, "cuda", lambda: cuda(fails))
    assert peak.peak_flops_per_second("bf16") is None
