# SPDX-License-Identifier: Apache-2.0
"""What ``run`` adds to each next() of a PyTorch data loader; needs PyTorch.

Plain and instrumented processes take turns, and the quietest of each counts: what else runs here
only adds. The peer is the plain loader itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.rig import machine

BATCHES = 3_000
EPOCHS = 25
ROUNDS = 3
TARGET_US = 4.0


def epoch_us() -> float:
    """Return what a next() costs in the quietest epoch of a loader that does next to nothing."""
    from torch.utils.data import DataLoader

    numbers = range(BATCHES)
    best = float("inf")
    for _ in range(EPOCHS):
        loader = DataLoader(numbers, batch_size=1, collate_fn=list)
        began = time.perf_counter_ns()
        for _ in loader:
            pass
        best = min(best, (time.perf_counter_ns() - began) / BATCHES / 1_000)
    return best


def _measured(*before: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*before, sys.executable, "-m", "tests.benchmarks.client_loader", "--child"],
            env={**os.environ, "ROOFLINE_TRAINING_SOCKET": str(Path(folder) / "nobody")},
            stdout=subprocess.PIPE,
            check=True,
        )
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args(arguments).child:
        print(epoch_us())
        return 0
    run = (sys.executable, "-m", "exporter", "run", "--")
    rounds = [(_measured(), _measured(*run)) for _ in range(ROUNDS)]
    plain, instrumented = (min(costs) for costs in zip(*rounds, strict=True))
    added = instrumented - plain
    print(machine())
    print(f"next() of a DataLoader: {plain:.2f} us plain, {instrumented:.2f} us under run")
    print(f"+ {added:.2f} us (target + {TARGET_US:g}), ratio {instrumented / plain:.2f}")
    return int(added > TARGET_US)


if __name__ == "__main__":
    sys.exit(main())
