# SPDX-License-Identifier: Apache-2.0
"""Who holds a share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive import IdleRules, derive_share
from exporter.derive.idle import holder, is_held
from exporter.model.reading import Device, Memory, Process, ShareReading, Utilization, Vitals
from exporter.model.snapshot import Holder

RULES = IdleRules()
ADA = Process(1, "compute", 10, "python3", "ada", "training")
BOB = Process(2, "mps", 20, "vllm", "bob", "serving")
XORG = Process(3, "graphics", 99, "Xorg", "root", "display")
MPS = Process(4, "compute", 99, "nvidia-cuda-mps", "root", "system")


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ((ADA,), Holder("ada", "python3", "training")),
        ((ADA, BOB, XORG, MPS), Holder("bob", "vllm", "serving")),
        ((XORG, MPS), None),
        ((), None),
        ((Process(5, "compute"),), Holder(None, None, "other")),
        ((Process(5, "compute", None, "a"), ADA), Holder("ada", "python3", "training")),
        (
            (Process(9, "compute", 5, "b"), Process(8, "compute", 5, "a")),
            Holder(None, "a", "other"),
        ),
        (
            (Process(9, "compute", None, "b"), Process(8, "compute", 0, "a")),
            Holder(None, "a", "other"),
        ),
    ],
)
def test_the_largest_that_holds(processes: tuple[Process, ...], expected: Holder | None) -> None:
    """By memory, unknown memory as 0; equal ones by number; ignored and graphics ones never."""
    held = is_held(processes, None, RULES)
    assert holder(processes, held, RULES) == expected


def test_held_by_memory_alone_is_held_by_somebody() -> None:
    """Exactly one holder per held GPU, even where nothing is known of it."""
    assert holder(None, True, RULES) == Holder(None, None, "other")


@pytest.mark.parametrize("held", [False, None])
def test_nobody_holds_what_is_not_held(held: bool | None) -> None:
    """Nor a share of which it is not known."""
    assert holder(None, held, RULES) is None


PROCESSES = st.lists(
    st.builds(
        Process,
        st.integers(1, 9),
        st.sampled_from(["compute", "graphics", "mps"]),
        st.none() | st.integers(0, 5),
        st.sampled_from([None, "a", "Xorg"]),
    ),
    max_size=6,
    unique_by=lambda process: process.pid,
)


@given(st.none() | PROCESSES, st.booleans())
def test_there_is_a_holder_exactly_while_held(
    processes: list[Process] | None, much_memory: bool
) -> None:
    """gpu_held 1 and gpu_holder_info go together; the order of the list does not matter."""
    memory = Memory(2**40, 2**39 if much_memory else 0, 0)
    held = is_held(processes, memory, RULES)
    found = holder(processes, held, RULES)
    assert (found is not None) is bool(held)
    if processes:
        assert holder(processes[::-1], held, RULES) == found


@pytest.mark.parametrize("counters", ["gpm", None])
@pytest.mark.parametrize("utilization", [None, Utilization(0.5, 0.5, 1.0)])
def test_every_share_has_its_holder(counters: str | None, utilization: Utilization | None) -> None:
    """However a share's saturation is known, its holder is."""
    derived = derive_share(
        Device(0, "GPU-0", "GPU"),
        Vitals(utilization=utilization),
        ShareReading(processes=(ADA,), counters=counters),
        None,
        RULES,
    )
    assert derived.holder == Holder("ada", "python3", "training")
