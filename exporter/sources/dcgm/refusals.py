# SPDX-License-Identifier: Apache-2.0
"""DCGM's error codes (DCGM_ST_* of dcgm_structs.h): reading state and advice of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

HOSTENGINE_CODES = frozenset({-10, -11, -12, -20, -21, -25, -29, -33, -54})
"""Errors of the hostengine, not of one GPU: the connection has to be replaced."""

CORE = "datacenter-gpu-manager-4-core"
PROFILING = "datacenter-gpu-manager-4-proprietary"


class DcgmError(Exception):
    """DCGM returned an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Refusal(NamedTuple):
    """A reading state, and what to do about it."""

    state: str
    advice: str


_NO_ROOT = Refusal(
    "no_permission",
    "the hostengine may not profile: run nv-hostengine as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0",
)
_NONE = Refusal("unsupported", "DCGM has no profiling fields for this GPU")
_TAKEN = Refusal(
    "busy", "something else has the hardware counters, such as Nsight: they come back when it ends"
)
_SILENT = Refusal("unreachable", "it does not answer: is nv-hostengine running there?")
_UNFIT = Refusal(
    "missing",
    "bindings, libdcgm and hostengine do not fit together: take all three from one release of DCGM",
)

REFUSALS: Mapping[int, Refusal] = {
    -6: _NONE,
    -10: _SILENT,
    -11: Refusal("unreachable", "it does not answer in time"),
    -12: _UNFIT,
    -17: _NO_ROOT,
    -18: Refusal("unreachable", "the GPU is lost to DCGM"),
    -20: _UNFIT,
    -21: _SILENT,
    -22: _NONE,
    -25: Refusal("missing", f"libdcgm.so.4 cannot be loaded: install {CORE}"),
    -29: _NO_ROOT,
    -33: Refusal(
        "missing",
        f"the hostengine has not loaded its profiling module: install {PROFILING} beside it and "
        "start it again",
    ),
    -34: _TAKEN,
    -36: _NONE,
    -37: _TAKEN,
    -38: Refusal(
        "busy", "what others watch cannot be counted together with these fields in one pass"
    ),
    -44: Refusal("old_driver", "the driver is too old for DCGM's profiling"),
    -54: Refusal("paused", "the hostengine is paused"),
}
"""By code: those that say what is wrong."""

BLANK = Refusal(
    "paused", "profiling is paused: all values are blank; `dcgmi profile --resume` ends that"
)
STOPPED = Refusal(
    "unreachable", "the hostengine has no new values of this GPU any more: start it again"
)
TOO_OFTEN = Refusal(
    "busy",
    "somebody else has the hostengine read these fields more often than once a second, so that the "
    "values are samples: a dcgm-exporter takes -c 1000",
)
NOT_LISTED = Refusal("unsupported", "the hostengine does not list this GPU")
INSTANCE_NOT_LISTED = Refusal(
    "unreachable",
    "the hostengine does not list all instances of this GPU: if they are newer than it, start it "
    "again",
)


def refusal(error: DcgmError) -> Refusal:
    """Return state and advice of an error; an unknown one is quoted."""
    known = REFUSALS.get(error.code, Refusal("unreachable", "it refuses"))
    return Refusal(known.state, f"{known.advice} (DCGM: {error.text}, {error.code})")
