# SPDX-License-Identifier: Apache-2.0
"""Load and initialise NVML, and do so again after a driver update; no other module does."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

import pynvml

from exporter.errors import LibraryUnavailable
from exporter.sources.nvml.probe import LIBRARY_REASONS, code_of

SONAME = "libnvidia-ml.so.1"
HINTS = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is not loaded, or its device nodes (/dev/nvidia*) are not visible here"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to open the NVIDIA device nodes (/dev/nvidia*)",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the library that was loaded is not the NVIDIA driver's",
}


class Library:
    """The driver library of this process; each successful initialisation is a *generation*.

    A handle, sample or buffer is valid only in the generation in which it was made. What asks for
    GPUs raises NVMLError if the driver refuses.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._initialisations = 0
        """Initialisations without a shutdown; the driver counts them, too."""
        self.generation = 0

    def start(self) -> int:
        """Load and initialise; return the new generation. May block if the driver hangs.

        Raises:
            LibraryUnavailable: with the reason, in one line.
        """
        self._load()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            code = code_of(error)
            reason = HINTS.get(code or 0) or LIBRARY_REASONS.get(code or 0) or str(error)
            raise LibraryUnavailable(f"NVML cannot be initialised: {reason}") from error
        self._initialisations += 1
        self.generation += 1
        return self.generation

    def _load(self) -> None:
        # For a known name the linker returns the mapped file, though the name may link
        # to another file since a driver update. The file's own name has the driver's version in it.
        path = self._path or _installed_path()
        try:
            if path is not None and os.path.exists(path):
                pynvml.nvmlLib = ctypes.CDLL(os.path.realpath(path))
            else:
                pynvml.nvmlLib = ctypes.CDLL(path or SONAME)
        except OSError as error:
            pynvml.nvmlLib = None
            where = f"--nvml.library {path}" if self._path else SONAME
            raise LibraryUnavailable(f"{where} cannot be loaded: {error}") from error
        finally:
            pynvml._nvmlGetFunctionPointer_cache.clear()

    def stop(self) -> None:
        """Shut NVML down. While another thread is inside a driver call this would crash."""
        while self._initialisations:
            self._initialisations -= 1
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def device_count(self) -> int:
        """Return how many GPUs the driver lists, including those that cannot be opened."""
        return int(pynvml.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        """Return the handle of GPU `index`; this initialises that GPU."""
        return pynvml.nvmlDeviceGetHandleByIndex(index)


def _installed_path() -> str | None:
    """Return the name of the library in the folder from which the linker has mapped it."""
    with contextlib.suppress(OSError), open("/proc/self/maps", errors="replace") as maps:
        for line in maps:
            folder, _, name = line.rstrip("\n").rpartition("/")
            path = os.path.join("/" + folder.partition("/")[2], SONAME)
            if name.startswith("libnvidia-ml.so") and os.path.exists(path):
                return path
    return None
