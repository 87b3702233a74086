# SPDX-License-Identifier: Apache-2.0
"""What Grafana does between a dashboard and Prometheus: variables, windows, steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.dashboards.models import Model, Target
from tests.e2e.prometheus import PrometheusServer

Series = dict[str, Any]
MAY_HAVE_NO_VALUES = {"namespace"}
"""A node without pods; all of none is chosen then."""
LABEL_VALUES = re.compile(r"label_values\((.+), ([a-z_]+)\)")


@dataclass(frozen=True)
class Range:
    """The time range of a dashboard, and the step of its charts."""

    end: float
    seconds: int
    step: int
    rate_seconds: int

    def substitute(self, text: str, variables: dict[str, str]) -> str:
        """The expression as it is sent."""
        built_in = {
            "__rate_interval": f"{self.rate_seconds}s",
            "__range_s": str(self.seconds),
            "__range": f"{self.seconds}s",
            "__interval_ms": str(1000 * self.step),
            "__interval": f"{self.step}s",
        }
        text = text.replace("${__to:date:seconds}", f"{self.end:.0f}")
        for name, value in (built_in | variables).items():
            text = re.sub(rf"\$\{{{name}\}}|\${name}\b", lambda _, value=value: value, text)  # type: ignore[misc]
        return text


class Prometheus(PrometheusServer):
    """Also answers over ranges and about labels."""

    def label_values(self, selector: str, label: str) -> list[str]:
        values: list[str] = self.get(f"label/{label}/values", **{"match[]": selector})
        return values

    def over_time(self, expression: str, times: Range) -> list[Series]:
        """Every series with its samples at the steps of the range."""
        start = times.end - times.seconds
        fields = {"query": expression, "step": str(times.step)}
        found: list[Series] = self.get(
            "query_range", start=f"{start:.3f}", end=f"{times.end:.3f}", **fields
        )["result"]
        return found

    def answer(self, target: Target, times: Range, variables: dict[str, str]) -> list[Series]:
        """What the panel gets; instants as a series of one sample."""
        expression = times.substitute(target.expression, variables)
        assert "$" not in re.sub(r'"[^"]*"', "", expression), expression
        if not target.query["instant"]:
            return self.over_time(expression, times)
        return [
            {"metric": one["metric"], "values": [one["value"]]}
            for one in self.query(expression, times.end)
        ]


def variables(model: Model, server: Prometheus, times: Range, **chosen: str) -> dict[str, str]:
    """What each variable of a dashboard stands for when it is opened."""
    found: dict[str, str] = {}
    for variable in model["templating"]["list"]:
        name, kind = variable["name"], variable["type"]
        if kind == "datasource":
            continue
        if kind == "query":
            wanted = LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert wanted, variable["query"]
            selector = times.substitute(wanted[1], found)
            choices = server.label_values(selector, wanted[2])
            assert choices or name in MAY_HAVE_NO_VALUES, f"{name}: nothing to choose from"
            default = variable.get("allValue") or choices[0]
        else:
            current = variable["current"]["value"]
            default = "|".join(current) if isinstance(current, list) else current
        found[name] = chosen.get(name, default)
        assert found[name], name
    return found
