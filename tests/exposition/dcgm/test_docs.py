# SPDX-License-Identifier: Apache-2.0
"""What docs/dcgm.md says is so: every metric, every label, and what is to be copied."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from exporter.exposition.dcgm.fields import FIELDS
from exporter.exposition.dcgm.owners import RESERVED
from tests.conftest import require_tool
from tests.exposition.dcgm.test_page import FACTS

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "dcgm.md").read_text(encoding="utf-8")
ON = {"default": "yes", "commented": "commented", "other": "no"}


def _section(heading: str) -> str:
    return TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def test_the_table_has_every_metric() -> None:
    """In the order of the page, with both names, units, type and whether dcgm-exporter has it."""
    lines = [line for line in _section("Field by field").splitlines() if line.startswith("| ")]
    rows = [_cells(line)[:7] for line in lines[1:]]

    assert rows == [
        [
            str(field.number or "-"),
            f"`{field.legacy.name.removeprefix('DCGM_')}`",
            field.legacy.unit.name or "count",
            "the same"
            if field.legacy.name == field.current.name
            else f"`{field.current.name.removeprefix('DCGM_')}`",
            "the same"
            if field.legacy.unit == field.current.unit
            else field.current.unit.name or "count",
            field.legacy.kind,
            ON[field.listed],
        ]
        for field in FIELDS
    ]


def test_what_is_not_served_has_its_reason() -> None:
    """Every row of dcgm-exporter's lists that has no row here is named, with a reason."""
    reasons = {
        name: cells[1]
        for cells in map(_cells, _section("What is not there").splitlines())
        for name in re.findall(r"`(DCGM_\w+)`", cells[0])
    }
    missing = {row["legacy"] for row in FACTS if row["served"] == "no"}

    assert missing - reasons.keys() == set()
    assert all(reasons[name] for name in missing)
    assert not reasons.keys() & {field.legacy.name for field in FIELDS}


def test_every_label_is_described_and_classified() -> None:
    """On the page for users, and on that of what identifies whom."""
    security = (DOCS / "security.md").read_text(encoding="utf-8")
    not_served = {"pod_uid", "vgpu"}
    for label in RESERVED:
        assert f"`{label}`" in _section("Labels"), label
    classified = security.partition("**`/metrics/dcgm`** identifies")[2].partition("\n\n")[0]
    assert RESERVED - set(re.findall(r"`(\w+)`", classified)) == not_served


@pytest.mark.parametrize("number", [0, 1])
def test_prometheus_takes_the_configuration(number: int, tmp_path: Path) -> None:
    """Before and after, as they stand."""
    promtool = require_tool("promtool")
    text = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[number]
    config = tmp_path / "prometheus.yml"
    config.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [promtool, "check", "config", str(config)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_prometheus_takes_the_queries(tmp_path: Path) -> None:
    """Every query on the page is PromQL."""
    promtool = require_tool("promtool")
    blocks = re.findall(r"^ *```promql\n(.*?)^ *```", TEXT, re.MULTILINE | re.DOTALL)
    queries = [line for block in blocks[1:] for line in block.splitlines()]
    queries.append(" ".join(blocks[0].split()))
    rules = tmp_path / "rules.yml"
    lines = [
        f"  - {{record: a{number}, expr: {json.dumps(query)}}}"
        for number, query in enumerate(queries)
    ]
    rules.write_text("\n".join(["groups:", "- name: docs", "  rules:", *lines]), encoding="utf-8")
    done = subprocess.run(
        [promtool, "check", "rules", str(rules)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(queries) == 6
