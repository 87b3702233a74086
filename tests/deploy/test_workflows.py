# SPDX-License-Identifier: Apache-2.0
"""The workflows: well formed, without known weaknesses, and complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import require_tool

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


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
    subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files],
        check=True,
        timeout=60,
    )


def test_no_known_weakness() -> None:
    """zizmor finds no injection, no needless permission and no credential left behind."""
    zizmor = require_tool("zizmor", beside_python=True)
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", "--min-severity=medium", str(GITHUB)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
            subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True)


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


def test_release_has_images_for_both_architectures_with_provenance() -> None:
    """amd64, and arm64 for Grace; images, wheel and sdist are attested."""
    jobs = _jobs("release.yml")
    rows = jobs["image"]["strategy"]["matrix"]["include"]
    assert [row["architecture"] for row in rows] == ["amd64", "arm64"]
    pushed = [step for step in jobs["image"]["steps"] if step.get("id") == "push"]
    assert pushed[0]["with"]["provenance"] == "mode=max"
    for name in ("packages", "manifest"):
        uses = [step.get("uses", "") for step in jobs[name]["steps"]]
        assert any(use.startswith("actions/attest-build-provenance@") for use in uses), name


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
    done = subprocess.run(
        ["awk", "-v", "title=## 0.1.0 ", found[1]],
        input=changelog,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["*", "old"]
