# SPDX-License-Identifier: Apache-2.0
"""Writes the Prometheus rules from their templates, thresholds.yml and prices.yml.

Templates are rules as Prometheus reads them but for `<section.key>`, which stands for a threshold;
`<section.key:seconds>` and `<section.key:percent>` for the same as a number of seconds or percents,
`<section.key:longer>` and `<section.key:shorter>` for one and a half times and nine tenths of a
duration.
PromQL has no variables for the length of a window: each rule has to spell it out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.prometheus import prices
from deploy.prometheus.thresholds import (
    HERE,
    PLACEHOLDER,
    TEMPLATES,
    THRESHOLDS,
    BadThresholds,
    Value,
    amount,
    load,
    seconds,
)
from exporter.errors import one_line
from exporter.model.reading import RECOVERY_ACTIONS
from exporter.model.xids import XIDS, Tier, describe

RULES = HERE / "rules"
KEEP_FIRING_FOR = re.compile(r"^ +keep_firing_for: .*\n", re.MULTILINE)
LONGER = 1.5
SHORTER = 0.9


def _percent(share: Value) -> float:
    return amount("a share from 0 to 1", lambda _: True)(share) * 100


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


_BY_UUID = '{{ with printf "gpu_up{instance=%q, uuid=%q}" $labels.instance $labels.uuid | query }}'
_SIMULATED = (
    '{{- with printf `gpu_info{instance=%q, source=~"simulate|replay"}`'
    ' (or $labels.instance "") | query }}'
    " The GPUs of this exporter are simulated or recorded.{{ end }}"
)
# Functions of templates do not multiply or round; a query does.
_ROUNDED = "{{{{ printf `round(vector({})){}` $value | query | first | value {}}}}}"
_DURATION = (
    "| humanizeDuration "
    '| reReplaceAll "([0-9]+)([dhms])" "$1 $2" | reReplaceAll "([0-9]) m" "$1 min" '
)
_INDEX = '{{ . | first | label "gpu" }}'
# As exporter.model.reading.share_name says it: GPU 2/1.
_INSTANCE = "{{ with $labels.gpu_instance }}/{{ . }}{{ end }}"
_GPU_OF_UUID = (
    f"GPU {_BY_UUID}{_INDEX}{{{{ else }}}}{{{{ $labels.uuid }}}}{{{{ end }}}}"
    f"{_INSTANCE} of {{{{ $labels.instance }}}}"
)

_SHARE = "instance=%q, uuid=%q, gpu_instance=%q"
# A label that is missing is nil to vmalert, and `printf` would not print it as a text.
_OF_SHARE = '$labels.instance $labels.uuid (or $labels.gpu_instance "")'
# At most one series is asked for; without one the text is empty. The workload is whose the GPU is.
_HOLDER = (
    f"{{{{ with printf `gpu_holder_info{{{_SHARE}}} * on (instance, uuid, gpu_instance)"
    f" group_left (owner) gpu:gpu_workload_owner:info{{{_SHARE}}}"
    f" or on (instance, uuid, gpu_instance) gpu_holder_info{{{_SHARE}}}`"
    f" {_OF_SHARE} {_OF_SHARE} {_OF_SHARE} | query }}}}{{{{ with . | first }}}}"
    ' It is now held by {{ or .Labels.owner "an unknown user" }}'
    ' ({{ or .Labels.command "unknown command" }}).{{ end }}{{ end }}'
)
# The causes that the GPU shows now: a handful of series of one GPU, at the most.
_CAUSES = (
    f"{{{{ range printf `gpu_diagnosis{{{_SHARE}}}` {_OF_SHARE} | query | sortByLabel `cause` }}}}"
    " The GPU shows the cause {{ .Labels.cause }} (<links.causes>#{{ .Labels.cause }}).{{ end }}"
)
_CAUSE_URL = (
    f"{{{{ with printf `gpu_diagnosis{{{_SHARE}}}` {_OF_SHARE} | query | sortByLabel `cause` }}}}"
    "<links.causes>#{{ . | first | label `cause` }}{{ end }}"
)
# A GPU of the same owner that works while others of its work are held idle.
_SIBLING = (
    "{{ with $labels.owner }}{{ range printf `topk(1, gpu_diagnosis{instance=%q,"
    ' cause="idle_sibling"} and on (instance, uuid, gpu_instance) (gpu:gpu_workload_owner:info'
    "{instance=%q, owner=%q} or gpu_holder_info{instance=%q, owner=%q}))`"
    " $labels.instance $labels.instance . $labels.instance . | query }}"
    f" GPU {{{{ .Labels.gpu }}}}{_INSTANCE.replace('$labels', '.Labels')} of this owner works"
    " meanwhile, and shows the cause idle_sibling (<links.causes>#idle_sibling).{{ end }}{{ end }}"
)
# The owner is a number of workloads: which.
_WORKLOADS = (
    '{{ if match "^[0-9]+ workloads$" (or $labels.owner "") }}'
    f"{{{{ with printf `topk(10, gpu:gpu_workload_name:info{{{_SHARE}}})` {_OF_SHARE} | query }}}}"
    ' Among them: {{ range $i, $one := sortByLabel "owner" . }}'
    "{{ if $i }}, {{ end }}{{ $one.Labels.owner }}{{ end }}.{{ end }}{{ end }}"
)
_HOURS = {
    "held_idle": "holder:gpu_held_idle_seconds:hours1d",
    "unopened": "workload:gpu_allocated_unopened_seconds:hours1d",
}
# Recorded only where prices are set.
_PRICE = (
    " * on (instance, uuid, gpu_instance) group_right () max by (instance, uuid, gpu_instance,"
    f" currency) (gpu:gpu_price_per_hour:max{{{_SHARE}}})"
)
_COST = "{{ printf `%.2f` .Value }}{{ with .Labels.currency }} {{ . }}{{ end }}"
# How long the owner has had the GPU unopened, today.
_UNOPENED = (
    "{{ with printf `round(3600 * workload:gpu_allocated_unopened_seconds:hours1d"
    f'{{{_SHARE}, owner=%q}})` {_OF_SHARE} (or $labels.owner "") | query }}}}'
    f" In the last 24 hours that was {{{{ . | first | value {_DURATION}}}}} in all.{{{{ end }}}}"
)
_OF_BOARD = "instance=%q, uuid=%q"
# Of a GPU that may be gone: what it is, and whose it was.
_BOARD = (
    f"{{{{ with printf `last_over_time(gpu_info{{{_OF_BOARD}}}[<lost.remember>])`"
    " $labels.instance $labels.uuid | query }}{{ with . | first }} The board is"
    " {{ .Labels.name }}{{ with .Labels.serial }}, serial {{ . }}{{ end }}.{{ end }}{{ end }}"
    "{{ with printf `topk by (gpu_instance) (1, max by (gpu_instance, owner) (max_over_time("
    f"timestamp(gpu:gpu_workload_owner:info{{{_OF_BOARD}}} or on (instance, uuid, gpu_instance)"
    f" gpu:gpu_holder:info{{{_OF_BOARD}}})[<lost.remember>:<evaluation.interval>])))`"
    " $labels.instance $labels.uuid $labels.instance $labels.uuid | query }} Its work is or was of"
    ' {{ range $i, $one := sortByLabel "owner" . }}{{ if $i }}, {{ end }}'
    '{{ or $one.Labels.owner "an unknown user" }}{{ end }}.{{ end }}'
)
_SILENT = (
    f"{{{{ with printf `gpu_up{{{_OF_BOARD}}} == 0` $labels.instance $labels.uuid | query }}}}"
    " The GPU does not answer the driver any more.{{ end }}"
)
# What NCCL itself says, where the exporter asks it.
_RANKS = (
    "{{ range printf `max by (state) (gpu_nccl_ras_ranks{instance=%q,"
    ' state=~"missing|dead"}) > 0` $labels.instance | query | sortByLabel "state" }}'
    " NCCL calls ranks of a communicator of this node {{ .Labels.state }}"
    " ({{ .Value }}): begin with them.{{ end }}"
)


def _today(hours: str, factor: str, shown: str) -> str:
    """Return what an owner's GPU-hours of a day come to; nothing where a factor is not recorded."""
    return (
        f'{{{{ with printf `{hours}{factor}` {_OF_SHARE} (or $labels.owner "")'
        f"{f' {_OF_SHARE}' if factor else ''} | query }}}}{{{{ with . | first }}}}{shown}"
        "{{ end }}{{ end }}"
    )


