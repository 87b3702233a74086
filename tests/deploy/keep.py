# SPDX-License-Identifier: Apache-2.0
"""Which metrics rules and dashboards read, as a scrape keeps them.

``python -m tests.deploy.keep FILE`` writes the list into docs/scale.md (`make docs`).
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


def read(name: str) -> list[str]:
    """Return the metrics that are read by what a list is for."""
    found = {one for path in FILES[name] for one in METRIC.findall(path.read_text("utf-8"))}
    return sorted(found & {family.name for family in CATALOGUE.values()})


def block(name: str) -> str:
    """Return the list as the part of a scrape configuration."""
    return (
        f"# {name}\nmetric_relabel_configs:\n  - source_labels: [__name__]\n"
        f"    regex: {'|'.join(read(name))}\n    action: keep\n"
    )


def written(page: str) -> str:
    """Return a page with the lists that are true now."""
    for name in FILES:
        first = page.index(f"```yaml\n# {name}\n") + len("```yaml\n")
        page = page[:first] + block(name) + page[page.index("```", first) :]
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
