# SPDX-License-Identifier: Apache-2.0
"""Get a snapshot from the daemon or, without one, by reading the GPUs in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from exporter import log
from exporter.cli.config import Settings
from exporter.cli.daemon_address import daemon_of
from exporter.cli.http_get import API_SECONDS, Answer, DaemonAddress, get
from exporter.errors import SourceError
from exporter.model.snapshot import Snapshot
from exporter.web.api.read import UnexpectedError, snapshot_of

PATH = "/api/v1/gpus"
MOST_BYTES = 32 * 1024 * 1024
OLD_SECONDS = 5.0
"""A notice names the age of an older snapshot."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A snapshot, and its JSON in one line."""

    text: str
    snapshot: Snapshot
    notices: tuple[str, ...] = ()
    since_start: bool = False
    """Whether this process has just started to read, so that idle times are not known."""


Reader = Callable[[], Reply]
"""Returns the latest snapshot; raises SourceError with one line."""


def ask_daemon(daemon: DaemonAddress) -> Reply:
    """Return the reply of the daemon, which may be newer; raises SourceError with one line."""
    answer = get(daemon, PATH, seconds=API_SECONDS, most_bytes=MOST_BYTES)
    if answer.status != 200:
        raise SourceError(f"{answer.url}: expected status 200, got {answer.status}")
    found = read_answer(answer.url, answer.body)
    return Reply(answer.body.decode("utf-8", "replace").strip(), found, _age(answer, found))


def read_answer(url: str, body: bytes) -> Snapshot:
    """Return the snapshot in a response of `url`; raises SourceError with one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or "gpus" not in value:
        raise SourceError(f"{url}: expected the JSON of a roofline-exporter")
    try:
        return snapshot_of(value)
    except UnexpectedError as error:
        raise SourceError(f"{url}: {error} (is the daemon of another version?)") from None


def _age(answer: Answer, found: Snapshot) -> tuple[str, ...]:
    """Return a notice if the snapshot is old by the daemon's clock."""
    if not found.timestamp_seconds:  # there is none yet
        return ()
    try:
        age = parsedate_to_datetime(answer.date or "").timestamp() - found.timestamp_seconds
    except (ValueError, TypeError, OverflowError):
        return ()
    return (f"these readings are {age:.0f} s old",) if age >= OLD_SECONDS else ()


def snapshot_reader(settings: Settings, stack: ExitStack, command: str) -> tuple[Reader, bool]:
    """Return a reader that asks the daemon or, without one, the GPUs; and True for the latter.

    Raises SourceError with one line if `--url` names a daemon that does not answer, or nothing can
    be read.
    """
    try:
        daemon = daemon_of(settings, command)
        first = [ask_daemon(daemon)]
        return (lambda: first.pop() if first else ask_daemon(daemon)), False
    except SourceError as error:
        if settings.url is not None:
            raise
        why = str(error)
    log.setup(settings.log_level if "log.level" in settings.given else "error", settings.log_format)
    return stack.enter_context(local_reader(settings, why)), True


@contextmanager
def local_reader(settings: Settings, why: str) -> Iterator[Reader]:
    """Read the GPUs in this process as the daemon does, at most once per poll interval.

    `why` says why no daemon answers. Raises SourceError with one line if no GPU can be read.
    """
    from exporter.cli.wiring import looking, read_again
    from exporter.web.api.convert import gpus_answer
    from exporter.web.api.models.json import json_text

    notice = f"no daemon ({why}): idle time is unknown"
    due: float | None = None

    def read() -> Reply:
        nonlocal due
        if due is None:
            snapshot = read_again(parts)
        else:
            time.sleep(max(0.0, due - time.monotonic()))
            snapshot = parts.publisher.tick()
        due = time.monotonic() + settings.poll_interval_seconds
        return Reply(json_text(gpus_answer(snapshot)), snapshot, (notice,), since_start=True)

    with looking(settings) as (parts, problem):
        if problem is not None:
            raise SourceError(f"no daemon ({why}), and {problem}")
        yield read
