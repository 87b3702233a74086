# SPDX-License-Identifier: Apache-2.0
"""The frame of every HTML page: head, banner, state of the connection, links."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from exporter import __version__
from exporter.web.static import asset_path
from exporter.web.wording.numbers import clock_time, iso_time
from exporter.web.wording.summary import DOCUMENTATION

FEW, MANY = 2, 16
"""Up to FEW rows the chart is below the table, above MANY the table is compact; as in
static/node.js."""
LINKS = (
    ("metrics", "Metrics"),
    ("api/v1/gpus", "GPUs as JSON"),
    ("api/v1/roofline", "Rooflines as JSON"),
    ("api/v1/training", "Training as JSON"),
    ("-/ready", "Readiness"),
    ("api/openapi.json", "API schema"),
)


def root_from(path: str) -> str:
    """Return the address of ``/`` from the page at `path`, such as ``../`` from ``/gpu/0``.

    Pages link relative to themselves: a proxy may serve them below a path of its own.
    """
    return "../" * (path.count("/") - 1) or "./"


def document(
    title: str,
    body: str,
    root: str,
    *,
    scripts: Sequence[str] = (),
    modules: Sequence[str] = (),
) -> str:
    """Return a whole HTML document of a page whose `root_from` is `root`.

    `title` is text, `body` is HTML, the others are assets.
    """

    def address(name: str) -> str:
        return root + asset_path(name)

    head = [f'<link rel="icon" href="{address("icon.svg")}" type="image/svg+xml">']
    head += [f'<link rel="stylesheet" href="{address("page.css")}">']
    head += [f'<script defer src="{address(name)}"></script>' for name in scripts]
    # Preloaded modules are fetched in parallel, not when the importing one has been parsed.
    head += [f'<link rel="modulepreload" href="{address(name)}">' for name in modules[1:]]
    head += [f'<script type="module" src="{address(name)}"></script>' for name in modules[:1]]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n" + "\n".join(head) + f"\n</head>\n{body}\n</html>\n"
    )


def table(heads: Iterable[str], rows: Iterable[Sequence[str]], attributes: str = "") -> str:
    """Return a table of HTML; the first cell of each row is its heading."""
    head = "".join(f'<th scope="col">{each}</th>' if each else "<td></td>" for each in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th><td>{"</td><td>".join(rest)}</td></tr>\n'
        for first, *rest in rows
    )
    return f"<table{attributes}><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def data_block(name: str, data: Any) -> str:
    """Return JSON for a script in an element of its own; markup in it is escaped."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def brand(root: str, attributes: str = "") -> str:
    """Return the product's name, a link to the node's page."""
    return f'<a class="brand" href="{root}"{attributes}>roofline-exporter</a>'


def frame(view: Mapping[str, Any], content: str, root: str) -> str:
    """Return the body of a page with its content.

    Scripts update the banner; it is not `hidden`, because text browsers show hidden text.
    """
    read = view.get("timestamp")
    when = "" if read is None else f' datetime="{iso_time(read)}"'
    shown = "not read yet" if read is None else clock_time(read)
    home = root == root_from("/")
    here = ' aria-current="page"' if home else ""
    rows = len(view["rows"])
    look = "many" if rows > MANY else "few" if rows <= FEW else ""
    links = [f'<a href="{root}{path}">{text}</a>' for path, text in LINKS]
    links.append(f'<a href="{DOCUMENTATION}">Documentation</a>')
    return f"""<body{f' class="{look}"' if home and look else ""}>
<a class="skip" href="#content">Skip to the content</a>
<header><div class="top">{brand(root, here)}
<p id="connection"><span class="dot" aria-hidden="true"></span>
<span role="status" data-c="word">as of</span> <time id="read"{when}>{shown}</time></p></div>
<p id="banner" role="note">{escape(view.get("notice", ""))}</p></header>
<main id="content">
{content}
</main>
<footer><p>{" · ".join(links)}</p><p>roofline-exporter {escape(__version__)}</p></footer>
{data_block("view", view)}
</body>"""
