# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it.

``python -m tests.deploy.helm FILE`` writes what it renders by default (`make manifests`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.kubectl import Object, program
from tests.programs import Ended, ended

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "roofline-exporter"
NAME = "roofline-exporter"
"""Of the release."""
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Written by `make manifests`: what the chart of deploy/helm renders by default.
# kubectl apply -n monitoring -f daemonset.yml
# What it lacks, or gives up, is in overlays/, with what each gives and costs.
"""

Values = Mapping[str, Any]


def helm(*words: str) -> Ended:
    """Run Helm, with none of the user's own plug-ins and repositories."""
    with tempfile.TemporaryDirectory() as home:
        own = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        return ended(program("helm"), *words, env={**os.environ, **own})


def rendering(values: Values | None = None, *words: str, chart: Path = CHART) -> Ended:
    """What `helm template` says of these values."""
    return _rendered(yaml.safe_dump(dict(values or {})), words, chart)


@cache
def _rendered(values: str, words: tuple[str, ...], chart: Path) -> Ended:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(values)
        file.flush()
        return helm("template", NAME, str(chart), "--values", file.name, *words)


def objects(values: Values | None = None, *words: str, chart: Path = CHART) -> list[Object]:
    """What the chart makes of values."""
    done = rendering(values, *words, chart=chart)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def refusal(values: Values, *words: str) -> str:
    """Why these values are refused."""
    done = rendering(values, *words)
    assert done.returncode != 0, done.stdout
    return done.stderr


def manifest() -> str:
    """The text of what the chart makes by default."""
    done = rendering()
    assert done.returncode == 0, done.stderr
    return HEAD + done.stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manifest(), encoding="utf-8")
