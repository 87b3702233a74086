# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, as a folded table on its page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from exporter.model.snapshot import Gpu

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
    return f'<b class="link-{link.rstrip("#0123456789").lower()}">{escape(link)}</b>'


def _row(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    device = gpu.device
    links = {peer.uuid: _badge(peer.link) for peer in gpu.peers} | {device.uuid: "·"}
    cells = "".join(f"<td>{links.get(other.device.uuid, '?')}</td>" for other in gpus)
    node = "?" if device.numa_affinity is None else device.numa_affinity
    return (
        f'<tr><th scope="row">GPU {device.index}</th>{cells}'
        f"<td>{node}</td><td>{escape(device.cpu_affinity or '?')}</td></tr>"
    )


def topology(gpus: Sequence[Gpu]) -> str:
    """Return the table; nothing where no link is known, as on a node of one GPU."""
    known = [peer.link for gpu in gpus for peer in gpu.peers]
    if not known:
        return ""
    legend = "".join(
        f"<li>{_badge(link)} {means}</li>"
        for link, means in LINKS.items()
        if any(each.startswith(link.rstrip("#")) for each in known)
    )
    heads = "".join(f'<th scope="col">{gpu.device.index}</th>' for gpu in gpus)
    return (
        "<details><summary>How the GPUs are linked</summary>"
        '<div class="scroll" id="topology" tabindex="0" role="group" '
        f'aria-label="How the GPUs are linked">\n<table><thead><tr><td></td>{heads}'
        '<th scope="col">NUMA node</th><th scope="col">CPUs of that node</th></tr></thead>\n'
        f"<tbody>{''.join(_row(gpu, gpus) for gpu in gpus)}</tbody></table>\n"
        f'<ul class="legend">{legend}</ul></div></details>'
    )
