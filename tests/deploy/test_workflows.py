# SPDX-License-Identifier: Apache-2.0
"""The workflows: well formed, without known weaknesses, and complete."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import require_tool
from tests.programs import ended, said

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
INDEXES = {"1" * 64: ["sha256:a", "sha256:b"], "2" * 64: ["sha256:c"]}
"""What is in the images that were tested: by the digest of each architecture."""
DOCKER = """#!/usr/bin/env python3
import json, pathlib, sys
index = lambda digests: print(json.dumps({"manifests": [{"digest": d} for d in digests]}))
indexes, made = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
match sys.argv[3:]:
    case ["inspect", "--raw", source]: index(indexes[source.rpartition(":")[2]])
    case ["create", "--dry-run", *_]: index(made)
    case ["create", *words]: pathlib.Path("tagged").write_text(" ".join(words))
    case ["inspect", *_]: print("sha256:index")
"""
"""Answers as `docker buildx imagetools` does."""


def _jobs(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / name).read_text())["jobs"]
    return jobs


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("dependabot", [GITHUB / "dependabot.yml"])],
    ids=["workflows", "dependabot"],
)
def test_files_follow_their_schema(schema: str, files: list[Path]) -> None:
    """Every key is known and has the right shape."""
    said(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_no_known_weakness() -> None:
    """zizmor finds no injection, no needless permission and no credential left behind."""
    zizmor = require_tool("zizmor", beside_python=True)
    said(zizmor, "--offline", "--no-progress", "--min-severity=medium", GITHUB)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_jobs_end(path: Path) -> None:
    """By commit; every job has a time limit and no right that it does not name."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert job["uses"].startswith("./"), name
            continue
        assert job["timeout-minutes"] <= 45, name
        for step in job["steps"]:
            assert "uses" not in step or PINNED_ACTION.fullmatch(step["uses"]), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_shell_steps_are_correct_shell(path: Path) -> None:
    """bash parses each of them."""
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for step in job.get("steps", ()):
            said("bash", "-n", input=step.get("run", ""))


def test_tests_run_on_every_supported_python() -> None:
    """From the oldest that pyproject.toml allows, and on ARM too."""
    matrix = _jobs("test.yml")["python"]["strategy"]["matrix"]
    oldest = re.search(r'requires-python = ">=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest
    assert matrix["python"][0] == oldest[1]
    assert any("arm" in row["runner"] for row in matrix["include"])
    assert any(
        ".ci/run" in step.get("run", "") for step in _jobs("test.yml")["everything"]["steps"]
    )


def test_release_is_tested_first_and_published_last() -> None:
    """Nothing is built before the tests pass; PyPI, which cannot be taken back, comes late."""
    jobs = _jobs("release.yml")

    def before(name: str) -> set[str]:
        needs = jobs[name].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*(before(other) for other in direct))

    assert all("test" in before(name) for name in jobs if name != "test")
    assert {"packages", "image", "manifest"} <= before("pypi")


@pytest.mark.parametrize(
    ("made", "is_tagged"),
    [
        (["sha256:c", "sha256:a", "sha256:b"], True),
        (["sha256:c", "sha256:a"], False),
        (["sha256:c", "sha256:a", "sha256:b", "sha256:d"], False),
    ],
    ids=["what was tested", "less", "more"],
)
def test_release_tags_what_was_tested_and_nothing_else(
    tmp_path: Path, made: list[str], is_tagged: bool
) -> None:
    """The step stops before it tags anything where the index would hold something else."""
    (step,) = (
        step for step in _jobs("release.yml")["manifest"]["steps"] if step.get("id") == "tag"
    )
    (tmp_path / "digests").mkdir()
    for digest in INDEXES:
        (tmp_path / "digests" / digest).touch()
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.replace("/usr/bin/env python3", sys.executable))
    docker.chmod(0o755)
    (tmp_path / "answers.json").write_text(json.dumps([INDEXES, made]))
    output = tmp_path / "output"
    environ = {"IMAGE": "ghcr.io/x/y", "VERSION": "1.2.3", "GITHUB_OUTPUT": str(output)}
    environ["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    words = ("bash", "-e", "-o", "pipefail", "-c", step["run"])
    done = ended(*words, cwd=tmp_path, env=environ)
    assert (done.returncode == 0) == is_tagged
    tagged = tmp_path / "tagged"
    assert tagged.exists() == is_tagged
    if is_tagged:
        assert "-t ghcr.io/x/y:1.2.3 " in tagged.read_text()
        assert all(f"ghcr.io/x/y@sha256:{digest}" in tagged.read_text() for digest in INDEXES)
        assert output.read_text() == "digest=sha256:index\n"


def test_release_notes_are_this_versions_changes() -> None:
    """The command that cuts them out of the changelog leaves the other versions."""
    (step,) = (
        step for step in _jobs("release.yml")["page"]["steps"] if "awk" in step.get("run", "")
    )
    found = re.search(r"awk -v title=.*?'(.*?)'", step["run"])
    assert found
    changelog = (
        "# Changelog\n\n## 0.2.0 / d\n\n* new\n\n## 0.1.0 / d\n\n* old\n\n## 0.0.1 / d\n* x\n"
    )
    assert said("awk", "-v", "title=## 0.1.0 ", found[1], input=changelog).split() == ["*", "old"]
