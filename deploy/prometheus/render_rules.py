# SPDX-License-Identifier: Apache-2.0
"""What do the Prometheus rules say with the thresholds of thresholds.yml?

Templates are rules as Prometheus reads them but for `<section.key>`, which stands for a threshold;
`<section.key:seconds>` and `<section.key:percent>` for the same as a number of seconds or percents,
`<section.key:longer>` and `<section.key:shorter>` for one and a half times and nine tenths of a
duration.
PromQL cannot do it itself: the length of a window has to be written out in each rule.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from exporter.exposition.health import RECOVERY_ACTIONS
from exporter.xids import XIDS, Tier, describe

HERE = Path(__file__).parent
THRESHOLDS = HERE / "thresholds.yml"
TEMPLATES = HERE / "templates"
RULES = HERE / "rules"
LONGER = 1.5
SHORTER = 0.9
LONGEST_SECONDS = 365 * 86400.0

PLACEHOLDER = re.compile(r"<([a-z_]+\.[a-z_]+)(?::([a-z]+))?>")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_DURATION_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_LINK = re.compile(r"https?://[^\s\"'{}<>]+")

Value = str | int | float
Kind = Callable[[Value], Value]
"""Returns a threshold as rules take it, or raises BadThresholds with what was expected."""


class BadThresholds(ValueError):
    """A threshold that is missing, unknown or unusable; the message is for the user."""


def _expected(what: str, value: Value) -> BadThresholds:
    return BadThresholds(f"expected {what}, not {value!r}")


def seconds(duration: Value) -> float:
    """Return the length of a Prometheus duration such as 1h30m.

    Raises:
        BadThresholds: it is none, or longer than a year.
    """
    found = _DURATION.fullmatch(str(duration))
    if not found or not any(found.groups()):
        raise _expected("a duration such as 30s, 15m or 2h", duration)
    parts = zip(found.groups(), _DURATION_SECONDS, strict=True)
    length = sum(int(count) * unit for count, unit in parts if count is not None)
    if length > LONGEST_SECONDS:
        raise _expected("a duration of at most 365d", duration)
    return length


def _window(value: Value) -> Value:
    if seconds(value) == 0:
        raise _expected("a duration of more than 0s", value)
    return value


def _wait(value: Value) -> Value:
    seconds(value)
    return value


def _amount(what: str, fits: Callable[[float], bool]) -> Callable[[Value], float]:
    """Return the kind of numbers that fit."""

    def amount(value: Value) -> float:
        try:
            number = float(value)
        except ValueError:
            raise _expected(what, value) from None
        if not (math.isfinite(number) and fits(number)):
            raise _expected(what, value)
        return number

    return amount


def _link(value: Value) -> Value:
    if not _LINK.fullmatch(str(value)):
        raise _expected("a link such as http://localhost:3000", value)
    return str(value)


def _pattern(value: Value) -> Value:
    """A regular expression, as it stands in a string of PromQL."""
    try:
        re.compile(str(value))
    except re.error:
        raise _expected("a regular expression", value) from None
    if not str(value).strip() or re.search(r'["\n]', str(value)):
        raise _expected("a regular expression in one line and without quotes", value)
    return str(value).replace("\\", "\\\\")


_NAMES: Mapping[Kind, str] = {
    _window: """
        evaluation.interval evaluation.slow_interval evaluation.day_interval exporter.remember
        exporter.stale_after exporter.count_window exporter.rejected_window held_idle.window
        held_idle.critical_window held_idle.serving_window held_idle.remember unsaturated.window
        data_stall.window data_stall.age checkpoint.window collective_hang.window straggler.window
        thermal.window power_brake.window xid.remember ecc.window ecc.remember nvlink.window
        lost.remember
    """,
    _wait: """
        evaluation.keep_firing_for exporter.down_for exporter.count_for exporter.driver_for
        held_idle.for orphan_memory.for checkpoint.steps power_limit.for memory_temperature.for
        health.for nvlink.for fabric.for pcie.for lost.for
    """,
    # What something has to be above, and what it has to reach or to be below.
    _amount("a share from 0 to below 1", lambda share: 0 <= share < 1): """
        evaluation.observed unsaturated.busy data_stall.share checkpoint.share
        collective_hang.engine straggler.stall straggler.sm thermal.share power_brake.share
        pcie.busy
    """,
    _amount("a share above 0, 1 at most", lambda share: 0 < share <= 1): """
        held_idle.share held_idle.observed unsaturated.saturation collective_hang.pipes
        collective_hang.dram collective_hang.power power_limit.ratio
    """,
    _amount("a number, 0 or more", lambda number: number >= 0): """
        exporter.rejected_reports orphan_memory.bytes collective_hang.links
        memory_temperature.margin memory_temperature.celsius
    """,
    _amount("a factor above 1", lambda factor: factor > 1): "straggler.tensor",
    _link: "links.runbook links.grafana",
    _pattern: "exporter.job",
}
KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""What each threshold has to be: with another, Prometheus refuses the rules or they never fire."""


def load(path: Path = THRESHOLDS) -> dict[str, Value]:
    """Return the thresholds by `section.key`, as rules take them.

    Raises:
        BadThresholds: the file is not two levels of keys with values that fit.
    """
    try:
        sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadThresholds(" ".join(str(error).split())) from None
    values: dict[str, Value] = {}
    if not isinstance(sections, dict):
        raise BadThresholds("expected sections with keys")
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            raise BadThresholds(f"{section}: expected keys with values")
        for key, value in keys.items():
            values[f"{section}.{key}"] = _fitting(f"{section}.{key}", value)
    return values


