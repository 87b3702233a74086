# SPDX-License-Identifier: Apache-2.0
"""Reads thresholds.yml and checks that the rules work with its values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from exporter.errors import ConfigError, limited, one_line
from exporter.yaml_lines import Document
from exporter.yaml_lines import load as load_yaml

HERE = Path(__file__).parent
THRESHOLDS = HERE / "thresholds.yml"
TEMPLATES = HERE / "templates"
PLACEHOLDER = re.compile(r"<([a-z_]+\.[a-z_]+)(?::([a-z]+))?>")
"""How a template names a threshold, and the form that it takes it in."""
LONGEST_SECONDS = 365 * 86400.0
_DURATION = re.compile(
    "".join(rf"(?:(\d{{1,12}}){unit})?" for unit in ("d", "h", "m", "s", "ms")), re.ASCII
)
_DURATION_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_LINK = re.compile(r"https?://[^\s\"'{}<>#]+")
_BASE = re.compile(r"https?://[^\s\"'{}<>#?]+")

Value = str | int | float
Kind = Callable[[Value], Value]
"""Returns a threshold as rules take it, or raises BadThresholds with what was expected."""


class BadThresholds(ValueError):
    """Thresholds that are missing, unknown or unusable; the message is for the user.

    It has a line for each of them.
    """


def _expected(what: str, value: Value) -> BadThresholds:
    return BadThresholds(f"expected {what}, not {value!r}")


def seconds(duration: Value) -> float:
    """Return the length of a Prometheus duration such as 1h30m.

    Raises:
        BadThresholds: it is not a duration, or longer than a year.
    """
    found = _DURATION.fullmatch(str(duration))
    if not found or not any(found.groups()):
        raise _expected("a duration such as 30s, 15m or 2h", duration)
    parts = zip(found.groups(), _DURATION_SECONDS, strict=True)
    length = sum(int(count) * unit for count, unit in parts if count is not None)
    if length > LONGEST_SECONDS:
        raise _expected("a duration of at most 365d", duration)
    return length


def _wait(value: Value) -> Value:
    seconds(value)
    return value


def _window(value: Value) -> Value:
    if seconds(value) == 0:
        raise _expected("a duration of more than 0s", value)
    return value


def _interval(most: str) -> Kind:
    """Return the kind of intervals that are not longer than `most`."""

    def interval(value: Value) -> Value:
        if seconds(_window(value)) > seconds(most):
            raise _expected(f"a duration of at most {most}", value)
        return value

    return interval


def amount(what: str, fits: Callable[[float], bool]) -> Callable[[Value], float]:
    """Return the kind of numbers that fit."""

    def number(value: Value) -> float:
        try:
            found = float(value)
        except (ValueError, OverflowError):
            raise _expected(what, value) from None
        if not (math.isfinite(found) and fits(found)):
            raise _expected(what, value)
        return found

    return number


def _link(value: Value) -> Value:
    text = str(value)
    if not (_LINK.fullmatch(text) and text.isprintable()):
        raise _expected("a link such as http://localhost:3000 without #", value)
    return text


def _base(value: Value) -> Value:
    """Return a link that paths are appended to; empty where there is none."""
    text = str(value)
    if text and not (_BASE.fullmatch(text) and text.isprintable()):
        raise _expected("a link such as http://localhost:3000 without ? and #, or nothing", value)
    return text.rstrip("/")


def _pattern(value: Value) -> Value:
    """Return a regular expression as it stands in a string of PromQL, which Prometheus checks."""
    text = str(value)
    if not text.strip() or '"' in text or not text.isprintable():
        raise _expected("a regular expression in one line and without quotes", value)
    return text.replace("\\", "\\\\")


_NAMES: Mapping[Kind, str] = {
    # Recording rules look back by one minute; a series that comes less often than every five
    # minutes is not there in between.
    _interval("1m"): "evaluation.interval",
    _interval("4m"): "evaluation.long_interval",
    _interval("5m"): "evaluation.slow_interval evaluation.day_interval",
    _window: """
        exporter.remember exporter.start_within exporter.stale_after exporter.count_window
        exporter.rejected_window
        held_idle.window held_idle.critical_window held_idle.serving_window held_idle.remember
        allocated_unopened.window allocated_unopened.remember workloads.stale_after
        unsaturated.window
        data_stall.window data_stall.age checkpoint.window collective_hang.window straggler.window
        thermal.window power_brake.window xid.remember ecc.window ecc.remember nvlink.window
        lost.remember
    """,
    _wait: """
        evaluation.keep_firing_for exporter.down_for exporter.count_for exporter.driver_for
        held_idle.for allocated_unopened.for workloads.for orphan_memory.for checkpoint.steps
        power_limit.for memory_temperature.for health.for nvlink.for fabric.for pcie.for lost.for
    """,
    # What something has to be above, and what it has to reach or to be below.
    amount("a share from 0 to below 1", lambda share: 0 <= share < 1): """
        evaluation.observed unsaturated.busy data_stall.share checkpoint.share
        collective_hang.engine straggler.stall straggler.sm thermal.share power_brake.share
        pcie.busy
    """,
    amount("a share above 0, 1 at most", lambda share: 0 < share <= 1): """
        held_idle.share held_idle.observed allocated_unopened.share allocated_unopened.observed
        unsaturated.saturation collective_hang.pipes
        collective_hang.dram collective_hang.power power_limit.ratio
    """,
    amount("a number, 0 or more", lambda number: number >= 0): """
        exporter.rejected_reports orphan_memory.bytes collective_hang.links
        memory_temperature.margin memory_temperature.celsius
    """,
    amount("a factor above 1", lambda factor: factor > 1): "straggler.tensor",
    _link: "links.runbook links.causes",
    _base: "links.grafana",
    _pattern: "exporter.job",
}
KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""What each threshold has to be: with another, Prometheus refuses the rules or they never fire."""


