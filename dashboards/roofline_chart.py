# SPDX-License-Identifier: Apache-2.0
"""The roofline itself: points, ceilings, and the options that the chart needs."""

from __future__ import annotations

from dashboards import navigation, palette
from dashboards.model import (
    Override,
    Panel,
    Points,
    Query,
    Transformation,
    Values,
    Variable,
)
from dashboards.promql import (
    DEVICE,
    NODES,
    WINDOW,
    activity,
    limiter_number,
    measured_flops,
    partly_read,
    select,
)

LEFT, RIGHT, LOWEST = "0.1", "10000", "1e11"
"""FLOP/byte between which ceilings are drawn, where no ridge lies outside, and the least FLOP/s."""
TRAIL = ("1m", "5m", "15m", "1h")
CEILINGS = "/^Throughput .* (fp|bf|tf|int)[0-9]+(_tensor)?(_fp16acc)?$/"
POINTS = "/^Throughput .* GPU [0-9]+(/[0-9]+)?$/"
FROM_JOB = "from the job and the driver"
BARS = f"/^Throughput .* {FROM_JOB}, (work|intensity|likely traffic|most traffic)$/"
"""All begin with the name of the field: other fields end in the same words."""

BASIS = Variable(
    "basis",
    "Ceilings",
    "spec,achievable",
    kind="custom",
    many=False,
    current=("spec",),
    description="spec: the datasheet, dense. achievable: what the best public kernels reach.",
)
PRECISION = Variable(
    "precision",
    "Precision",
    "fp64,fp64_tensor,fp32,fp16,bf16,tf32_tensor,fp16_tensor,bf16_tensor,fp8_tensor,"
    "int8_tensor,fp4_tensor",
    kind="custom",
    current=("fp32", "bf16_tensor"),
    description="Which compute ceilings are drawn.",
)
SHOWN = Variable(
    "trail",
    "Trail",
    ",".join(TRAIL),
    kind="custom",
    many=False,
    current=("5m",),
    description="How far back the dots behind each GPU go.",
)

MODEL_OF = '"model", "$2", "name", "(NVIDIA )?(.+)"'
THROUGHPUT = f"(({measured_flops()}) > 0)"
TRAFFIC = f"(({activity('gpu_dram_bytes_total')}) > 0)"
INTENSITY = f"({THROUGHPUT} / {TRAFFIC} unless on ({DEVICE}) {partly_read()})"
"""From counters: a job that works in bursts is shown by its average, whenever it is scraped. Work
that is counted in part has none."""


GPU_COLORS = tuple(
    Override(
        "byRegexp",
        f"/^(Throughput )?[^ ]+ {palette.gpu_pattern(number)}/",
        (("color", {"mode": "fixed", "fixedColor": color}),),
    )
    for number, color in enumerate(palette.GPUS)
)
"""On every chart of the page that is not coloured by limiter: what Grafana chooses follows from the
order of the lines, which differs from chart to chart."""


def _axis(expression: str, axis: str) -> str:
    return f'label_replace({expression}, "axis", "{axis}", "", "")'


def _vertex(expression: str, vertex: str) -> str:
    return f'label_replace({expression}, "vertex", "{vertex}", "", "")'


def points(with_limiter: bool = False) -> str:
    """Return one series for each GPU and axis, with samples at the same steps.

    The chart pairs them by position, so that a gap in one would shift it against the others.
    """
    both = f"and on ({DEVICE})"
    age = "(time() - ${__to:date:seconds}) / $__range_s"
    axes = [
        _axis(f"{INTENSITY} {both} {THROUGHPUT}", "Intensity"),
        _axis(f"{THROUGHPUT} {both} {INTENSITY}", "Throughput"),
        # Halves every 40th of the range: the newest point is the largest.
        _axis(f"0 * ({THROUGHPUT} {both} {INTENSITY}) + 2 ^ (40 * {age})", "weight"),
    ]
    if with_limiter:
        axes.append(_axis(f"{limiter_number()} {both} {INTENSITY} {both} {THROUGHPUT}", "limiter"))
    shown = (
        f"({' or '.join(axes)}) and on (job, instance, uuid) {select('gpu_info', name='$model')}"
    )
    return _named(shown)


def _named(shown: str, end: str = "") -> str:
    """Return series with the name of their GPU, and an end, as label `series`."""
    host = f'label_replace({shown}, "host", "$1", "instance", "([^:]+).*")'
    named = f'label_replace({host}, "mig", "/$1", "gpu_instance", "(.+)")'
    whole = f'label_join({named}, "series", " GPU ", "host", "gpu")'
    parts = f'label_replace({whole}, "bar", "{end}", "", "")' if end else whole
    labels = '"series", "mig", "bar"' if end else '"series", "mig"'
    return f'label_join({parts}, "series", "", {labels})'


