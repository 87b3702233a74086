# SPDX-License-Identifier: Apache-2.0
"""A past for what rules record: rules that read it over hours shall find it there.

What a server records now, it is given for the time before too. That is older than the first sample
of the series, so that the server must take samples out of order.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.prometheus.thresholds import seconds
from tests.benchmarks.remote_write import (
    encode_labels,
    encode_samples,
    encode_series,
    requests,
    write,
)
from tests.e2e.prometheus import PrometheusServer

STEP_SECONDS = 30
REQUEST_SERIES = 200
_READ = re.compile(r"([a-z]+:[\w:]+)(?:\{[^}]*\})?\[(\w+)\]")


def windows(expressions: Sequence[str], shortest: float) -> dict[str, float]:
    """Return what rules read of other rules' results for long, with the longest window in s."""
    found: dict[str, float] = {}
    for expression in expressions:
        for name, window in _READ.findall(expression):
            found[name] = max(found.get(name, 0.0), seconds(window))
    return {name: window for name, window in found.items() if window > shortest}


def past(series: Mapping[str, Any], span: float) -> bytes:
    """Return a result of an instant query as the value it had during the seconds before."""
    at, value = series["value"]
    steps = range(int(span // STEP_SECONDS), 1, -1)
    samples = encode_samples(
        (int((at - step * STEP_SECONDS) * 1000), float(value)) for step in steps
    )
    return encode_series(encode_labels(series["metric"]), samples)


def fill(server: PrometheusServer, spans: Mapping[str, float], within_seconds: float) -> list[str]:
    """Give each of these families its past once it has a present; return those that had one.

    A family may come only after the past of the one that it is recorded from.
    """
    filled: list[str] = []
    end = time.monotonic() + within_seconds
    while len(filled) < len(spans) and time.monotonic() < end:
        threading.Event().wait(1.0)
        for name in [name for name in spans if name not in filled]:
            found = server.query(name)
            for request in requests((past(one, spans[name]) for one in found), REQUEST_SERIES):
                write(f"http://{server.address}", request)
            if found:
                filled.append(name)
    return filled
