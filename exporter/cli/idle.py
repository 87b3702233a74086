# SPDX-License-Identifier: Apache-2.0
"""``idle``: whether GPUs have been idle for so long, as an exit code for scripts."""

from __future__ import annotations

import json
import sys
from urllib.parse import urlencode

from exporter.cli import config
from exporter.cli.command import Invocation
from exporter.errors import ConfigError, SourceError

IDLE, BUSY, NOT_KNOWN = 0, 1, 2
"""Exit codes. A mistake in the command is 2, too: a script that takes 2 for busy is safe."""
CODES = {"idle": IDLE, "busy": BUSY}
MOST_BYTES = 1 << 20


def add_options(parser: config.Parser) -> None:
    """Add the options of the command."""
    for name, metavar, text in (
        ("gpu", "GPU", "One GPU: 2, 2/1, or a UUID."),
        ("pod", "POD", "The GPUs of a pod: its name, or NAMESPACE/NAME."),
        ("job", "JOB", "Those of a Slurm job or step (4711, 4711.0), or of a training job."),
        ("user", "USER", "Those on which a user has processes."),
    ):
        parser.own.add_argument(f"--{name}", metavar=metavar, help=f"{text} (default: all)")
    parser.own.add_argument(
        "--for",
        dest="for_",
        default="30m",
        metavar="DURATION",
        help="For how long: 90s, 30m, 2h or 1d. (default: 30m)",
    )
    parser.own.add_argument(
        "--json", action="store_true", help="Print the answer of the API at /api/v1/idle."
    )


def run(invocation: Invocation) -> int:
    """Print one line; return 0 if all of these GPUs are idle, 1 if one is busy, else 2."""
    from exporter.cli.daemon_address import daemon_of
    from exporter.cli.http_get import API_SECONDS, get
    from exporter.cli.terminal.screen import encodable, safe
    from exporter.web.idle_for import seconds_of

    settings, options = invocation.settings(), invocation.options
    try:
        seconds_of(options.for_)
    except ValueError as error:
        raise ConfigError(f"--for: {error}, got {options.for_!r}") from None
    asked = {name: getattr(options, name) for name in ("gpu", "pod", "job", "user")}
    query = {"for": options.for_, **{name: each for name, each in asked.items() if each}}
    try:
        path = f"/api/v1/idle?{urlencode(query)}"
        daemon = daemon_of(settings, "idle")
        answer = get(daemon, path, seconds=API_SECONDS, most_bytes=MOST_BYTES)
        state, reason = _read(answer.url, answer.status, answer.body)
    except SourceError as error:
        print(f"not known: {error}", file=sys.stderr)
        return NOT_KNOWN
    said = safe(f"{state.replace('_', ' ')}: {reason}")
    print(answer.body.decode().strip() if options.json else encodable(said, sys.stdout.encoding))
    return CODES.get(state, NOT_KNOWN)


def _read(url: str, status: int, body: bytes) -> tuple[str, str]:
    """Return the state and the reason in a response; raise SourceError where there are none."""
    try:
        said = json.loads(body if status == 200 else b"{}")
        return str(said["state"]), str(said["reason"])
    except (ValueError, LookupError, TypeError, RecursionError):
        got = "another answer" if status == 200 else f"status {status}"
        raise SourceError(f"{url}: expected whether GPUs are idle, got {got}") from None
