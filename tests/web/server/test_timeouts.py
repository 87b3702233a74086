# SPDX-License-Identifier: Apache-2.0
"""When a connection has timed out: for every phase and moment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.server.limits import Activity, Limits, Phase, timed_out

LIMITS = Limits()
NOW = 1000.0
AGES = st.floats(0, 200)
MOMENTS = AGES.map(lambda age: NOW - age)
ACTIVITIES = st.builds(
    Activity,
    st.sampled_from(Phase),
    MOMENTS,
    st.sampled_from([0, 1, 1 << 20]),
    MOMENTS,
    st.none() | MOMENTS,
)


@pytest.mark.parametrize(
    ("phase", "seconds", "reason"),
    [
        (Phase.HANDSHAKE, 10, "handshake"),
        (Phase.HEAD, 10, "head_timeout"),
        (Phase.ANSWERING, 60, "stalled"),
        (Phase.IDLE, 75, "idle"),
        (Phase.CLOSING, 2, "closed"),
    ],
)
def test_each_phase_has_its_time(phase: Phase, seconds: float, reason: str) -> None:
    """From its first moment; only a stream may last."""
    assert timed_out(Activity(phase, NOW - seconds + 0.1), NOW, LIMITS) is None
    assert timed_out(Activity(phase, NOW - seconds), NOW, LIMITS) == reason
    assert timed_out(Activity(Phase.STREAMING, 0.0), NOW, LIMITS) is None


@given(ACTIVITIES)
def test_no_connection_lasts_forever(activity: Activity) -> None:
    """But a stream with nothing to send, or whose client reads; a byte now and then is too slow."""
    later = NOW + 75
    ends = timed_out(activity, later, LIMITS)
    assert ends or (activity.phase is Phase.STREAMING and not activity.unsent_bytes)
    ends = timed_out(replace(activity, progressed=later), later, LIMITS)
    assert ends or activity.phase is Phase.STREAMING
