# SPDX-License-Identifier: Apache-2.0
"""What the driver's error numbers (Xids) mean, which of them raise alerts, and what to do.

Sources: nverror.h of NVIDIA/open-gpu-kernel-modules and NVIDIA's "Xid Errors" catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Tier = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid; without a tier it raises no alert."""

    code: int
    meaning: str
    advice: str
    tier: Tier | None = None


_RESET = "drain and reset the GPU; if it comes back, run the vendor's diagnostics"
_SUPPORT = "drain the GPU and contact the vendor"
_APPLICATION = "look at the application first: the GPU is usually well"
_NVLINK_5 = ("SAW", "RLW", "TLW", "TREX", "NVLPW_CTRL", "NETIR", "MSE")
_FIRST_NVLINK_5 = 144


def _table(rows: Iterable[Xid]) -> dict[int, Xid]:
    return {row.code: row for row in sorted(rows, key=lambda row: row.code)}


XIDS: Mapping[int, Xid] = _table(
    (
        Xid(13, "exception in the graphics or compute engine", _APPLICATION),
        Xid(31, "memory access to a page that is not mapped", _APPLICATION),
        Xid(43, "an application's channel stopped", _APPLICATION),
        Xid(45, "channels were removed after an earlier error", "look at the Xid before it"),
        Xid(48, "uncorrectable ECC error", _RESET, "critical"),
        Xid(62, "the GPU's internal micro-controller halted", _RESET, "critical"),
        Xid(
            63,
            "a memory row was remapped or a page retired",
            "reset the GPU when its work is done, if gpu_row_remap_pending says so",
        ),
        Xid(64, "a row remap or page retirement could not be recorded", _SUPPORT, "critical"),
        Xid(
            74,
            "NVLink error",
            "check the link's other end and the seating; reset the GPUs on both ends",
            "critical",
        ),
        Xid(
            79,
            "the GPU has fallen off the bus",
            "drain and restart the node; check power, temperature and seating if it comes back",
            "critical",
        ),
        Xid(92, "many corrected ECC errors", "watch gpu_ecc_errors_total"),
        Xid(
            94,
            "uncorrectable memory error, contained to one application",
            "restart that application; reset the GPU when its other work is done",
            "warning",
        ),
        Xid(
            95,
            "uncorrectable memory error, not contained",
            "end all work on the GPU and reset it",
            "critical",
        ),
        Xid(109, "context switch timed out", _APPLICATION),
        Xid(119, "the GPU's system processor (GSP) does not answer", _RESET, "critical"),
        Xid(120, "error in the GPU's system processor (GSP)", _RESET, "critical"),
        Xid(121, "corrected error on the link between GPU and CPU (C2C)", "watch whether it stays"),
        Xid(140, "uncorrectable ECC error that was not handled", _RESET, "critical"),
        Xid(143, "the GPU could not be initialised", _SUPPORT),
        *(
            Xid(code, f"NVLink 5 error ({part})", "check gpu_nvlink_links and the NVSwitch logs")
            for code, part in enumerate(_NVLINK_5, start=_FIRST_NVLINK_5)
        ),
        Xid(154, "the recovery action changed", "do what gpu_recovery_action says"),
    )
)

ALERTING: tuple[int, ...] = tuple(code for code, xid in XIDS.items() if xid.tier is not None)
"""The codes that alerts are made of; their counters exist at 0 from the start."""


def describe(code: int) -> str:
    """Return the meaning and the advice in one phrase, for logs."""
    xid = XIDS.get(code)
    if xid is None:
        return "see NVIDIA's Xid catalog"
    return f"{xid.meaning}; {xid.advice}"
