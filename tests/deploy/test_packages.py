# SPDX-License-Identifier: Apache-2.0
"""What a release consists of: wheel, sdist, locked dependencies, one version everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from exporter import __version__
from exporter.sources.cupti.release import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REQUIREMENT = re.compile(r'^    "([A-Za-z0-9-]+)>=([0-9.]+)",$', re.MULTILINE)
PINNED = re.compile(
    r"^([a-z0-9-]+)==(\S+?)(?: ;.*?)? \\\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)", re.M
)


def _build(source: Path, target: Path, *words: str, commit: str = "") -> Path:
    """Run the build backend; return the one file that it wrote."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target), *words],
        cwd=source,
        env={**os.environ, "SOURCE_REVISION": commit},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return next(target.iterdir())


def test_wheel_and_sdist_know_their_revision(tmp_path: Path) -> None:
    """Without a repository at hand --version still names the commit; also a wheel of the sdist."""
    wheel = _build(ROOT, tmp_path / "wheel", "-t", "wheel", commit=COMMIT)
    assert zipfile.ZipFile(wheel).read("exporter/REVISION").decode().strip() == COMMIT

    sdist = _build(ROOT, tmp_path / "sdist", "-t", "sdist", commit=COMMIT)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    source = next((tmp_path / "source").iterdir())
    assert (source / "deploy/systemd/roofline-exporter.service").exists()
    rules = source / "deploy/helm/roofline-exporter/files/rules/alerts.yml"
    assert rules.read_text() == (ROOT / "deploy/prometheus/rules/alerts.yml").read_text()
    again = _build(source, tmp_path / "again", "-t", "wheel")
    assert zipfile.ZipFile(again).read("exporter/REVISION").decode().strip() == COMMIT
    assert zipfile.ZipFile(again).namelist().count("exporter/REVISION") == 1


def test_wheel_holds_the_packages_alone(tmp_path: Path) -> None:
    """No test, no dashboard and no build file reaches the users' site-packages."""
    wheel = _build(ROOT, tmp_path, "-t", "wheel")
    names = zipfile.ZipFile(wheel).namelist()
    first = {name.split("/")[0] for name in names}
    wheels = f"roofline_exporter-{__version__}"
    assert first == {"exporter", "roofline_job", f"{wheels}.dist-info"}
    scripts = zipfile.ZipFile(wheel).read(f"{wheels}.dist-info/entry_points.txt").decode()
    assert scripts == "[console_scripts]\nroofline-exporter = roofline_job.command:main\n"
    assert not [name for name in names if name.endswith((".pyc", ".so"))]
    assert {"roofline_job/peaks.json"} <= set(names)


def _locked(name: str) -> dict[str, str]:
    """Versions by name; every one has hashes."""
    text = (ROOT / "requirements" / name).read_text()
    found = PINNED.findall(text)
    assert len(found) == text.count("=="), "a line that is not a version with hashes"
    return {package: version for package, version, _ in found}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_image_dependencies_are_locked() -> None:
    """Each dependency of the project is pinned with hashes, at a version that it allows."""
    project = (ROOT / "pyproject.toml").read_text()
    declared = dict(
        REQUIREMENT.findall(project.partition("\ndependencies = [")[2].partition("\n]")[0])
    )
    assert len(declared) >= 7
    locked = _locked("image.txt")
    for package, least in declared.items():
        assert _number(locked[package]) >= _number(least), f"{package}: run `make lock`"


def test_image_has_the_extra_that_the_kubelet_needs() -> None:
    """What runs in a cluster can ask the kubelet."""
    locked = _locked("image.txt")
    assert {"h2", "hpack", "hyperframe"} <= locked.keys()


IMAGE = r"ghcr\.io/roofline-exporter/roofline-exporter:([0-9][\w.-]*)"
CHART = r"oci://ghcr\.io/roofline-exporter/charts/\S+ --version ([0-9][\w.-]*)"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("deploy/automation/reclaim/reclaim.yml", IMAGE),
        ("deploy/docker-compose.yml", IMAGE),
        ("deploy/kubernetes/base/daemonset.yml", IMAGE),
        ("deploy/kubernetes/overlays/training/kustomization.yml", IMAGE),
        ("docs/cupti.md", IMAGE),
        ("docs/deploy.md", IMAGE),
        ("docs/deploy.md", CHART),
        ("docs/helm.md", CHART),
        ("Dockerfile", r"\nARG VERSION=(\S+)\n"),
        ("CHANGELOG.md", r"\A[^#]*# [^#]*## (\S+) / "),
    ],
)
def test_files_name_this_version(name: str, pattern: str) -> None:
    """Whoever copies a line gets the image or chart that it belongs to, also where nobody passes
    VERSION; the release page is cut from the changelog."""
    assert set(re.findall(pattern, (ROOT / name).read_text())) == {__version__}


# NVIDIA's CUPTI stays out of what we publish: its licence does not let us pass it on.

NVIDIAS = re.compile(r"nvidia[-_]cuda[-_]cupti|\[cupti\]|libcupti|libnvperf", re.IGNORECASE)
OURS = ["Dockerfile", *(str(path.relative_to(ROOT)) for path in ROOT.glob("requirements/*"))]


@pytest.mark.parametrize("name", OURS)
def test_the_image_is_built_without_it(name: str) -> None:
    """Whoever wants it installs it, or builds an image of their own."""
    assert NVIDIAS.search((ROOT / name).read_text("utf-8")) is None


def test_only_the_extra_and_a_group_of_tests_name_it() -> None:
    """No dependency of everybody's; both packages where both are meant."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    project = text.partition("\ndependencies = [")[2].partition("\n]")[0]
    extra = text.partition("[project.optional-dependencies]")[2].partition("[project.urls]")[0]

    assert NVIDIAS.search(project) is None
    for package in DISTRIBUTIONS:
        assert len(re.findall(rf'^    "{package}[>=]', text, re.MULTILINE)) == 2
        assert len(re.findall(rf'^    "{package}>', extra, re.MULTILINE)) == 1


@pytest.mark.parametrize("folder", ["exporter", "roofline_job", "deploy", "dashboards"])
def test_no_file_is_of_it(folder: str) -> None:
    """Neither libraries nor headers."""
    names = [path.name for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert [name for name in names if re.search(r"\.so(\.|$)|\.h$|\.whl$", name)] == []
