# SPDX-License-Identifier: Apache-2.0
"""CUPTI's result codes (CUptiResult): reading state, message and remedy of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from exporter.errors import SourceError


class Remedy(Enum):
    """What ends a fault."""

    GIVE_UP = "nothing, while the driver, its rights and the GPU stay as they are"
    WAIT = "time: somebody else is done, or the driver answers again"
    RESTART_PROCESS = "a process that does not hold what this one does"


@dataclass(frozen=True, slots=True)
class Fault:
    """What a result code means for one GPU."""

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
