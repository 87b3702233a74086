# SPDX-License-Identifier: Apache-2.0
"""List the GPUs of the CUDA driver, in the order in which CUPTI numbers them.

This creates no context, which would cost device memory and show the process on the GPU.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any
from uuid import UUID

from exporter.errors import LibraryUnavailable, SourceError

LIBRARY = "libcuda.so.1"


class Driver:
    """The CUDA driver in this process."""

    def __init__(self) -> None:
        """Load libcuda.

        Raises:
            LibraryUnavailable: it is not there, or lacks a function.
            SourceError: it does not answer.
        """
        # It would hide GPUs from CUDA; the exporter chooses GPUs by its own flags.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
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

    def gpus(self) -> dict[str, int]:
        """Return CUDA's number of each GPU, once it is initialised, by the UUID as NVML writes it.

        Raises:
            SourceError: the driver does not answer.
        """
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return {self._uuid(index): index for index in range(count.value)}

    def _uuid(self, index: int) -> str:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        uuid = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid", uuid, device)
        return f"GPU-{UUID(bytes=bytes(uuid))}"

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._functions, function)(*arguments)
        except AttributeError as error:
            raise LibraryUnavailable(f"the CUDA driver lacks {function}") from error
        if code:
            raise SourceError(f"the CUDA driver does not answer ({function} returned {code})")
