# SPDX-License-Identifier: Apache-2.0
"""Static files of the pages; the URL contains a digest of their content."""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.web.responses import answer

FOLDER = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Other files in the folder are not served."""
DIGEST_LENGTH = 12

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HEADERS = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
"""Of every page."""
ASSET_HEADERS = {
    **SECURITY_HEADERS,
    "Cache-Control": "public, max-age=31536000, immutable",
}


class _Asset(NamedTuple):
    content_type: str
    plain: bytes
    zipped: bytes


@lru_cache(maxsize=1)
def _assets() -> tuple[str, dict[str, _Asset]]:
    """Read the folder, once; return the files, and one digest: scripts load each other by name."""
    total = hashlib.sha256()
    files = {}
    for path in sorted(FOLDER.rglob("*")):
        content_type = CONTENT_TYPES.get(path.suffix)
        if content_type is None or not path.is_file():
            continue
        name, plain = path.relative_to(FOLDER).as_posix(), path.read_bytes()
        total.update(f"{name}\0{len(plain)}\0".encode())
        total.update(plain)
        files[name] = _Asset(content_type, plain, gzip.compress(plain, 9, mtime=0))
    return total.hexdigest()[:DIGEST_LENGTH], files


def asset_path(name: str) -> str:
    """Return where below ``/`` a file of the folder is: ``page.css`` or ``uplot/uPlot.min.css``."""
    digest, files = _assets()
    if name not in files:
        raise KeyError(name)
    return f"static/{digest}/{name}"


def static_routes() -> list[Route]:
    """Return ``/static/DIGEST/NAME``; an address of another release is not found."""
    digest, files = _assets()

    async def asset(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None or request.path_params["digest"] != digest:
            raise HTTPException(404)
        return answer(request, found.plain, found.content_type, ASSET_HEADERS, found.zipped)

    return [Route("/static/{digest}/{name:path}", asset)]