def _known() -> dict[str, Value]:
    """Return what the user does not set: it comes from the exporter's own tables."""
    values: dict[str, Value] = {
        "recovery.actions": _chosen(
            '(printf "%.0f" $value)',
            {str(number): action for number, action in enumerate(RECOVERY_ACTIONS) if number},
        ),
        "text.gpu": f"GPU {{{{ $labels.gpu }}}}{_INSTANCE} of {{{{ $labels.instance }}}}",
        "text.percent": _ROUNDED.format("100 * %f", "", "") + " %",
        "text.duration": _ROUNDED.format("%f", "", _DURATION),
        "text.gibibytes": _ROUNDED.format("10 * %f / 2^30", " / 10", "") + " GiB",
        "text.plural": "{{ if ne $value 1.0 }}s{{ end }}",
        "text.board": _BOARD,
        "text.silent": _SILENT,
        "text.simulated": _SIMULATED,
        # For an alert without an index: the index may change, the UUID stays.
        "text.gpu_of_uuid": _GPU_OF_UUID,
        # A rank may have no GPU.
        "text.rank": (
            "Rank {{ $labels.rank }} of {{ $labels.training_job }} ({{ if $labels.uuid }}"
            f"{_GPU_OF_UUID}{{{{ else }}}}{{{{ $labels.instance }}}}{{{{ end }}}})"
        ),
        "text.gpu_variable": f"{_BY_UUID}&var-gpu={_INDEX}{{{{ end }}}}",
        "text.holder": _HOLDER,
        "text.causes": _CAUSES,
        "text.cause_url": _CAUSE_URL,
        "text.sibling": _SIBLING,
        "text.workloads": _WORKLOADS,
        "text.unopened": _UNOPENED,
        "text.ranks": _RANKS,
    }
    for what, series in _HOURS.items():
        hours = f"sum by (instance, uuid, gpu_instance) ({series}{{{_SHARE}, owner=%q}})"
        values[f"hours.{what}"] = _today(hours, "", "{{ printf `%.1f` .Value }}")
        values[f"cost.{what}"] = _today(hours, _PRICE, _COST)
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
        BadThresholds: the template names a threshold or a form that does not exist.
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

    # Texts have thresholds in them. Without Grafana links are comments, which the Helm chart finds.
    text = PLACEHOLDER.sub(replace, PLACEHOLDER.sub(replace, template))
    return text.replace("  dashboard_url: /", "  # dashboard_url: /")


