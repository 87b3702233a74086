# SPDX-License-Identifier: Apache-2.0
"""How long a Prometheus of a fleet takes for each query of the dashboards at scale."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporter.exposition.catalogue import CATALOGUE
from tests.benchmarks.rig import cpu_seconds
from tests.dashboards.grafana import LABEL_VALUES, Range
from tests.dashboards.models import METRIC, NAMES_AT_SCALE, Model, Target, load, targets
from tests.e2e.prometheus import PrometheusServer

SLOW_SECONDS = 2.0
POINTS = 1000
"""Steps of a chart that says nothing of them: a screen's width."""
SPANS = {"m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Answer:
    """One query: its wall time, the server's CPU time meanwhile, and how many series it gave."""

    name: str
    seconds: float
    cpu_seconds: float
    series: int


def families_read() -> set[str]:
    """Return the exporter's families that the pages read."""
    texts = [target.expression for name in NAMES_AT_SCALE for target in targets(name)]
    texts += [
        variable["query"]["query"]
        for name in NAMES_AT_SCALE
        for variable in load(name)["templating"]["list"]
        if variable["type"] == "query"
    ]
    return {one for text in texts for one in METRIC.findall(text)} & set(CATALOGUE)


def page_range(model: Model, end: float, max_points: int, scrape_seconds: int) -> Range:
    """Return the range with which a page is opened, and the step that Grafana gives a chart."""
    number, unit = re.fullmatch(r"now-(\d+)([mhd])", model["time"]["from"]).groups()  # type: ignore[union-attr]
    seconds = int(number) * SPANS[unit]
    step = max(-(-seconds // max_points), scrape_seconds)
    return Range(end, seconds, step, rate_seconds=max(step + scrape_seconds, 4 * scrape_seconds))


def answers(server: PrometheusServer, scrape_seconds: int) -> Iterator[Answer]:
    """Ask every query of every page once, one after another."""
    for name in NAMES_AT_SCALE:
        model = load(name)
        chosen = _chosen(server, model, page_range(model, time.time(), POINTS, scrape_seconds))
        for target in targets(name):
            points = target.panel.get("maxDataPoints") or POINTS
            times = page_range(model, time.time(), points, scrape_seconds)
            before, began = cpu_seconds(server.pid), time.monotonic()
            count = _asked(server, target, times, chosen)
            seconds = time.monotonic() - began
            yield Answer(target.name, seconds, cpu_seconds(server.pid) - before, count)


def _asked(server: PrometheusServer, target: Target, times: Range, chosen: dict[str, str]) -> int:
    """Ask what a panel asks; return how many series it gets."""
    query = times.substitute(target.expression, chosen)
    if target.query["instant"]:
        return len(server.query(query, times.end))
    start, end = f"{times.end - times.seconds:.3f}", f"{times.end:.3f}"
    found = server.get("query_range", query=query, start=start, end=end, step=str(times.step))
    return len(found["result"])


def _chosen(server: PrometheusServer, model: Model, times: Range) -> dict[str, str]:
    """Return what each variable stands for when the page is opened."""
    found: dict[str, str] = {}
    for variable in model["templating"]["list"]:
        name, kind = variable["name"], variable["type"]
        if kind == "datasource":
            continue
        if kind == "query" and not variable.get("allValue"):
            selector, label = LABEL_VALUES.fullmatch(variable["query"]["query"]).groups()  # type: ignore[union-attr]
            match = {"match[]": times.substitute(selector, found)}
            found[name] = server.get(f"label/{label}/values", **match)[0]
        elif kind == "query":
            found[name] = variable["allValue"]
        else:
            current = variable["current"]["value"]
            found[name] = "|".join(current) if isinstance(current, list) else current
    return found


def summary(found: Sequence[Answer], rows: int = 5) -> list[str]:
    """Return how many queries were slow, and the slowest, by the server's CPU time."""
    slow, busy = (
        sum(value > SLOW_SECONDS for value in values)
        for values in ([one.seconds for one in found], [one.cpu_seconds for one in found])
    )
    worst = sorted(found, key=lambda one: -one.cpu_seconds)[:rows]
    return [
        f"{len(found)} queries of the dashboards at scale: {slow} took over {SLOW_SECONDS:g} s, "
        f"{busy} took the server that much CPU time, whatever else it did meanwhile; most:",
        *(
            f"  {one.cpu_seconds:.2f} s CPU, {one.seconds:.2f} s, {one.series} series: {one.name}"
            for one in worst
        ),
    ]
