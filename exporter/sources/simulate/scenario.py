# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a scenario has and what each of them does, read from a YAML file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from exporter.errors import ConfigError, shown
from exporter.model.reading import WORK_CLASSES
from exporter.model.workload import Scheduler, Workload
from exporter.sources.simulate.physics import hardware
from exporter.sources.simulate.stories import STORIES, Holder, Parameter
from exporter.sources.simulate.workloads import NO_WORK, Work
from exporter.specs import SpecBook
from exporter.yaml_lines import Document, KeyPath, load

BUNDLED = Path(__file__).parent / "scenarios"
MOST_GPUS = 256
LENGTH_IN_SEQUENCE = Parameter(math.inf, 1.0, 7 * 86400.0, "duration")

MOST_WORKLOADS = 8
"""On one GPU."""
RUNTIMES = ("docker", "podman", "containerd", "cri-o")


_WORK = ("workload", "allocated")
_SCHEDULERS: Mapping[str, Scheduler] = {each: each for each in get_args(Scheduler)}
_WORKLOAD_KEYS: Mapping[Scheduler, Mapping[str, tuple[int, str | None]]] = {
    "kubernetes": {"namespace": (63, None), "pod": (253, None), "container": (63, "main")},
    "slurm": {"job": (20, None), "user": (32, ""), "step": (20, "0")},
    "container": {"container": (63, None), "runtime": (63, "docker")},
}
"""By scheduler: the longest text in bytes and the default of each key; None: it is required."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")


@dataclass(frozen=True, slots=True)
class Scene:
    """One story, and how long it lasts."""

    story: str
    parameters: Mapping[str, float]
    holder: Holder | None
    seconds: float = math.inf
    work: Work = NO_WORK


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One GPU of a scenario; its scenes are repeated in turn."""

    spec: str
    """The GPU model, by its key in the spec file."""
    scenes: tuple[Scene, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """All GPUs of the simulated node, in order."""

    name: str
    gpus: tuple[SimulatedGpu, ...]


def load_scenario(which: str | Path, book: SpecBook) -> Scenario:
    """Return the bundled scenario of this name, or the one in this file.

    Raises:
        ConfigError: with one line that names file, line and key.
    """
    path = which if isinstance(which, Path) else BUNDLED / f"{which}.yaml"
    reader = _Reader(load(path), book)
    return Scenario(which if isinstance(which, str) else str(which), reader.gpus())


class _Reader:
    def __init__(self, document: Document, book: SpecBook) -> None:
        self._document = document
        self._error = document.error
        self._book = book

    def _expected(self, path: KeyPath, expected: str, value: Any) -> ConfigError:
        return self._error(path, f"expected {expected}, got {shown(value)}")

    def gpus(self) -> tuple[SimulatedGpu, ...]:
        top = self._document.value
        if not isinstance(top, dict) or "gpus" not in top:
            raise ConfigError(
                f"{self._document.name}:1: key 'gpus' is missing, expected a list of GPUs"
            )
        self._refuse_unknown((), top, ("gpus", "description"))
        if "description" in top:
            self._text(("description",), top["description"], 1000)
        entries = top["gpus"]
        if not isinstance(entries, list) or not entries:
            raise self._expected(("gpus",), "a list of GPUs, at least one", entries)
        gpus: list[SimulatedGpu] = []
        for number, entry in enumerate(entries):
            gpus.extend(self._entry(("gpus", number), entry))
            if len(gpus) > MOST_GPUS:
                raise self._error(("gpus", number), f"expected at most {MOST_GPUS} GPUs in all")
        return tuple(gpus)

    def _entry(self, path: KeyPath, entry: Any) -> Iterator[SimulatedGpu]:
        if not isinstance(entry, dict):
            raise self._expected(path, "a mapping with spec and story", entry)
        spec = self._spec(path, entry)
        count = round(self._number((*path, "count"), entry, Parameter(1, 1, MOST_GPUS, "count")))
        if "sequence" in entry:
            if "story" in entry:
                raise self._error((*path, "story"), "expected story or sequence, not both")
            known = ("spec", "count", "sequence", "held_by", *_WORK)
            self._refuse_unknown(path, entry, known)
            scenes = self._sequence(path, entry)
        else:
            scenes = self._scenes(path, entry, ("spec", "count"), "story or sequence", {})
        for _ in range(count):
            yield SimulatedGpu(spec, scenes)

    def _spec(self, path: KeyPath, entry: Mapping[str, Any]) -> str:
        if "spec" not in entry:
            raise self._error((*path, "spec"), "missing, expected a GPU model of the spec file")
        key = entry["spec"]
        found = self._book.models.get(key) if isinstance(key, str) else None
        if found is None:
            raise self._expected(
                (*path, "spec"),
                "the key of a GPU model in the spec file, such as h100-sxm5-80gb",
                key,
            )
        if hardware(found) is None:
            raise self._error(
                (*path, "spec"),
                "expected a GPU model whose SMs, clocks, memory and power are all known, and "
                f"'{found.key}' lacks some of them",
            )
        return found.key

    def _sequence(self, path: KeyPath, entry: Mapping[str, Any]) -> tuple[Scene, ...]:
        parts = entry["sequence"]
        path_of_parts = (*path, "sequence")
        if not isinstance(parts, list) or not parts:
            raise self._expected(path_of_parts, "a list of stories, at least one", parts)
        outer = {key: entry[key] for key in ("held_by", *_WORK) if key in entry}
        if "held_by" in outer:
            self._holder((*path, "held_by"), outer["held_by"], None)
        if "workload" in outer:
            self._work(path, outer, {})
        scenes: list[Scene] = []
        for number, part in enumerate(parts):
            here = (*path_of_parts, number)
            if not isinstance(part, dict):
                raise self._expected(here, "a mapping with story and for", part)
            if "for" not in part:
                raise self._error((*here, "for"), "missing, expected a duration such as 10m")
            scenes.extend(self._scenes(here, part, ("for",), "story", outer))
        return tuple(scenes)

    def _scenes(
        self,
        path: KeyPath,
        entry: Mapping[str, Any],
        beside: Sequence[str],
        missing: str,
        outer: Mapping[str, Any],
    ) -> tuple[Scene, ...]:
        """Return the scenes of one story; `beside` are the keys that are not of the story."""
        in_sequence = "for" in beside
        names = [name for name in STORIES if name != ("failing" if in_sequence else "lost")]
        if "story" not in entry:
            raise self._error((*path, missing.split()[0]), f"missing, expected {missing}")
        name = entry["story"]
        if not isinstance(name, str) or name not in names:
            raise self._expected((*path, "story"), f"one of {', '.join(names)}", name)
        story = STORIES[name]
        own = () if story.behave is None else ("held_by",)
        self._refuse_unknown(path, entry, (*beside, "story", *own, *story.parameters, *_WORK))
        parameters = {
            key: self._number((*path, key), entry, parameter)
            for key, parameter in story.parameters.items()
        }
        held_by = {**outer, **entry}
        holder = story.holder
        if "held_by" in held_by and story.behave is not None:
            holder = self._holder((*path, "held_by"), held_by["held_by"], story.holder)
        work = self._work(path, entry, outer)
        if name == "failing":
            works = Scene("training", parameters, holder, parameters["works"], work)
            return works, Scene("lost", parameters, None, parameters["lost"], work)
        seconds = math.inf
        if in_sequence:
            seconds = self._number((*path, "for"), entry, LENGTH_IN_SEQUENCE)
        return (Scene(name, parameters, holder, seconds, work),)

    def _work(self, path: KeyPath, entry: Mapping[str, Any], outer: Mapping[str, Any]) -> Work:
        """Return the workloads on the GPU; keys that the entry lacks are taken from `outer`."""
        value = entry.get("workload", outer.get("workload"))
        allocated = entry.get("allocated", outer.get("allocated"))
        if not isinstance(allocated, bool | None):
            raise self._expected((*path, "allocated"), "true or false", allocated)
        if value is None:
            if entry.get("allocated"):
                raise self._error((*path, "allocated"), "expected a workload beside it")
            return NO_WORK
        entries = value if isinstance(value, list) else [value]
        if not 0 < len(entries) <= MOST_WORKLOADS:
            expected = f"a mapping, or a list of 1 to {MOST_WORKLOADS} of them"
            raise self._expected((*path, "workload"), expected, value)
        at = (*path, "workload")
        workloads = tuple(
            self._workload((*at, number) if isinstance(value, list) else at, each)
            for number, each in enumerate(entries)
        )
        given = any(each.scheduler != "container" for each in workloads)
        if allocated and not given:
            raise self._error(
                (*path, "allocated"), "expected a workload of kubernetes or slurm beside it"
            )
        return Work(workloads, given if allocated is None else allocated)

    def _workload(self, path: KeyPath, value: Any) -> Workload:
        if not isinstance(value, dict):
            raise self._expected(path, "a mapping with scheduler", value)
        name = value.get("scheduler")
        scheduler = _SCHEDULERS.get(name) if isinstance(name, str) else None
        if scheduler is None:
            raise self._expected((*path, "scheduler"), f"one of {', '.join(_SCHEDULERS)}", name)
        keys = _WORKLOAD_KEYS[scheduler]
        self._refuse_unknown(path, value, ("scheduler", *keys))
        found: dict[str, str] = {}
        for key, (longest, default) in keys.items():
            text: Any = value.get(key, default)
            if isinstance(text, int) and not isinstance(text, bool):
                text = str(text)  # YAML reads the number of a job as a number
            if key in value:
                text = self._text((*path, key), text, longest)
            elif text is None:
                raise self._error((*path, key), "missing, expected a name")
            found[key] = text
        if "runtime" in found and found["runtime"] not in RUNTIMES:
            raise self._expected(
                (*path, "runtime"), f"one of {', '.join(RUNTIMES)}", found["runtime"]
            )
        return Workload(scheduler, **found)

    def _holder(self, path: KeyPath, value: Any, default: Holder | None) -> Holder | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._expected(path, "a mapping of command, owner and class, or null", value)
        self._refuse_unknown(path, value, ("command", "owner", "class"))
        start = default or Holder("python3", "alice", "other")
        work_class = value.get("class", start.work_class)
        if work_class not in WORK_CLASSES:
            raise self._expected((*path, "class"), f"one of {', '.join(WORK_CLASSES)}", work_class)
        return Holder(
            self._text((*path, "command"), value.get("command", start.command), 32),
            self._text((*path, "owner"), value.get("owner", start.owner), 32),
            work_class,
        )

    def _text(self, path: KeyPath, value: Any, longest: int) -> str:
        good = isinstance(value, str) and value.isprintable()
        if not good or not 0 < len(value.encode()) <= longest:
            raise self._expected(path, f"printable text of 1 to {longest} bytes", value)
        return str(value)

    def _number(self, path: KeyPath, entry: Mapping[str, Any], parameter: Parameter) -> float:
        """Return a parameter's value, in seconds for a duration."""
        key = path[-1]
        if key not in entry:
            return parameter.default
        value = entry[str(key)]
        least, most = parameter.least, parameter.most
        number: float | None = None
        if parameter.kind == "duration":
            found = _DURATION.fullmatch(value) if isinstance(value, str) else None
            number = float(found[1]) * _SECONDS[found[2]] if found else None
            expected = f"a duration from {_duration_text(least)} to {_duration_text(most)}"
        elif parameter.kind == "count":
            number = value if isinstance(value, int) else None
            expected = f"a whole number from {least:g} to {most:g}"
        else:
            number = value if isinstance(value, float | int) else None
            expected = f"a ratio from {least:g} to {most:g}"
        if number is None or isinstance(value, bool) or not least <= number <= most:
            raise self._expected(path, expected, value)
        return float(number)

    def _refuse_unknown(
        self, path: KeyPath, mapping: Mapping[str, Any], known: Sequence[str]
    ) -> None:
        for key in mapping:
            if key not in known:
                raise self._error((*path, key), f"not known, expected one of {', '.join(known)}")


def _duration_text(seconds: float) -> str:
    """Return the duration in the largest unit that gives a whole number."""
    for unit, length in reversed(_SECONDS.items()):
        if seconds >= length and math.isclose(seconds % length, 0.0, abs_tol=1e-9):
            return f"{seconds / length:g}{unit}"
    return f"{seconds * 1000:g}ms"
