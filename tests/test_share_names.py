# SPDX-License-Identifier: Apache-2.0
"""A GPU is called GPU 2, and a MIG instance of it GPU 2/1, wherever somebody reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboards.model import WHOLE_GPUS
from exporter.model.reading import named_group, share_name
from tests.dashboards.models import NAMES, load, panels

ROOT = Path(__file__).parents[1]
TEXTS = sorted(
    path
    for pattern in (
        *("README.md", "docs/*.md", "exporter/**/*.py", "exporter/web/static/*.js"),
        *("roofline_job/*.py", "dashboards/**/*.py", "deploy/grafana/dashboards/*.json"),
        *("deploy/prometheus/*.py", "deploy/prometheus/templates/*.yml"),
        *("deploy/prometheus/rules/*.yml", "deploy/alertmanager/*"),
    )
    for path in ROOT.glob(pattern)
)
NUMBER = r"(?:\d+(?![\dgc])|[{$<])"
"""A number of its own, which a profile does not begin with, or what stands for one."""
OTHERS = re.compile(
    "|".join(
        (
            rf"\bMIG (?:instance |GI )?{NUMBER}",
            rf"\bGPU instance {NUMBER}",
            r"\bGPU \d+\.\d",
            r"gpu\}\.\$?\{",
            r"(?<!\{\{gpu\}\}/)\{\{gpu_instance\}\}",
            r"index\}/\{",
        )
    )
)
DEFINED = {
    "docs/command-line.md": "`2/1` is MIG instance 1 of GPU 2",
    "docs/kubernetes.md": "on GKE: the GPU of `/dev/nvidia0`, its GPU instance 3",
}
"""Where the name is explained, and where somebody else's is."""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_there_is_no_other_name_of_an_instance(path: Path) -> None:
    """Not in a page, a rule, a dashboard, a line of the log or the documentation."""
    text = path.read_text(encoding="utf-8")
    known = DEFINED.get(str(path.relative_to(ROOT)), "")
    assert known in text

    assert [found[0] for found in OTHERS.finditer(text.replace(known, ""))] == []


def test_the_name() -> None:
    """Of a group of readings too."""
    assert (share_name(2, None), share_name(2, 1)) == ("2", "2/1")
    assert share_name("GPU-a", 1) == "GPU-a/1"
    assert named_group("memory_instance_1", "GPU 2") == "memory of GPU 2/1"
    assert named_group("memory", "GPU 2") == "memory"


@pytest.mark.parametrize("page", NAMES)
def test_legends_of_whole_gpus_lose_the_empty_number(page: str) -> None:
    """A series of a whole GPU has no instance to write behind the stroke."""
    for panel in panels(load(page)):
        steps = [step["options"] for step in panel.get("transformations") or []]
        legends = [query["legendFormat"] for query in panel["targets"]]
        shares = any("gpu_instance" in legend for legend in legends)
        assert (WHOLE_GPUS.options in steps) == shares, panel["title"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("node-1:19400 GPU 2/", "node-1:19400 GPU 2"),
        ("node-1:19400 GPU 2/1", "node-1:19400 GPU 2/1"),
        ("saturation, GPU 2/", "saturation"),
        ("saturation, GPU 2/1", "saturation, GPU 2/1"),
    ],
)
def test_what_is_left_of_a_legend(written: str, shown: str) -> None:
    pattern = str(WHOLE_GPUS.options["regex"])[1:-1]
    assert re.sub(pattern, str(WHOLE_GPUS.options["renamePattern"]), written) == shown


def test_tables_name_instances() -> None:
    """Two instances of one GPU are two rows, which say which; the index is there for links."""
    named = 0
    for page in NAMES:
        for panel in panels(load(page)):
            for step in panel.get("transformations") or []:
                columns = step["options"].get("renameByName", {})
                if "GPU" not in columns.values():
                    continue
                named += 1
                assert columns.get("share") == "GPU", panel["title"]
                assert "gpu" not in step["options"]["excludeByName"], panel["title"]
    assert named == 7
