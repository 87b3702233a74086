# SPDX-License-Identifier: Apache-2.0
"""The documentation is complete, readable and linked; documentation and code use plain words."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from exporter.cli.config import FLAGS
from exporter.exposition.catalogue import CATALOGUE

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs").glob("*.md"))
PAGES = sorted((*ROOT.glob("*.md"), *GUIDES))
LABELS = {
    *("gpu_instance", "gpu_max", "gpu_idle_ratio", "gpu_idle_seconds_total"),
    *("gpu_seconds", "gpu_side_loader", "gpu_hours"),
}
"""Labels, label values and fields of the JSON that look like metrics."""
MISTYPED = {"poll.intreval"}
"""What docs/configuration.md shows the refusal of."""
FOREIGN = {
    *("storage.agent.path", "web.enable-remote-write-receiver", "collector.textfile.directory"),
    *("config.file", "cluster.peer", "prometheus.url", "tsdb.path", "objstore.config-file"),
    *("query.replica-label", "alert.label-drop", "alertmanagers.url"),
    *("retention.resolution-raw", "retention.resolution-", "retention.resolution"),
    *("storage.tsdb.min-block-duration", "storage.tsdb.max-block-duration"),
}
"""Flags of Prometheus, Alertmanager, node_exporter and Thanos."""
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")
METRIC = re.compile(r"(?<![\w:\"])(?:gpu|roofline_exporter)_[a-z0-9_]+")
FLAG = re.compile(r"(?<![\w-])--(?!no-)([a-z]+(?:\.[a-z-]+)+)")
LONGEST_LINE = 120
LONGEST_WITHOUT_CONTENTS = 90
"""Lines: about two screens."""
NOT_PROSE = re.compile(r"\||<|\s*(?:[-*] )?!?\[[^]]*\]\(\S+\)$")
"""Rows of tables, HTML and comments, and lines that are one link or picture."""
OUTDATED = re.compile(
    r"\b(?:tells|told|dear|lately|of late|is none|by so much|whosoever)\b",
    re.IGNORECASE,
)
"""Say reports, logs or shows; expensive; recently; does not exist."""
ARCHAIC = re.compile(
    r"\b(?:dear|of late|whosoever|begotten|who goes|whence|hitherto|thereof|wherein|lest|whilst"
    r"|unto|n[oa]ught|withal|befell|forsake|this session|the brief|(?:my|another) worktree)\b",
    re.IGNORECASE,
)
"""Words and phrases that no docstring or comment needs: name what happens to what."""
OLD_NAMES = {
    *("aside", "ask", "asked", "awaited", "held", "journal", "known", "lanes", "leader", "look"),
    *("nodes", "off", "once", "own", "peek", "plain", "polled", "refusal", "startup", "values"),
    "whom",
}
"""Names that modules had and that said nothing of their contents."""
PRODUCT = {"exporter", "roofline_job"}
CODE = sorted(
    path
    for room in ("dashboards", "deploy", "exporter", "roofline_job", "tests")
    for path in (ROOT / room).rglob("*.py")
    if path != Path(__file__) and ".cache" not in path.parts
)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_flag_is_documented() -> None:
    """docs/configuration.md has one row for each flag."""
    rows = re.findall(r"^\| `--([a-z.-]+)`", _text("docs/configuration.md"), re.MULTILINE)

    assert sorted(rows) == sorted(flag.name for flag in FLAGS)


def test_the_readme_has_the_first_rows_of_the_gpus() -> None:
    """What a GPU gets is said once: docs/gpus.md has the whole table."""
    short, whole = (
        [row.replace("](docs/", "](") for row in _text(name).split("| Your GPU |")[1].splitlines()]
        for name in ("README.md", "docs/gpus.md")
    )
    rows = short[: short.index("")]

    assert len(rows) > 4
    assert whole[: len(rows)] == rows
    assert len(whole[: whole.index("")]) > len(rows)


def _lines(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each line outside code blocks with its number."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return "#" + re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


def _anchors(page: Path) -> list[str]:
    return [_anchor(line.lstrip("#")) for _, line in _lines(page) if re.match(r"#{1,6} ", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist, and headings that are in them once."""
    for number, line in _lines(page):
        for target, anchor in LINK.findall(line):
            if "://" in target:
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}:{number} links to {target}"
            if anchor:
                found = _anchors(linked).count(anchor)
                assert found == 1, f"{page.name}:{number} links to {target}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_are_not_too_long(page: Path) -> None:
    """A page can be read in a terminal and reviewed line by line."""
    for number, line in _lines(page):
        if not NOT_PROSE.match(line):
            assert len(line) <= LONGEST_LINE, f"{page.name}:{number} has {len(line)} characters"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_plain_words(page: Path) -> None:
    """The words that a reader of English documentation expects."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        found = OUTDATED.search(line)
        assert found is None, f"{page.name}:{number} says {found[0]!r}"


def _prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield re.sub(r"\s+", " ", str(node.value.value))


def test_code_uses_plain_words() -> None:
    """A maintainer of another exporter understands a comment, and a module by its name."""
    found = [
        f"{path.relative_to(ROOT)} says {match[0]!r}"
        for path in CODE
        if ARCHAIC.search(re.sub(r"\s+", " ", source := path.read_text(encoding="utf-8")))
        for text in _prose(source)
        if (match := ARCHAIC.search(text))
    ]
    assert found == []
    product = [path for path in CODE if path.relative_to(ROOT).parts[0] in PRODUCT]
    assert [path for path in product if path.stem in OLD_NAMES] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_long_pages_begin_with_their_contents(page: Path) -> None:
    """They link to each of their sections before the first one begins."""
    if len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST_WITHOUT_CONTENTS:
        return
    lines = [line for _, line in _lines(page)]
    first = next(number for number, line in enumerate(lines) if line.startswith("## "))
    linked = {anchor for line in lines[:first] for _, anchor in LINK.findall(line)}
    for line in lines:
        if line.startswith("## "):
            assert _anchor(line.lstrip("#")) in linked, f"{page.name} does not list {line!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_metrics_and_flags_that_exist(page: Path) -> None:
    """A renamed metric or flag does not live on in the prose."""
    text = page.read_text(encoding="utf-8")
    families = CATALOGUE.values()
    names = {family.name for family in families} | {family.base_name for family in families}
    for metric in METRIC.findall(text):
        # "gpu_xyz_" and "gpu_xyz_*" stand for several families.
        known = metric in names or any(name.startswith(metric) for name in names)
        assert known or metric in LABELS, f"{page.name} names {metric}"
    flags = {flag.name for flag in FLAGS}
    for flag in FLAG.findall(text):
        assert flag in flags | MISTYPED | FOREIGN, f"{page.name} names --{flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_yaml_and_json_can_be_parsed(page: Path) -> None:
    """What a reader copies; the tests of the pages check what it means."""
    for kind, body in re.findall(r"```(ya?ml|json)\n(.*?)```", _text(f"{page}"), re.DOTALL):
        if kind == "json":
            json.loads(body)
        else:
            assert list(yaml.safe_load_all(body))


def test_every_page_is_linked_from_the_readme() -> None:
    """Whoever starts at the README finds all of it."""
    linked = {target for target, _ in LINK.findall(_text("README.md"))}

    for page in GUIDES:
        assert f"docs/{page.name}" in linked, page.name
