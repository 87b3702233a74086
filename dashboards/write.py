# SPDX-License-Identifier: Apache-2.0
"""Which dashboards there are, in which files they lie, and what the flavours differ in."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards import (
    fleet,
    fleet_at_scale,
    gpu,
    idle,
    idle_at_scale,
    levels,
    navigation,
    roofline,
    training,
    windows,
)
from dashboards.model import Dashboard
from dashboards.records import recorded_page
from dashboards.sdk import PLUGIN_VERSION, to_json

ROOT = Path(__file__).parents[1]
PROVISIONED = ROOT / "deploy" / "grafana" / "dashboards"
AT_SCALE = ROOT / "deploy" / "grafana" / "dashboards-at-scale"
SHARED = ROOT / "dashboards" / "grafana.com"
PAGES: Mapping[str, Dashboard] = {
    "fleet": fleet.PAGE,
    "roofline": roofline.PAGE,
    "gpu": gpu.PAGE,
    "training": training.PAGE,
    "idle": idle.PAGE,
}
PAGES_AT_SCALE: Mapping[str, Dashboard] = {
    **PAGES,
    "fleet": fleet_at_scale.PAGE,
    "roofline": navigation.narrowed(roofline.PAGE, "instance"),
    "training": navigation.narrowed(recorded_page(training.PAGE), "training_job"),
    "idle": idle_at_scale.PAGE,
}
"""The same pages for hundreds of nodes, from recorded series, or of one thing at a time."""
INPUT = "DS_PROMETHEUS"


def shared(provisioned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flavour for grafana.com: Grafana asks for the data source on import."""
    model = copy.deepcopy(dict(provisioned))
    for variable in model["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"text": f"${{{INPUT}}}", "value": f"${{{INPUT}}}"}
    shown = [one for panel in model["panels"] for one in (panel, *panel.get("panels", ()))]
    kinds = sorted({panel["type"] for panel in shown} - {"row"})
    return {
        "__inputs": [
            {
                "name": INPUT,
                "label": "Prometheus",
                "description": "A Prometheus that scrapes roofline-exporter.",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": PLUGIN_VERSION},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *({"type": "panel", "id": kind, "name": kind, "version": ""} for kind in kinds),
        ],
        **model,
        "id": None,
        "editable": True,
    }


def files() -> dict[Path, str]:
    """Return the text of every file."""
    texts = {}
    for name, page in PAGES.items():
        model = _model(page)
        texts[PROVISIONED / f"{name}.json"] = _text(model)
        texts[SHARED / f"{name}.json"] = _text(shared(model))
    for name, page in PAGES_AT_SCALE.items():
        texts[AT_SCALE / f"{name}.json"] = _text(_model(page))
    return texts


def _model(page: Dashboard) -> dict[str, Any]:
    return to_json(levels.described(windows.described(page)))


def _text(model: Mapping[str, Any]) -> str:
    return json.dumps(model, indent=2, sort_keys=False) + "\n"


def write() -> None:
    """Write all files, and remove those of dashboards that no longer exist."""
    texts = files()
    for folder in (PROVISIONED, AT_SCALE, SHARED):
        folder.mkdir(parents=True, exist_ok=True)
        for path in set(folder.glob("*.json")) - set(texts):
            path.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
