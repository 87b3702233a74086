# SPDX-License-Identifier: Apache-2.0
"""What a reader needs of every panel, and what Grafana needs to show it."""

from __future__ import annotations

import re

import pytest

from exporter.exposition.catalogue import CATALOGUE
from exporter.model.reading import THROTTLE_REASONS
from exporter.web.wording.diagnosis import address
from tests.dashboards.models import (
    MATCHER,
    METRIC,
    NAMES,
    NAMES_AT_SCALE,
    RECORD,
    SELECTOR,
    Model,
    every_page,
    everything,
    links,
    load,
    panels,
    targets,
)
from tests.rows import label_names

SUPPORTED = {"bargauge", "heatmap", "stat", "state-timeline", "table", "timeseries", "xychart"}
PROMETHEUS_OWNS = {"job", "instance"}
GRID_WIDTH = 24
GREY = "#7F8794"
OF_RECORDS = "$__range:5m"
WINDOWS = ("$__rate_interval", "$__range", "$__range:$__interval", OF_RECORDS)


@every_page
def test_schema(name: str) -> None:
    """Classic JSON that Grafana 11.4 and everything newer reads."""
    model = load(name)

    assert model["schemaVersion"] == 39
    assert model["title"]
    assert model["description"].endswith(".")
    assert model["tags"] == ["gpu", "roofline-exporter"]
    for panel in panels(model):
        # Without it an XY chart is migrated as if it were of Grafana 10, and shows nothing.
        assert panel["pluginVersion"] == "11.4.0", panel["title"]
        assert panel["type"] in SUPPORTED


@every_page
def test_every_panel_says_what_to_conclude(name: str) -> None:
    """A title of its own, a description of whole sentences, a unit."""
    titles = [panel["title"] for panel in panels(load(name))]

    assert len(set(titles)) == len(titles)
    for panel in panels(load(name)):
        assert panel["title"]
        assert len(panel["description"]) >= 40, panel["title"]
        assert panel["description"].rstrip().endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@every_page
