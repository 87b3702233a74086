# SPDX-License-Identifier: Apache-2.0
"""One GET of a page, with a limit for all of its time and for its size."""

from __future__ import annotations

import base64
import http.client
import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from exporter.exchange import Deadline, TooMuch, connected, get_lines, roundtrip
from exporter.sources.proc.tcp import accepted_by

MOST_BYTES = 4_000_000
"""Of a page. A node with 16 GPUs and a long list of metrics has a tenth."""
TOTAL_SECONDS = 1.0
TOO_LARGE = f"its page has more than {MOST_BYTES // 1_000_000} MB"
BROKEN = "its answer is not HTTP, or ends too early"

ACCEPT_SECONDS = 0.02
OVERFLOW_UID = 65534
"""What every user is called that a user namespace has no name for."""


class ScrapeFailed(Exception):
    """The scrape failed; the reason in one line, without anything that the server sent."""


class NothingThere(ScrapeFailed):
    """Nothing listens at the address, or nothing that can be reached."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a page, and the credentials for it."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    procfs: Path | None = None
    """Where to see who answers, for an address that nobody has configured: root or this user. Else
    any user of the node could invent counters there. None: whoever does is believed."""


def fetch(target: Target, total_seconds: float = TOTAL_SECONDS) -> str:
    """Return the text of a page.

    Raises:
        ScrapeFailed: it is not there, not in time, too large, or no text.
    """
    try:
        return _fetch(target, Deadline(total_seconds))
    except TimeoutError:
        raise ScrapeFailed(f"no whole answer within {total_seconds:g} s") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "it failed"
        raise ScrapeFailed(f"TLS: {reason}") from None
    except TooMuch:
        raise ScrapeFailed(TOO_LARGE) from None
    except (http.client.HTTPException, ValueError):
        raise ScrapeFailed(BROKEN) from None
    except OSError as error:
        raise ScrapeFailed(_words(error)) from None


def _words(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _fetch(target: Target, deadline: Deadline) -> str:
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    try:
        opened = connected(host, port, deadline, context)
    except ssl.SSLError:
        raise
    except OSError as error:
        raise NothingThere(_words(error)) from None
    with opened:
        if target.procfs is not None:
            _check_owner(opened, target, target.procfs, deadline)
        request = _request(target, host, port)
        with roundtrip(opened, request, deadline, MOST_BYTES) as response:
            return _text(response)


def _check_owner(opened: socket.socket, target: Target, procfs: Path, deadline: Deadline) -> None:
    """Wait until the connection is accepted; raise ScrapeFailed if by an untrusted user."""
    who = "nobody of this network namespace"
    with suppress(TimeoutError):
        while (uid := accepted_by(opened, procfs)) is None:
            time.sleep(min(ACCEPT_SECONDS, deadline.left()))
        if uid in {0, os.geteuid()} - {OVERFLOW_UID}:
            return
        who = f"user {uid}, neither root nor this one,"
    raise ScrapeFailed(f"{who} answers there: it is asked with --dcgm.url={target.url} only")


def _request(target: Target, host: str, port: int) -> bytes:
    parts = urlsplit(target.url)
    headers = {"Accept": "text/plain", "Accept-Encoding": "identity"}
    if target.user is not None:
        pair = f"{target.user}:{target.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    where = parts.path + (f"?{parts.query}" if parts.query else "")
    return get_lines(where, host, port, headers)


def _text(response: http.client.HTTPResponse) -> str:
    """Return the body of an answer; raise ScrapeFailed if it is no page of text."""
    if response.status != http.client.OK:
        raise ScrapeFailed(f"it answers {response.status}")
    if response.headers.get_content_type() != "text/plain":
        raise ScrapeFailed("its answer is not plain text")
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise ScrapeFailed("its answer is compressed in a way that was not asked for")
    return response.read().decode("utf-8", "replace")
