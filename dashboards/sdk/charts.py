# SPDX-License-Identifier: Apache-2.0
"""The options of each kind of chart, in the models of the SDK."""

from __future__ import annotations

from functools import singledispatch

from grafana_foundation_sdk.models import (
    bargauge,
    common,
    heatmap,
    stat,
    statetimeline,
    table,
    timeseries,
    xychart,
)

from dashboards.model import (
    Bars,
    Chart,
    Heat,
    Lines,
    Numbers,
    Points,
    States,
    Table,
)

Parts = tuple[str, object, object]
"""The name of the plug-in, its options, and what it adds to the options of fields."""


def _legend() -> common.VizLegendOptions:
    return common.VizLegendOptions(
        show_legend=True,
        display_mode=common.LegendDisplayMode.LIST,
        placement=common.LegendPlacement.BOTTOM,
        calcs=[],
    )


def _tooltip(mode: common.TooltipDisplayMode) -> common.VizTooltipOptions:
    order = common.SortOrder.DESCENDING if mode == common.TooltipDisplayMode.MULTI else None
    return common.VizTooltipOptions(mode=mode, sort=order or common.SortOrder.NONE)


def _reduce() -> common.ReduceDataOptions:
    return common.ReduceDataOptions(calcs=["lastNotNull"], fields="", values=False)


@singledispatch
def chart_parts(chart: Chart) -> Parts:
    """Return what makes a panel this kind of chart."""
    raise TypeError(chart)


@chart_parts.register
def _(chart: Lines) -> Parts:
    drawn = common.GraphThresholdsStyleMode.DASHED
    options = timeseries.Options(
        legend=_legend(),
        tooltip=_tooltip(common.TooltipDisplayMode.MULTI),
    )
    custom = common.GraphFieldConfig(
        draw_style=common.GraphDrawStyle.LINE,
        line_width=chart.width,
        fill_opacity=chart.fill,
        show_points=common.VisibilityMode.NEVER,
        span_nulls=False,
        axis_border_show=False,
        axis_soft_max=chart.soft_maximum,
        stacking=common.StackingConfig(mode=common.StackingMode(chart.stacked), group="A"),
        thresholds_style=common.GraphThresholdsStyleConfig(
            mode=drawn if chart.thresholds_drawn else common.GraphThresholdsStyleMode.OFF
        ),
    )
    return "timeseries", options, custom


@chart_parts.register
def _(chart: States) -> Parts:
    options = statetimeline.Options(
        show_value=common.VisibilityMode.NEVER,
        row_height=0.85,
        merge_values=True,
        per_page=chart.rows,
        legend=_legend(),
        tooltip=_tooltip(common.TooltipDisplayMode.SINGLE),
    )
    return "state-timeline", options, statetimeline.FieldConfig(fill_opacity=85, line_width=0)


@chart_parts.register
def _(chart: Numbers) -> Parts:
    options = stat.Options(
        graph_mode=common.BigValueGraphMode.NONE,
        color_mode=common.BigValueColorMode.VALUE,
        text_mode=common.BigValueTextMode(chart.text),
        reduce_options=_reduce(),
        # Names stand above their values, not beside them.
        wide_layout=False,
        text=common.VizTextDisplayOptions(title_size=chart.name_size, value_size=chart.size),
    )
    return "stat", options, None


@chart_parts.register
def _(chart: Heat) -> Parts:
    options = heatmap.Options(
        calculate=False,
        # No scheme: in the dark theme Grafana turns one around, so that the most is white.
        color=heatmap.HeatmapColorOptions(
            mode=heatmap.HeatmapColorMode.OPACITY,
            scale=heatmap.HeatmapColorScale.LINEAR,
            scheme="Oranges",
            fill="dark-orange",
            exponent=0.5,
            steps=64,
            min_val=0,
        ),
        cell_values=heatmap.CellValues(unit="none", decimals=0),
        filter_values=heatmap.FilterValueRange(le=1e-9),
        y_axis=heatmap.YAxisConfig(
            axis_placement=common.AxisPlacement.LEFT, unit="percentunit", decimals=0
        ),
        legend=heatmap.HeatmapLegend(show=True),
        tooltip=heatmap.HeatmapTooltip(mode=common.TooltipDisplayMode.SINGLE),
    )
    return "heatmap", options, heatmap.FieldConfig()


@chart_parts.register
def _(chart: Bars) -> Parts:
    options = bargauge.Options(
        display_mode=common.BarGaugeDisplayMode.BASIC,
        orientation=common.VizOrientation.HORIZONTAL,
        value_mode=common.BarGaugeValueMode.COLOR,
        show_unfilled=True,
        # One bar alone does not fill the panel.
        sizing=common.BarGaugeSizing.MANUAL,
        min_viz_height=16,
        max_viz_height=36,
        reduce_options=_reduce(),
    )
    return "bargauge", options, None


@chart_parts.register
def _(chart: Table) -> Parts:
    order = [] if chart.sort_by is None else [_sorted_by(chart.sort_by)]
    options = table.Options(show_header=True, sort_by=order, cell_height=common.TableCellHeight.SM)
    # Grafana's own least width would push the last columns out of a laptop's window.
    custom = {"align": "auto", "minWidth": 100, "cellOptions": {"type": "auto"}, "inspect": False}
    return "table", options, custom


def _sorted_by(column: str) -> common.TableSortByFieldState:
    return common.TableSortByFieldState(display_name=column, desc=True)


def _matcher(found: tuple[str, str]) -> xychart.MatcherConfig:
    return xychart.MatcherConfig(id_val=found[0], options=found[1])


@chart_parts.register
def _(chart: Points) -> Parts:
    # Two entries: with one, size and colour of the GPUs would be asked of the ceilings as well.
    series = [
        xychart.XYSeriesConfig(
            x=xychart.XychartXYSeriesConfigX(matcher=_matcher(group["x"])),
            y=xychart.XychartXYSeriesConfigY(matcher=_matcher(group["y"])),
            size=(
                xychart.XychartXYSeriesConfigSize(matcher=_matcher(group["size"]))
                if "size" in group
                else None
            ),
            color=(
                xychart.XychartXYSeriesConfigColor(matcher=_matcher(group["color"]))
                if "color" in group
                else None
            ),
        )
        for group in chart.series
    ]
    options = xychart.Options(
        mapping=xychart.SeriesMapping.AUTO,
        series=series,
        legend=_legend(),
        tooltip=_tooltip(common.TooltipDisplayMode.SINGLE),
    )
    custom = xychart.FieldConfig(
        show=xychart.XYShowMode.POINTS,
        point_shape=xychart.PointShape.CIRCLE,
        point_size=xychart.XychartFieldConfigPointSize(fixed=8),
        point_stroke_width=1,
        fill_opacity=70,
        line_width=1,
        line_style=common.LineStyle(fill="solid"),
        scale_distribution=common.ScaleDistributionConfig(
            type_val=common.ScaleDistribution.LOG, log=10
        ),
        axis_placement=common.AxisPlacement.AUTO,
        axis_label=chart.y_label,
        axis_color_mode=common.AxisColorMode.TEXT,
        axis_border_show=False,
        axis_grid_show=True,
        axis_centered_zero=False,
        hide_from=common.HideSeriesConfig(legend=False, tooltip=False, viz=False),
    )
    return "xychart", options, custom
