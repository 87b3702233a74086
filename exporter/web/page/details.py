# SPDX-License-Identifier: Apache-2.0
"""The slow facts of a GPU as HTML: identity, health, ceilings, absent readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from exporter.model.reading import (
    RECOVERY_ACTIONS,
    Health,
    capability_text,
    group_and_instance,
    named_group,
)
from exporter.model.snapshot import Ceilings, Gpu, Share
from exporter.model.xids import describe
from exporter.specs import GpuModel, SpecBook
from exporter.web.live.roofs import peak_clock_hertz
from exporter.web.page.document import table
from exporter.web.wording.numbers import (
    LONG,
    capitalised,
    cut,
    duration,
    gibibytes,
    plain,
    precision_name,
    si,
)
from exporter.web.wording.whose import SCHEDULERS, workload_words

STATES = {
    "unsupported": "this GPU or driver does not have it",
    "no_permission": "the driver refuses it to this user",
    "old_driver": "a newer driver has it",
    "mig": "not readable while MIG is on",
    "disabled": "switched off",
    "suspended": "the GPU sleeps",
    "implausible": "what it reads cannot be true",
    "busy": "another program has the counters",
    "paused": "left to a profiler",
    "unreachable": "it does not answer",
    "missing": "what reads it is not installed",
}
CONFIDENCES = {"A": "A: its sources agree", "B": "B: two sources", "C": "C: one source"}
"""By confidence of a row of the spec file."""
LONGEST, LONGEST_WORKLOAD = 160, 320
"""Limits of a value, in characters. Each part of a workload is also cut by itself."""
UNREADABLE = "Not readable."
Entries = Iterable[tuple[str, str | None]]


def _list(
    heading: str, name: str, entries: Entries, empty: str = "", longest: int = LONGEST
) -> str:
    """Return a section with a list; entries without a value are left out."""
    known = [(term, value) for term, value in entries if value]
    items = "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(cut(value, longest))}</dd></div>"
        for term, value in known
    )
    body = f"<dl>{items}</dl>" if items else f"<p>{empty}</p>"
    return f'<section class="card" id="{name}"><h2>{heading}</h2>\n{body}</section>'


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


def _flag(value: bool | None, bad: str, good: str) -> str | None:
    return None if value is None else bad if value else good


def _identity(gpu: Gpu, share: Share | None, spec: str | None, gpu_instance: int | None) -> Entries:
    device = gpu.device
    memory, unified = device.memory_bytes, ""
    if share is not None and share.memory is not None and share.memory.unified:
        memory, unified = share.memory.total_bytes, ", unified: the host's"
    yield "Name", device.name
    yield "UUID", device.uuid
    if gpu_instance is not None:
        parts = [each for each in device.instances if each.gpu_instance == gpu_instance]
        memory = next((each.memory_bytes for each in parts), None)
        if share is not None and share.memory is not None:
            memory = share.memory.total_bytes
        yield "GPU instance", _count(gpu_instance)
        yield "Profile", ", ".join(each.profile for each in parts)
        yield "UUID of the instance", ", ".join(each.mig_uuid for each in parts)
    yield "GPU model in the spec file", spec
    yield "Architecture", device.architecture
    yield "Compute capability", capability_text(device.compute_capability)
    yield "PCI address", device.pci_bus_id
    yield "Serial number", device.serial
    yield "Board part number", device.board_part_number
    yield "NUMA node it is attached to", _count(device.numa_affinity)
    yield "CPUs of that node", device.cpu_affinity
    yield "NUMA node of its memory", _count(device.numa_node)
    yield "Memory", None if memory is None else f"{gibibytes(memory)} GiB{unified}"
    yield "Driver", device.driver_version
    yield "CUDA", device.cuda_version
    yield "VBIOS", device.vbios_version
    yield "Read from", device.source
    yield "Modes", ", ".join(f"{plain(name)} {value}" for name, value in device.modes.items())


def _workloads(share: Share) -> Entries:
    work, totals = share.work, share.totals
    if work.allocated is not None:
        said = "to nobody"
        if work.allocated:
            said = "yes, and not opened" if share.held is False else "yes"
            seconds = totals.unopened_for_seconds
            if share.held is False and seconds is not None:
                said = f"{said} for {duration(seconds)}"
        yield "Given away by a scheduler", said
    seconds = totals.allocated_unopened_seconds
    if seconds:
        yield "Given away and not opened, altogether", duration(seconds)
    for workload in work.workloads:
        parts = (
            ("container", "" if workload.scheduler == "container" else workload.container),
            ("step", workload.step),
            ("runtime", workload.runtime),
            ("id", workload.id),
        )
        words = [cut(workload_words(workload), LONG)]
        words += [f"{name} {cut(value)}" for name, value in parts if value]
        scheduler = SCHEDULERS[workload.scheduler]
        yield capitalised(scheduler), ", ".join(words)


def _counts(values: Mapping[str, int]) -> str | None:
    return ", ".join(f"{count} {plain(name)}" for name, count in values.items()) or None


def _health(gpu: Gpu) -> Entries:
    health = gpu.health or Health()
    for code, record in gpu.xids.items():
        yield f"Xid {code}", f"{record.count} since the exporter started: {describe(code)}"
    for severity, places in health.ecc_errors_total.items():
        yield f"ECC errors, {severity}", _counts(places)
    for severity, places in health.ecc_lifetime_errors.items():
        yield f"ECC errors of its life, {severity}", _counts(places)
    yield "Remapped rows", _counts(health.remapped_rows)
    yield "Row remapping", _flag(health.row_remap_pending, "waits for a reset", "nothing pending")
    yield "Row remapping failed", _flag(health.row_remap_failure, "yes", "no")
    yield "Spare rows, banks", _counts(health.row_remap_banks)
    yield "Retired pages", _counts(health.retired_pages)
    yield "SRAM error threshold", _flag(health.sram_error_threshold_exceeded, "exceeded", "kept")
    yield "Memory", _flag(health.unrepairable_memory, "cannot be repaired", "repairable")
    action = health.recovery_action
    if action is not None:
        named = dict(enumerate(RECOVERY_ACTIONS))
        yield "The driver advises", named.get(action, f"action {action}")
    yield "NVLinks", _counts(health.nvlink_links)
    yield "NVSwitch fabric", _flag(health.fabric_healthy, "healthy", "not healthy")


def _readings(gpu: Gpu, gpu_instance: int | None) -> Entries:
    """Yield the absent readings; for an instance, without those of other instances."""
    for name, state in gpu.states.items():
        group, instance = group_and_instance(name)
        if gpu_instance is None:
            group = named_group(name, f"GPU {gpu.device.index}")
        elif instance not in (None, gpu_instance):
            continue
        yield plain(group), STATES.get(state, plain(state))


def _ceilings(ceilings: Ceilings | None, model: GpuModel | None, codes: Mapping[str, str]) -> str:
    if ceilings is None:
        return _list("Ceilings", "ceilings", (), "They are not known.")
    derived = frozenset(model.derived_precisions if model is not None else ())
    clock_of_memory = ceilings.peak_clock_hertz.get("memory")
    roofs = [
        ("Device memory", "memory", ceilings.memory_bandwidth_bytes_per_second, "B/s"),
        *(
            (precision_name(each), each, peak, "FLOP/s")
            for each, peak in ceilings.peak_flops_per_second.items()
        ),
    ]
    rows = []
    for name, key, peak, unit in roofs:
        if peak is None:
            continue
        reached = ceilings.achievable_ratio.get(key)
        clock = clock_of_memory if key == "memory" else peak_clock_hertz(ceilings, key)
        note = " (computed)" if key in derived else ""
        best = "" if reached is None else si(peak * reached, unit)
        amounts = (si(peak, unit), best, "" if clock is None else si(clock, "Hz"))
        cells = [f"<span>{escape(each)}</span>" if each else "" for each in amounts]
        rows.append([escape(name), cells[0] + note, *cells[1:]])
    return (
        '<section class="card" id="ceilings"><h2>Ceilings</h2>\n'
        f"{table(('', 'Datasheet', 'Best kernels', 'At clock'), rows)}\n"
        f"{_sources(ceilings, model, codes)}</section>"
    )


def _sources(ceilings: Ceilings, model: GpuModel | None, codes: Mapping[str, str]) -> str:
    """Return where the figures come from; the codes of the spec file are spelled out."""
    if model is None:
        return (
            "<p>Derived from what the driver reports (cores, clocks, bus width): a guide, not a "
            "fact.</p>"
        )
    grade = CONFIDENCES.get(model.confidence or "", "unknown")
    lines = [f"Row {ceilings.spec} of the spec file, confidence {grade}."]
    if model.note:
        lines.append(model.note)
    text = "".join(f"<p>{escape(cut(line, 400))}</p>" for line in lines)
    for heading, sources in (
        ("Sources of the datasheet figures", model.sources),
        ("Sources of the best public kernels", model.achievable_sources),
    ):
        if sources:
            items = "".join(
                f"<li>{escape(cut(codes.get(source, source), 400))}</li>" for source in sources
            )
            text += f"<details><summary>{heading}</summary><ul>{items}</ul></details>"
    return text


def gpu_facts(gpu: Gpu, share: Share | None, specs: SpecBook, gpu_instance: int | None) -> str:
    """Return workloads, health, ceilings, identity and absent readings as HTML."""
    part = gpu if gpu_instance is None else share
    ceilings = None if part is None else part.ceilings
    spec = None if ceilings is None else ceilings.spec
    model = specs.models.get(spec) if spec is not None else None
    whose = () if share is None or not gpu.up else tuple(_workloads(share))
    health = _health(gpu) if gpu.up or gpu.xids else ()
    absent, none = _readings(gpu, gpu_instance), "None: every group of readings answers."
    sections = [
        _list("Health", "health", health, UNREADABLE),
        _ceilings(ceilings, model, specs.sources),
        _list("Identity", "identity", _identity(gpu, share, spec, gpu_instance)),
        _list("Readings that it does not have", "readings", absent, none if gpu.up else UNREADABLE),
    ]
    if whose:
        sections.insert(0, _list("Whose work it is", "whose", whose, longest=LONGEST_WORKLOAD))
    return "\n".join(sections)