def bars() -> str:
    """Return the work and intensity of GPUs whose jobs count FLOPs and whose DRAM is estimated.

    Each is a bar of three vertices: the least, the likely and the most. The intensity has no upper
    end, because the traffic has no lower one. Without FLOPs there are two lines on which FLOP/s =
    intensity x bytes/s, the likely and the most, up to the most work.
    """

    def mean(metric: str, **labels: str) -> str:
        return f"avg_over_time({select(metric, **labels)}[{WINDOW}])"

    work = f"({mean('gpu_stated_flops_per_second')} > 0)"
    intensity = f"({work} / ({mean('gpu_dram_estimate_bytes_per_second')} > 0))"
    placed = f"({work} and {intensity})"
    likely = mean("gpu_resource_saturation_estimate_ratio", resource="dram")
    highest = mean("gpu_resource_saturation_upper_ratio", resource="dram")
    bandwidth = mean("gpu_peak_memory_bandwidth_bytes_per_second", basis="spec")
    roof = f"({intensity} * ignoring (basis) {bandwidth})"
    upper = f"({mean('gpu_flops_upper_per_second')} < {roof} or {roof})"
    traffic = f"({mean('gpu_dram_estimate_bytes_per_second')} > 0 unless {work})"
    most = f"({traffic} * ignoring (resource) ({highest} / {likely}))"
    ends = {
        "work": (
            (intensity, f"({mean('gpu_flops_lower_per_second')} and {intensity})", "least"),
            (intensity, placed, "likely"),
            (intensity, upper, "most"),
        ),
        "intensity": (
            (f"({intensity} * ignoring (resource) ({likely} / {highest}))", placed, "least"),
            (intensity, placed, "likely"),
            (f"(0 * {intensity} + {RIGHT})", placed, "most"),
        ),
        "likely traffic": _slope(traffic, mean("gpu_flops_upper_per_second")),
        "most traffic": _slope(most, mean("gpu_flops_upper_per_second")),
    }
    shown = []
    for name, vertices in ends.items():
        axes = " or ".join(
            _vertex(f"({_axis(x, 'Intensity')} or {_axis(y, 'Throughput')})", vertex)
            for x, y, vertex in vertices
        )
        shown.append(_named(f"({axes})", f", {FROM_JOB}, {name}"))
    models = select("gpu_info", name="$model")
    return f"({' or '.join(shown)}) and on (job, instance, uuid) {models}"


def _slope(traffic: str, work: str) -> tuple[tuple[str, str, str], ...]:
    """Return the two ends of the line that some bytes/s allow, within the axes."""
    lowest = f"clamp_min({LEFT} * {traffic}, {LOWEST})"
    return (
        (f"({lowest} / {traffic})", lowest, "least"),
        (f"({work} / {traffic})", f"({work} and {traffic})", "most"),
    )


def with_model(peak: str) -> str:
    """Return a ceiling of each GPU with the name of its GPU model, shortened."""
    info = select("gpu_info", NODES, name="$model")
    named = f"{peak} * on (job, instance, uuid) group_left (name) {info}"
    return f"label_replace({named}, {MODEL_OF})"


def ceilings() -> str:
    """Return three vertices for each GPU model and precision, in the order of the line."""
    flops = select("gpu_peak_flops_per_second", NODES, basis="$basis", precision="$precision")
    bandwidth = select("gpu_peak_memory_bandwidth_bytes_per_second", NODES, basis="$basis")
    peak = f"max by (model, precision) ({with_model(flops)})"
    memory = f"max by (model) ({with_model(bandwidth)})"
    per_model = "on (model) group_left ()"
    x = [
        # The first term breaks ties only: it orders the legend by peak.
        _vertex(f"1e-20 * {peak} + {LEFT}", "left"),
        _vertex(f"{peak} / {per_model} {memory}", "ridge"),
        _vertex(f"0 * {peak} + {RIGHT}", "right"),
    ]
    y = [
        _vertex(f"0 * {peak} + {per_model} ({LEFT} * {memory})", "left"),
        _vertex(peak, "ridge"),
        _vertex(peak, "right"),
    ]
    both = f"{_axis(' or '.join(x), 'Intensity')} or {_axis(' or '.join(y), 'Throughput')}"
    return f'sort(label_join({both}, "series", " ", "model", "precision"))'


def _matchers(pattern: str, *more: str) -> dict[str, tuple[str, str]]:
    found = {"x": ("byName", "Intensity"), "y": ("byRegexp", pattern)}
    return found | {{"weight": "size", "limiter": "color"}[name]: ("byName", name) for name in more}