_EVALUATED: Mapping[str, str] = {
    "evaluation.interval": """
        exporter.remember exporter.start_within exporter.stale_after exporter.count_window
        exporter.rejected_window workloads.stale_after
    """,
    "evaluation.slow_interval": """
        held_idle.window held_idle.critical_window held_idle.serving_window held_idle.remember
        allocated_unopened.window allocated_unopened.remember
        collective_hang.window
        thermal.window power_brake.window xid.remember ecc.window ecc.remember lost.remember
    """,
    "evaluation.long_interval": """
        unsaturated.window data_stall.window data_stall.age checkpoint.window straggler.window
        nvlink.window
    """,
}
"""How often rules are evaluated that look back so far."""
WINDOWS: Mapping[str, str] = {
    name: interval for interval, names in _EVALUATED.items() for name in names.split()
}
"""For each window the interval of which it has to hold two: a shorter one may hold less than two
scrapes, and misses the time between two evaluations."""
SHORTER: Mapping[str, str] = {
    # A loop runs for the whole window at most.
    "checkpoint.steps": "checkpoint.window",
    # The series would be gone before the alert has waited.
    "exporter.down_for": "exporter.remember",
    "exporter.count_for": "exporter.count_window",
    "nvlink.for": "nvlink.window",
    "lost.for": "lost.remember",
}
"""What has to be shorter than what: else the rule that uses both never fires."""
NOT_SHORTER: Mapping[str, str] = {
    # The critical alert would come before the warning.
    "held_idle.critical_window": "held_idle.window",
}
"""What may not be shorter than what."""


def load(path: Path = THRESHOLDS) -> dict[str, Value]:
    """Return the thresholds by `section.key`, as rules take them.

    Raises:
        BadThresholds: the file is not two levels of keys with values that fit, and fit each other.
            The message has a line for each mistake, MOST_PROBLEMS of them at most, which begins
            with file and line.
    """
    try:
        document = load_yaml(path)
    except ConfigError as error:
        raise BadThresholds(str(error)) from None
    if not isinstance(document.value, dict):
        raise BadThresholds(_at(document, "", "expected sections with keys"))
    values: dict[str, Value] = {}
    problems = [
        *_unfitting(document, values),
        *_missing(document),
        *_unfitting_pairs(document, values),
    ]
    if problems:
        raise BadThresholds("\n".join(limited(problems)))
    return values


def _at(document: Document, name: str, problem: str) -> str:
    path = tuple(name.split(".", 1)) if name else ()
    return one_line(": ".join(filter(None, (document.where(path), name, problem))))


def _unfitting(document: Document, values: dict[str, Value]) -> Iterator[str]:
    """Yield what is wrong with each key on its own; put the values that fit into `values`."""
    for section, keys in document.value.items():
        if not isinstance(keys, dict):
            yield _at(document, section, "expected keys with values")
            continue
        for key, value in keys.items():
            name = f"{section}.{key}"
            try:
                values[name] = _fitting(name, value)
            except BadThresholds as error:
                yield _at(document, name, str(error))


def _missing(document: Document) -> Iterator[str]:
    """Yield the sections that are not there, and what is not there in the others."""
    sections: dict[str, list[str]] = {}
    for name in KINDS:
        sections.setdefault(name.split(".")[0], []).append(name)
    for section, names in sections.items():
        found = document.value.get(section)
        if section not in document.value:
            yield _at(document, "", f"{section}: missing in the thresholds, with all its keys")
        elif isinstance(found, dict):
            for name in names:
                if name.split(".")[1] not in found:
                    place = document.where((section,))
                    yield f"{place}: {name}: missing in the thresholds"


def _fitting(name: str, value: object) -> Value:
    try:
        kind = KINDS[name]
    except KeyError:
        missing = "its kind is missing in thresholds.py, in _NAMES"
        raise BadThresholds(missing if _is_used(name) else "no rule has such a threshold") from None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadThresholds(f"expected a number or text, not {value!r}")
    return kind(value)


def _is_used(name: str) -> bool:
    texts = (path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.yml"))
    return any(name == used for text in texts for used, _ in PLACEHOLDER.findall(text))


def _unfitting_pairs(document: Document, values: Mapping[str, Value]) -> Iterator[str]:
    """Yield what does not fit to another one, of those that fit on their own."""

    def problem(name: str, what: str, other: str) -> str:
        return _at(
            document, name, str(_expected(f"{what} {other} ({values[other]})", values[name]))
        )

    for name, interval in WINDOWS.items():
        if {name, interval} <= values.keys() and (
            seconds(values[name]) < 2 * seconds(values[interval])
        ):
            yield problem(name, "at least twice", interval)
    for name, longer in SHORTER.items():
        if {name, longer} <= values.keys() and seconds(values[name]) >= seconds(values[longer]):
            yield problem(name, "less than", longer)
    for name, least in NOT_SHORTER.items():
        if {name, least} <= values.keys() and seconds(values[name]) < seconds(values[least]):
            yield problem(name, "at least", least)
