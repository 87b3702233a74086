# SPDX-License-Identifier: Apache-2.0
"""What a row of the live view is called, and where its page and its history are."""

from __future__ import annotations

from urllib.parse import quote

from exporter.model.reading import share_name


def row_key(uuid: str, gpu_instance: int | None) -> str:
    """Return the name of a row: the GPU's UUID, or UUID/instance."""
    return share_name(uuid, gpu_instance)


def _parts(key: str) -> tuple[str, str]:
    uuid, _, instance = key.partition("/")
    return quote(uuid, safe=""), f"?instance={instance}" if instance else ""


def page_address(key: str) -> str:
    """Return the address of a row's own page."""
    name, query = _parts(key)
    return f"/gpu/{name}{query}"


def history_address(key: str) -> str:
    """Return where the history of a row is asked for."""
    name, query = _parts(key)
    return f"/api/v1/gpus/{name}/history{query}"
