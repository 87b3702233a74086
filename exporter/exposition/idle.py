# SPDX-License-Identifier: Apache-2.0
"""Who holds a GPU, and how long it did nothing."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, core_info, counter
from exporter.exposition.labels import Label, flag, text
from exporter.exposition.parts import HOLDER, SHARE, TOTALS, Rows
from exporter.model.reading import WORK_CLASSES
from exporter.model.snapshot import Holder


def _holder(holder: Holder) -> Rows:
    yield (text(holder.owner), text(holder.command), holder.work_class), 1


FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_held",
        "1 while a compute process that is not on the ignore list is on this GPU, else 0.",
        "the driver's process list at the slow cadence; only where it cannot be read, memory in "
        "use",
        SHARE.one(lambda s: flag(s.held)),
    ),
    core_info(
        "gpu_holder_info",
        "Who holds this GPU: the process with the most memory of those that do; exactly one series "
        "while gpu_held is 1. Labels that are not known are empty.",
        "the driver's process list and /proc at the slow cadence; arguments and environment are "
        "looked at for the class only and never shown",
        HOLDER.rows(
            (
                Label("owner", meaning="name or number of the user; empty with --no-process.owner"),
                Label(
                    "command", meaning="name of the command, at most 32 bytes, never its arguments"
                ),
                Label("class", WORK_CLASSES),
            ),
            _holder,
        ),
    ),
    core_gauge(
        "gpu_last_busy_timestamp_seconds",
        "Unix time at which the last interval ended in which the GPU was busy or was not "
        "observed; before there is one, the time at which observation began.",
        "derived, each poll interval",
        TOTALS.one(lambda t: t.last_busy_timestamp_seconds),
    ),
    core_counter(
        "gpu_idle_seconds_total",
        "Time in intervals that were idle as a whole: no engine, SM, DRAM or video activity, and "
        "hardly any PCIe or NVLink traffic.",
        "derived, each poll interval, since the exporter started",
        TOTALS.one(lambda t: t.idle_seconds),
    ),
    core_counter(
        "gpu_held_idle_seconds_total",
        "The part of gpu_idle_seconds_total in which a process held the GPU.",
        "derived, each poll interval, since the exporter started",
        TOTALS.one(lambda t: t.held_idle_seconds),
    ),
    counter(
        "gpu_idle_energy_joules_total",
        "Energy used in the time of gpu_idle_seconds_total.",
        "derived from gpu_energy_joules_total, else from the power, since the exporter started",
        TOTALS.one(lambda t: t.idle_energy_joules),
    ),
    counter(
        "gpu_held_idle_energy_joules_total",
        "Energy used in the time of gpu_held_idle_seconds_total.",
        "derived from gpu_energy_joules_total, else from the power, since the exporter started",
        TOTALS.one(lambda t: t.held_idle_energy_joules),
    ),
)
