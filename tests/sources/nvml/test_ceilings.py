# SPDX-License-Identifier: Apache-2.0
"""Which ceilings a GPU gets by what the driver's library really answers of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exporter.model.snapshot import Ceilings
from exporter.specs import load_specs

BOOK = load_specs()


Open = Callable[..., Any]


def ceilings(rig: Any) -> Ceilings | None:
    return BOOK.ceilings(rig.source().device)


@pytest.mark.parametrize(
    "reading",
    [
        {"name": "GRID A100-1-5CME"},
        {"name": "NVIDIA A100-40C"},
        {"name": "GRID A100DX-80C"},
        {"modes": {"virtualization": 2}},
    ],
)
def test_a_vgpu_has_no_ceilings(open_gpu: Open, reading: dict[str, Any]) -> None:
    """Its PCI id, cores, bus and clocks are those of the whole A100."""
    assert ceilings(open_gpu(product="a100-sxm4-80gb")) is not None
    assert ceilings(open_gpu(product="a100-sxm4-80gb", **reading)) is None


def test_a_gpu_that_is_passed_through_is_a_whole_one(open_gpu: Open) -> None:
    """So is a host that makes vGPUs of it."""
    for mode in (1, 3, 4):
        found = ceilings(open_gpu(product="a100-sxm4-80gb", modes={"virtualization": mode}))
        assert found is not None
        assert found.spec == "a100-sxm4-80gb"
