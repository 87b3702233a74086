# SPDX-License-Identifier: Apache-2.0
"""Runs ``counters check``: which of CUPTI's metrics would be sampled, of one chip or of all."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.errors import ConfigError, LibraryUnavailable

FORMATS = ("table", "json")
LONGEST_NAME, MOST_NEAREST = 16, 3
CUDA = re.compile(r"(\d{1,2})\.(\d{1,2})")


def run(invocation: Invocation) -> int:
    """Print what is sampled; return the exit code.

    Raises:
        ConfigError: an option is wrong, or CUPTI does not know the chip.
        Unfit: no release of CUPTI is installed that fits the driver.
        LibraryUnavailable: the release cannot be loaded.
        CuptiError: CUPTI cannot sample the chip.
    """
    settings, given = invocation.settings(), invocation.options
    form = given.format or "table"
    if form not in FORMATS:
        raise ConfigError(f"--format: expected table or json, got {config.shown(form)}")
    cuda = driver_cuda(settings.nvml_library) if given.cuda is None else cuda_of(given.cuda)

    from exporter.cli.counters.checked import check, check_all, listing, sheet
    from exporter.cli.terminal.screen import encodable, screen_of
    from exporter.sources.cupti.host import supported_chips
    from exporter.sources.cupti.library import CuptiLibrary
    from exporter.sources.cupti.release import fitting, installed

    release = fitting(installed(), cuda)[0]
    library = CuptiLibrary(release.library)
    screen = screen_of(sys.stdout, invocation.environ)
    answer: object
    if given.chip is None:
        every = check_all(library, release)
        lines = listing(every, release, screen)
        answer = [each.json for each in every]
    else:
        one = check(library, release, chip_of(given.chip, supported_chips(library)))
        lines, answer = sheet(one, release, screen), one.json
    for line in [json.dumps(answer, indent=2)] if form == "json" else lines:
        print(encodable(line, sys.stdout.encoding))
    return STOPPED


def cuda_of(text: str) -> tuple[int, int]:
    """Return the version of CUDA that ``--cuda`` says.

    Raises:
        ConfigError: it is none.
    """
    found = CUDA.fullmatch(text)
    if found is None:
        raise ConfigError(f"--cuda: expected a version such as 12.9, got {config.shown(text)}")
    return int(found[1]), int(found[2])


def driver_cuda(path: str | None) -> tuple[int, int] | None:
    """Return the version of CUDA that this machine's driver has; None without a driver."""
    import pynvml

    from exporter.sources.nvml.library import Library

    library = Library(path)
    try:
        library.start()
        number = int(pynvml.nvmlSystemGetCudaDriverVersion())
    except (LibraryUnavailable, pynvml.NVMLError):
        return None
    finally:
        library.stop()
    return number // 1000, number % 1000 // 10


def chip_of(text: str, known: Sequence[str]) -> str:
    """Return the name of a chip as CUPTI writes it.

    Raises:
        ConfigError: CUPTI does not know it.
    """
    from difflib import get_close_matches

    name = text.upper()
    if name in known:
        return name
    *others, last = get_close_matches(name[:LONGEST_NAME], known, MOST_NEAREST) or [""]
    near = f"{', '.join(others)} or {last}" if others else last
    nearest = f", did you mean {near}?" if near else ""
    raise ConfigError(
        f"--chip: this release of CUPTI does not know {config.shown(text)}{nearest} "
        "(see roofline-exporter counters check)"
    )
