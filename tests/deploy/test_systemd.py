# SPDX-License-Identifier: Apache-2.0
"""The unit: systemd accepts it, it is locked in, and it still reaches the GPUs."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.outcomes import outcome
from tests.conftest import require_tool
from tests.deploy.confined import settings, system_calls
from tests.programs import ended, said, verified_by_systemd

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "roofline-exporter.service"
GIVEN = settings(UNIT)
ALONE = ""
DROPINS: Mapping[str, tuple[float, set[str]]] = {
    ALONE: (1.5, set()),
    "any-address.conf": (1.6, set()),
    "cupti.conf": (1.6, {"CAP_PERFMON"}),
    "kernel-log.conf": (1.9, {"CAP_SYSLOG"}),
    "other-users.conf": (2.0, {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}),
    "socket-group.conf": (1.5, set()),
}
"""The exposure of 10, by systemd's own measure, at most, and the capabilities, by drop-in; a
service that does nothing has 9.6."""
REPORT_EXPOSURE = 1.7


@pytest.fixture(params=DROPINS, ids=lambda name: name or "alone")
def dropin(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def unit(dropin: str, tmp_path: Path) -> Path:
    """The unit with a drop-in, where systemd looks for one; its command is one that exists."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/roofline-exporter", sys.executable))
    if dropin:
        folder = tmp_path / f"{UNIT.name}.d"
        folder.mkdir()
        shutil.copy(FOLDER / dropin, folder)
    return copy


def _exposure(unit: Path) -> float:
    """How exposed a unit is, by systemd's own measure."""
    analyze = require_tool("systemd-analyze")
    if "--offline" not in said(analyze, "--help"):
        pytest.skip("this systemd measures no file, only units that are loaded")
    done = ended(analyze, "security", "--offline=yes", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


def test_every_dropin_is_known() -> None:
    """The tests below take all of them."""
    assert {path.name for path in FOLDER.glob("*.conf")} == set(DROPINS) - {ALONE}


def test_systemd_accepts_the_unit(unit: Path) -> None:
    """`systemd-analyze verify` says nothing, whichever drop-in is there."""
    verified_by_systemd(unit)


def test_unit_is_locked_in(unit: Path, dropin: str) -> None:
    """By systemd's own measure; a drop-in costs what is expected of it and no more."""
    assert _exposure(unit) <= DROPINS[dropin][0]


def test_capabilities_come_from_dropins_only(dropin: str) -> None:
    """Those that a drop-in's head names, and no other; the unit alone has none."""
    text = (FOLDER / dropin).read_text() if dropin else UNIT.read_text()
    wanted = DROPINS[dropin][1]
    given = settings(FOLDER / dropin) if dropin else GIVEN
    for name in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert {word for line in given.get(name, []) for word in line.split()} == wanted
        assert dropin or f"\n{name}=\n" in text, "it is set, to nothing"
    if dropin:
        head = text.partition("[Service]")[0]
        assert "# Gives: " in head
        assert "# Costs: " in head
        assert wanted <= set(re.findall(r"CAP_\w+", head))


def test_unit_refuses_what_reads_and_writes_other_processes(dropin: str) -> None:
    """The lists of system calls, with systemd's own groups: no drop-in opens them again."""
    require_tool("systemd-analyze")
    lines = list(GIVEN["SystemCallFilter"])
    lines += settings(FOLDER / dropin).get("SystemCallFilter", []) if dropin else []
    denied = set(lines[1].lstrip("~").split())
    assert lines[1].startswith("~")
    assert denied >= {"@debug", "process_vm_readv", "process_vm_writev", "@privileged"}
    refused = {"ptrace", "process_vm_readv", "process_vm_writev", "chown", "setuid", "syslog"}
    refused |= {"perf_event_open", "bpf"}
    assert not refused & system_calls(lines)


def test_addresses_are_a_choice() -> None:
    """Private networks by default; the unit says how to name others, a drop-in lifts it."""
    assert GIVEN["IPAddressDeny"] == ["any"]
    assert "#IPAddressAllow=192.0.2.10\n" in UNIT.read_text()
    assert settings(FOLDER / "any-address.conf") == {"IPAddressDeny": [], "IPAddressAllow": []}


def test_unit_reaches_the_gpus() -> None:
    """Nothing hides the driver's devices, its files below /proc, or other processes."""
    assert GIVEN["PrivateDevices"] == ["no"]
    assert "char-nvidia* rw" in GIVEN["DeviceAllow"]
    assert "char-195 rw" in GIVEN["DeviceAllow"]
    assert GIVEN["ProcSubset"] == ["all"]
    assert GIVEN["ProtectProc"] == ["default"]
    assert not {"PrivateUsers", "PrivateNetwork"} & set(GIVEN)


def test_unit_keeps_the_directory_of_the_socket() -> None:
    """A container that mounted it still sees it after a restart."""
    assert GIVEN["RuntimeDirectory"] == ["roofline-exporter"]
    assert GIVEN["RuntimeDirectoryPreserve"] == ["yes"]
    assert "DynamicUser" not in GIVEN, "its directory would be closed to the users of jobs"


def test_its_user_is_made_by_sysusers() -> None:
    """The user that the unit names is the one that the other file makes."""
    made = re.search(r"(?m)^u (\S+) ", (FOLDER / "roofline-exporter.sysusers").read_text())
    assert made
    assert GIVEN["User"] == [made[1]]


REPORT = FOLDER / "roofline-report.service"


def test_report_is_locked_in_and_accepted(tmp_path: Path) -> None:
    """It reaches a network and its own folder; the timer starts it."""
    text = REPORT.read_text().replace("/usr/local/bin/roofline-exporter", sys.executable)
    (tmp_path / REPORT.name).write_text(text)
    shutil.copy(FOLDER / "roofline-report.timer", tmp_path)
    verified_by_systemd(tmp_path / REPORT.name, tmp_path / "roofline-report.timer")
    assert settings(FOLDER / "roofline-report.timer")["OnCalendar"] == ["Mon 06:00"]
    assert _exposure(tmp_path / REPORT.name) <= REPORT_EXPOSURE


def test_report_runs_with_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the unit and of its variables; nobody answers at this address."""
    command = REPORT.read_text().replace("\\\n", "").partition("ExecStart=")[2].partition("\n")[0]
    words = shlex.split(
        command.replace("${PROMETHEUS_URL}", "http://127.0.0.1:1").replace(
            "$REPORT_OPTIONS", "--by user --range 30d"
        )
    )
    code, out, err = outcome(capsys, *words[1:])
    assert (code, out) == (1, "")
    assert "http://127.0.0.1:1/api/v1/query_range" in err
