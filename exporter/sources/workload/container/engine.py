# SPDX-License-Identifier: Apache-2.0
"""Names of containers, by the API of Docker or Podman over a Unix socket."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import quote

from exporter.exchange import Deadline, TooMuch, roundtrip
from exporter.model.workload import Workload
from exporter.sources.poller import Unreadable

TOTAL_SECONDS = 3.0
MOST_BYTES = 4_000_000
"""Of an answer; that of one container has one to three kilobytes."""
MOST_CONTAINERS = 256
"""The most in one request, so that its line stays short."""
NOBODY = "0" * 64
"""A filter without any id would list all containers."""

_RUNTIMES = {"Docker": "docker", "Libpod": "podman"}
"""By the word with which the header Server begins."""
_NAME = re.compile(r"/?([A-Za-z0-9][A-Za-z0-9_.-]{0,254})")
"""What both accept as a name, of bounded length; what has another slash is a link's."""
_OF_THE_KUBELET = "io.kubernetes.pod.uid"
"""The label of a container that Docker runs for a kubelet, which has a better name for it."""

_FOREIGN = "does not answer as Docker and Podman do"


def names(path: str, ids: Collection[str]) -> dict[str, Workload]:
    """Return the names, by id, of those of these containers that the engine at a socket runs.

    Raises:
        FileNotFoundError: nothing listens there.
        PermissionError: it may not be opened.
        Unreadable: it cannot be understood, or takes too long.
    """
    wanted = frozenset(sorted(ids)[:MOST_CONTAINERS])
    try:
        answer, body = _get(path, wanted)
        listed = json.loads(body) if answer.status == http.client.OK else []
    except (http.client.HTTPException, ValueError, RecursionError):
        raise Unreadable(f"{path} {_FOREIGN}") from None
    if answer.status != http.client.OK:
        raise Unreadable(f"{path} answers with status {answer.status}")
    if not isinstance(listed, list):
        raise Unreadable(f"{path} {_FOREIGN}")
    runtime = _RUNTIMES.get((answer.getheader("Server") or "").partition("/")[0], "")
    return {each.id: each for each in _named(listed, runtime) if each.id in wanted}


def _get(path: str, ids: Collection[str]) -> tuple[http.client.HTTPResponse, bytes]:
    """Get the list of the containers with these ids, and its body.

    Raises:
        http.client.HTTPException: the answer is not HTTP.
    """
    filters = quote(json.dumps({"id": sorted(ids) or [NOBODY]}, separators=(",", ":")))
    # HTTP/1.0: the answer ends with the connection, and comes in one piece. No version of the API:
    # there is none that all take (Docker 20.10 has none above 1.41, Docker 29 none below 1.44).
    question = f"GET /containers/json?filters={filters} HTTP/1.0\r\nHost: localhost\r\n\r\n"
    deadline = Deadline(TOTAL_SECONDS)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.settimeout(deadline.left())
            engine.connect(path)
            with roundtrip(engine, question.encode(), deadline, MOST_BYTES) as response:
                return response, response.read()
    except TooMuch:
        raise Unreadable(f"{path} answers with more than {MOST_BYTES // 1_000_000} MB") from None
    except TimeoutError:
        raise Unreadable(f"{path} has no whole answer within {TOTAL_SECONDS:g} s") from None
    except (NotADirectoryError, ConnectionRefusedError):
        raise FileNotFoundError from None
    except (FileNotFoundError, PermissionError, http.client.HTTPException):
        raise
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _named(listed: list[Any], runtime: str) -> Iterator[Workload]:
    """Yield the containers of an answer that have a name; other entries are left out."""
    for entry in listed:
        if not isinstance(entry, dict):
            continue
        number, called, labels = entry.get("Id"), entry.get("Names"), entry.get("Labels")
        if isinstance(labels, dict) and _OF_THE_KUBELET in labels:
            continue
        name = next(filter(None, map(_name, called if isinstance(called, list) else ())), None)
        if isinstance(number, str) and name is not None:
            yield Workload("container", container=name, id=number, runtime=runtime)


def _name(text: Any) -> str | None:
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else found[1]
