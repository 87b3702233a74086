# SPDX-License-Identifier: Apache-2.0
"""Nothing that a client sends stays in memory beyond its request, but what is short."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator

from starlette.testclient import TestClient

MARK = "remember-me-"
LONGEST = 1024


def _kept(depth: int = 6) -> Iterator[str]:
    """Yield the long texts that any lru_cache of the process holds."""
    wrapper = type(functools.lru_cache(len))
    # By type(): isinstance() asks an object for its __class__, and some that others made warn then.
    todo = [found for found in gc.get_objects() if type(found) is wrapper]
    seen = set(map(id, todo))
    for _ in range(depth):
        todo = [
            inner
            for outer in todo
            for inner in gc.get_referents(outer)
            if issubclass(type(inner), (str, bytes, tuple, list, dict)) or "lru" in str(type(inner))
        ]
        todo = [found for found in todo if id(found) not in seen]
        seen |= set(map(id, todo))
        for found in todo:
            text = found.decode("latin-1") if isinstance(found, bytes) else found
            if isinstance(text, str) and len(text) > LONGEST and MARK in text:
                yield text


def test_the_search_finds_what_is_kept() -> None:
    """A text in a cache is seen here."""
    kept = functools.lru_cache(len)
    assert kept(MARK + "x" * LONGEST)
    assert [len(text) for text in _kept()] == [len(MARK) + LONGEST]


def test_no_cache_keeps_what_is_long(client: TestClient) -> None:
    """Neither of a header nor of an address, whatever is asked for."""
    text = MARK + "x" * 20_000
    headers = dict.fromkeys(("accept", "accept-encoding", "host", "cookie", "referer"), text)
    for path in (
        f"/{text}",
        f"/static/{text}/page.css",
        f"/gpu/{text}",
        f"/?{text}",
        f"/?instance={text}",
        f"/metrics?{text}",
        f"/metrics?name[]={text}",
        f"/api/{text}",
        f"/api/v1/gpus/{text}",
        f"/api/v1/gpus/0/history?instance={text}",
        f"/api/v1/roofline/trails?{text}={text}",
        f"/api/v1/gpus?{text}",
    ):
        for accept in (text, f"text/html,{text}", "application/openmetrics-text;version=" + text):
            assert client.get(path, headers={**headers, "accept": accept}).status_code < 500

    assert list(_kept()) == []
