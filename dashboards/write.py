# SPDX-License-Identifier: Apache-2.0
"""Which dashboards there are, in which files they lie, and what the two flavours differ in."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards import fleet, gpu, idle, levels, roofline, training, windows
from dashboards.model import Dashboard
from dashboards.sdk import PLUGIN_VERSION, to_json

ROOT = Path(__file__).parents[1]
PROVISIONED = ROOT / "deploy" / "grafana" / "dashboards"
SHARED = ROOT / "dashboards" / "grafana.com"
PAGES: Mapping[str, Dashboard] = {
    "fleet": fleet.PAGE,
    "roofline": roofline.PAGE,
    "gpu": gpu.PAGE,
    "training": training.PAGE,
    "idle": idle.PAGE,
}
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
        model = to_json(levels.described(windows.described(page)))
        for folder, flavour in ((PROVISIONED, model), (SHARED, shared(model))):
            texts[folder / f"{name}.json"] = json.dumps(flavour, indent=2, sort_keys=False) + "\n"
    return texts


def write() -> None:
    """Write all files, and remove those of dashboards that no longer exist."""
    texts = files()
    for folder in (PROVISIONED, SHARED):
        folder.mkdir(parents=True, exist_ok=True)
        for path in set(folder.glob("*.json")) - set(texts):
            path.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
