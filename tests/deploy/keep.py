# SPDX-License-Identifier: Apache-2.0
"""Which metrics rules and dashboards read, as a scrape keeps them.

``python -m tests.deploy.keep FOLDER`` writes the lists into deploy/scale/ (`make docs`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from exporter.exposition.catalogue import CATALOGUE
from tests.dashboards.models import AT_SCALE, NAMES, PROVISIONED
from tests.rules.rules import DIRECTORY

FILES = {
    "keep-alerts.yml": [DIRECTORY / "recording.yml", DIRECTORY / "alerts.yml"],
    "keep-dashboards.yml": [
        *(DIRECTORY / name for name in ("recording.yml", "scale.yml", "alerts.yml")),
        *(folder / f"{name}.json" for folder in (PROVISIONED, AT_SCALE) for name in NAMES),
    ],
}
METRIC = re.compile(r"\b(?:gpu|roofline_exporter)_[a-z0-9_]+\b")
HEAD = """\
# Keeps of a scrape only the metrics that {} read. Written by `make docs`.
# It belongs to the job of the exporter in the scrape configuration.
"""
READERS = {
    "keep-alerts.yml": "recording.yml and alerts.yml",
    "keep-dashboards.yml": "recording.yml, alerts.yml and the dashboards",
}


def read(name: str) -> list[str]:
    """Return the metrics that are read by what a list is for."""
    found = {one for path in FILES[name] for one in METRIC.findall(path.read_text("utf-8"))}
    return sorted(found & {family.name for family in CATALOGUE.values()})


def content(name: str) -> str:
    """Return the list as the part of a scrape configuration."""
    return (
        f"{HEAD.format(READERS[name])}metric_relabel_configs:\n  - source_labels: [__name__]\n"
        f"    regex: {'|'.join(read(name))}\n    action: keep\n"
    )


if __name__ == "__main__":
    for file in FILES:
        (Path(sys.argv[1]) / file).write_text(content(file), encoding="utf-8")
