# SPDX-License-Identifier: Apache-2.0
"""Find the installed releases of CUPTI that fit the driver, without loading any."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path

from exporter import installation
from exporter.errors import SourceError

LIBRARIES = "nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12"
DISTRIBUTIONS = dict(zip(installation.CUPTI_PACKAGES, LIBRARIES, strict=True))
"""NVIDIA's packages, by name: where each has the library."""
KNOWN: Mapping[tuple[int, int], frozenset[int]] = {
    (12, 6): frozenset({24}),
    (12, 8): frozenset({26}),
    (12, 9): frozenset({27, 28}),
    (13, 0): frozenset({130000, 130001}),
    (13, 1): frozenset({130100, 130101}),
}
"""The releases whose structures and metrics were checked, by CUDA version: what cuptiGetVersion
says in each. Before 12.6 there is no sampling; 13.2 crashes without a driver; later ones do nothing
without one, so that nothing of them could be checked."""
VERSIONS = frozenset().union(*KNOWN.values())
OLDEST = min(KNOWN)


class Unfit(SourceError):
    """No installed release fits; the message is one line, with what to install."""

    def __init__(self, state: str, reason: str, remedy: str) -> None:
        """Take the state of the readings that are missing because of it."""
        self.state, self.reason, self.remedy = state, reason, remedy
        super().__init__(f"{reason}: {remedy}")


@dataclass(frozen=True, slots=True)
class Release:
    """One release of CUPTI that is installed."""

    package: str
    version: str
    library: Path

    @property
    def cuda(self) -> tuple[int, int]:
        """The version of CUDA that it belongs to; (0, 0) if it is not written as one."""
        found = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def installed(path: Sequence[str] | None = None) -> tuple[Release, ...]:
    """Return the releases that are installed, known or not; `path` stands in for sys.path."""
    found = []
    folders = list(sys.path if path is None else path)
    for name, place in DISTRIBUTIONS.items():
        for distribution in islice(Distribution.discover(name=name, path=folders), 1):
            library = Path(str(distribution.locate_file(place)))
            if library.is_file():
                found.append(Release(name, distribution.version, library))
    return tuple(found)


def fitting(
    releases: Iterable[Release], driver: tuple[int, int] | None = None
) -> tuple[Release, ...]:
    """Return the releases that fit a driver, the newest first.

    A driver runs CUPTI of its own version of CUDA and older ones; one of CUDA 13 any of 13. Where
    the first cannot be initialised (error 15), the next may.

    Args:
        releases: as `installed` returns them.
        driver: the version of CUDA that the driver has, as NVML says it; None where there is none.

    Raises:
        Unfit: none does.
    """
    releases = tuple(releases)
    if driver is not None and driver < OLDEST:
        raise Unfit(
            "old_driver",
            f"the driver has CUDA {_text(driver)}, and CUPTI can sample from {_text(OLDEST)} on",
            "install driver 560 or newer",
        )
    fit = [each for each in releases if each.cuda in KNOWN and _runs(each.cuda, driver)]
    if fit:
        return tuple(sorted(fit, key=lambda each: each.cuda, reverse=True))
    if not releases:
        raise Unfit("missing", "CUPTI is not installed", installation.adding(installation.CUPTI))
    newest = max(known for known in KNOWN if _runs(known, driver))
    package = next(name for name, place in DISTRIBUTIONS.items() if place.endswith(str(newest[0])))
    raise Unfit(
        "missing",
        f"{' and '.join(map(str, releases))} {'do' if releases[1:] else 'does'} not fit "
        f"{'this exporter' if driver is None else f'a driver of CUDA {_text(driver)}'}",
        installation.adding(f"{package}=={_text(newest)}.*"),
    )


def _runs(cuda: tuple[int, int], driver: tuple[int, int] | None) -> bool:
    return driver is None or cuda <= driver or cuda[0] == driver[0] == 13


def _text(cuda: tuple[int, int]) -> str:
    return f"{cuda[0]}.{cuda[1]}"
