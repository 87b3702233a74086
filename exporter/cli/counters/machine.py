# SPDX-License-Identifier: Apache-2.0
"""Whether CUPTI can sample on this machine, and the next command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.sources.cupti.release import Release, Unfit

CAPABILITIES = {"CAP_PERFMON": 38, "CAP_SYS_ADMIN": 21}
"""Those of which one is enough, by name: the number in the kernel's capability.h."""
ALLOW = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
    "sudo tee /etc/modprobe.d/nvidia-profiling.conf && sudo reboot  "
    "# or give the exporter CAP_PERFMON: docs/cupti.md#rights"
)
SAMPLE = "roofline-exporter --source.cupti"
NOTHING = "nothing, the daemon measures every GPU"
_ALLOWED = {True: "yes", False: "no", None: "not known"}
_DRIVER = {
    True: "the driver gives them to administrators alone (RmProfilingAdminOnly: 1)",
    False: "the driver gives them to every user (RmProfilingAdminOnly: 0)",
    None: "the driver does not say whom it gives them (no RmProfilingAdminOnly)",
}
"""By whether the driver restricts them."""


def capability(procfs: Path) -> str | None:
    """Return the name of a capability of this process with which it may read counters."""
    effective = number_in(procfs / "self/status", "CapEff", 16) or 0
    return next((name for name, bit in CAPABILITIES.items() if effective >> bit & 1), None)


def restricted(procfs: Path) -> bool | None:
    """Return whether the driver lets administrators alone read counters; None if not known."""
    found = number_in(procfs / "driver/nvidia/params", "RmProfilingAdminOnly", 10)
    return None if found is None else found != 0


def number_in(path: Path, name: str, base: int) -> int | None:
    """Return the number behind a name in a file of /proc; None where it is not there."""
    try:
        found = re.search(rf"^{name}:\s*(\w+)$", path.read_text("utf-8", "replace"), re.MULTILINE)
        return None if found is None else int(found[1], base)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """CUPTI's requirements, and which of them this machine meets."""

    cupti: Release | Unfit
    capability: str | None
    restricted: bool | None
    all_measured: bool = False
    """Whether a daemon measures all its GPUs already."""

    @property
    def allowed(self) -> bool | None:
        """Whether this process may read counters; None if that is not known."""
        if self.capability is not None:
            return True
        return None if self.restricted is None else not self.restricted

    @property
    def next(self) -> str:
        """The next command."""
        if self.all_measured:
            return NOTHING
        if isinstance(self.cupti, Unfit):
            return self.cupti.remedy
        return ALLOW if self.allowed is False else SAMPLE

    @property
    def json(self) -> dict[str, object]:
        """The same as values of JSON; null is not known."""
        return {
            "cupti": self.cupti.version if isinstance(self.cupti, Release) else None,
            "counters_allowed": self.allowed,
            "capability": self.capability,
            "driver_restricts": self.restricted,
            "next": self.next,
        }

    def lines(self) -> Iterator[str]:
        """Yield each requirement, yes or no, and the next command."""
        found, right = self.cupti, self.capability or "no CAP_PERFMON"
        yield f"Library: {f'no, {found.reason}' if isinstance(found, Unfit) else f'yes, {found}'}"
        driver = _DRIVER[self.restricted]
        yield f"Counters: {_ALLOWED[self.allowed]}, {driver}; this process has {right}"
        yield f"Next: {self.next}"
