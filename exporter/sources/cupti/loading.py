# SPDX-License-Identifier: Apache-2.0
"""Which of several installed releases of CUPTI the driver takes, found out without risk.

A release that is too new for the driver says so when it is initialised, and may crash after that;
and a process cannot load a second one. Each but the last is therefore tried in a copy of the
process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from exporter.errors import ExporterError
from exporter.sources.counters.programs import die_with_parent
from exporter.sources.cupti.driver import Driver
from exporter.sources.cupti.library import Library
from exporter.sources.cupti.structures import ProfilerInitialize


def initialized(driver: Driver, candidates: Sequence[Path]) -> Library:
    """Return the first of the libraries that can be initialised, with the driver, in this process.

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


def _initialized(path: Path) -> Library:
    library = Library(path)
    library.call(ProfilerInitialize)
    return library