def rules(
    thresholds: Mapping[str, Value], price_list: Mapping[str, Value] | None = None
) -> dict[str, str]:
    """Return the rule files by name; without `price_list` with the prices of prices.yml.

    Raises:
        BadThresholds: a key is missing.
    """
    values = {**thresholds, **(prices.load() if price_list is None else price_list)}
    texts = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("*.yml"))
    }
    return {name: render(text, values) for name, text in texts.items()}


def main(words: list[str] | None = None) -> int:
    """Write the rule files; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the Prometheus rules.", allow_abbrev=False)
    parser.add_argument("--thresholds", type=Path, default=THRESHOLDS, metavar="FILE")
    parser.add_argument("--prices", type=Path, default=prices.PRICES, metavar="FILE")
    parser.add_argument("--output", type=Path, default=RULES, metavar="DIRECTORY")
    parser.add_argument(
        "--without-keep-firing-for",
        action="store_true",
        help="Leave out keep_firing_for, which older versions of vmalert refuse.",
    )
    arguments = parser.parse_args(words)
    if arguments.without_keep_firing_for and arguments.output.resolve() == RULES:
        return _failed("--without-keep-firing-for: expected an --output of its own")
    try:
        texts = rules(load(arguments.thresholds), prices.load(arguments.prices))
    except BadThresholds as error:
        return _failed(str(error))
    if arguments.without_keep_firing_for:
        texts = {name: KEEP_FIRING_FOR.sub("", text) for name, text in texts.items()}
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = arguments.output / name
            changed = not path.exists() or path.read_text(encoding="utf-8") != text
            path.write_text(text, encoding="utf-8")
            print(f"wrote {os.path.relpath(path)}{'' if changed else ' (no change)'}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return _failed(f"--output {arguments.output}: {reason}, expected a folder to write to")
    return 0


def _failed(problem: str) -> int:
    for line in problem.split("\n"):
        print(f"render_rules: {one_line(line)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
