# SPDX-License-Identifier: Apache-2.0
"""Whether the daemon answers that it is healthy, or ready; needs the standard library only."""

from __future__ import annotations

from exporter.cli.ask import get
from exporter.errors import SourceError, one_line

TIMEOUT_SECONDS = 3.0
MAX_BYTES = 1000


def check(url: str, *, ready: bool, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[bool, str]:
    """Ask the daemon whose pages start at `url`; return its verdict and one line about it.

    Raises ConfigError for a `url` that is none.
    """
    try:
        answer = get(
            url,
            f"/-/{'ready' if ready else 'healthy'}",
            connect_seconds=timeout_seconds,
            answer_seconds=timeout_seconds,
            most_bytes=MAX_BYTES,
        )
    except SourceError as error:
        return False, str(error)
    told = answer.body.decode("utf-8", "replace").strip()
    return answer.status == 200, one_line(f"{answer.url}: {answer.status} {told}".rstrip())
