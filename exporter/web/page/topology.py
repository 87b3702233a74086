# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are linked with each other, as a folded table on its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""By link: what the way between two GPUs leads through; the fastest first."""


def _kind(link: str) -> str:
    return link if link in LINKS else "NV#"


def _look(kind: str) -> str:
    return f"link-{kind.rstrip('#').lower()}"


def _cell(link: str | None) -> str:
    if link is None:
        return "<td>?</td>"
    return f'<td class="{_look(_kind(link))}"><b>{escape(link)}</b></td>'


def _row(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    device, links = gpu.device, {peer.uuid: peer.link for peer in gpu.peers}
    cells = "".join(
        "<td>·</td>" if other is gpu else _cell(links.get(other.device.uuid)) for other in gpus
    )
    node = "?" if device.numa_affinity is None else str(device.numa_affinity)
    return (
        f'<tr><th scope="row">GPU {device.index}</th>{cells}'
        f"<td>{node}</td><td>{escape(device.cpu_affinity or '?')}</td></tr>"
    )


def _legend(known: Iterable[str]) -> str:
    kinds = set(map(_kind, known))
    return "".join(
        f'<li class="{_look(kind)}"><b>{kind}</b> {means}</li>'
        for kind, means in LINKS.items()
        if kind in kinds
    )


def topology(gpus: Sequence[Gpu]) -> str:
    """Return the table; nothing where no link is known, as on a node of one GPU."""
    known = [peer.link for gpu in gpus for peer in gpu.peers]
    if not known:
        return ""
    heads = "".join(f'<th scope="col">{gpu.device.index}</th>' for gpu in gpus)
    return (
        "<details><summary>How the GPUs are linked</summary>"
        '<div class="scroll" id="topology" tabindex="0" role="group" '
        f'aria-label="How the GPUs are linked">\n<table><thead><tr><td></td>{heads}'
        '<th scope="col">NUMA node</th><th scope="col">CPUs of that node</th></tr></thead>\n'
        f"<tbody>{''.join(_row(gpu, gpus) for gpu in gpus)}</tbody></table>\n"
        f'<ul class="legend">{_legend(known)}</ul></div></details>'
    )
