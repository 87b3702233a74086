# SPDX-License-Identifier: Apache-2.0
"""``healthcheck``: whether the daemon is healthy, or ready.

A container runs it every half minute for as long as the daemon lives. So `quick_check` serves the
image's case (HTTP on loopback, no flag but --ready, the answer 200) with nothing but the
interpreter: no flag table, no HTTP library, and of the socket only its part in C. Everything else
is left to `run`, whose imports come late for that reason. Other variables are not read in that
case, for the daemon has read the same ones.
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

_LISTENS, _DEFAULT = "ROOFLINE_WEB_LISTEN_ADDRESS", ":19400"
_LOOPBACK = ("", "0.0.0.0", "127.0.0.1")
_COMPLEX = ("ROOFLINE_URL", "ROOFLINE_CONFIG_FILE", "ROOFLINE_WEB_CONFIG_FILE")
"""How variables begin that leave it to the command."""


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


def check(daemon: DaemonAddress, *, ready: bool) -> tuple[bool, str]:
    """Ask the daemon; return its verdict and one line about it.

    Raises ConfigError if a file that the settings name cannot be used.
    """
    from exporter.cli.http_get import get
    from exporter.errors import SourceError, one_line

    try:
        page = "/-/ready" if ready else "/-/healthy"
        answer = get(daemon, page, seconds=TIMEOUT_SECONDS, most_bytes=MAX_BYTES)
    except SourceError as error:
        return False, str(error)
    text = answer.body.decode("utf-8", "replace").strip()
    return answer.status == 200, one_line(f"{answer.url}: {answer.status} {text}".rstrip())


def quick_check(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Print the daemon's answer and return True; if that is not possible, do nothing.

    `words` follow the command's name.
    """
    host, _, port = (environ.get(_LISTENS) or _DEFAULT).rpartition(":")
    is_plain = host in _LOOPBACK and port.isascii() and port.isdecimal() and len(port) <= 5
    if not is_plain or list(words) not in ([], ["--ready"]):
        return False
    if any(environ[name] for name in environ if name.startswith(_COMPLEX)):
        return False
    try:
        line = _quick_get(int(port), "/-/ready" if words else "/-/healthy")
        if line is not None:
            print(line, flush=True)
    except (OSError, ValueError, OverflowError):
        return False
    return line is not None


def _quick_get(port: int, page: str) -> str | None:
    """Return the line about an answer with 200, else None."""
    deadline = time.monotonic() + QUICK_SECONDS
    place = f"127.0.0.1:{port}"
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        connection.settimeout(QUICK_SECONDS)
        connection.connect(("127.0.0.1", port))
        connection.sendall(
            f"GET {page} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n".encode()
        )
        data = b""
        while part := connection.recv(QUICK_BYTES):
            data += part
            if len(data) > QUICK_BYTES or time.monotonic() > deadline:
                return None
    finally:
        connection.close()
    head, _, body = data.decode("ascii").partition("\r\n\r\n")
    if not head.startswith("HTTP/1.1 200 ") or "transfer-encoding" in head.lower():
        return None
    line = f"http://{place}{page}: 200 {body.strip()}".rstrip()
    return line if line.isprintable() else None
