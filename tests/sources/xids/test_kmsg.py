# SPDX-License-Identifier: Apache-2.0
"""Xids are found in the kernel log, whatever else stands there."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.xids.kmsg import KernelLog, KernelXid, parse_record, pci_address
from tests.waiting import wait_until

HEADER = "4,1234,5678901,-;"
LOST = (
    HEADER + "NVRM: Xid (PCI:0000:65:00): 79, pid=4101, name=python3, GPU has fallen off the bus."
)


@pytest.mark.parametrize(
    ("text", "xid"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", 79),
        ("NVRM: Xid (PCI:0000:65:00): 31, pid=1, name=a), name=(b, Ch 00000008", 31),
        ("NVRM: Xid (PCI:0000:65:00): 13, pid='<unknown>', name=<unknown>, Graphics", 13),
        ("NVRM: Xid (0000:65:00): 13, 0005 00000000 0000502d", 13),
        ("NVRM: Xid (PCI:0000:65:00 GPU-I:01 GPU-CI:00): 43, pid=7", 43),
        ("NVRM: Xid (PCI:0000:65:00.0): 154, GPU recovery action changed", 154),
        ("  NVRM: Xid (PCI:0000:65:00): 48, x", 48),
    ],
)
def test_every_form_of_the_line(text: str, xid: int) -> None:
    """Old and new drivers, with and without a process, on MIG or not."""
    assert parse_record(HEADER + text) == KernelXid((0, 0x65, 0), xid)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:65:00): 79, without a header",
        " SUBSYSTEM=pci",
        HEADER + "nvidia-nvswitch0: SXid (PCI:0000:65:00.0): 20034, Fatal",
        HEADER + "audit: NVRM: Xid (PCI:0000:65:00): 79, quoted",
        HEADER + "NVRM: Xid (PCI:0000:65:00):",
        HEADER + "NVRM: Xid (PCI:0000:65:00): 1234567, too long for an Xid",
        HEADER + "NVRM: Xid (): 79",
        HEADER + "NVRM: GPU at PCI:0000:65:00: GPU-0a1b",
    ],
)
def test_what_is_no_xid(line: str) -> None:
    """Other messages, other devices and broken lines are passed over."""
    assert parse_record(line) is None


@pytest.mark.parametrize("priority", [12, 30, 8])
def test_a_program_cannot_pass_for_the_kernel(priority: int) -> None:
    """What is written to /dev/kmsg has another facility; a logger may quote an Xid there."""
    line = LOST.replace("4,", f"{priority},", 1)

    assert parse_record(line) is None
    assert parse_record(LOST) is not None


@given(
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 99999),
    st.text().map(lambda text: text.replace("\n", " ")),
)
def test_address_and_code_are_read_back(
    domain: int, bus: int, device: int, code: int, rest: str
) -> None:
    """Of any GPU and any Xid, whatever follows; the address is the one that NVML reports."""
    line = f"{HEADER}NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {code}, {rest}"
    found = parse_record(line)

    assert found == KernelXid((domain, bus, device), code)
    assert pci_address(f"{domain:08X}:{bus:02X}:{device:02X}.0") == found.address


Follow = Callable[[Path], list[KernelXid]]


@pytest.fixture(name="follow")
def _follow() -> Iterator[Follow]:
    """Follow a file that stands for /dev/kmsg; the list grows as Xids are found."""
    started: list[KernelLog] = []

    def follow(path: Path) -> list[KernelXid]:
        found: list[KernelXid] = []
        log = KernelLog(str(path), found.append)
        started.append(log)
        log.start()
        return found

    yield follow
    for log in started:
        log.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "kernel-log"]


def failing(call: Callable[..., Any], errors: list[int]) -> Callable[..., Any]:
    """A call that fails with each of these errors first."""

    def fail(*arguments: Any) -> Any:
        if errors:
            code = errors.pop(0)
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    return fail


def test_only_what_is_logged_from_the_start_on_counts(follow: Follow, tmp_path: Path) -> None:
    """The kernel keeps old messages; an exporter that ran then has counted them."""
    path = tmp_path / "kmsg"
    path.write_text(LOST + "\n")
    found = follow(path)
    with path.open("a") as file:
        file.write(LOST.replace("79", "48") + "\n")
    wait_until(lambda: found)

    assert found == [KernelXid((0, 0x65, 0), 48)]


def test_records_come_in_any_pieces(follow: Follow, tmp_path: Path) -> None:
    """Through a pipe: half a line, several at once, bytes that are no text."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    found = follow(path)
    pipe = os.open(path, os.O_WRONLY)
    line = LOST.encode()
    for piece in (line[:30], line[30:] + b"\n\xff\xfe\n" + line, b"\n" + line + b"\n"):
        os.write(pipe, piece)
    wait_until(lambda: len(found) == 3)
    os.close(pipe)

    assert set(found) == {KernelXid((0, 0x65, 0), 79)}


def test_a_log_that_must_not_be_read_is_one_line(
    follow: Follow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kernel.dmesg_restrict keeps it from ordinary users."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(os, "open", failing(os.open, [errno.EPERM]))
    follow(tmp_path / "kmsg")

    assert caplog.messages == [
        f"{tmp_path}/kmsg cannot be read (Operation not permitted): "
        "Xids are known from the driver's events only"
    ]


def test_lost_records_do_not_end_it(
    follow: Follow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The ring may be overwritten before it is read (EPIPE); what comes after is read."""
    errors = [errno.EPIPE, errno.EAGAIN, errno.EINTR]
    path = tmp_path / "kmsg"
    path.touch()
    monkeypatch.setattr(os, "read", failing(os.read, errors))
    found = follow(path)
    wait_until(lambda: not errors)
    with path.open("a") as file:
        file.write(LOST + "\n")
    wait_until(lambda: found)

    assert caplog.messages == [f"{path}: records were lost before they could be read"]


def test_a_log_that_fails_ends_with_one_line(
    follow: Follow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is tried over and over."""
    path = tmp_path / "kmsg"
    path.touch()
    monkeypatch.setattr(os, "read", failing(os.read, [errno.EIO]))
    follow(path)
    wait_until(lambda: caplog.records)

    assert caplog.messages == [f"reading {path} failed: Input/output error"]
