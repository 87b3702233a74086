# SPDX-License-Identifier: Apache-2.0
"""A process that has a child, whose number it prints, and waits to be killed."""

from __future__ import annotations

import sys
import time

from tests.sources.counters.bench import Bench

if __name__ == "__main__":
    bench = Bench(sys.argv[1])
    bench.open()
    bench.run()
    print(bench.supervisor.pid, flush=True)
    while True:
        time.sleep(60)
