# SPDX-License-Identifier: Apache-2.0
"""Shows what reading a dcgm-exporter's page costs, beside prometheus_client's parser alone."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, cycle

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from exporter.sources.dcgm.page import parse
from tests.benchmarks.rig import machine, print_missed, table
from tests.sources.dcgm.pages import FULL, Rows, page

PAGE_BYTES = 200_000
TARGET_MILLISECONDS = 30.0
HEAD = ("page", "kB", "lines", "GPUs", "ms", "parser alone ms", "ratio")
PODS = tuple(f"llm-pretrain-worker-{number}" for number in range(4))


def example(gpus: int, pods: Sequence[str]) -> str:
    """Return a page of so many GPUs, cut or filled to PAGE_BYTES with fields that nobody wants."""
    uuids = (f"GPU-6c5f8f5e-8a3b-4a47-9d3e-{number:012x}" for number in range(gpus))
    own = page(*(Rows(FULL, uuid=uuid, pods=pods) for uuid in uuids)).splitlines(keepends=True)
    others = [line.replace("DCGM_FI_", "DCGM_FI_OTHER_") for line in own]
    size, lines = 0, []
    for line in chain(own, cycle(others)):
        size += len(line)
        if size > PAGE_BYTES:
            break
        lines.append(line)
    return "".join(lines)


def parsed(text: str) -> list[Metric]:
    """Return the whole page as prometheus_client reads it."""
    return list(text_string_to_metric_families(text))


def milliseconds(read: Callable[[], object], rounds: int) -> float:
    """Return the median CPU time of the thread."""
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        read()
        times.append((time.thread_time() - began) * 1e3)
    return sorted(times)[rounds // 2]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each page; with `--check` fail where a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.dcgm_page", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    options = parser.parse_args(argv)
    pages = {
        "8 GPUs and many other fields": example(8, ("",)),
        "8 GPUs of 4 pods each": example(8, PODS),
        "60 GPUs": example(60, ("pod",)),
    }
    rows, missed = [], []
    for name, text in pages.items():
        taken = milliseconds(partial(parse, text), options.rounds)
        alone = milliseconds(partial(parsed, text), options.rounds)
        cells = (len(text) // 1000, text.count("\n"), len(parse(text)))
        times = (f"{taken:.1f}", f"{alone:.1f}", f"{alone / taken:.1f}")
        rows.append((name, *map(str, cells), *times))
        if taken > TARGET_MILLISECONDS:
            missed.append(f"{name}: {taken:.1f} ms, target {TARGET_MILLISECONDS:g}")
    print(f"{machine()}\nCPU time of the thread, median of {options.rounds}\n")
    print(table(HEAD, rows))
    return print_missed(missed, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
