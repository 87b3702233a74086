# SPDX-License-Identifier: Apache-2.0
"""What would give measurements on a GPU without hardware counters that can be read, in a sentence.

A table, the first row that fits; a source of measurements that is added is a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from exporter.web.wording.facts import Facts

_DATA_CENTRE = re.compile(
    r"(?:NVIDIA |Tesla )*(?:[VAHBL]\d{1,3}[A-Z]?|T4G?|GB\d{3}|GH200)(?:[- ].*)?\Z"
)
"""Names of data-centre GPUs, as the driver gives them: V100, T4, A100, L40S, H200, GB200 …"""
_VOLTA_AND_LATER = frozenset(
    {"Volta", "Turing", "Ampere", "Ada", "Ada Lovelace", "Hopper", "Blackwell"}
)
_COUNTED = frozenset({"Hopper", "Blackwell"})
"""Architectures whose data-centre GPUs have counters that NVML reads (GPM)."""


def _is_data_centre(one: Facts) -> bool:
    return one.architecture in _VOLTA_AND_LATER and bool(_DATA_CENTRE.match(one.name))


_BESIDE = (
    "dcgm-exporter beside this exporter measures them (DCGM_FI_PROF_*), as its own series; this "
    "page does not read those."
)
_ANSWERS: tuple[tuple[Callable[[Facts], bool], str], ...] = (
    (
        lambda one: one.uncounted == "disabled",
        "The hardware counters are switched off: start the exporter without --no-source.gpm.",
    ),
    (
        lambda one: one.uncounted == "no_permission",
        "The driver refuses the hardware counters to this user: run the exporter as root or with "
        "CAP_SYS_ADMIN.",
    ),
    (
        lambda one: one.uncounted == "old_driver" and one.architecture in _COUNTED,
        "A driver from 525 on has hardware counters of this GPU that NVML reads.",
    ),
    (
        lambda one: one.instance is not None,
        "NVML reads no hardware counters of this MIG instance; " + _BESIDE,
    ),
    (_is_data_centre, "NVML reads no hardware counters of this GPU; " + _BESIDE),
    (
        lambda one: True,
        "Nothing that runs all the time measures this GPU: NVML reads no hardware counters of it, "
        "and DCGM profiles data-centre GPUs alone.",
    ),
)


def advice(facts: Facts) -> str | None:
    """Return what would measure this GPU; None where its counters are read."""
    if facts.uncounted is None or facts.down_reason is not None or facts.divided:
        return None
    return next(said for holds, said in _ANSWERS if holds(facts))
