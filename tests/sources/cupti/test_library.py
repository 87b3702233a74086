# SPDX-License-Identifier: Apache-2.0
"""Which CUPTI libraries are loaded, and in which process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import LibraryUnavailable
from exporter.sources.cupti.library import BESIDE, FAULTS, CuptiError, CuptiLibrary, Remedy
from exporter.sources.cupti.release import KNOWN
from tests.conftest import require_tool
from tests.sources.cupti.real import RELEASES, chip_facts, release
from tests.terminals import REPOSITORY

OWN = """
import importlib, pkgutil, sys
import exporter
from exporter.cli.main import main
for module in pkgutil.walk_packages(exporter.__path__, "exporter."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
code = main(["once", "--demo", "--poll.interval=100ms"])
mapped = open("/proc/self/maps").read()
print("mapped:", code, [name for name in ("libcupti", "libnvperf", "libcuda") if name in mapped])
"""


def library(folder: Path, code: int, version: int) -> Path:
    """Build a library that reports this version, and the libraries that it needs beside it."""
    source = f"int cuptiGetVersion(unsigned *version) {{ *version = {version}; return {code}; }}"
    for name in (*BESIDE, "libcupti.so.13"):
        subprocess.run(
            [require_tool("cc"), "-shared", "-o", name, "-x", "c", "-"],
            input=source,
            cwd=folder,
            text=True,
            check=True,
        )
    return folder / "libcupti.so.13"


@pytest.mark.parametrize("version", [130200, 130501, 0])
def test_a_release_that_nobody_checked_is_refused(version: int, tmp_path: Path) -> None:
    """13.2 crashes at its first function, so none is called."""
    with pytest.raises(LibraryUnavailable) as caught:
        CuptiLibrary(library(tmp_path, 0, version))
    assert str(caught.value) == f"CUPTI {version} is not known to this exporter"


def test_a_library_that_does_not_say_its_version_is_not_used(tmp_path: Path) -> None:
    """13.3 and later do not report it without a driver."""
    with pytest.raises(CuptiError) as caught:
        CuptiLibrary(library(tmp_path, 999, 130101))
    assert caught.value.code == 999


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    """A missing file, a truncated one, or no library at all."""
    path = tmp_path / "libcupti.so.13"
    for content in (None, b"", b"\x7fELF and then nothing"):
        if content is not None:
            for name in (*BESIDE, path.name):
                (tmp_path / name).write_bytes(content)
        with pytest.raises(LibraryUnavailable, match=r"^CUPTI cannot be loaded: .+") as caught:
            CuptiLibrary(path)
        assert len(str(caught.value).splitlines()) == 1


def test_the_daemon_does_not_load_it() -> None:
    """Neither importing every module nor reading GPUs maps the library."""
    done = subprocess.run(
        [sys.executable, "-c", OWN],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "mapped: 0 []", done.stderr


@pytest.mark.parametrize("package", RELEASES)
def test_nvidias_release_is_loaded_and_known(package: str) -> None:
    """It is mapped, so that the test above would see it, and its version is in our table."""
    facts = chip_facts(package)

    assert facts["mapped"] > 0
    assert facts["version"] in KNOWN[release(package).cuda]


def test_every_error_is_told_in_one_line_with_its_code() -> None:
    """Codes that are not in the table, too."""
    states = {"unsupported", "no_permission", "old_driver", "busy", "mig", "unreachable"}
    for code in (*FAULTS, 3, 12345):
        error = CuptiError(code, "cuptiPmSamplingStart")
        assert str(error).endswith(f"(cuptiPmSamplingStart returned {code})")
        assert len(str(error).splitlines()) == 1
        assert error.fault.state in states
    assert CuptiError(26, "f").fault.remedy is CuptiError(12345, "f").fault.remedy is Remedy.WAIT
    assert CuptiError(35, "f").fault.remedy is Remedy.GIVE_UP