def _chart(title: str, description: str, by_limiter: bool) -> Panel:
    columns = ("weight", "limiter") if by_limiter else ("weight",)
    hidden = {"legend": False, "tooltip": True, "viz": False}
    overrides = [
        Override(
            "byName",
            "Intensity",
            (
                ("unit", "none"),
                ("min", float(LEFT)),
                ("max", float(RIGHT)),
                ("custom.axisLabel", "Arithmetic intensity (FLOP per byte of DRAM traffic)"),
            ),
        ),
        Override(
            "byName",
            "weight",
            (
                ("custom.pointSize.min", 2),
                ("custom.pointSize.max", 16),
                ("custom.hideFrom", hidden),
            ),
        ),
        *(() if by_limiter else GPU_COLORS),
        # A number in a label would be written as FLOP/s, in the tooltip and in the link.
        Override("byName", "gpu", (("unit", "none"),)),
        Override(
            "byRegexp",
            CEILINGS,
            (
                ("custom.show", "points+lines"),
                ("custom.pointShape", "square"),
                ("custom.pointSize.fixed", 6),
                # Vertices farther outside of the window than this many pixels would be dropped.
                ("custom.pointSize.max", 100_000),
                ("custom.lineWidth", 2),
                ("links", []),
            ),
        ),
        Override(
            "byRegexp",
            BARS,
            (
                ("custom.show", "points+lines"),
                ("custom.pointShape", "square"),
                ("custom.pointSize.fixed", 5),
                ("custom.pointSize.max", 100_000),
                ("custom.lineWidth", 1),
                ("custom.lineStyle", {"fill": "dash", "dash": [6, 4]}),
            ),
        ),
        *(
            Override(
                "byRegexp",
                f"/^Throughput .* {precision}$/",
                (("color", {"mode": "fixed", "fixedColor": color}),),
            )
            for precision, color in palette.PRECISIONS.items()
        ),
    ]
    if by_limiter:
        options = {
            str(number): {"text": name, "color": color, "index": number}
            for number, (name, color) in enumerate(palette.NUMBERED.items())
        }
        mappings = [{"type": "value", "options": options}]
        overrides.append(Override("byName", "limiter", (("unit", "none"), ("mappings", mappings))))
    labels = ["series", "vertex", "instance", "gpu", "uuid"]
    return Panel(
        title,
        description,
        Points((_matchers(POINTS, *columns), _matchers(CEILINGS), _matchers(BARS)), "Throughput"),
        Values("si:FLOP/s", minimum=float(LOWEST), links=(navigation.gpu_of_point(),)),
        (
            Query(points(by_limiter)),
            Query(ceilings(), instant=True),
            Query(bars(), instant=True),
        ),
        width=12,
        height=17,
        overrides=tuple(overrides),
        transformations=(
            Transformation("joinByLabels", {"value": "axis", "join": labels}),
            Transformation(
                "organize",
                {"excludeByName": {"vertex": True}, "indexByName": {}, "renameByName": {}},
            ),
            Transformation(
                "partitionByValues",
                {"fields": ["series"], "keepFields": False, "naming": {"asLabels": True}},
            ),
        ),
        max_points=60,
        time_from="$trail",
    )


COLOR_KEY = ", ".join(
    f"{name} {word}"
    for name, word in {
        "compute": "green",
        "memory": "blue",
        "latency": "amber",
        "communication": "purple",
        "input": "pink",
        "clock": "orange",
        "idle": "grey",
    }.items()
)

TOP = (
    _chart(
        "Roofline: each GPU under its ceilings",
        "Each GPU is a comet: the large dot is now, the small ones are the recent past "
        "(Trail). "
        "The sloped part of a ceiling is memory bandwidth, the flat part is compute, the square "
        "is the ridge between them. On a ceiling: only a change of the work gains more. Below the "
        "slope: limited by memory at best, so raise the intensity (fusion, larger batch, lower "
        "precision) or move closer to it. Right of the ridge and far below: latency, input or "
        "clocks hold it back. GPUs without work are not drawn. A dashed cross is not measured: its "
        "work is what the jobs count, its traffic what the driver's memory utilization suggests, "
        "and the truth lies on its bars. Two dashed slopes are a GPU whose work is not known: the "
        "likely and the most traffic. A GPU has the colour of its "
        "number on every chart of this page, whatever its node. Click a dot to open its GPU.",
        by_limiter=False,
    ),
    _chart(
        "Roofline: what limits each GPU",
        "The same points, coloured by what limited the GPU most at that time: "
        f"{COLOR_KEY}. The legend names the GPUs and has no colour key. A dot far below the "
        "ceilings in pink waits for its data, in orange for its clocks, in amber it runs kernels "
        "that fill no unit; green or blue far below a ceiling means another precision's ceiling.",
        by_limiter=True,
    ),
)
