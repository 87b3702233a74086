# SPDX-License-Identifier: Apache-2.0
"""What the driver's error numbers (Xids) mean, which of them raise alerts, and what to do.

Sources: nverror.h and ras_events.c of NVIDIA/open-gpu-kernel-modules and NVIDIA's "Xid Errors"
catalog, which ends at 172. Codes that neither explains are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

Tier = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid; without a tier it raises no alert."""

    code: int
    meaning: str
    advice: str
    tier: Tier | None = None
    from_start: bool = True
    """Whether the counter of a code with a tier exists at 0 before its first event. Rare codes
    appear with their first event, to limit the series of a GPU."""


# Below each advice: code, tier (with * one whose counter appears with its first event), meaning.
_TABLE = """
look at the application first: the GPU is usually well
    13  -         exception in the graphics or compute engine
    31  -         memory access to a page that is not mapped
    43  -         an application's channel stopped
    109 -         context switch timed out
    174 -         a process was ended because its channel was reset
look at the Xid before it
    45  -         channels were removed after an earlier error
drain and reset the GPU; if it comes back, run the vendor's diagnostics
    48  critical  uncorrectable ECC error
    62  critical  the GPU's internal micro-controller halted
    119 critical  the GPU's system processor (GSP) does not answer
    120 critical  error in the GPU's system processor (GSP)
    140 critical  uncorrectable ECC error that was not handled
    158 critical* the GPU ran into a fatal timeout
    169 critical* the GPU's security micro-controller (SEC2) halted
    175 critical* hardware error in the memory subsystem: the GPU's system processor (GSP) does \
not answer
reset the GPU when its work is done, if gpu_row_remap_pending says so
    63  -         a memory row was remapped or a page retired
drain the GPU and contact the vendor
    64  critical  a row remap or page retirement could not be recorded
    143 -         the GPU could not be initialised
check the link's other end and the seating; reset the GPUs on both ends
    74  critical  NVLink error
drain and restart the node; check power, temperature and seating if it comes back
    79  critical  the GPU has fallen off the bus
watch gpu_ecc_errors_total
    92  -         many corrected ECC errors
restart that application; reset the GPU when its other work is done
    94  warning   uncorrectable memory error, contained to one application
end all work on the GPU and reset it
    95  critical  uncorrectable memory error, not contained
watch whether it stays
    121 -         corrected error on the link between GPU and CPU (C2C)
check gpu_nvlink_links and the NVSwitch logs
    144 -         NVLink 5 error (SAW)
    145 -         NVLink 5 error (RLW)
    146 -         NVLink 5 error (TLW)
    147 -         NVLink 5 error (TREX)
    148 -         NVLink 5 error (NVLPW_CTRL)
    149 -         NVLink 5 error (NETIR)
    150 -         NVLink 5 error (MSE)
do what gpu_recovery_action says
    154 -         the recovery action changed
if nobody meant to, reset the GPU and look at what configures its links
    155 -         an NVLink 5 link was taken down by software, perhaps on purpose
reset the GPU when its work is done
    156 -         a faulty group of SMs (TPC) was retired for a spare one
    160 -         a memory channel or L2 slice was marked for repair
    177 -         a memory bank was marked for remapping
work can go on, but the error may come again: contact the vendor
    157 warning*  a faulty group of SMs (TPC) has no spare one left
reset the GPU if its applications use managed memory; without another Xid beside it contact the \
vendor
    159 -         error on the link between GPU and CPU (C2C), of a message without data
work can go on; contact the vendor if it comes again
    161 -         a memory channel or L2 slice has no spare one left
nothing
    162 -         the power smoothing circuit works again
if power smoothing is needed, cure the heat; after a timeout reset the GPU
    163 -         the power smoothing circuit was switched off, by heat or a timeout
if power smoothing is needed, plan to replace the GPU
    164 -         the power smoothing circuit is near the end of its life
replace the GPU, or make sure that the site bears its power swings
    165 -         the power smoothing circuit is worn out and will be off
restart the work; contact the vendor if it comes again
    166 -         NVLink traffic before the link was ready to encrypt it (confidential computing)
    170 -         NVLink interrupt in confidential computing
drain and restart the node; check the seating if it comes back
    167 critical* fatal timeout on PCI Express
switch ECC on, so that rows can be remapped, and reset the GPU
    168 -         memory errors in the region that the driver protects, with ECC off
do what Xid 48 asks for
    171 -         the uncorrectable ECC error of Xid 48 was in DRAM
do what Xid 48 asks for; return the board if gpu_sram_error_threshold_exceeded is 1
    172 -         the uncorrectable ECC error of Xid 48 was in SRAM
drain and restart the node; contact the vendor if it comes back
    173 critical* the link between GPU and CPU (C2C) has failed
watch gpu_pcie_replays_total; check the seating if it grows
    176 -         corrected errors on PCI Express
"""


def _parse_table(text: str) -> Iterator[Xid]:
    advice = ""
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            advice = line
            continue
        code, tier, meaning = line.split(maxsplit=2)
        name = None if tier == "-" else cast("Tier", tier.removesuffix("*"))
        yield Xid(int(code), meaning, advice, name, from_start=not tier.endswith("*"))


XIDS: Mapping[int, Xid] = {
    xid.code: xid for xid in sorted(_parse_table(_TABLE), key=lambda xid: xid.code)
}

ALERTING: tuple[int, ...] = tuple(code for code, xid in XIDS.items() if xid.tier is not None)
"""The codes that alerts are made of."""

COUNTED_FROM_START: tuple[int, ...] = tuple(code for code in ALERTING if XIDS[code].from_start)
"""Codes whose counters exist at 0 before their first event."""


def describe(code: int) -> str:
    """Return the meaning and the advice in one phrase, for logs."""
    xid = XIDS.get(code)
    if xid is None:
        return "see NVIDIA's Xid catalog"
    return f"{xid.meaning}; {xid.advice}"
