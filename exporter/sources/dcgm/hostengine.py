# SPDX-License-Identifier: Apache-2.0
"""The child process that reads profiling fields from a DCGM hostengine.

It reads each wanted GPU, or its instances, once a second. A broken connection ends the process, and
the exporter starts the next one.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from exporter.model.dcgm import FIELDS
from exporter.sources.counters.wire import OK, PAUSED, Port
from exporter.sources.dcgm import bindings
from exporter.sources.dcgm.bindings import DcgmError, Entity, Refusal, Value, refusal

WATCH_SECONDS = 1.0
POLL_SECONDS = 0.5
"""Twice per update, so that none is missed."""
RETRY_SECONDS = 30.0
FIRST_VALUE_SECONDS = 3.0
"""The first values of a watch may be blank for so long."""
STALE_SECONDS = 2.5
"""After so long without a new value, report the old one with its age."""
STOPPED_SECONDS = 30.0
"""After so long without a new value there is no reading."""
LAG_SECONDS = 2.0
"""A field that lags so far behind the others has stopped."""
SHORT_SECONDS = 0.9
"""Values that are closer mean that somebody else has the hostengine sample more often. Each is the
mean since the one before, so those in between are lost."""
MOST_SHORT = 3
"""So many short intervals more than others; the beginning of a watch makes one."""

IMPORTANCE = (
    *("tensor", "dram", "sm", "engine", "fp64", "fp32", "fp16", "integer", "occupancy"),
    *("hmma", "imma", "dmma", "dfma"),
    *("nvlink_transmit_bytes", "nvlink_receive_bytes"),
    *("pcie_transmit_bytes", "pcie_receive_bytes"),
)
"""The fields of `Activity`, the most important one first: a field outweighs all that follow."""
MOST_CHOICES = 4096
_FIELDS = {each.number: each for each in FIELDS}


def run(options: Mapping[str, Any], port: Port) -> int:
    """Measure until the exporter ends it; return the exit code. Options: ``host`` (HOST:PORT or the
    path of a Unix socket) and ``bindings`` (their folder, or null)."""
    folder, host = options.get("bindings") or bindings.DEFAULT_FOLDER, str(options["host"])
    try:
        engine = bindings.Hostengine(folder, host)
        port.emit({"hello": {"hostengine": host, "bindings": folder}})
        try:
            _Reader(engine, port).run()
        finally:
            engine.close()
    except bindings.BindingsMissing as error:
        return _give_up(port, Refusal("missing", str(error)))
    except AttributeError as error:
        return _give_up(port, Refusal("missing", f"the bindings in {folder} are unfit: {error}"))
    except DcgmError as error:
        state, advice = refusal(error)
        return _give_up(port, Refusal(state, f"the DCGM hostengine at {host}: {advice}"))
    return 0


def _give_up(port: Port, why: Refusal) -> int:
    _say(port, None, why)
    return 1


def _say(port: Port, uuid: str | None, why: Refusal) -> None:
    port.emit({"gpu": uuid, "state": why.state, "message": why.advice})


@dataclass(slots=True)
class _Gpu:
    uuid: str
    gpu_instances: tuple[int, ...]
    """Empty for the whole GPU."""
    retry_at: float = 0.0
    """When to watch it, if it is not watched."""
    watch: ExitStack | None = None
    since: float = 0.0
    """When the watch began."""
    entities: dict[Entity, int | None] = field(default_factory=dict)
    """By entity: the GPU instance that it is, or None for the whole GPU."""
    fields: tuple[int, ...] = ()
    seen: dict[Entity, float] = field(default_factory=dict)
    """The Unix time of the last value, by entity."""
    reported_at: dict[Entity, float] = field(default_factory=dict)
    short: dict[Entity, int] = field(default_factory=dict)
    """How many more intervals between values were short than not, by entity."""
    reported: Refusal | None = None
    """The last reported state; None: it has readings."""


class _Reader:
    def __init__(self, engine: bindings.Hostengine, port: Port) -> None:
        self._engine = engine
        self._port = port
        self._gpus: dict[str, _Gpu] = {}
        self._paused = False
        self._watches = 0

    def run(self) -> None:
        """Read until told to end.

        Raises:
            DcgmError: the connection is of no use any more.
        """
        while not self._port.ended:
            for message in self._port.messages():
                self._handle_message(message)
            self._port.beat()
            if not self._paused:
                for gpu in self._gpus.values():
                    self._poll(gpu)
            self._port.wait(POLL_SECONDS)

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        if "gpus" in message:
            wanted = {
                each["uuid"]: tuple(each.get("gpu_instances") or ()) for each in message["gpus"]
            }
            for uuid, gpu in list(self._gpus.items()):
                if wanted.get(uuid) != gpu.gpu_instances:
                    self._unwatch(gpu)
                    del self._gpus[uuid]
            for uuid, instances in wanted.items():
                self._gpus.setdefault(uuid, _Gpu(uuid, instances))
        if message.get("pause"):
            self._paused = True
            for gpu in self._gpus.values():
                self._unwatch(gpu)
            _say(self._port, None, Refusal(PAUSED, "the counters are handed over"))
        if message.get("resume"):
            self._paused = False
            for gpu in self._gpus.values():
                gpu.retry_at = 0.0

    def _poll(self, gpu: _Gpu) -> None:
        """Watch the GPU if it is not watched, else read it and report new values."""
        now = time.monotonic()
        try:
            if gpu.watch is None:
                if now >= gpu.retry_at:
                    gpu.retry_at = now + RETRY_SECONDS
                    self._watch(gpu)
                    self._port.beat()
            else:
                self._read(gpu, now)
        except DcgmError as error:
            if error.code in bindings.HOSTENGINE_CODES:
                raise
            self._unwatch(gpu)
            self._report(gpu, refusal(error))

    def _watch(self, gpu: _Gpu) -> None:
        number = self._engine.gpus().get(gpu.uuid)
        if number is None:
            self._report(gpu, bindings.NOT_LISTED)
            return
        entities: dict[Entity, int | None] = {Entity(bindings.GPU, number): None}
        if gpu.gpu_instances:
            known = self._engine.instances()
            entities = {
                Entity(bindings.GPU_INSTANCE, known[gpu.uuid, instance]): instance
                for instance in gpu.gpu_instances
                if (gpu.uuid, instance) in known
            }
            if len(entities) < len(gpu.gpu_instances):
                self._report(gpu, bindings.INSTANCE_NOT_LISTED)
                return
        fields = one_pass(self._engine.metric_groups(number))
        if gpu.gpu_instances:  # links belong to no instance
            fields = tuple(number for number in fields if not _FIELDS[number].is_rate)
        if not fields:
            raise DcgmError(-36, "it lists no fields")
        self._watches += 1
        name = f"roofline-exporter-{os.getpid()}-{self._watches}"
        gpu.watch = self._engine.watch(name, entities, fields, WATCH_SECONDS)
        gpu.entities, gpu.fields, gpu.since = entities, fields, time.monotonic()
        gpu.seen.clear()
        gpu.short.clear()

    def _unwatch(self, gpu: _Gpu) -> None:
        if gpu.watch is not None:
            gpu.watch.close()
            gpu.watch = None

    def _read(self, gpu: _Gpu, now: float) -> None:
        values = self._engine.latest(list(gpu.entities), gpu.fields)
        known: dict[Entity, list[Value]] = {}
        for value in values:
            if value.value is not None and value.entity in gpu.entities:
                known.setdefault(value.entity, []).append(value)
        old = {entity for entity, found in known.items() if _age(found) > STOPPED_SECONDS}
        if known and old == known.keys():
            self._report(gpu, bindings.STOPPED)
        elif known:
            short = max(gpu.short.values(), default=0) >= MOST_SHORT
            self._report(gpu, bindings.TOO_OFTEN if short else None)
            for entity in known.keys() - old:
                self._emit(gpu, entity, known[entity], now)
        elif now - gpu.since >= FIRST_VALUE_SECONDS:
            is_lost = any(value.status == -18 for value in values)
            lost = refusal(DcgmError(-18, "GPU is lost"))
            self._report(gpu, lost if is_lost else bindings.BLANK)

    def _emit(self, gpu: _Gpu, entity: Entity, values: Sequence[Value], now: float) -> None:
        """Report new values; or old ones, once a second, with their age."""
        newest, age = max(value.unix_seconds for value in values), _age(values)
        before = gpu.seen.get(entity)
        if newest == before and (
            age < STALE_SECONDS or now - gpu.reported_at[entity] < WATCH_SECONDS
        ):
            return
        gpu.seen[entity], gpu.reported_at[entity] = newest, now
        is_short = before is not None and 0 < newest - before < SHORT_SECONDS
        short = gpu.short.get(entity, 0) + (1 if is_short else -1)
        gpu.short[entity] = min(max(short, 0), 2 * MOST_SHORT)
        if is_short or short >= MOST_SHORT:
            return
        ratios: dict[str, float] = {}
        moved: dict[str, float] = {}
        for each in values:
            of, value = _FIELDS[each.field], each.value or 0.0
            if newest - each.unix_seconds > LAG_SECONDS or value > of.highest:
                continue
            if of.is_rate:
                moved[of.activity] = value * WATCH_SECONDS
            else:
                ratios[of.activity] = value
        self._port.emit(
            {
                "gpu": gpu.uuid,
                "gpu_instance": gpu.entities[entity],
                "seconds": WATCH_SECONDS,
                "ratios": ratios,
                "bytes": moved,
                "age_seconds": age,
            }
        )

    def _report(self, gpu: _Gpu, why: Refusal | None) -> None:
        """Report the state of a GPU if it has changed; None: it has readings."""
        if why == gpu.reported:
            return
        gpu.reported = why
        _say(self._port, gpu.uuid, why or Refusal(OK, ""))


def _age(values: Sequence[Value]) -> float:
    """Return for how many seconds the newest of these values has been known."""
    return max(0.0, time.time() - max(value.unix_seconds for value in values))


def one_pass(groups: Iterable[bindings.MetricGroup]) -> tuple[int, ...]:
    """Return the numbers of the most important fields that can be counted at once, sorted."""
    by_major: dict[int, list[frozenset[int]]] = {}
    for group in groups:
        known = frozenset(group.fields).intersection(_FIELDS)
        by_major.setdefault(group.major, []).append(known)
    choices = itertools.islice(itertools.product(*by_major.values()), MOST_CHOICES)
    unions = [frozenset[int]().union(*choice) for choice in choices]
    return tuple(sorted(max(unions, key=_rank)))


def _rank(fields: Iterable[int]) -> list[bool]:
    """Return a sort key: for each activity, by importance, whether the fields give it."""
    given = {_FIELDS[number].activity for number in fields}
    return [activity in given for activity in IMPORTANCE]