def _fitting(name: str, value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadThresholds(f"{name}: expected a number or text, not {value!r}")
    try:
        kind = KINDS[name]
    except KeyError:
        raise BadThresholds(f"{name}: no rule has such a threshold") from None
    try:
        return kind(value)
    except BadThresholds as error:
        raise BadThresholds(f"{name}: {error}") from None


def _percent(share: Value) -> float:
    return _amount("a share from 0 to 1", lambda _: True)(share) * 100


def _times(factor: float) -> Callable[[Value], str]:
    return lambda duration: f"{round(factor * seconds(duration) * 1000)}ms"


_FORMS: Mapping[str, Callable[[Value], Value]] = {
    "seconds": seconds,
    "percent": _percent,
    "longer": _times(LONGER),
    "shorter": _times(SHORTER),
}


def _number(value: float) -> str:
    return f"{value:.10g}"


def _chosen(label: str, texts: Mapping[str, str]) -> str:
    """Return the template of an alert that turns a value into the text that belongs to it."""
    cases = (
        f'{{{{ {"else " if i else ""}if eq {label} "{value}" }}}}{text}'
        for i, (value, text) in enumerate(texts.items())
    )
    return "".join(cases) + "{{ end }}"


def _codes(tier: Tier) -> list[int]:
    return [code for code, xid in XIDS.items() if xid.tier == tier]


_BY_UUID = (
    '{{ with printf "gpu_held{instance=%q, uuid=%q, gpu_instance=%q}" '
    "$labels.instance $labels.uuid $labels.gpu_instance | query }}"
)
_INDEX = '{{ . | first | label "gpu" }}'


def _known() -> dict[str, Value]:
    """What is not set by the user, but comes from the exporter's own tables."""
    values: dict[str, Value] = {
        "recovery.actions": _chosen(
            '(printf "%.0f" $value)',
            {str(number): action for number, action in enumerate(RECOVERY_ACTIONS) if number},
        ),
        "text.gpu": (
            "GPU {{ $labels.gpu }}{{ with $labels.gpu_instance }} (MIG instance {{ . }}){{ end }}"
            " of {{ $labels.instance }}"
        ),
        # Of an alert without an index: that may change, the UUID stays.
        "text.gpu_of_uuid": (
            f"GPU {_BY_UUID}{_INDEX}{{{{ else }}}}{{{{ $labels.uuid }}}}{{{{ end }}}}"
            "{{ with $labels.gpu_instance }} (MIG instance {{ . }}){{ end }}"
            " of {{ $labels.instance }}"
        ),
        "text.gpu_variable": f"{_BY_UUID}&var-gpu={_INDEX}{{{{ end }}}}",
        # One series at most is asked for; without one the text says nothing.
        "text.holder": (
            '{{ with printf "gpu_holder_info{instance=%q, uuid=%q, gpu_instance=%q}" '
            "$labels.instance $labels.uuid $labels.gpu_instance | query }}{{ with . | first }}"
            ' It is now held by {{ or .Labels.owner "an unknown user" }}'
            ' ({{ or .Labels.command "unknown command" }}).{{ end }}{{ end }}'
        ),
    }
    tiers: tuple[Tier, ...] = ("critical", "warning")
    for tier in tiers:
        codes = _codes(tier)
        values[f"xids.{tier}"] = "|".join(map(str, codes))
        values[f"xids.{tier}_advice"] = _chosen(
            "$labels.xid", {str(code): describe(code) for code in codes}
        )
    return values


def render(template: str, thresholds: Mapping[str, Value]) -> str:
    """Return the rules that a template gives.

    Raises:
        BadThresholds: the template names what does not exist, or in a form that it has not.
    """
    values = {**thresholds, **_known()}

    def replace(found: re.Match[str]) -> str:
        name, form = found.groups()
        if name not in values:
            raise BadThresholds(f"{name}: missing in the thresholds")
        value = values[name]
        if form is not None:
            try:
                value = _FORMS[form](value)
            except KeyError:
                raise BadThresholds(f"{found[0]}: expected {', '.join(_FORMS)}") from None
            except BadThresholds as error:
                raise BadThresholds(f"{name}: {error}") from None
        return value if isinstance(value, str) else _number(value)

    return PLACEHOLDER.sub(replace, template)


def rules(thresholds: Mapping[str, Value]) -> dict[str, str]:
    """Return the rule files by name.

    Raises:
        BadThresholds: a key is missing.
    """
    texts = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.yml"))
    }
    return {name: render(text, thresholds) for name, text in texts.items()}


def main(words: list[str] | None = None) -> int:
    """Write the rule files; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the Prometheus rules.", allow_abbrev=False)
    parser.add_argument("--thresholds", type=Path, default=THRESHOLDS, metavar="FILE")
    parser.add_argument("--output", type=Path, default=RULES, metavar="DIRECTORY")
    arguments = parser.parse_args(words)
    try:
        texts = rules(load(arguments.thresholds))
    except BadThresholds as error:
        print(f"render_rules: {arguments.thresholds}: {error}", file=sys.stderr)
        return 2
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (arguments.output / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
