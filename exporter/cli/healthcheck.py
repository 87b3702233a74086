# SPDX-License-Identifier: Apache-2.0
"""``healthcheck``: whether the daemon is healthy, or ready.

A container runs it every half minute for as long as the daemon lives. So `quick_check` serves the
plain case (HTTP, an address in digits, the answer 200) with nothing but the interpreter: no flag
table, no HTTP library, and of the socket only its part in C. Everything else is left to `run`,
whose imports come late for that reason. Variables other than the daemon's address are not
read in the plain case, for the daemon has read the same ones.
"""

from __future__ import annotations

import _socket
import sys
import time
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False  # importing typing would take longer than the rest
if TYPE_CHECKING:
    from exporter.cli import config
    from exporter.cli.command import Invocation
    from exporter.cli.http_get import DaemonAddress

TIMEOUT_SECONDS = 3.0
MAX_BYTES = 1000

QUICK_SECONDS = 1.0
"""The command asks again after that, and must be done before the container's engine gives up."""
QUICK_BYTES = 4096

_LISTENS, _URL, _READY = "web.listen-address", "url", "--ready"
_LISTENS_VARIABLE, _URL_VARIABLE = "ROOFLINE_WEB_LISTEN_ADDRESS", "ROOFLINE_URL"
_COMPLEX = ("ROOFLINE_CONFIG_FILE", "ROOFLINE_WEB_CONFIG_FILE")
_DEFAULT = ":19400"


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    parser.own.add_argument(
        "--ready",
        action="store_true",
        help="Ask whether a GPU is up, not only whether the daemon runs.",
    )


def run(invocation: Invocation) -> int:
    """Print one line about the daemon; return the exit code."""
    from exporter.cli.command import FAILED, STOPPED
    from exporter.cli.daemon_address import daemon_of
    from exporter.errors import SourceError

    try:
        daemon = daemon_of(invocation.settings(), "healthcheck")
    except SourceError as error:
        is_well, line = False, str(error)
    else:
        is_well, line = check(daemon, ready=invocation.options.ready)
    print(line, file=sys.stdout if is_well else sys.stderr)
    return STOPPED if is_well else FAILED


def check(
    daemon: DaemonAddress, *, ready: bool, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[bool, str]:
    """Ask the daemon; return its verdict and one line about it.

    Raises ConfigError if a file that the settings name cannot be used.
    """
    from exporter.cli.http_get import get
    from exporter.errors import SourceError, one_line

    try:
        answer = get(
            daemon,
            f"/-/{'ready' if ready else 'healthy'}",
            seconds=timeout_seconds,
            most_bytes=MAX_BYTES,
        )
    except SourceError as error:
        return False, str(error)
    text = answer.body.decode("utf-8", "replace").strip()
    return answer.status == 200, one_line(f"{answer.url}: {answer.status} {text}".rstrip())


def quick_check(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Print the daemon's answer and return True; or do neither, for the command to go on.

    `words` follow the command's name.
    """
    found = _plain_target(words, environ)
    if found is None:
        return False
    host, port, path = found
    try:
        line = _quick_get(host, port, path)
    except (OSError, ValueError):
        return False
    if line is None:
        return False
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        return False
    return True


def _plain_target(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int, str] | None:
    """Return host, port and path of what to ask, if flags and variables are plain."""
    if any(environ.get(name) for name in _COMPLEX):
        return None
    if any(name.startswith(f"{_URL_VARIABLE}_") for name in environ):
        return None
    given = {_LISTENS: environ.get(_LISTENS_VARIABLE), _URL: environ.get(_URL_VARIABLE)}
    page, rest = "/-/healthy", list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word == _READY:
            page = "/-/ready"
        elif word.startswith("--") and name in given and (equals or rest):
            given[name] = value if equals else rest.pop(0)
            if name == _LISTENS and not given[name]:
                return None
        else:
            return None
    if given[_URL]:
        place = str(given[_URL]).removeprefix("http://").removesuffix("/")
        host, _, port = place.rpartition(":")
    else:
        host, _, port = (given[_LISTENS] or _DEFAULT).rpartition(":")
        host = host if host not in ("", "0.0.0.0") else "127.0.0.1"
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536 and len(port) <= 5):
        return None
    if not (host.isascii() and host.replace(".", "").isdecimal() and host.count(".") == 3):
        return None
    return host, int(port), page


def _quick_get(host: str, port: int, page: str) -> str | None:
    """Return the line about an answer with 200, else None."""
    deadline = time.monotonic() + QUICK_SECONDS
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        connection.settimeout(QUICK_SECONDS)
        connection.connect((host, port))
        connection.sendall(
            f"GET {page} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        data = b""
        while part := connection.recv(QUICK_BYTES):
            data += part
            if len(data) > QUICK_BYTES or time.monotonic() > deadline:
                return None
    finally:
        connection.close()
    head, _, body = data.decode("ascii").partition("\r\n\r\n")
    status, _, headers = head.partition("\r\n")
    text = body.strip()
    if not status.startswith("HTTP/1.1 200 ") or "transfer-encoding" in headers.lower():
        return None
    line = f"http://{host}:{port}{page}: 200 {text}".rstrip()
    return line if line.isprintable() else None
