# SPDX-License-Identifier: Apache-2.0
"""Xids from the kernel log, which also has those of a GPU that has left the bus."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import select
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

PciAddress = tuple[int, int, int]
"""Domain, bus and device."""

LONGEST_READ = 16384
"""/dev/kmsg gives one record per read, and fails if the buffer is too small for it."""
WAIT_MILLISECONDS = 500
"""Between two looks at whether to stop."""
NOTHING_READ_SECONDS = 0.2
"""How long to leave a log alone that is reported as readable but has no data."""

_RECORD = re.compile(r"([0-9]{1,9}),[0-9]+,[0-9]+,[^;]*;(.*)", re.DOTALL)
_ADDRESS = r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?"
_BUS_ID = re.compile(_ADDRESS)
# "NVRM: Xid (PCI:0000:65:00): 79, pid=1, name=x, ..."; drivers before 340 leave out "PCI:", MIG
# adds " GPU-I:01 GPU-CI:00" to the address (kernel_rc.c of the open kernel modules).
_XID = re.compile(rf"\s*NVRM: Xid \((?:PCI:)?{_ADDRESS}[^)]{{0,64}}\): ([0-9]{{1,5}})(?![0-9])")

log = logging.getLogger(__name__)


class KernelXid(NamedTuple):
    """An Xid that the kernel logged, and the PCI address of the GPU."""

    address: PciAddress
    code: int


@lru_cache
def pci_address(bus_id: str) -> PciAddress | None:
    """Return the address in a bus id such as ``00000000:65:00.0``; None if it has another form."""
    match = _BUS_ID.fullmatch(bus_id)
    return None if match is None else _address(match)


def _address(match: re.Match[str]) -> PciAddress:
    return int(match[1], 16), int(match[2], 16), int(match[3], 16)


def parse_record(line: str) -> KernelXid | None:
    """Return the Xid in one line of /dev/kmsg (``priority,sequence,time,flags;text``), or None.
    Only the kernel's own records count, not those that programs write to /dev/kmsg."""
    record = _RECORD.fullmatch(line)
    if record is None or int(record[1]) >> 3 != 0:  # the facility; 0 is the kernel
        return None
    match = _XID.match(record[2])
    return None if match is None else KernelXid(_address(match), int(match[4]))


class KernelLog:
    """Follows the kernel log in a thread."""

    def __init__(self, path: str, note: Callable[[KernelXid], None]) -> None:
        self._path = path
        self._note = note
        self._tail = b""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow what is logged from now on; log one line if that is not possible."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            said = "%s cannot be read (%s): Xids are known from the driver's events only"
            log.info(said, self._path, error.strerror)
            return
        with contextlib.suppress(OSError):  # a pipe has no position
            os.lseek(file, 0, os.SEEK_END)
        self._thread = threading.Thread(
            target=self._follow, args=(file,), name="kernel-log", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, file: int) -> None:
        readable = select.poll()
        readable.register(file, select.POLLIN)
        try:
            while not self._stopped.is_set():
                if readable.poll(WAIT_MILLISECONDS) and not self._read(file):
                    self._stopped.wait(NOTHING_READ_SECONDS)
        except OSError as error:
            log.warning("reading %s failed: %s", self._path, error.strerror)
        finally:
            os.close(file)

    def _read(self, file: int) -> bool:
        """Read and note the new records; return False if there are none. Raises OSError."""
        try:
            data = os.read(file, LONGEST_READ)
        except OSError as error:
            if error.errno == errno.EPIPE:  # unread records were overwritten; the next read goes on
                log.warning("%s: records were lost before they could be read", self._path)
                return True
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            raise
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            xid = parse_record(line.decode("utf-8", "replace"))
            if xid is not None:
                self._note(xid)
        return bool(data)
