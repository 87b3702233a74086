# SPDX-License-Identifier: Apache-2.0
"""Shows that the cost of a tick is linear in the number of GPUs, up to 64."""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.rig import (
    Accelerated,
    busy_node,
    fake_in_this_process,
    machine,
    rss_mb,
    series,
    table,
)
from tests.benchmarks.ticks import part_microseconds

WARM_UP_TICKS = 20
HEAD = (
    "GPUs",
    "series",
    "page kB",
    "gzip kB",
    "tick ms",
    "ms/GPU",
    "read ms/GPU",
    "derive ms/GPU",
    "render ms/GPU",
    "RSS MB",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each size in a process of its own and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scaling", description=__doc__)
    parser.add_argument("--gpus", default="1,8,16,32,64", help="sizes, up to 64 each")
    parser.add_argument("--ticks", type=int, default=200)
    options = parser.parse_args(argv)
    print(f"{machine()}\n{options.ticks} ticks each, CPU time of all threads\n", flush=True)
    rows = []
    for gpus in map(int, options.gpus.split(",")):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(row, (gpus, options.ticks)))
    print(table(HEAD, rows))
    return 0


def row(gpus: int, ticks: int) -> list[str]:
    """Measure one size of node in this process; return its line of the table."""
    with tempfile.TemporaryDirectory() as directory:
        fake = fake_in_this_process(Path(directory), busy_node(gpus))
        bench = Accelerated(fake, gpus)
        bench.start()
        try:
            for _ in range(WARM_UP_TICKS):
                bench.tick()
            spent = part_microseconds(bench, ticks)
            zipped = bench.page()
        finally:
            bench.stop()
    plain = gzip.decompress(zipped)
    rendered = spent["render"] + spent["gzip"]
    per_gpu = (spent["tick"], spent["read"], spent["derive"], rendered)
    return [
        str(gpus),
        str(series(plain.decode())),
        f"{len(plain) / 1e3:.0f}",
        f"{len(zipped) / 1e3:.0f}",
        f"{spent['tick'] / 1e3:.2f}",
        *(f"{part / 1e3 / gpus:.3f}" for part in per_gpu),
        f"{rss_mb():.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