def test_every_query_asks_the_chosen_source(name: str) -> None:
    """Panels, queries and variables follow the variable `datasource`."""
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    model = load(name)

    assert model["templating"]["list"][0]["type"] == "datasource"
    assert model["templating"]["list"][0]["name"] == "datasource"
    for panel in panels(model):
        assert panel["datasource"] == wanted
        assert panel["targets"]
        assert all(query["datasource"] == wanted for query in panel["targets"])
    for variable in model["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["datasource"] == wanted


@every_page
def test_variables(name: str) -> None:
    """Job and node can be chosen on every page, and what is chosen later follows from them."""
    variables = {variable["name"]: variable for variable in load(name)["templating"]["list"]}

    assert list(variables)[:3] == ["datasource", "job", "instance"]
    for variable in variables.values():
        assert variable["label"]
        if variable["type"] == "query":
            assert re.fullmatch(r"label_values\(.+, [a-z_]+\)", variable["query"]["query"])
        if variable["name"] not in ("datasource", "job") and variable["type"] == "query":
            assert 'job=~"$job"' in variable["query"]["query"]
        if variable.get("multi"):
            assert variable["allValue"] == ".*"


_NODE = {("instance", "$instance")}
NARROWED = {
    **dict.fromkeys(("gpu", "holder", "workload", "node"), _NODE),
    "owner": {("job", "$job")},
    "rank": {("training_job", "$training_job")},
}
"""By the level of a record: an owner has no node, and whose a GPU is has no job."""


@every_page
def test_every_selector_is_narrowed_to_what_was_chosen(name: str) -> None:
    """No metric without its matchers: else a panel shows other nodes than its page says."""
    for target in targets(name):
        selectors = SELECTOR.findall(target.expression)
        records = RECORD.findall(target.expression)
        bare = set(METRIC.findall(SELECTOR.sub("", target.expression))) & set(CATALOGUE)
        assert not bare, f"{target.name}: {bare}"
        assert selectors or records, target.name
        for record, matchers in records:
            found = {(label, value) for label, _, value in MATCHER.findall(matchers)}
            assert NARROWED[record.partition(":")[0]] & found, f"{target.name}: {record}"
        for metric, matchers in selectors:
            found = {(label, value) for label, _, value in MATCHER.findall(matchers)}
            assert {("job", "$job"), ("instance", "$instance")} <= found, target.name
            ours = {label.name for label in CATALOGUE[metric].labels}
            ours |= set(label_names(CATALOGUE[metric])) | PROMETHEUS_OWNS
            assert {label for label, _ in found} <= ours, f"{target.name}: {metric}"


@every_page
def test_label_values_are_those_of_the_catalogue(name: str) -> None:
    """A misspelt limiter, phase or reason would show nothing, without an error."""
    for target in targets(name):
        for metric, matchers in SELECTOR.findall(target.expression):
            known = {label.name: label.values for label in CATALOGUE[metric].labels}
            for label, _, wanted in MATCHER.findall(matchers):
                if known.get(label) and "$" not in wanted:
                    assert set(wanted.split("|")) <= set(known[label]), f"{target.name}: {wanted}"


@every_page
def test_windows_follow_the_range(name: str) -> None:
    """Rates use $__rate_interval, totals $__range: nothing is fixed to one scrape interval."""
    for target in targets(name):
        for window in re.findall(r"[})]\[([^\]]+)\]", target.expression):
            assert window in WINDOWS, f"{target.name}: [{window}]"
            assert (window == OF_RECORDS) <= (name in NAMES_AT_SCALE), target.name
        for function in ("rate", "increase"):
            for metric in re.findall(rf"\b{function}\(([a-z0-9_]+)\{{", target.expression):
                assert CATALOGUE[metric].kind == "counter", f"{target.name}: {metric}"


@every_page
def test_panels_lie_side_by_side(name: str) -> None:
    """Unique numbers, inside of the grid, none over another: what is shown at once."""
    model = load(name)
    closed = [row for row in model["panels"] if row.get("collapsed")]

    assert len({panel["id"] for panel in everything(model)}) == len(everything(model))
    for shown in (model["panels"], *(row["panels"] for row in closed)):
        taken: dict[tuple[int, int], str] = {}
        for panel in shown:
            place = panel["gridPos"]
            assert 0 <= place["x"] <= place["x"] + place["w"] <= GRID_WIDTH
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, f"{panel['title']} over {taken[x, y]}"
                    taken[x, y] = panel["title"]


@every_page
def test_links_lead_to_dashboards_and_variables_that_exist(name: str) -> None:
    """Also those in overrides; a variable that the target does not have would be lost."""
    beside = NAMES if name in NAMES else NAMES_AT_SCALE
    pages = {load(page)["uid"]: load(page) for page in beside}
    found = set(links([panel["fieldConfig"] for panel in panels(load(name))]))
    causes = address("${__data.fields.Cause}")

    assert found or name.endswith("gpu")
    assert (causes in found) == name.endswith("training")
    for url in found - {causes}:
        path, _, query = url.partition("?")
        assert path.startswith("/d/"), url
        known = {variable["name"] for variable in pages[path[3:]]["templating"]["list"]}
        assert set(re.findall(r"var-([a-z_]+)=", query)) <= known, url


@every_page
def test_what_needs_level_full_is_said(name: str) -> None:
    """A reader of --metrics.level=core reads why a panel is empty."""
    for target in targets(name):
        for metric, matchers in SELECTOR.findall(target.expression):
            family = CATALOGUE[metric]
            kept_back = {label.name: set(label.full_values) for label in family.labels}
            values = {
                value
                for label, _, wanted in MATCHER.findall(matchers)
                for value in kept_back.get(label, set())
                if "$" in wanted or value in wanted.split("|")
            }
            if family.level == "full" or values:
                said = target.panel["description"].partition("--metrics.level=full")[2]
                assert metric in said, f"{target.name}: {metric}"
                assert all(value in said for value in values), f"{target.name}: {values}"


@every_page
def test_every_rate_says_over_which_window(name: str) -> None:
    """Not that of the exporter's own page, and not the same for every range."""
    for panel in panels(load(name)):
        rates = [
            query
            for query in panel["targets"]
            if "[$__rate_interval]" in query["expr"] and "$__range:" not in query["expr"]
        ]
        window = "four scrapes (one minute by default)" in panel["description"]
        assert window == bool(rates), panel["title"]
        assert "last minute" not in panel["description"], panel["title"]


@every_page
def test_values_are_not_red_by_accident(name: str) -> None:
    """Without thresholds of its own Grafana paints a number red from 80 on."""
    for panel in panels(load(name)):
        defaults = panel["fieldConfig"]["defaults"]
        steps = defaults["thresholds"]["steps"]
        assert steps[0]["value"] is None, panel["title"]
        assert {"value": 80, "color": "red"} not in steps
        if panel["type"] == "state-timeline":
            # By thresholds, merged values lose their texts.
            assert defaults["color"]["mode"] == "palette-classic"
            assert defaults["mappings"]


@every_page
def test_a_bound_is_called_one(name: str) -> None:
    """An upper bound under the name of the value would be read as the value."""
    words = {"gpu_saturation_lower_ratio": "at least", "gpu_saturation_upper_ratio": "at most"}
    for target in targets(name):
        for metric, word in words.items():
            if metric in target.expression:
                assert word in target.query["legendFormat"], target.name


def test_saturation_is_a_number_only() -> None:
    """The time part is *at its limit*, and no legend or text calls a GPU saturated."""
    for name in NAMES:
        for panel in panels(load(name)):
            texts = [panel["title"], panel["description"]]
            texts += [query["legendFormat"] for query in panel["targets"]]
            assert not re.search(r"\b[Ss]aturated\b", " ".join(texts)), panel["title"]
            for query in panel["targets"]:
                if query["legendFormat"] == "{{part}}":
                    assert '"at its limit", "part", "saturated"' in query["expr"]


def test_reasons_of_throttling_are_words() -> None:
    """No abbreviation of the driver stands in a legend."""
    (target,) = [one for one in targets("gpu") if one.panel["title"] == "Throttling"]
    for reason in THROTTLE_REASONS:
        assert re.search(rf'"reason", "[a-z ]+", "reason", "{reason}"', target.expression)


GRID_PIXELS, GAP_PIXELS = 38, 8
AROUND_PIXELS, PAGER_PIXELS = 125, 50
"""Headline, axis and a legend of two lines; what turns pages."""
LEAST_ROW_PIXELS = 12
"""The size of their labels."""
MIG_INSTANCES = 7


@every_page
def test_rows_of_states_have_room_for_their_labels(name: str) -> None:
    """As many as a page has, or as a GPU has MIG instances."""
    for panel in panels(load(name)):
        if panel["type"] != "state-timeline":
            continue
        rows = panel["options"].get("perPage")
        room = panel["gridPos"]["h"] * GRID_PIXELS - GAP_PIXELS - AROUND_PIXELS
        room -= PAGER_PIXELS if rows else 0
        assert room / (rows or MIG_INSTANCES) > LEAST_ROW_PIXELS, panel["title"]


QUIET = {
    *("The worst 20 nodes", "The worst ten", "Workloads", "Held idle now", "Never opened now"),
    *("GPU-hours lost, by limiter", "GPU-hours lost, by owner", "GPU-hours by owner"),
    *("GPU-hours by namespace or user", "GPUs held idle, by owner", "By GPU"),
    *("By GPU, in the last 24 hours", "Serving pods", "Requests waiting", "Tokens per second"),
    *("Saturation of serving pods", "Tokens per joule", "What limits serving pods"),
}
"""What is empty while nothing is wrong."""


@every_page
def test_what_is_empty_while_nothing_is_wrong_says_so(name: str) -> None:
    """'No data' would look like a fault."""
    quiet = QUIET | ({"By node"} if name == "at-scale/idle" else set())
    for panel in panels(load(name)):
        if panel["title"] in quiet:
            said = panel["fieldConfig"]["defaults"].get("noValue", "")
            assert len(said.split()) > 1, panel["title"]


def _tables(name: str) -> list[tuple[Model, list[str]]]:
    """The tables of a page, each with its headers."""
    return [
        (panel, [*step["options"]["renameByName"].values()])
        for panel in panels(load(name))
        if panel["type"] == "table"
        for step in panel["transformations"]
        if step["id"] == "organize"
    ]


@every_page
def test_the_words_for_an_empty_table_are_not_in_its_empty_cells(name: str) -> None:
    """Grafana writes `noValue` into each cell without a value, cut to what fits."""
    for panel, headers in _tables(name):
        for header in headers:
            written = panel["fieldConfig"]["defaults"].get("noValue", "")
            for override in panel["fieldConfig"]["overrides"]:
                wanted, found = override["matcher"]["options"], override["matcher"]["id"]
                if header == wanted or (found == "byRegexp" and re.search(wanted[1:-1], header)):
                    own = {one["id"]: one["value"] for one in override["properties"]}
                    written = own.get("noValue", written)
            assert written in ("0", "-"), (panel["title"], header)


LAPTOP_PIXELS, AROUND_TABLE_PIXELS = 1280 - 32, 24


@every_page
def test_every_column_of_a_table_is_in_sight_on_a_laptop(name: str) -> None:
    """What is pushed out is found only by who scrolls in the panel."""
    for panel, headers in _tables(name):
        least = panel["fieldConfig"]["defaults"]["custom"]["minWidth"]
        widths = {
            override["matcher"]["options"]: one["value"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "custom.width"
        }
        room = panel["gridPos"]["w"] / GRID_WIDTH * LAPTOP_PIXELS - AROUND_TABLE_PIXELS
        assert sum(widths.get(header, least) for header in headers) <= room, panel["title"]


def test_no_loss_is_not_in_the_colour_of_one() -> None:
    """Nothing held idle is grey, in each of the numbers of the page about it."""
    (panel,) = [one for one in panels(load("idle")) if one["title"] == "Held idle"]
    for override in panel["fieldConfig"]["overrides"]:
        look = {one["id"]: one["value"] for one in override["properties"]}
        assert look["color"] == {"mode": "thresholds"}, override["matcher"]["options"]
        base, first = look["thresholds"]["steps"][:2]
        assert base == {"value": None, "color": GREY}
        factor = 100 if look["unit"] == "percentunit" else 1
        assert round(factor * first["value"] * 1.001, look["decimals"]) > 0


NAMED = ("limiter", "part", "phase", "pipe", "precision")
"""Labels whose values have a colour each."""
READS = {"saturated": "at its limit"}
"""What a legend says instead of a label's value."""


def _colors(panel: Model, name: str) -> set[str]:
    """The colours that a panel has for a series, or a state, of this name."""
    field = panel["fieldConfig"]
    mappings = list(field["defaults"].get("mappings") or [])
    found = set()
    for override in field["overrides"]:
        pattern = override["matcher"]["options"]
        for one in override["properties"]:
            if one["id"] == "mappings":
                mappings += one["value"]
            # Of a roofline, the fields of the ceilings begin with what they show.
            names = (name, f"Throughput H100 {name}")
            meant = any(re.search(pattern.strip("/"), text) for text in names)
            if one["id"] == "color" and meant:
                found.add(one["value"].get("fixedColor"))
    for mapping in mappings:
        found |= {r["color"] for r in mapping["options"].values() if r["text"] == name}
    return found - {None}


def test_one_name_has_one_colour() -> None:
    """A limiter, part, phase, pipe or precision looks the same wherever it is shown."""
    names = {
        READS.get(value, value)
        for family in CATALOGUE.values()
        for label in family.labels
        if label.name in NAMED
        for value in label.values
    }
    shown = [panel for page in NAMES for panel in panels(load(page))]
    colors = {name: set().union(*(_colors(panel, name) for panel in shown)) for name in names}

    assert {name: found for name, found in colors.items() if len(found) != 1} == {}


def _gpu_colors(panel: Model, gpu: int, mig: str = "") -> list[str]:
    """The colours that a panel has for what it draws of a GPU."""
    name = f"node-7:19400 GPU {gpu}{mig}"
    if panel["type"] == "xychart":
        name = f"Throughput node-7 GPU {gpu}{mig}"
    return [
        one["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "color" and re.search(override["matcher"]["options"].strip("/"), name)
    ]


def test_a_gpu_has_one_colour_on_the_whole_roofline_page() -> None:
    """Grafana's own follow from the order of the lines, and GPUs without work have no point."""
    shown = [
        panel
        for panel in panels(load("roofline"))
        if panel["type"] in ("timeseries", "xychart") and "what limits" not in panel["title"]
    ]
    colors = [_gpu_colors(shown[0], gpu) for gpu in range(40)]

    assert len(shown) == 7
    assert all(len(found) == 1 for found in colors)
    assert len({found[0] for found in colors[:20]}) == 20
    for panel in shown:
        for more in ("", "/3", ", from the job and the driver, work"):
            assert [_gpu_colors(panel, gpu, more) for gpu in range(40)] == colors, panel["title"]


@pytest.mark.parametrize("title", ["each GPU under its ceilings", "what limits each GPU"])
def test_the_roofline_has_the_options_that_it_needs(title: str) -> None:
    """The chart was seen to break without each of them."""
    (panel,) = [one for one in panels(load("roofline")) if title in one["title"]]
    defaults, options = panel["fieldConfig"]["defaults"], panel["options"]
    overrides = {
        one["matcher"]["options"]: {p["id"]: p["value"] for p in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    gpus, ceilings, bars = options["series"]

    assert [step["id"] for step in panel["transformations"]] == [
        "joinByLabels",
        "organize",
        "partitionByValues",
    ]
    assert (panel["timeFrom"], panel["maxDataPoints"]) == ("$trail", 60)
    assert defaults["color"] == {"mode": "palette-classic"}
    assert defaults["custom"]["scaleDistribution"] == {"type": "log", "log": 10}
    assert "max" not in defaults
    assert gpus["size"]["matcher"]["options"] == "weight"
    assert set(ceilings) == set(bars) == {"x", "y"}
    patterns = [series["y"]["matcher"]["options"] for series in (gpus, ceilings, bars)]
    assert all(pattern.startswith("/^Throughput ") for pattern in patterns)
    for pattern in patterns[1:]:
        assert overrides[pattern]["custom.pointSize.max"] == 100_000
        assert overrides[pattern]["custom.show"] == "points+lines"
    assert overrides["Intensity"]["min"] == 0.1
    assert overrides["Intensity"]["max"] == 10_000
    assert ("color" in gpus) == ("limiter" in overrides) == ("limits" in title)
    # Values of one query only: ceilings and bars are an instant, the GPUs a range.
    assert [query["instant"] for query in panel["targets"]] == [False, True, True]
    assert re.fullmatch(patterns[0][1:-1], "Throughput node1 GPU 0")
    assert re.fullmatch(patterns[0][1:-1], "Throughput node1 GPU 0/3")
    for precision in ("fp32", "bf16_tensor", "int8_tensor", "fp8_tensor_fp16acc"):
        assert re.fullmatch(patterns[1][1:-1], f"Throughput H100 80GB HBM3 {precision}")
        assert not re.fullmatch(patterns[0][1:-1], f"Throughput H100 80GB HBM3 {precision}")
    for bar in ("work", "intensity", "likely traffic", "most traffic"):
        name = f"Throughput node1 GPU 0, from the job and the driver, {bar}"
        assert [bool(re.fullmatch(each[1:-1], name)) for each in patterns] == [False, False, True]
