# SPDX-License-Identifier: Apache-2.0
"""The content of ``/``: headline, help where no GPU is up, table of GPUs, links, roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from exporter.model.snapshot import Gpu, Snapshot
from exporter.web.live.rows import Row
from exporter.web.page.document import data_block, table
from exporter.web.page.table import gpu_table
from exporter.web.wording.recorded import recording_ended


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


_PLOT = """\
<label class="model" hidden>GPU model <select id="model"></select></label>
<div class="plot"><svg class="roofline" role="group" aria-labelledby="roofline-title">
<g class="grid"/><g class="roofs"/><g class="clock"/><g class="trails"/><g class="bounds"/>
<g class="marks"/><g class="points"/><g class="labels"/></svg>
<div class="tip" id="tip" role="tooltip" hidden></div></div>
<ul class="legend">
<li><svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof spec assumed" d="M0 4H30"/></svg>
datasheet</li>
<li data-c="best" hidden>
<svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof achievable" d="M0 4H30"/></svg>
best public kernels</li>
<li hidden><svg viewBox="0 0 30 8" aria-hidden="true"><path class="roof clock" d="M0 4H30"/></svg>
<span data-c="clock"></span></li>
<li data-c="trail" hidden>
<svg viewBox="0 0 30 8" aria-hidden="true"><path class="key-line" d="M0 4H24"/>
<circle class="key-dot" cx="25" cy="4" r="3.5"/></svg> measured, with its last three minutes</li>
<li data-c="likely" hidden>
<svg viewBox="0 0 30 8" aria-hidden="true"><path class="key-line" d="M0 4H30"/>
<circle class="key-ring" cx="15" cy="4" r="3"/></svg>
from the job and the driver: counted work, likely traffic</li>
<li data-c="bounds" hidden>
<svg viewBox="0 0 30 8" aria-hidden="true"><path class="key-line" d="M2 0V8M2 4H28M28 0V8"/></svg>
bounds</li>
<li data-c="band" hidden>
<svg viewBox="0 0 30 8" aria-hidden="true"><path class="key-band" d="M0 8V6L20 0H30V8Z"/></svg>
likely traffic, work not known</li>
</ul>
<p class="note"></p>
<p id="selected" hidden><a href="./">Open</a> <span></span></p>
"""
"""The template of the chart, which a script inserts and fills."""


def roofline_figure(rows: Mapping[str, Row]) -> str:
    """Return the template of the chart for a script, and its numbers as a table."""
    numbers = [
        [escape(each) for each in (words["title"], words["point"], words.get("roof", "not known"))]
        for words in (row["words"] for row in rows.values())
        if "point" in words
    ]
    heads = ("GPU", "Work and intensity", "Of the roof")
    return f"""<figure id="roofline">
{data_block("plot", _PLOT)}
<details id="numbers"><summary>The chart as a table</summary>
{table(heads, numbers, ' id="numbers-table"')}</details>
</figure>"""


LINKS = {
    "NV#": "# NVLinks",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge",
    "NODE": "two host bridges of a NUMA node",
    "SYS": "two NUMA nodes",
}
"""By link, with # for a number: what the way between two GPUs leads through."""


def _badge(link: str) -> str:
    return f'<b class="link-{link[:2].lower()}">{escape(link)}</b>'


def _links(gpu: Gpu, gpus: Sequence[Gpu]) -> list[str]:
    device = gpu.device
    links = {peer.uuid: _badge(peer.link) for peer in gpu.peers} | {device.uuid: "·"}
    node = "?" if device.numa_affinity is None else str(device.numa_affinity)
    cells = [links.get(other.device.uuid, "?") for other in gpus]
    return [f"GPU {device.index}", *cells, node, escape(device.cpu_affinity or "?")]


