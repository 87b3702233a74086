# SPDX-License-Identifier: Apache-2.0
"""The runs that share a daemon, each by its open connection, and the GPUs that are theirs."""

from __future__ import annotations

import os
import selectors
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import Any

from exporter.cli.job.seen import Key
from exporter.cli.job.step import DONE, REPORT_SO_FAR, START_SECONDS
from exporter.model.reading import Device
from exporter.model.snapshot import Snapshot
from exporter.sources.training.credentials import Processes

_UCRED = struct.Struct("=iII")
_MOST_BYTES = 65_536


class Runs:
    """Their socket: a run is there until its connection ends, also if it is killed."""

    def __init__(self, path: str) -> None:
        """Listen at `path`."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(FileNotFoundError):
            os.unlink(path)  # of a daemon that was killed
        self._listener.bind(path)
        self._listener.listen(128)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.wants_report = False
        self._open: set[Any] = set()
        self._last: socket.socket | None = None
        self._expires = monotonic() + START_SECONDS
        self._visible: set[str] = set()
        """The entries of their CUDA_VISIBLE_DEVICES."""
        self._pids: set[int] = set()
        self._processes = Processes("/proc")

    def wait(self, until: float) -> bool:
        """Wait until that monotonic time; return False at once when the last run has ended."""
        while True:
            for key, _ in self._selector.select(max(0.0, until - monotonic())):
                self._hear(key.fileobj)
            if not self._open and (self._last is not None or monotonic() > self._expires):
                return False
            if monotonic() >= until:
                return True

    def end(self, said: str = "") -> None:
        """Let the last run go, which says this: it waits for the report."""
        if self._last is not None:
            with suppress(OSError), self._last as run:  # it may have been killed
                run.send(DONE + said.encode(errors="replace"))
            self._last = None

    def _hear(self, run: Any) -> None:
        if run is self._listener:
            self.end()
            run, _ = self._listener.accept()
            self._selector.register(run, selectors.EVENT_READ)
            self._open.add(run)
            peer = run.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            self._pids.add(_UCRED.unpack(peer)[0])
        elif (said := _received(run)) == REPORT_SO_FAR:
            self.wants_report = True
        elif said:
            self._visible.update(each.strip().lower() for each in os.fsdecode(said).split(","))
        else:
            self._selector.unregister(run)
            self._open.discard(run)
            self.end()
            self._last = run
            if self._open:
                self.end()

    def gpus(self, snapshot: Snapshot) -> set[Key]:
        """Return the GPUs that they were given, or on which a process of theirs is."""
        devices = [gpu.device for gpu in snapshot.gpus]
        by_index = len({device.name for device in devices}) == 1
        found = {key for device in devices for key in self._given(device, by_index=by_index)}
        return found | {
            (gpu.device.uuid, share.gpu_instance)
            for gpu in snapshot.gpus
            for share in gpu.shares
            for process in share.processes or ()
            if not self._pids.isdisjoint(self._processes.ancestors(process.pid))
        }

    def _given(self, device: Device, *, by_index: bool) -> set[Key]:
        """Return what CUDA_VISIBLE_DEVICES names of a GPU: by UUID, by how one begins, or index.

        CUDA numbers GPUs as NVML does only where they are of one model.
        """
        whole, uuid = {(device.uuid, None)}, device.uuid.lower()
        is_given = any(each.startswith("gpu-") and uuid.startswith(each) for each in self._visible)
        is_numbered = by_index and str(device.index) in self._visible
        parts = device.instances
        named = {
            (device.uuid, it.gpu_instance) for it in parts if it.mig_uuid.lower() in self._visible
        }
        return (whole if is_given or is_numbered else set()) | named


def _received(run: socket.socket) -> bytes:
    try:
        return run.recv(_MOST_BYTES)
    except OSError:  # killed
        return b""
