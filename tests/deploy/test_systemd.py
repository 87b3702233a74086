# SPDX-License-Identifier: Apache-2.0
"""The unit: systemd accepts it, it is locked in, and it still reaches the GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require_tool

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "roofline-exporter.service"
MOST_EXPOSURE = 3.0
"""Of 10, by systemd's own measure; a service that does nothing about it has 9.6."""


def _settings() -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(name, []).append(value)
    return settings


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` says nothing, once the command is one that exists here."""
    analyze = require_tool("systemd-analyze")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/roofline-exporter", sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "roofline" in line]
    assert (done.returncode, ours) == (0, [])


def test_unit_is_locked_in() -> None:
    """By systemd's own measure it is far less exposed than an ordinary service."""
    analyze = require_tool("systemd-analyze")
    if b"--offline" not in subprocess.check_output([analyze, "--help"]):
        pytest.skip("this systemd measures no file, only units that are loaded")
    done = subprocess.run(
        [analyze, "security", "--offline=yes", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSURE


def test_unit_reaches_the_gpus() -> None:
    """Nothing hides the driver's devices, its files below /proc, or other processes."""
    settings = _settings()
    assert settings["PrivateDevices"] == ["no"]
    assert "char-nvidia* rw" in settings["DeviceAllow"]
    assert "char-195 rw" in settings["DeviceAllow"]
    assert settings["ProcSubset"] == ["all"]
    assert settings["ProtectProc"] == ["default"]
    assert not {"PrivateUsers", "PrivateNetwork", "ProtectKernelLogs"} & set(settings)


def test_unit_keeps_the_directory_of_the_socket() -> None:
    """A container that mounted it still sees it after a restart."""
    settings = _settings()
    assert settings["RuntimeDirectory"] == ["roofline-exporter"]
    assert settings["RuntimeDirectoryPreserve"] == ["yes"]
    assert "DynamicUser" not in settings, "its directory would be closed to the users of jobs"


def test_its_user_is_made_by_sysusers() -> None:
    """The user that the unit names is the one that the other file makes."""
    made = re.search(r"(?m)^u (\S+) ", (FOLDER / "roofline-exporter.sysusers").read_text())
    assert made
    assert _settings()["User"] == [made[1]]
