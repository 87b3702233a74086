# SPDX-License-Identifier: Apache-2.0
"""Parse and validate a datagram; reject it with a message that names the wrong field.

A datagram is untrusted input. The wire format is in ``docs/training-protocol.md``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from exporter.model.host import HostActivity
from exporter.model.training import (
    NO_DEVICE,
    OTHER_DEGRADATION,
    TRAINING_DEGRADATIONS,
    TRAINING_PHASES,
    UNVERIFIED,
    Loader,
    TrainingTotals,
)
from exporter.sources.training.refusals import Rejected

VERSION = 1
MOST_BYTES = 8192
"""The longest datagram."""
MOST = 1e18
"""The highest count, seconds or bytes."""
_MOST_WHOLE = int(MOST)
MOST_FLOPS = 1e30
MOST_RANK = 1_000_000
MOST_PID = 2**31 - 1
MOST_JOB_BYTES = 128
MOST_NAME_BYTES = 64
"""The longest name of a framework, of a precision or of what is degraded."""
MOST_DEGRADED = 16
MOST_ERROR_CHARACTERS = 200
"""The most that is kept of a message about the client's own failure."""
TOLERANCE_RATIO = 0.01
TOLERANCE_SECONDS = 0.1
"""How much more than their whole parts may add up to: clocks are read one after the other."""
MEMORY_KINDS = ("allocated", "reserved", "peak")
INSTRUMENTATIONS = ("client", "auto")
NO_DEVICE_ON_THE_WIRE = "none"
OTHER = TRAINING_PHASES[-1]
"""The phase that unknown ones count as."""

_ID = re.compile(r"[0-9a-f]{32}")
# MIG devices are MIG-<uuid>, or MIG-GPU-<uuid>/<gpu instance>/<compute instance> with drivers
# before 470.
_DEVICE = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,90}")
_PHASES = frozenset(TRAINING_PHASES)
_CLIENT_DEGRADATIONS = TRAINING_DEGRADATIONS.keys() - {UNVERIFIED}
_NUMBERS = (float, int)
"""Nothing else: true and false are not numbers."""

Value = TypeVar("Value")


class Claim(NamedTuple):
    """What a process reports of itself, checked for form alone."""

    report_id: str
    sequence: int
    pid: int
    """In the sender's own pid namespace."""
    job: str
    rank: int
    totals: TrainingTotals
    device: str | None
    world_size: int | None
    framework: str | None
    precision: str | None
    instrumentation: str
    loader: Loader
    host: HostActivity | None
    memory_bytes: Mapping[str, int]
    degraded: tuple[str, ...]
    errors: int
    error: str | None
    exited: bool
    phase: str | None
    """What it is in now, one of ``TRAINING_PHASES``; None where it does not say."""
    flops_launched: bool = False
    """Whether its FLOPs are those that it has launched, done or not."""


def decode(data: bytes) -> Claim:
    """Return what a datagram claims.

    Raises:
        Rejected: it does not have the form of version 1 of the protocol; nothing else is raised.
    """
    if len(data) > MOST_BYTES:
        raise Rejected("too_large")
    message = _parse(data)
    if type(message) is not dict:
        raise _unfit("report", "an object", message)
    get = message.get
    version = get("version")
    if type(version) is not int or version != VERSION:
        raise Rejected("version", f"version: expected {VERSION}, got {_shown(version)}")
    report_id = get("id")
    if type(report_id) is not str or not _ID.fullmatch(report_id):
        raise _unfit("id", "32 hexadecimal digits in lower case", report_id)
    error = get("error")
    return Claim(
        report_id=report_id,
        sequence=_integer(get("sequence"), "sequence", 0, _MOST_WHOLE),
        pid=_integer(get("pid"), "pid", 1, MOST_PID),
        job=_name(get("job"), "job", MOST_JOB_BYTES),
        rank=_integer(get("rank"), "rank", 0, MOST_RANK),
        totals=_totals(get),
        device=_device(get("device")),
        world_size=_optional(_integer, get("world_size"), "world_size", 1, MOST_RANK + 1),
        framework=_optional_name(get("framework"), "framework"),
        precision=_optional_name(get("precision"), "precision"),
        instrumentation=_instrumentation(get("instrumentation")),
        loader=_loader(get("loader")),
        host=_optional(_host, get("host"), "host"),
        memory_bytes=_memory(get("memory_bytes")),
        degraded=_degraded(get("degraded")),
        flops_launched=bool(
            _optional(_boolean, get("model_flops_launched"), "model_flops_launched")
        ),
        errors=_optional(_integer, get("errors"), "errors", 0, _MOST_WHOLE) or 0,
        error=error[:MOST_ERROR_CHARACTERS] if type(error) is str else None,
        exited=bool(_optional(_boolean, get("exit"), "exit")),
        phase=_phase(get("in")),
    )


