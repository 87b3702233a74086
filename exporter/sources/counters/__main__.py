# SPDX-License-Identifier: Apache-2.0
"""``python -m exporter.sources.counters PROGRAM``: a child process of the exporter."""

from __future__ import annotations

import sys

from exporter.sources.counters.programs import PROGRAMS, run

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: python -m exporter.sources.counters {{{','.join(PROGRAMS)}}}")
    sys.exit(run(sys.argv[1]))
