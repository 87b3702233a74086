# SPDX-License-Identifier: Apache-2.0
"""Print as JSON what a real release of CUPTI supports on each chip; the argument is its library."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from exporter.sources.cupti.choice import Choices
from exporter.sources.cupti.host import Host, supported_chips
from exporter.sources.cupti.library import CuptiError, CuptiLibrary

PERCENT = ".avg.pct_of_peak_sustained_elapsed"
PIPE = f"sm__pipe_tensor_cycles_active_realtime{PERCENT}"
MANY = f"sm__throughput{PERCENT}"


def chosen(library: CuptiLibrary, choices: Choices, chip: str) -> dict[str, Any]:
    """Return what is sampled of a chip, and in how many passes all of it is counted."""
    began = time.perf_counter()
    choice = choices.of(chip)
    seconds = time.perf_counter() - began
    names = [metric.name for metric in choice.metrics]
    passes, size = counted(library, chip, names)
    return {
        "fields": {metric.signal: metric.field for metric in choice.metrics},
        "names": names,
        "missing": choice.missing,
        "passes": passes,
        "image_bytes": size,
        "seconds": seconds,
        "again": choices.of(chip) is choice,
    }


def counted(library: CuptiLibrary, chip: str, names: Sequence[str]) -> tuple[int, int]:
    """Return passes and the image's size of a set of metrics."""
    with closing(Host(library, chip)) as host:
        host.add(names)
        image = host.image()
        return host.passes(image), len(image)


def refused(library: CuptiLibrary, chip: str, *names: str) -> int:
    """Return the code that CUPTI refuses a chip with, or these metrics of it; 0 if it does not."""
    try:
        counted(library, chip, names)
    except CuptiError as error:
        return error.code
    return 0


def main() -> None:
    """Print what the library says."""
    library = CuptiLibrary(Path(sys.argv[1]))
    choices = Choices(library)
    chips = supported_chips(library)
    answer = {
        "version": library.version,
        "mapped": Path("/proc/self/maps").read_text("utf-8").count("libnvperf_host"),
        "chips": {
            chip: chosen(library, choices, chip)
            for chip in chips
            if not refused(library, chip, f"sm__cycles_active{PERCENT}")
        },
        "refused": {
            "GV100": refused(library, "GV100"),
            "XX999": refused(library, "XX999"),
            "metric": refused(library, "GA102", PIPE, f"sm__no_such_metric{PERCENT}"),
        },
        "passes": {
            name: counted(library, "GA102", [metric])[0]
            for name, metric in (("one", PIPE), ("many", MANY))
        },
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
