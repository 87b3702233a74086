# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, as a folded table on its page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from exporter.model.snapshot import Gpu
from exporter.web.page.document import table

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


def _row(gpu: Gpu, gpus: Sequence[Gpu]) -> list[str]:
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
        f"{table(heads, (_row(gpu, gpus) for gpu in gpus))}\n"
        f'<ul class="legend">{"".join(legend)}</ul></div></details>'
    )
