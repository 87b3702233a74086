# SPDX-License-Identifier: Apache-2.0
"""What the driver's error numbers (Xids) mean, which of them raise alerts, and what to do.

Sources: nverror.h and ras_events.c of NVIDIA/open-gpu-kernel-modules and NVIDIA's "Xid Errors"
catalog, which ends at 172. Codes of which neither says what they mean are not in the table.
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
    from_start: bool = True
    """Whether the counter of a code with a tier exists at 0 before its first event; the series of
    a GPU are limited, so that rare ones appear with their first event."""


_RESET = "drain and reset the GPU; if it comes back, run the vendor's diagnostics"
_SUPPORT = "drain the GPU and contact the vendor"
_SECURE_NVLINK = "restart the work; contact the vendor if it comes again"
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
        Xid(
            155,
            "an NVLink 5 link was taken down by software, perhaps on purpose",
            "if nobody meant to, reset the GPU and look at what configures its links",
        ),
        Xid(
            156,
            "a faulty group of SMs (TPC) was retired for a spare one",
            "reset the GPU when its work is done",
        ),
        Xid(
            157,
            "a faulty group of SMs (TPC) has no spare one left",
            "work can go on, but the error may come again: contact the vendor",
            "warning",
            from_start=False,
        ),
        Xid(158, "the GPU ran into a fatal timeout", _RESET, "critical", from_start=False),
        Xid(
            159,
            "error on the link between GPU and CPU (C2C), of a message without data",
            "reset the GPU if its applications use managed memory; without another Xid beside it "
            "contact the vendor",
        ),
        Xid(
            160,
            "a memory channel or L2 slice was marked for repair",
            "reset the GPU when its work is done",
        ),
        Xid(
            161,
            "a memory channel or L2 slice has no spare one left",
            "work can go on; contact the vendor if it comes again",
        ),
        Xid(162, "the power smoothing circuit works again", "nothing"),
        Xid(
            163,
            "the power smoothing circuit was switched off, by heat or a timeout",
            "if power smoothing is needed, cure the heat; after a timeout reset the GPU",
        ),
        Xid(
            164,
            "the power smoothing circuit is near the end of its life",
            "if power smoothing is needed, plan to replace the GPU",
        ),
        Xid(
            165,
            "the power smoothing circuit is worn out and will be off",
            "replace the GPU, or make sure that the site bears its power swings",
        ),
        Xid(
            166,
            "NVLink traffic before the link was ready to encrypt it (confidential computing)",
            _SECURE_NVLINK,
        ),
        Xid(
            167,
            "fatal timeout on PCI Express",
            "drain and restart the node; check the seating if it comes back",
            "critical",
            from_start=False,
        ),
        Xid(
            168,
            "memory errors in the region that the driver protects, with ECC off",
            "switch ECC on, so that rows can be remapped, and reset the GPU",
        ),
        Xid(
            169,
            "the GPU's security micro-controller (SEC2) halted",
            _RESET,
            "critical",
            from_start=False,
        ),
        Xid(170, "NVLink interrupt in confidential computing", _SECURE_NVLINK),
        Xid(171, "the uncorrectable ECC error of Xid 48 was in DRAM", "do what Xid 48 asks for"),
        Xid(
            172,
            "the uncorrectable ECC error of Xid 48 was in SRAM",
            "do what Xid 48 asks for; return the board if gpu_sram_error_threshold_exceeded is 1",
        ),
        Xid(
            173,
            "the link between GPU and CPU (C2C) has failed",
            "drain and restart the node; contact the vendor if it comes back",
            "critical",
            from_start=False,
        ),
        Xid(174, "a process was ended because its channel was reset", _APPLICATION),
        Xid(
            175,
            "hardware error in the memory subsystem: the GPU's system processor (GSP) does not "
            "answer",
            _RESET,
            "critical",
            from_start=False,
        ),
        Xid(
            176,
            "corrected errors on PCI Express",
            "watch gpu_pcie_replays_total; check the seating if it grows",
        ),
        Xid(177, "a memory bank was marked for remapping", "reset the GPU when its work is done"),
    )
)

ALERTING: tuple[int, ...] = tuple(code for code, xid in XIDS.items() if xid.tier is not None)
"""The codes that alerts are made of."""

COUNTED_FROM_START: tuple[int, ...] = tuple(code for code in ALERTING if XIDS[code].from_start)
"""Those of them whose counters exist at 0 before their first event."""


def describe(code: int) -> str:
    """Return the meaning and the advice in one phrase, for logs."""
    xid = XIDS.get(code)
    if xid is None:
        return "see NVIDIA's Xid catalog"
    return f"{xid.meaning}; {xid.advice}"
