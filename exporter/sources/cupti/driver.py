# SPDX-License-Identifier: Apache-2.0
"""List the GPUs of the CUDA driver, in the order in which CUPTI numbers them.

This creates no context, which would cost device memory and show the process on the GPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from exporter.errors import LibraryUnavailable, SourceError

LIBRARY = "libcuda.so.1"
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
HIDING = ("CUDA_VISIBLE_DEVICES",)
"""Variables that hide GPUs from CUDA; the exporter chooses GPUs by its own flags."""
BUS_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class CudaGpu:
    """One GPU as the CUDA driver lists it."""

    index: int
    """CUDA's, and therefore CUPTI's."""
    uuid: str
    """As NVML writes it."""
    pci_bus_id: str


class Driver:
    """The CUDA driver in this process."""

    def __init__(self) -> None:
        """Load libcuda.

        Raises:
            LibraryUnavailable: it is not there, or lacks a function.
            SourceError: it does not answer.
        """
        for name in HIDING:
            os.environ.pop(name, None)
        os.environ.update(ENVIRONMENT)
        try:
            self._functions = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise LibraryUnavailable(f"the CUDA driver cannot be loaded: {error}") from error
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.cuda_version = version.value // 1000, version.value % 1000 // 10
        """The newest CUDA that it supports: (13, 0)."""

    def initialize(self) -> None:
        """Find the GPUs; it may take a second for each that is asleep.

        Raises:
            SourceError: with the reason, in one line.
        """
        self._call("cuInit", ctypes.c_uint(0))

    def gpus(self) -> list[CudaGpu]:
        """Return all GPUs, once it is initialised.

        Raises:
            SourceError: the driver does not answer.
        """
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return [self._gpu(index) for index in range(count.value)]

    def _gpu(self, index: int) -> CudaGpu:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        uuid = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid", uuid, device)
        bus = ctypes.create_string_buffer(BUS_ID_BYTES)
        self._call("cuDeviceGetPCIBusId", bus, BUS_ID_BYTES, device)
        return CudaGpu(
            index, f"GPU-{UUID(bytes=bytes(uuid))}", bus.value.decode("ascii", "replace")
        )

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._functions, function)(*arguments)
        except AttributeError as error:
            raise LibraryUnavailable(f"the CUDA driver lacks {function}") from error
        if code:
            raise SourceError(f"the CUDA driver does not answer ({function} returned {code})")


def find_gpu(gpus: Iterable[CudaGpu], uuid: str, pci_bus_id: str | None) -> CudaGpu | None:
    """Return the GPU that NVML knows by this UUID, or else by this place on the bus."""
    found = tuple(gpus)
    place = bus_place(pci_bus_id)
    by_uuid = (gpu for gpu in found if gpu.uuid == uuid)
    by_place = (gpu for gpu in found if place is not None and bus_place(gpu.pci_bus_id) == place)
    return next(by_uuid, next(by_place, None))


def bus_place(pci_bus_id: str | None) -> tuple[int, ...] | None:
    """Return domain, bus, device and function of a GPU; None if it is not a bus id.

    NVML writes the domain with eight digits, CUDA with four.
    """
    if pci_bus_id is None:
        return None
    try:
        return tuple(int(part, 16) for part in pci_bus_id.replace(".", ":").split(":"))
    except ValueError:
        return None