def topology(gpus: Sequence[Gpu]) -> str:
    """Return the table; nothing where no link is known, as on a node of one GPU."""
    known = {peer.link[:2] for gpu in gpus for peer in gpu.peers}
    if not known:
        return ""
    legend = [f"<li>{_badge(link)} {LINKS[link]}</li>" for link in LINKS if link[:2] in known]
    heads = ["", *(str(gpu.device.index) for gpu in gpus), "NUMA node", "CPUs of that node"]
    return (
        "<details><summary>How the GPUs are linked</summary>"
        '<div class="scroll" id="topology" tabindex="0" role="group" '
        'aria-label="How the GPUs are linked">\n'
        f"{table(heads, (_links(gpu, gpus) for gpu in gpus))}\n"
        f'<ul class="legend">{"".join(legend)}</ul></div></details>'
    )


def _headline(view: Mapping[str, Any]) -> str:
    """Return the sentence that matters, with a link to the page of the GPU that it names."""
    text, row = view["headline"], view["rows"].get(view.get("about"))
    name = "" if row is None else row["words"]["title"]
    before, after = text.split(name, 1) if name else (text, "")
    to = 'href="./" hidden' if row is None else f'href="./{escape(row["href"])}"'
    parts = f"<span>{escape(before)}</span><a {to}>{escape(name)}</a><span>{escape(after)}</span>"
    return f'<h1 id="headline">{parts}</h1>'


def node_content(view: Mapping[str, Any], problem: str, gpus: Sequence[Gpu]) -> str:
    """Return the content of the node view: the GPUs in trouble first."""
    rows = view["rows"]
    ordered = dict(sorted(rows.items(), key=lambda item: item[1]["trouble"]))
    return f"""{_headline(view)}
<p id="announced" class="unseen" role="status"></p>
<p id="cause">{escape(view.get("cause", ""))}</p>
<p><a id="advice" href="{escape(view["advice"])}">What this means, and what to change</a></p>
<p id="totals">{escape(view["totals"])}</p>
{problem}
<div id="node"{"" if rows else " hidden"}>
<section aria-labelledby="gpus-title">
{gpu_table("GPUs", view.get("means", ""), ordered)}
<p id="measure">{escape(view.get("measure", ""))}</p>{topology(gpus)}</section>
<section id="chart" aria-labelledby="roofline-title"><h2 id="roofline-title">Roofline</h2>
{roofline_figure(rows)}</section>
</div>"""


_COUNTERS = {
    "pci": "on the PCI bus",
    "driver": "known to the kernel driver",
    "nvml": "listed by the driver library (NVML)",
}
NO_GPU = (
    "Check that nvidia-smi lists the GPUs on this host; if it does not, install or load the "
    "NVIDIA driver.",
    "In a container: start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=utility; on "
    "Kubernetes with runtimeClassName: nvidia.",
    "If the driver library lies in an unusual place, name it: --nvml.library PATH (on WSL2 "
    "/usr/lib/wsl/lib/libnvidia-ml.so.1).",
    "To look around without a GPU, start the exporter with --demo.",
)
GPUS_DOWN = (
    "Look for the GPU's Xid in the kernel log (dmesg); a lost GPU usually needs a reset or a "
    "reboot.",
    "The exporter goes on by itself when the GPU answers again; nothing has to be restarted.",
)
RECORDING_ENDED = (
    "To play it again, restart the exporter; with --replay.loop it is played over and over.",
)


def problem_section(snapshot: Snapshot | None, tried: Sequence[str] = ()) -> str:
    """Return why no GPU is up, what was tried and what to do; empty if one is up."""
    if snapshot is None or snapshot.problem is None:
        return '<div id="problem"></div>'
    what = " ".join(snapshot.problem.split())
    advice: Sequence[str] = GPUS_DOWN if snapshot.gpus else NO_GPU
    counted = [
        f"{count} {_COUNTERS.get(where, where)}" for where, count in snapshot.devices.items()
    ]
    if counted:
        tried = [*tried, f"GPUs counted: {', '.join(counted)}"]
    if recording_ended(what) is not None:
        tried, advice = (), RECORDING_ENDED
    return (
        '<div id="problem"><section aria-labelledby="problem-title">\n'
        f'<h2 id="problem-title">No GPU is up</h2>\n<p>{escape(what)}</p>\n'
        f"{f'<h3>What was tried</h3>{_list(tried)}' if tried else ''}\n"
        f"<h3>What to do</h3>\n{_list(advice)}\n</section></div>"
    )
