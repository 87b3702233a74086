# SPDX-License-Identifier: Apache-2.0
"""Idle, held, and by whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive.idle import IdleRules, holder, is_held, is_idle
from exporter.model.reading import Activity, Memory, Process, Vitals
from exporter.model.snapshot import Holder
from tests.derive.readings import counters

RULES = IdleRules()
MIB = 1024 * 1024


def memory(used_mib: int) -> Memory:
    return Memory(total_bytes=80 * 1024 * MIB, used_bytes=used_mib * MIB, free_bytes=0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"engine": 0.0099}, True),
        ({"engine": 0.01}, False),
        ({"sm": 0.02}, False),
        ({"dram": 0.02}, False),
        ({"encoder": 0.02}, False),
        ({"ofa": 0.02}, False),
        ({"sm": None, "dram": None}, True),
    ],
)
def test_measured_idle(values: dict[str, float | None], expected: bool) -> None:
    """Every activity that is read is below 1 %."""
    assert is_idle(counters(**values), None, None, None, RULES) is expected


@pytest.mark.parametrize(
    ("activity", "utilization", "vitals", "links", "memory_ratio", "expected"),
    [
        (None, None, Vitals(), None, None, None),
        (None, 0.0, None, None, None, True),
        (None, 0.0, Vitals(), 9e6, None, True),
        (None, 0.0, Vitals(), 1e7, None, False),
        (None, 0.01, Vitals(), None, None, False),
        (None, 0.0, Vitals(encoder_ratio=0.5), None, None, False),
        (None, 0.0, Vitals(ofa_ratio=0.5), None, None, False),
        (None, 0.0, Vitals(), None, 0.009, True),
        (None, 0.0, Vitals(), None, 0.01, False),
        (counters(dram=0.0), 0.0, None, None, 0.3, True),
        (counters(dram=None), 0.0, None, None, 0.3, False),
        (counters(), 0.5, None, None, None, True),
        (counters(engine=None), 0.5, None, None, None, False),
        (counters(engine=None), None, None, None, None, None),
    ],
)
def test_idle_by_the_drivers_readings(
    activity: Activity | None,
    utilization: float | None,
    vitals: Vitals | None,
    links: float | None,
    memory_ratio: float | None,
    expected: bool | None,
) -> None:
    """They stand in for what is not counted: utilization for the engine, and that of the memory
    for DRAM, as loading a model runs no kernel; loading over PCIe is not idle either."""
    assert is_idle(activity, utilization, vitals, links, RULES, memory_ratio) is expected


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ((), False),
        ((Process(1, "compute", command="python3"),), True),
        ((Process(1, "compute"),), True),
        ((Process(1, "mps", command="python3"),), True),
        ((Process(1, "graphics", command="blender"),), False),
        ((Process(1, "compute", command="nvidia-cuda-mps"),), False),
        ((Process(1, "compute", command="Xorg"),), False),
        ((Process(1, "compute", command="Xorgy"),), True),
        (
            (
                Process(1, "compute", command="nvidia-cuda-mps"),
                Process(2, "mps", command="train"),
            ),
            True,
        ),
    ],
)
def test_held_by_processes(processes: tuple[Process, ...], expected: bool) -> None:
    """Compute and MPS processes hold unless ignored by name; memory does not matter then."""
    assert is_held(processes, memory(70_000), RULES) is expected


@pytest.mark.parametrize(
    ("used", "coherent", "expected"),
    [
        (memory(501), False, True),
        (memory(500), False, False),
        (memory(501), True, None),
        (None, False, None),
    ],
)
def test_held_by_memory_where_processes_cannot_be_listed(
    used: Memory | None, coherent: bool, expected: bool | None
) -> None:
    """More than 500 MiB holds, except on coherent memory, where it means little."""
    assert is_held(None, used, RULES, coherent_memory=coherent) is expected


def test_the_ignore_list_is_compared_as_the_kernel_cuts_names() -> None:
    """A configured long name matches the 15 characters that /proc shows."""
    rules = IdleRules(ignored_commands=frozenset({"a-very-long-monitor-name"}))
    assert is_held((Process(1, "compute", command="a-very-long-mon"),), None, rules) is False
    assert is_held((Process(1, "compute", command="Xorg"),), None, rules) is True


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
            (Process(9, "compute", 0, "b"), Process(8, "compute", None, "a")),
            Holder(None, "a", "other"),
        ),
    ],
)
def test_the_largest_that_holds(processes: tuple[Process, ...], expected: Holder | None) -> None:
    """By memory, unknown memory as 0; equal ones by number; ignored and graphics ones never."""
    held = is_held(processes, None, RULES)
    assert holder(processes, held, RULES) == expected


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