def _constant(name: str) -> None:
    raise Rejected("not_json", f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_constant)


def _parse(data: bytes) -> Any:
    try:
        return _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise Rejected("not_json", f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Rejected("not_json", f"{error.msg} at character {error.pos}") from None
    except ValueError:  # newer Pythons refuse numbers of thousands of digits
        raise Rejected("not_json", "a number has too many digits") from None
    except RecursionError:
        raise Rejected("not_json", "nested too deeply") from None


def _totals(get: Callable[[str], Any]) -> TrainingTotals:
    step_seconds = _number(get("step_seconds"), "step_seconds")
    phase_seconds = _phases(get("phase_seconds"), "phase_seconds")
    idle_seconds = _optional(_phases, get("phase_gpu_idle_seconds"), "phase_gpu_idle_seconds") or {}
    if _exceeds(math.fsum(phase_seconds.values()), step_seconds):
        raise Rejected("schema", "phase_seconds: add up to more than step_seconds")
    for phase, seconds in idle_seconds.items():
        if _exceeds(seconds, phase_seconds.get(phase, 0.0)):
            raise Rejected("schema", f"phase_gpu_idle_seconds: {phase} is more than phase_seconds")
    start_seconds = _optional(_number, get("loader_start_seconds"), "loader_start_seconds")
    if _exceeds(start_seconds or 0.0, phase_seconds.get("data", 0.0)):
        raise Rejected("schema", "loader_start_seconds: more than phase_seconds of data")
    return TrainingTotals(
        steps=_number(get("steps"), "steps"),
        batches=_number(get("batches"), "batches"),
        samples=_optional(_number, get("samples"), "samples"),
        step_seconds=step_seconds,
        phase_seconds=phase_seconds,
        phase_gpu_idle_seconds={
            phase: seconds for phase, seconds in idle_seconds.items() if phase in phase_seconds
        },
        model_flops=_optional(_number, get("model_flops"), "model_flops", MOST_FLOPS),
        loader_start_seconds=start_seconds,
        checkpoints=_optional(_number, get("checkpoints"), "checkpoints"),
    )


def _exceeds(part: float, whole: float) -> bool:
    return part > whole * (1.0 + TOLERANCE_RATIO) + TOLERANCE_SECONDS


def _phases(value: Any, key: str) -> dict[str, float]:
    """Return the seconds by phase; those of unknown phases are added to ``other``."""
    if type(value) is not dict:
        raise _unfit(key, "an object", value)
    found: dict[str, float] = {}
    others: list[float] = []
    for phase, seconds in value.items():
        if type(seconds) not in _NUMBERS or not 0 <= seconds <= MOST:
            raise _unfit(key, f"numbers from 0 to {MOST:g}", seconds)
        if phase in _PHASES:
            found[phase] = seconds + 0.0
        else:
            others.append(seconds)
    if others:  # fsum does not depend on the order, so that rounding never makes it fall
        found[OTHER] = math.fsum((found.get(OTHER, 0.0), *others))
    return found


def _phase(value: Any) -> str | None:
    """Return the phase that is under way; an unknown one is ``other``."""
    name = _optional(_name, value, "in", MOST_NAME_BYTES)
    return name if name is None or name in _PHASES else OTHER


def _number(value: Any, key: str, most: float = MOST) -> float:
    if type(value) in _NUMBERS and 0 <= value <= most:
        return value + 0.0  # type: ignore[no-any-return]
    raise _unfit(key, f"a number from 0 to {most:g}", value)


def _integer(value: Any, key: str, least: int, most: int) -> int:
    if type(value) is int and least <= value <= most:
        return value
    raise _unfit(key, f"a whole number from {least} to {most}", value)


def _boolean(value: Any, key: str) -> bool:
    if type(value) is bool:
        return value
    raise _unfit(key, "true or false", value)


def _optional(read: Callable[..., Value], value: Any, key: str, *limits: float) -> Value | None:
    return None if value is None else read(value, key, *limits)


def _name(value: Any, key: str, most_bytes: int) -> str:
    if type(value) is not str:
        raise _unfit(key, "text", value)
    # Characters are at most as many as bytes, and only printable ones can always be encoded.
    if value and value.isprintable() and len(value.encode()) <= most_bytes:
        return value
    expected = f"1 to {most_bytes} printable bytes"
    raise Rejected("label", f"{key}: expected {expected}, got {_shown(value)}")


def _optional_name(value: Any, key: str) -> str | None:
    return None if value is None or value == "" else _name(value, key, MOST_NAME_BYTES)


def _device(value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is str:
        if value == NO_DEVICE_ON_THE_WIRE:
            return NO_DEVICE
        if _DEVICE.fullmatch(value):
            return value
    raise _unfit("device", "GPU-<uuid>, MIG-<uuid>, none or null", value)


def _instrumentation(value: Any) -> str:
    if value is None:
        return INSTRUMENTATIONS[0]
    if type(value) is str and value in INSTRUMENTATIONS:
        return value
    raise _unfit("instrumentation", " or ".join(INSTRUMENTATIONS), value)


def _loader(value: Any) -> Loader:
    get = _object(value, "loader").get
    return Loader(
        _optional(_integer, get("workers"), "workers", 0, MOST_RANK),
        _optional(_integer, get("prefetch_factor"), "prefetch_factor", 0, MOST_RANK),
        _optional(_boolean, get("pin_memory"), "pin_memory"),
        _optional(_boolean, get("persistent_workers"), "persistent_workers"),
        _optional(_integer, get("ready_batches"), "ready_batches", 0, MOST_RANK),
    )


def _host(value: Any, key: str) -> HostActivity:
    get = _object(value, key).get
    limits = dict.fromkeys(("worker_running_ratio", "worker_blocked_ratio"), 1.0)
    limits |= dict.fromkeys(("cores", "cores_busy"), float(MOST_RANK))
    limits["read_size_bytes"] = MOST
    return HostActivity(
        method="client",
        seconds=_number(get("seconds"), "seconds"),
        workers=_optional(_integer, get("workers"), "workers", 0, MOST_RANK),
        **{name: _optional(_number, get(name), name, most) for name, most in limits.items()},
    )


def _memory(value: Any) -> dict[str, int]:
    said = _object(value, "memory_bytes")
    return {
        kind: _integer(said[kind], kind, 0, _MOST_WHOLE)
        for kind in MEMORY_KINDS
        if said.get(kind) is not None
    }


def _object(value: Any, key: str) -> dict[str, Any]:
    """Return an object, which may be left out."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise _unfit(key, "an object", value)
    return value


def _degraded(value: Any) -> tuple[str, ...]:
    """Return the known reasons, each once and in the order of the table; others as one."""
    if value is None:
        return ()
    if type(value) is not list or len(value) > MOST_DEGRADED:
        raise _unfit("degraded", f"a list of at most {MOST_DEGRADED} names", value)
    named = {_name(reason, "degraded", MOST_NAME_BYTES) for reason in value}
    found = {reason if reason in _CLIENT_DEGRADATIONS else OTHER_DEGRADATION for reason in named}
    return tuple(reason for reason in TRAINING_DEGRADATIONS if reason in found)


def _unfit(key: str, expected: str, got: Any) -> Rejected:
    return Rejected("schema", f"{key}: expected {expected}, got {_shown(got)}")


def _shown(value: Any) -> str:
    """Return a value as messages show it, in short: it may be as large as a datagram."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f"'{value[:60]}'"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
