# SPDX-License-Identifier: Apache-2.0
"""Error responses: one line of JSON, or a page for a browser outside the API."""

from __future__ import annotations

from html import escape
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from exporter.web.api import SCHEMA_VERSION
from exporter.web.page.document import brand, document, root_from
from exporter.web.static import HEADERS


async def refuse(request: Request, problem: Exception) -> Response:
    """Answer an error in one line."""
    if not isinstance(problem, HTTPException):
        raise problem
    # Not the whole address: urllib keeps what it has split.
    path: str = request.scope["path"]
    text = problem.detail
    if problem.status_code == 404 and text == "Not Found":
        text = f"there is nothing at {path}"
    # A page has only HTML responses, whatever the client accepts.
    is_page = path.startswith("/gpu/") or "text/html" in request.headers.get("accept", "")
    if is_page and not path.startswith("/api/"):
        name = f"{problem.status_code} {HTTPStatus(problem.status_code).phrase}"
        root = root_from(path)
        body = f'<h1>{name}</h1>\n<p>{escape(text)}</p>\n<p><a href="{root}">All GPUs</a></p>'
        top = f'<header><div class="top">{brand(root)}</div></header>'
        page = f'<body>{top}\n<main class="refusal">\n{body}\n</main></body>'
        html = document(f"{name} · roofline-exporter", page, root)
        return HTMLResponse(html, problem.status_code, {**HEADERS, **(problem.headers or {})})
    answer = {"schema_version": SCHEMA_VERSION, "error": text}
    return JSONResponse(answer, problem.status_code, dict(problem.headers or {}))
