# SPDX-License-Identifier: Apache-2.0
"""How many CPU cores a process keeps busy: real processes, and the lines of a hostile /proc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.sources.proc.procfs import TICKS_PER_SECOND, CpuUse
from tests.sources.proc.processes import process

BUSY_AND_TELL = """
import sys, time
for line in sys.stdin:
    begin = time.process_time()
    while time.process_time() < begin + float(line):
        pass
    print(time.process_time(), flush=True)
"""


def test_a_real_process() -> None:
    """What it uses while it computes, and nothing while it waits; the kernel counts in ticks."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_AND_TELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        into, out = child.stdin, child.stdout
        assert into is not None
        assert out is not None

        def compute(seconds: float) -> float:
            print(seconds, file=into, flush=True)
            return float(out.readline())

        begun = compute(0.0)
        use, pid = CpuUse("/proc"), child.pid
        assert use.of([pid], 100.0) == {}
        used = compute(0.5) - begun
        assert used >= 0.5
        assert use.of([pid], 102.0)[pid] == pytest.approx(used / 2, abs=1.5 / TICKS_PER_SECOND)
        assert use.of([pid], 103.0)[pid] <= 1.5 / TICKS_PER_SECOND
        into.close()


def test_threads_count_and_children_do_not(tmp_path: Path) -> None:
    """User and system time of all threads, over the time between the reads: 3 s in 2 s."""
    use = CpuUse(str(tmp_path))
    process(tmp_path, 7, b"a) b", times=(10 * TICKS_PER_SECOND, 5 * TICKS_PER_SECOND))
    assert use.of([7], 50.0) == {}
    process(tmp_path, 7, b"a) b", times=(12 * TICKS_PER_SECOND, 6 * TICKS_PER_SECOND))
    assert use.of([7, 7], 52.0) == {7: 1.5}
    assert use.of([7], 52.0) == {}, "no time has passed"


def test_a_pid_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    """So does one that was not asked for meanwhile; a count that falls is 0."""
    use = CpuUse(str(tmp_path))
    process(tmp_path, 7, times=(1, 1))
    process(tmp_path, 8, times=(100, 0))
    use.of([7, 8], 1.0)
    process(tmp_path, 7, times=(900, 900), started=200)
    process(tmp_path, 8, times=(50, 0))
    assert use.of([7, 8], 2.0) == {8: 0.0}
    use.of([], 3.0)
    assert use.of([8], 4.0) == {}


@pytest.mark.parametrize("times", [("x", 1), (1, "1.5"), ("1e5", 1), ("-", "-")])
def test_a_line_that_cannot_be_read_is_left_out(
    tmp_path: Path, times: tuple[object, object]
) -> None:
    """And a process that is not there."""
    process(tmp_path, 7, times=times)
    use = CpuUse(str(tmp_path))
    for now in (1.0, 2.0):
        assert use.of([7, 8], now) == {}
