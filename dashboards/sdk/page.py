# SPDX-License-Identifier: Apache-2.0
"""Turns a page of our model into Grafana's classic JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import (
    common,
    prometheus,
)
from grafana_foundation_sdk.models import dashboard as grafana

from dashboards.model import (
    GRID_WIDTH,
    SHARE,
    WHOLE_GPUS,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    Transformation,
    Values,
    Variable,
)
from dashboards.sdk.charts import chart_parts

SCHEMA_VERSION = 39
"""Every Grafana since 11.0 reads it; newer ones migrate it as they load it."""
PLUGIN_VERSION = "11.4.0"
"""The oldest Grafana that is supported: without it an XY chart is taken for one of version 10."""
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
MODES = frozenset(mode.value for mode in grafana.FieldColorModeId)

DEFAULT_COLORS = {"stat": "text", "table": "thresholds"}


def to_json(page: Dashboard) -> dict[str, Any]:
    """Return the dashboard as Grafana stores it."""
    model = grafana.Dashboard(
        uid=page.uid,
        title=page.title,
        description=page.description,
        tags=list(page.tags),
        timezone="browser",
        editable=False,
        graph_tooltip=grafana.DashboardCursorSync.CROSSHAIR,
        time=grafana.DashboardDashboardTime(from_val=page.time_from, to="now"),
        refresh=page.refresh,
        schema_version=SCHEMA_VERSION,
        panels=list(_placed(page)),
        templating=grafana.DashboardDashboardTemplating(
            list_val=[_variable(variable) for variable in page.variables]
        ),
        annotations=grafana.AnnotationContainer(list_val=[]),
        links=[_menu(page.tags)],
    )
    plain: dict[str, Any] = json.loads(json.dumps(model, cls=JSONEncoder))
    return plain


def _menu(tags: Sequence[str]) -> grafana.DashboardLink:
    return grafana.DashboardLink(
        title="GPU dashboards",
        type_val=grafana.DashboardLinkType.DASHBOARDS,
        icon="external link",
        tags=list(tags),
        as_dropdown=False,
        include_vars=False,
        keep_time=True,
    )


def _placed(page: Dashboard) -> Iterator[grafana.Panel | grafana.RowPanel]:
    """Yield the panels from left to right and top to bottom, numbered from 1.

    Those of a closed row are in it, and take no place until it is opened.
    """
    number, top = 1, 0
    for row in (Row("", page.top), *page.rows):
        headline = None
        if row.title:
            place = grafana.GridPos(x=0, y=top, w=GRID_WIDTH, h=1)
            headline = grafana.RowPanel(
                id_val=number,
                title=row.title,
                collapsed=row.closed,
                grid_pos=place,
                panels=[],
                repeat=row.repeat,
            )
            number, top = number + 1, top + 1
            yield headline
        left = height = 0
        below = top
        for panel in row.panels:
            if left + panel.width > GRID_WIDTH:
                left, below, height = 0, below + height, 0
            place = grafana.GridPos(x=left, y=below, w=panel.width, h=panel.height)
            placed = _panel(panel, number, place)
            if headline is not None and row.closed:
                headline.panels.append(placed)
            else:
                yield placed
            number, left, height = number + 1, left + panel.width, max(height, panel.height)
        top = top if row.closed else below + height


def _panel(panel: Panel, number: int, place: grafana.GridPos) -> grafana.Panel:
    kind, options, custom = chart_parts(panel.chart)
    overrides = [
        grafana.DashboardFieldConfigSourceOverrides(
            matcher=grafana.MatcherConfig(id_val=override.matcher, options=override.pattern),
            properties=[
                grafana.DynamicConfigValue(id_val=name, value=value)
                for name, value in override.properties
            ],
        )
        for override in panel.overrides
    ]
    return grafana.Panel(
        type_val=kind,
        id_val=number,
        plugin_version=PLUGIN_VERSION,
        title=panel.title,
        description=panel.description,
        datasource=SOURCE,
        grid_pos=place,
        targets=[_target(query, chr(ord("A") + i)) for i, query in enumerate(panel.queries)],
        transformations=[
            grafana.DataTransformerConfig(id_val=step.name, options=dict(step.options))
            for step in (*panel.transformations, *_renamed(panel))
        ],
        max_data_points=panel.max_points,
        time_from=panel.time_from,
        hide_time_override=None if panel.time_from is None else False,
        repeat=panel.repeat,
        repeat_direction=None if panel.repeat is None else "h",
        max_per_row=None if panel.repeat is None else GRID_WIDTH // panel.width,
        options=options,
        field_config=grafana.FieldConfigSource(
            defaults=_field(panel.values, custom, DEFAULT_COLORS.get(kind, "palette-classic")),
            overrides=overrides,
        ),
    )


def _renamed(panel: Panel) -> tuple[Transformation, ...]:
    return (WHOLE_GPUS,) if any(SHARE in query.legend for query in panel.queries) else ()


def _target(query: Query, reference: str) -> prometheus.Dataquery:
    form = prometheus.PromQueryFormat
    return prometheus.Dataquery(
        ref_id=reference,
        datasource=SOURCE,
        expr=query.expression,
        legend_format=query.legend,
        format_val=form.TABLE if query.table else form.TIME_SERIES,
        instant=query.instant,
        range_val=not query.instant,
        exemplar=False,
        editor_mode=prometheus.QueryEditorMode.CODE,
    )


def _field(values: Values, custom: object, default_color: str) -> grafana.FieldConfig:
    wanted = values.color or default_color
    known = wanted in MODES
    color = grafana.FieldColor(
        mode=grafana.FieldColorModeId(wanted if known else "fixed"),
        fixed_color=None if known else wanted,
    )
    mappings: list[grafana.ValueMapping] = []
    if values.texts:
        mappings.append(
            grafana.ValueMap(
                options={
                    value: grafana.ValueMappingResult(text=text, color=shade, index=index)
                    for index, (value, text, shade) in enumerate(values.texts)
                }
            )
        )
    return grafana.FieldConfig(
        unit=values.unit,
        min_val=values.minimum,
        max_val=values.maximum,
        decimals=values.decimals,
        color=color,
        thresholds=grafana.ThresholdsConfig(
            mode=grafana.ThresholdsMode.ABSOLUTE,
            steps=[grafana.Threshold(value=value, color=shade) for value, shade in values.steps],
        ),
        mappings=mappings,
        no_value=values.no_value,
        links=[_data_link(link) for link in values.links] or None,
        custom=custom,
    )


def _data_link(link: Link) -> Any:
    return {"title": link.title, "url": link.url, "targetBlank": False}


def _variable(variable: Variable) -> grafana.VariableModel:
    chosen = list(variable.current) if variable.many else "".join(variable.current[:1])
    current = (
        grafana.VariableOption(selected=True, text=["All"], value=["$__all"])
        if variable.many and not variable.current
        else grafana.VariableOption(selected=bool(chosen), text=chosen, value=chosen)
    )
    model = grafana.VariableModel(
        type_val=grafana.VariableType(variable.kind),
        name=variable.name,
        label=variable.label,
        description=variable.description or None,
        hide=grafana.VariableHide.DONT_HIDE,
        query=variable.query,
        current=current if variable.current or variable.many else None,
        skip_url_sync=False,
    )
    if variable.kind == "query":
        model.datasource = SOURCE
        model.query = {"query": variable.query, "refId": variable.name}
        model.definition = variable.query
        model.refresh = grafana.VariableRefresh.ON_TIME_RANGE_CHANGED
        model.sort = (
            grafana.VariableSort.NUMERICAL_ASC
            if variable.numeric
            else grafana.VariableSort.ALPHABETICAL_ASC
        )
    if variable.kind in ("query", "custom"):
        model.multi = model.include_all = variable.many
        model.all_value = ".*" if variable.many else None
    if variable.kind == "custom":
        model.options = []
    return model
