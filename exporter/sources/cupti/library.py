# SPDX-License-Identifier: Apache-2.0
"""Load the CUDA driver and CUPTI, call their functions, and explain CUPTI's result codes.

CUPTI takes 210 MB and may crash: only a child process loads it, never the daemon. A process can
load only one release, because the libraries beside it have the same names in each.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from exporter.errors import ExporterError, LibraryUnavailable, SourceError
from exporter.sources.counters.programs import die_with_parent
from exporter.sources.cupti.release import VERSIONS
from exporter.sources.cupti.structures import Parameters, ProfilerInitialize, parameters


class Remedy(Enum):
    """What to do to recover from a fault."""

    GIVE_UP = "nothing, while the driver, its rights and the GPU stay as they are"
    WAIT = "time: somebody else is done, or the driver answers again"
    RESTART_PROCESS = "a process that does not hold what this one does"


@dataclass(frozen=True, slots=True)
class Fault:
    """The meaning of a result code for one GPU."""

    state: str
    """The state of the readings that are missing because of it."""
    message: str
    """One line, with advice where there is any."""
    remedy: Remedy = Remedy.GIVE_UP


FAULTS: Mapping[int, Fault] = {
    1: Fault("unsupported", "CUPTI does not take what the exporter asks for on this GPU"),
    7: Fault("busy", "the counters are already open in this process", Remedy.RESTART_PROCESS),
    8: Fault("busy", "the buffer of the samples overflowed", Remedy.WAIT),
    15: Fault(
        "old_driver",
        "CUPTI cannot be initialised: the driver is older than it, or libcuda.so.1 is not there",
    ),
    26: Fault(
        "busy",
        "another program has the counters: a profiler, DCGM, or another exporter",
        Remedy.WAIT,
    ),
    27: Fault("unsupported", "CUPTI cannot sample this GPU"),
    33: Fault("unsupported", "CUPTI cannot sample a virtual GPU of this kind"),
    35: Fault(
        "no_permission",
        "give the exporter CAP_PERFMON or CAP_SYS_ADMIN, or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    40: Fault(
        "no_permission", "profiling of this virtual GPU is not enabled; its host can enable it"
    ),
    41: Fault("unsupported", "CUPTI cannot sample a GPU in confidential computing"),
    42: Fault("unsupported", "CUPTI cannot sample a GPU made for mining"),
    43: Fault("mig", "CUPTI cannot sample a GPU while MIG is on"),
    44: Fault("unsupported", "CUPTI cannot sample a GPU while SLI is on"),
    45: Fault("unsupported", "CUPTI cannot sample GPUs in WSL"),
    46: Fault("unsupported", "this release of CUPTI does not know the chip; a newer one may"),
    999: Fault("unreachable", "CUPTI failed for no reason that it gives", Remedy.WAIT),
}
UNKNOWN = Fault("unreachable", "CUPTI failed", Remedy.WAIT)
OVERFLOW, BUSY = 8, 26


class CuptiError(SourceError):
    """A function of CUPTI returned an error; the message is one line."""

    def __init__(self, code: int, function: str) -> None:
        """Take CUPTI's result code and the function that returned it."""
        self.code = code
        self.fault = FAULTS.get(code, UNKNOWN)
        super().__init__(f"{self.fault.message} ({function} returned {code})")


P = TypeVar("P", bound=Parameters)

CUDA = "libcuda.so.1"
BESIDE = ("libnvperf_host.so", "libnvperf_target.so")
"""Libraries that libcupti does not find by itself, since its wheel has no search path."""


class Driver:
    """The CUDA driver in this process; LibraryUnavailable or SourceError say in one line that it
    is not there, lacks a function, or does not answer.

    It creates no context, which would cost device memory and show the process on the GPU.
    """

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
            self._functions = ctypes.CDLL(CUDA)
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


class CuptiLibrary:
    """The functions of one release of CUPTI, which raise CuptiError with its code."""

    def __init__(self, cupti: Path) -> None:
        """Load the file ``libcupti.so.N`` and the libraries beside it.

        Raises:
            LibraryUnavailable: with the reason, in one line.
        """
        try:
            for name in BESIDE:
                ctypes.CDLL(str(cupti.parent / name), mode=ctypes.RTLD_GLOBAL)
            self._functions = ctypes.CDLL(str(cupti))
            version = ctypes.c_uint32()
            code = self._functions.cuptiGetVersion(ctypes.byref(version))
        except (OSError, AttributeError) as error:
            raise LibraryUnavailable(f"CUPTI cannot be loaded: {error}") from error
        if code:
            raise CuptiError(code, "cuptiGetVersion")
        if version.value not in VERSIONS:
            raise LibraryUnavailable(f"CUPTI {version.value} is not known to this exporter")
        self.version = version.value
        """As cuptiGetVersion numbers releases."""

    def call(self, kind: type[P], **members: Any) -> P:
        """Call the function that takes such a structure; return the structure that it filled.

        Raises:
            CuptiError: with CUPTI's code.
        """
        function, filled = self.prepared(kind, **members)
        function()
        return filled

    def prepared(self, kind: type[P], **members: Any) -> tuple[Callable[[], None], P]:
        """Return a function of CUPTI, to be called many times, and the structure that it fills."""
        filled = parameters(kind, self.version, **members)
        function, argument = getattr(self._functions, kind.FUNCTION), ctypes.byref(filled)

        def call() -> None:
            code = function(argument)
            if code:
                raise CuptiError(code, kind.FUNCTION)

        return call, filled


def initialized(driver: Driver, candidates: Sequence[Path]) -> CuptiLibrary:
    """Return the first of the libraries that can be initialised, with the driver, in this process.

    A release that is too new for the driver says so when it is initialised, and may crash after
    that; and a process cannot load a second one. Each but the last is therefore tried in a copy of
    the process.

    Raises:
        CuptiError: none of them can be; the code is the last one's.
        LibraryUnavailable: the last one cannot be loaded, or its release is not known.
        SourceError: the driver does not answer.
    """
    *first, last = candidates
    chosen = next((path for path in first if _works(driver, path)), last)
    driver.initialize()
    return _initialized(chosen)


def _works(driver: Driver, path: Path) -> bool:
    """Try a library in a child process."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) == 0
    code = 1
    try:
        die_with_parent()
        driver.initialize()
        _initialized(path)
        code = 0
    except ExporterError:
        pass
    finally:
        os._exit(code)


def _initialized(path: Path) -> CuptiLibrary:
    library = CuptiLibrary(path)
    library.call(ProfilerInitialize)
    return library
