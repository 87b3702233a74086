# SPDX-License-Identifier: Apache-2.0
"""Shows what each part of a tick costs, and that memory stays flat over many ticks."""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.rig import (
    Accelerated,
    busy_node,
    fake_in_this_process,
    machine,
    print_missed,
    rss_mb,
    series,
    table,
)

FLAT_MB = 2.0
PARTS = ("read", "derive", "render", "gzip", "tick")
GZIP_SAMPLES_PER_LINE = 50


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ticks and print one line for each tenth of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ticks", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--ticks", type=int, default=20_000)
    parser.add_argument("--check", action="store_true", help="fail if memory is not flat")
    options = parser.parse_args(argv)
    every = max(1, options.ticks // 10)
    print(f"{machine()}\n{options.gpus} H100 GPUs, {options.ticks} simulated seconds\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        fake = fake_in_this_process(Path(directory), busy_node(options.gpus))
        bench = Accelerated(fake, options.gpus)
        bench.start()
        rows: list[list[str]] = []
        sizes: list[float] = []
        try:
            for done in range(every, options.ticks + 1, every):
                costs = part_microseconds(bench, every)
                sizes.append(rss_mb())
                print(f"{done} ticks, RSS {sizes[-1]:.2f} MB", file=sys.stderr, flush=True)
                rows.append(
                    [str(done), f"{sizes[-1]:.2f}", *(f"{costs[part]:.0f}" for part in PARTS)]
                )
            plain = gzip.decompress(bench.page())
        finally:
            bench.stop()
    print(table(["ticks", "RSS MB", *(f"{part} µs" for part in PARTS)], rows))
    drift = max(abs(size - sizes[0]) for size in sizes)
    print(
        f"\nCPU time of all threads, per tick; 'read' holds the simulated driver's own;\n"
        f"'derive' is merging, integrating and deriving; 'render' is without gzip.\n"
        f"{series(plain.decode())} series, {len(plain)} bytes.\n"
        f"RSS is never more than {drift:.2f} MB from what it was after {every} ticks."
    )
    missed = [f"RSS is not flat within ±{FLAT_MB:g} MB"] if drift > FLAT_MB else []
    return print_missed(missed, check=options.check)


def part_microseconds(bench: Accelerated, ticks: int) -> dict[str, float]:
    """Tick so often; return the CPU time of each part of a tick, in microseconds."""
    bench.watch.seconds.clear()
    for _ in range(ticks):
        bench.tick()
    per_tick = {name: s / ticks * 1e6 for name, s in bench.watch.seconds.items()}
    zipping = gzip_microseconds(gzip.decompress(bench.page()))
    return {
        "read": per_tick["read"],
        "derive": per_tick["tick"] - per_tick["read"] - per_tick["render"],
        "render": per_tick["render"] - zipping,
        "gzip": zipping,
        "tick": per_tick["tick"],
    }


def gzip_microseconds(page: bytes) -> float:
    """Return the CPU time of compressing a page as the exporter does, in microseconds."""
    started = time.process_time()
    for _ in range(GZIP_SAMPLES_PER_LINE):
        gzip.compress(page, 1, mtime=0)
    return (time.process_time() - started) / GZIP_SAMPLES_PER_LINE * 1e6


if __name__ == "__main__":
    sys.exit(main())
