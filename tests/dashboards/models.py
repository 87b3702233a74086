# SPDX-License-Identifier: Apache-2.0
"""The committed dashboards, as the tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROVISIONED = ROOT / "deploy" / "grafana" / "dashboards"
AT_SCALE = ROOT / "deploy" / "grafana" / "dashboards-at-scale"
SHARED = ROOT / "dashboards" / "grafana.com"
NAMES = ("fleet", "gpu", "idle", "roofline", "training")
NAMES_AT_SCALE = tuple(f"at-scale/{name}" for name in NAMES)
"""The same pages for many nodes, which read what scale.yml records."""

Model = dict[str, Any]
SELECTOR = re.compile(r"(?<![\w:])((?:gpu|roofline_exporter)_[a-z0-9_]+)\{([^}]*)\}")
METRIC = re.compile(r"(?<![\w:])(?:gpu|roofline_exporter)_[a-z0-9_]+\b(?!:)")
RECORD = re.compile(r"\b([a-z]+:gpu_[a-z0-9_]+:[a-z0-9_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)(=~|=|!=|!~)"([^"]*)"')


@dataclass(frozen=True)
class Target:
    """One query of one panel."""

    page: str
    panel: Model
    query: Model

    @property
    def expression(self) -> str:
        text: str = self.query["expr"]
        return text

    @property
    def name(self) -> str:
        legend = self.query["legendFormat"]
        query = self.query["refId"] if legend == "__auto" else legend
        return f"{self.page}/{self.panel['title']}/{query}"


def load(name: str, folder: Path | None = None) -> Model:
    """The JSON of one dashboard."""
    chosen = folder or (AT_SCALE if name in NAMES_AT_SCALE else PROVISIONED)
    path = chosen / f"{Path(name).name}.json"
    model: Model = json.loads(path.read_text(encoding="utf-8"))
    return model


def panels(model: Model) -> list[Model]:
    """Its panels without the headlines, those of closed rows too."""
    return [panel for panel in everything(model) if panel["type"] != "row"]


def everything(model: Model) -> list[Model]:
    """Its panels and headlines in their order."""
    return [one for panel in model["panels"] for one in (panel, *panel.get("panels", ()))]


def targets(name: str) -> Iterator[Target]:
    """Every query of a dashboard."""
    for panel in panels(load(name)):
        for query in panel["targets"]:
            yield Target(name, panel, query)


def links(value: object) -> Iterator[str]:
    """Every URL of a data link below a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "url" and isinstance(inner, str):
                yield inner
            else:
                yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


each_page = pytest.mark.parametrize("name", NAMES)
every_page = pytest.mark.parametrize("name", [*NAMES, *NAMES_AT_SCALE])
"""Those at scale too."""
