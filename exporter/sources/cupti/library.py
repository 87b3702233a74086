# SPDX-License-Identifier: Apache-2.0
"""CUPTI in this process: loaded once, 210 MB, and able to crash it.

Only a process of its own loads it, never the daemon; and only one release, as what lies beside the
library has the same name in each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from exporter.errors import LibraryUnavailable
from exporter.sources.cupti.errors import CuptiError
from exporter.sources.cupti.release import VERSIONS
from exporter.sources.cupti.structures import Parameters, parameters

P = TypeVar("P", bound=Parameters)

BESIDE = ("libnvperf_host.so", "libnvperf_target.so")
"""What libcupti finds only where it is loaded already: its wheel has no search path."""


class Library:
    """The functions of one release of CUPTI."""

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
        """Call the function that takes such a structure; return what it made of it.

        Raises:
            CuptiError: with CUPTI's code.
        """
        function, asked = self.prepared(kind, **members)
        function()
        return asked

    def prepared(self, kind: type[P], **members: Any) -> tuple[Callable[[], None], P]:
        """Return the function that takes such a structure, to be called many times, and what it is
        called with.

        The function raises CuptiError as `call` does.
        """
        asked = parameters(kind, self.version, **members)
        function, argument = getattr(self._functions, kind.FUNCTION), ctypes.byref(asked)

        def called() -> None:
            code = function(argument)
            if code:
                raise CuptiError(code, kind.FUNCTION)

        return called, asked
