# SPDX-License-Identifier: Apache-2.0
"""How a GPU is measured, and how to measure more of it, in one sentence with the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter import installation
from exporter.model.reading import share_group
from exporter.web.wording.facts import Counting, Facts
from exporter.web.wording.numbers import capitalised

GPM, DCGM, CUPTI = "gpm", "dcgm", "cupti"
_SOURCES = {
    GPM: "NVML's own counters (GPM)",
    DCGM: "DCGM",
    CUPTI: "CUPTI (experimental)",
}
_FIELDS = {
    "sm": ("SM_ACTIVE",),
    "tensor": ("PIPE_TENSOR_ACTIVE",),
    "fp64": ("PIPE_FP64_ACTIVE",),
    "fma": ("PIPE_FP32_ACTIVE", "PIPE_FP16_ACTIVE"),
    "dram": ("DRAM_ACTIVE",),
}
"""By resource: the fields of DCGM (DCGM_FI_PROF_*) that measure it."""
_UNITS = {
    "sm": "the SMs",
    "tensor": "the tensor pipe",
    "fp64": "FP64",
    "fma": "FP32 and FP16",
    "int": "integers",
    "dram": "memory",
}
_DATA_CENTRE = re.compile(
    r"(?:NVIDIA |Tesla )*(?:[VAHBL]\d{1,3}[A-Z]?|T4G?|GB\d{3}|GH200)(?:[- ].*)?\Z"
)
"""Names of data-centre GPUs, as the driver gives them: V100, T4, A100, L40S, H200, GB200 …"""
_VOLTA_AND_LATER = frozenset(
    {"Volta", "Turing", "Ampere", "Ada", "Ada Lovelace", "Hopper", "Blackwell"}
)
_TURING_AND_LATER = _VOLTA_AND_LATER - {"Volta"}
_COUNTED = frozenset({"Hopper", "Blackwell"})
"""Architectures whose data-centre GPUs have counters that NVML reads (GPM)."""

_RIGHT = "CAP_PERFMON or the driver option NVreg_RestrictProfilingToAdminUsers=0"
_SEEN = "roofline-exporter counters check"
"""The command that says whether this user may read counters."""
_SAMPLE = (
    "start the exporter with --source.cupti (experimental), which needs "
    f"{_RIGHT} ({_SEEN} says yes or no)"
)
_UNFIT = f"no installed CUPTI fits this driver, see {_SEEN}"
_REFUSED = "CUPTI cannot sample this GPU, the log says why"
_JOB = "a training job's work: roofline-exporter run --count-flops -- python train.py"


_BY_STATE = {
    (GPM, "disabled"): "the counters are switched off, start the exporter without --no-source.gpm",
    (GPM, "no_permission"): "the driver refuses the counters to this user, run the exporter as "
    "root or with CAP_SYS_ADMIN",
    (GPM, "old_driver"): "GPM needs driver 525 or newer",
    (DCGM, "unreachable"): "DCGM gives no fresh values, see the log and --dcgm.url or --dcgm.host",
    (DCGM, "no_permission"): "DCGM may not profile, give its hostengine CAP_SYS_ADMIN",
    (DCGM, "busy"): "another tool has DCGM's counters, they come back when it ends",
    (DCGM, "paused"): "DCGM's profiling is paused, dcgmi profile --resume",
    (DCGM, "missing"): "install datacenter-gpu-manager-4-core, or name the folder of DCGM's "
    "bindings with --dcgm.bindings; profiling needs datacenter-gpu-manager-4-proprietary",
    (CUPTI, "no_permission"): f"the driver refuses CUPTI, the exporter needs {_RIGHT} ({_SEEN})",
    (CUPTI, "busy"): "a profiler has the counters, CUPTI takes them again when it ends",
    (CUPTI, "paused"): "the counters are left to a profiler, roofline-exporter counters resume",
    (CUPTI, "missing"): "CUPTI is not installed, {install}",
    (CUPTI, "old_driver"): f"the installed CUPTI needs a newer driver, see {_SEEN}",
    (CUPTI, "unreachable"): "CUPTI gives nothing that can be used, see the log",
    (CUPTI, "implausible"): "CUPTI gives nothing that can be used, see the log",
}
"""By counter source and state, the first match: why it gives nothing, and what to do."""


def _more(one: Facts, counting: Counting) -> str:
    """Return how to measure more of a GPU; "" if that is not possible."""
    states = counting.states
    fields = ", ".join(name for each in counting.unmeasured for name in _FIELDS.get(each, ()))
    if counting.source == DCGM and fields:
        said = f"dcgm-exporter answers here, add {fields} to its CSV (docs/dcgm.md)"
        return f"{said} and start it with -c 1000" if counting.old else said
    if counting.old:
        return (
            "dcgm-exporter's samples are too old to be added up, start it with -c 1000 "
            "(DCGM_EXPORTER_INTERVAL=1000)"
        )
    if counting.source is not None:
        return ""
    if one.virtual:
        return "nothing that runs all the time measures a vGPU from its guest"
    install = installation.adding(installation.CUPTI)
    has_cupti = installation.has(*installation.CUPTI_PACKAGES)
    if states.get(CUPTI) == "missing" and has_cupti:
        return _UNFIT
    for (source, state), text in _BY_STATE.items():
        needless = state == "old_driver" and source == GPM and one.architecture not in _COUNTED
        if states.get(source) == state and not needless:
            return text.format(install=install)
    dcgm = "run dcgm-exporter on this node, which"
    if one.instance is not None:
        return f"{dcgm} measures MIG instances and is read by itself"
    # CUPTI could measure it and is not enabled.
    for_cupti = one.architecture in _TURING_AND_LATER and CUPTI not in states
    ways = []
    if one.architecture in _VOLTA_AND_LATER and _DATA_CENTRE.match(one.name):
        ways.append(f"{dcgm} is read by itself")
    if for_cupti:
        ways.append(_SAMPLE if has_cupti else f"{install} and {_SAMPLE}")
    if not ways:
        refused = states.get(CUPTI) == "unsupported"
        ways.append(_REFUSED if refused else "nothing that runs all the time measures this GPU")
    return f"{', or '.join(ways)}; {_JOB}"


def _measured_by(counting: Counting) -> str:
    """Return how a GPU is measured: "measured by DCGM but for the SMs, FP64"."""
    if counting.source is None:
        return "not measured"
    named = _SOURCES.get(counting.source, counting.source)
    lacks = [_UNITS[each] for each in counting.unmeasured if each in _UNITS]
    lacking = "" if counting.complete or not lacks else f" but for {', '.join(lacks)}"
    return f"measured by {named}{lacking}"


def _parts(facts: Facts) -> list[str]:
    """Return how a GPU is measured, and how to measure what is missing; nothing of a GPU that is
    down or has MIG on."""
    counting = facts.counting
    if counting is None or facts.down_reason is not None or facts.divided:
        return []
    advice = "" if counting.complete and not counting.old else _more(facts, counting)
    return list(filter(None, (_measured_by(counting), advice)))


def sentence(facts: Facts) -> str | None:
    """Return how it is measured and the advice; None for a GPU that is down or has MIG on."""
    said = ": ".join(_parts(facts))
    return f"{capitalised(said)}." if said else None


def sentences(found: Iterable[Facts], label: Callable[[Facts], str]) -> list[str]:
    """Return the sentences of all GPUs that could be measured better; equal ones are merged."""
    together: dict[str, list[str]] = {}
    for facts in found:
        measured_by, *advice = _parts(facts) or [""]
        if advice:
            together.setdefault(f"{measured_by}: {advice[0]}", []).append(label(facts))
    return [f"{_joined(names)}: {said}." for said, names in together.items()]


def _joined(names: Sequence[str]) -> str:
    few = 4
    if len(names) <= few:
        return ", ".join(names)
    return f"{', '.join(names[:few])} and {len(names) - few} more"


def relevant(states: Mapping[str, str], instance: int | None) -> dict[str, str]:
    """Return the states of the counter sources of one share, by source."""
    found = {}
    for source in _SOURCES:
        state = states.get(share_group(source, instance), states.get(source))
        if state is not None:
            found[source] = state
    return found
