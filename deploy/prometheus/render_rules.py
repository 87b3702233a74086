# SPDX-License-Identifier: Apache-2.0
"""What do the Prometheus rules say with the thresholds of thresholds.yml?

Templates are rules as Prometheus reads them but for `<section.key>`, which stands for a threshold;
`<section.key:seconds>` and `<section.key:percent>` for the same as a number of seconds or percents.
PromQL cannot do it itself: the length of a window has to be written out in each rule.
"""

from __future__ import annotations

import argparse
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

PLACEHOLDER = re.compile(r"<([a-z_]+\.[a-z_]+)(?::([a-z]+))?>")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_DURATION_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)

Value = str | int | float


class BadThresholds(ValueError):
    """A threshold that is missing, unknown or unusable; the message is for the user."""


def load(path: Path = THRESHOLDS) -> dict[str, Value]:
    """Return the thresholds by `section.key`.

    Raises:
        BadThresholds: the file is not two levels of keys with numbers or text.
    """
    try:
        sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadThresholds(f"{path}: {' '.join(str(error).split())}") from None
    values: dict[str, Value] = {}
    if not isinstance(sections, dict):
        raise BadThresholds(f"{path}: expected sections with keys")
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            raise BadThresholds(f"{path}: {section}: expected keys with values")
        for key, value in keys.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise BadThresholds(f"{path}: {section}.{key}: expected a number or text")
            values[f"{section}.{key}"] = value
    return values


def seconds(duration: Value) -> float:
    """Return the length of a Prometheus duration such as 1h30m.

    Raises:
        BadThresholds: it is none.
    """
    found = _DURATION.fullmatch(str(duration))
    if not found or not any(found.groups()):
        raise BadThresholds(f"expected a duration such as 30s, 15m or 2h, not {duration!r}")
    parts = zip(found.groups(), _DURATION_SECONDS, strict=True)
    return sum(int(count) * unit for count, unit in parts if count is not None)


def _percent(share: Value) -> float:
    try:
        return float(share) * 100
    except ValueError:
        raise BadThresholds(f"expected a share from 0 to 1, not {share!r}") from None


_FORMS: Mapping[str, Callable[[Value], float]] = {"seconds": seconds, "percent": _percent}


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
        # One series at most is asked for; without one the text says nothing.
        "text.holder": (
            '{{ with printf "gpu_holder_info{instance=%q, uuid=%q, gpu_instance=%q}" '
            "$labels.instance $labels.uuid $labels.gpu_instance | query }}{{ with . | first }}"
            ' It is held by {{ or .Labels.owner "an unknown user" }}'
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
                raise BadThresholds(f"{found[0]}: expected seconds or percent") from None
            except BadThresholds as error:
                raise BadThresholds(f"{name}: {error}") from None
        return value if isinstance(value, str) else _number(value)

    return PLACEHOLDER.sub(replace, template)


def rules(thresholds: Mapping[str, Value]) -> dict[str, str]:
    """Return the rule files by name.

    Raises:
        BadThresholds: a key is missing, or no template uses it.
    """
    texts = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.yml"))
    }
    used = {name for text in texts.values() for name, _ in PLACEHOLDER.findall(text)}
    if unknown := sorted(set(thresholds) - used):
        raise BadThresholds(f"{unknown[0]}: no rule has such a threshold")
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
        print(f"render_rules: {error}", file=sys.stderr)
        return 2
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (arguments.output / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
