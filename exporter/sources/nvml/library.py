# SPDX-License-Identifier: Apache-2.0
"""Load and initialise NVML, and do so again after a driver update; no other module does."""

from __future__ import annotations

import contextlib
import ctypes
import logging
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

log = logging.getLogger(__name__)


class Library:
    """The driver library of this process; each successful initialisation is a *generation*.

    A handle, sample or buffer is valid only in the generation in which it was made.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._found: str | None = None
        """Where the linker found the library that was loaded by its bare name."""
        self._file: tuple[int, int] | None = None
        self._replacements = 0
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
        """Load the library; after a driver update its name may be that of another file."""
        path = self._path or _if_exists(self._found)
        try:
            # Loading by path first also serves a library whose directory the linker does not know.
            pynvml.nvmlLib = ctypes.CDLL(self._fresh_name(path) if path else SONAME)
        except OSError as error:
            pynvml.nvmlLib = None
            where = f"--nvml.library {path}" if self._path else SONAME
            raise LibraryUnavailable(f"{where} cannot be loaded: {error}") from error
        finally:
            pynvml._nvmlGetFunctionPointer_cache.clear()
        if path is None:
            self._found = _installed_beside(_loaded_path())
            self._file = _file_of(self._found)

    def _fresh_name(self, path: str) -> str:
        """Return a name of `path` that makes the linker look at the file itself.

        For a name that it knows it returns the library that is already mapped, even if the file
        was replaced; for a new name it compares inodes.
        """
        file = _file_of(path)
        if "/" not in path or file is None:
            return path
        if self._file not in (None, file):
            self._replacements += 1
        self._file = file
        folder, name = os.path.split(path)
        return os.path.join(folder, *["."] * self._replacements, name)

    def stop(self) -> None:
        """Shut NVML down. While another thread is inside a driver call this would crash."""
        while self._initialisations:
            self._initialisations -= 1
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def device_count(self) -> int:
        """Return how many GPUs the driver lists, including those that cannot be opened.

        Raises:
            pynvml.NVMLError: the driver refused.
        """
        return int(pynvml.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        """Return the handle of GPU `index`; this initialises that GPU.

        Raises:
            pynvml.NVMLError: the driver refused.
        """
        return pynvml.nvmlDeviceGetHandleByIndex(index)

    def handle_at(self, address: str, index: int) -> Any | None:
        """Return the handle of the GPU at a PCI address if it is GPU `index`; this initialises it.

        Raises:
            pynvml.NVMLError: the driver refused.
        """
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
        return handle if pynvml.nvmlDeviceGetIndex(handle) == index else None


def _loaded_path() -> str | None:
    """Return the file that the loaded driver library was mapped from."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.partition("/")[2]
                if "libnvidia-ml.so" in path:
                    return "/" + path.rstrip("\n").removesuffix(" (deleted)")
    except OSError:
        log.debug("cannot read /proc/self/maps")
    return None


def _installed_beside(path: str | None) -> str | None:
    """Return the name of the installed library in the folder of `path`."""
    return None if path is None else _if_exists(os.path.join(os.path.dirname(path), SONAME))


def _if_exists(path: str | None) -> str | None:
    return path if path is not None and os.path.exists(path) else None


def _file_of(path: str | None) -> tuple[int, int] | None:
    """Return device and inode, which differ for another file of that name; None without a file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
